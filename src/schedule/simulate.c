#include "schedule/simulate.h"

static bool on_lane(const Action *a) { return a->lane == LANE_COMPUTE; }

static bool is_send(const Action *a)
{
    return a->kind == ACTION_SEND_ACTIVATIONS || a->kind == ACTION_SEND_GRADIENTS;
}

static double sum_of(const Program *p, const SimSpan *span, bool (*counts)(const Action *))
{
    double sum = 0;
    for (int i = 0; i < p->n; i++) {
        if (counts(&p->at[i])) sum += span[i].end - span[i].start;
    }
    return sum;
}

/* Adds a change in its place; the list is almost in the order of time as it is. */
static void change(SimRank *r, double at, double bytes)
{
    int i = r->n_memory++;
    for (; i > 0 && r->memory[i - 1].at > at; i--) r->memory[i] = r->memory[i - 1];
    r->memory[i] = (MemoryPoint){ at, bytes };
}

/* From changes to what there is. */
static void add_up(SimRank *r)
{
    for (int i = 0; i < r->n_memory; i++) {
        if (i > 0) r->memory[i].bytes += r->memory[i - 1].bytes;
        if (r->memory[i].bytes <= r->peak_bytes) continue;
        r->peak_bytes = r->memory[i].bytes;
        r->peak_at = r->memory[i].at;
    }
}

static void slot_changes(const Program *p, const Action *x, SlotBytes b, const SimSpan *span,
                         SimRank *r)
{
    bool first = x->phase <= 0, last = x->phase < 0 || x->phase == p->phases - 1;
    switch (x->kind) {
    case ACTION_FORWARD:
        if (first) change(r, span->start, b.input + b.weight);
        break;
    case ACTION_BACKWARD: change(r, span->end, -b.input - b.weight); break;
    case ACTION_BACKWARD_INPUT:
        if (last) change(r, span->start, b.gradients);
        if (first) change(r, span->end, -b.input);
        break;
    case ACTION_BACKWARD_WEIGHT:
        if (first) change(r, span->end, -b.weight - b.gradients);
        break;
    default: break;
    }
}

static Status memory_over_time(const Program *p, const SimCost *cost, Arena *a, SimRank *r)
{
    void *memory = NULL;
    TRY(arena_alloc(a, (size_t)(2 * p->n + 1) * sizeof(MemoryPoint), &memory));
    r->memory = memory;
    change(r, 0, cost->entry_bytes * p->entries);
    for (int i = 0; i < p->n; i++) {
        const Action *x = &p->at[i];
        if (x->slot < 0) continue;
        SlotBytes b = cost->slot(cost->ctx, p->rank, x->chunk);
        slot_changes(p, x, b, &r->span[i], r);
    }
    add_up(r);
    return OK;
}

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

static Status critical_path(SimStep last, Arena *a, Simulation *s)
{
    void *memory = NULL;
    int n = 1;
    SimStep at = last;
    for (; span_of(s, at)->cause >= 0; n++) {
        at = (SimStep){ span_of(s, at)->cause_rank, span_of(s, at)->cause };
    }
    TRY(arena_alloc(a, (size_t)n * sizeof(SimStep), &memory));
    s->path = memory;
    s->n_path = n;
    for (at = last; n-- > 0;) {
        s->path[n] = at;
        at = (SimStep){ span_of(s, at)->cause_rank, span_of(s, at)->cause };
    }
    return OK;
}

Status simulate_run(const Pipeline *p, const SimCost *cost, Arena *a, Simulation *out)
{
    void *memory = NULL;
    Simulation s = { 0 };
    TRY(arena_alloc_zero(a, (size_t)p->stages * sizeof(SimRank), &memory));
    s.rank = memory;
    TRY(arena_alloc(a, (size_t)p->stages * sizeof(SimSpan *), &memory));
    SimSpan **spans = memory;
    TRY(simulate_spans(p, cost, a, spans));
    for (int r = 0; r < p->stages; r++) s.rank[r].span = spans[r];
    SimStep last = last_step(p, &s);
    s.step = span_of(&s, last)->end;
    for (int r = 0; r < p->stages; r++) {
        SimRank *rank = &s.rank[r];
        rank->busy = sum_of(&p->rank[r], rank->span, on_lane);
        rank->transfer = sum_of(&p->rank[r], rank->span, is_send);
        rank->bubble = s.step > 0 ? 1 - rank->busy / s.step : 0;
        if (cost->slot != NULL) TRY(memory_over_time(&p->rank[r], cost, a, rank));
    }
    TRY(critical_path(last, a, &s));
    *out = s;
    return OK;
}
