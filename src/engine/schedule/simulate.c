/* simulate: memory over time, idle shares and the critical path of a step, from the times of its actions
 * (simulate_spans.c). */
#include "engine/schedule/simulate.h"

/* Inserts a change by time. The list is almost sorted already, so insertion is fast. */
static void insert_change(SimRank *r, double at, double bytes)
{
    int i = r->n_memory++;
    for (; i > 0 && r->memory[i - 1].at > at; i--) r->memory[i] = r->memory[i - 1];
    r->memory[i] = (MemoryPoint){ at, bytes };
}

/* Turns changes into totals, and finds the peak. */
static void sum_changes(SimRank *r)
{
    for (int i = 0; i < r->n_memory; i++) {
        if (i > 0) r->memory[i].bytes += r->memory[i - 1].bytes;
        if (r->memory[i].bytes <= r->peak_bytes) continue;
        r->peak_bytes = r->memory[i].bytes;
        r->peak_at = r->memory[i].at;
    }
}

/* What an action allocates when it starts, or frees when it ends. */
static void add_slot_changes(const Program *p, const Action *x, SlotBytes b, const SimSpan *span,
                             SimRank *r)
{
    bool begins = x->first == 0, ends = x->end == action_row(p, x)->n;
    switch (x->kind) {
    case ACTION_FORWARD:
        if (begins) insert_change(r, span->start, b.input + b.weight);
        break;
    case ACTION_BACKWARD:
        if (ends) insert_change(r, span->end, -b.input - b.weight);
        break;
    case ACTION_BACKWARD_INPUT:
        if (begins) insert_change(r, span->start, b.gradients);
        if (ends) insert_change(r, span->end, -b.input);
        break;
    case ACTION_BACKWARD_WEIGHT:
        if (ends) insert_change(r, span->end, -b.weight - b.gradients);
        break;
    default: break;
    }
}

static Status memory_over_time(const Program *p, const SimCost *cost, Arena *a, SimRank *r)
{
    TRY(ARENA_NEW(a, 2 * p->n + 1, &r->memory));
    insert_change(r, 0, cost->entry_bytes * p->entries);
    for (int i = 0; i < p->n; i++) {
        const Action *x = &p->at[i];
        if (x->slot < 0) continue;
        add_slot_changes(p, x, cost->slot(cost->ctx, p->rank, x->chunk), &r->span[i], r);
    }
    sum_changes(r);
    return OK;
}

/* The action that ends last. Of several that end at once the first one, so the critical path is
 * deterministic. */
static SimStep last_step(const Pipeline *p, const Simulation *s)
{
    SimStep last = { 0, 0 };
    for (int r = 0; r < p->stages; r++) {
        for (int i = 0; i < p->rank[r].n; i++) {
            if (s->rank[r].span[i].end > s->rank[last.rank].span[last.action].end) {
                last = (SimStep){ r, i };
            }
        }
    }
    return last;
}

static const SimSpan *span_of(const Simulation *s, SimStep at)
{
    return &s->rank[at.rank].span[at.action];
}

/* Follows the causes from the last action back to the start of the step. */
static Status critical_path(SimStep last, Arena *a, Simulation *s)
{
    const SimSpan *span = span_of(s, last);
    s->n_path = 1;
    for (; span->cause >= 0; s->n_path++) span = &s->rank[span->cause_rank].span[span->cause];
    TRY(ARENA_NEW(a, s->n_path, &s->path));
    for (int n = s->n_path; n-- > 0;) {
        s->path[n] = last;
        span = span_of(s, last);
        last = (SimStep){ span->cause_rank, span->cause };
    }
    return OK;
}

/* Busy time is of the compute lane alone. Transfers are counted at the sender, so each counts
 * once. */
static void sum_rank(const Program *p, double step, SimRank *r)
{
    for (int i = 0; i < p->n; i++) {
        double s = r->span[i].end - r->span[i].start;
        if (p->at[i].lane == LANE_COMPUTE) r->busy += s, r->slowed += r->span[i].slowed;
        if (action_is_send(p->at[i].kind)) r->transfer += s;
    }
    r->bubble = step > 0 ? 1 - r->busy / step : 0;
}

/* Spans come first, because everything else follows from them. A caller that gives no slot sizes
 * gets no memory. */
Status simulate_run(const Pipeline *p, const SimCost *cost, Arena *a, Simulation *out)
{
    Simulation s = { 0 };
    SimSpan **spans = NULL;
    TRY(ARENA_ZEROED(a, p->stages, &s.rank));
    TRY(ARENA_NEW(a, p->stages, &spans));
    TRY(simulate_spans(p, cost, a, spans));
    for (int r = 0; r < p->stages; r++) s.rank[r].span = spans[r];
    SimStep last = last_step(p, &s);
    s.step = span_of(&s, last)->end;
    for (int r = 0; r < p->stages; r++) {
        sum_rank(&p->rank[r], s.step, &s.rank[r]);
        if (cost->slot != NULL) TRY(memory_over_time(&p->rank[r], cost, a, &s.rank[r]));
    }
    TRY(critical_path(last, a, &s));
    *out = s;
    return OK;
}
