#include "schedule/simulate.h"

#include <math.h>

/* A rank in the middle of the step. next[i]: the action after i in its queue; head: by queue, the
 * one whose turn it is; last: by queue, the one before it; of_event: who signals. -1: none. */
typedef struct RankState {
    const Program *p;
    SimSpan *span;
    int *next, *head, *last, *of_event;
} RankState;

typedef struct Run {
    const SimCost *cost;
    RankState *rank;
    int stages;
    int *todo; /* ring of ranks to look at, and whether a rank is in it */
    bool *listed;
    int first, waiting;
} Run;

static double nothing(void *ctx, int rank, const Action *a)
{
    (void)ctx;
    (void)rank;
    (void)a;
    return 0;
}

const SimCost simulate_free = { .duration = nothing };

static Status ints(Arena *a, int n, int **out)
{
    TRY(ARENA_NEW(a, n, out));
    for (int i = 0; i < n; i++) (*out)[i] = -1;
    return OK;
}

static Status make_rank(RankState *s, const Program *p, Arena *a)
{
    int *tail = NULL, queues = queue_count(p);
    s->p = p;
    TRY(ARENA_NEW(a, p->n, &s->span));
    TRY(ints(a, p->n, &s->next));
    TRY(ints(a, queues, &s->head));
    TRY(ints(a, queues, &s->last));
    TRY(ints(a, queues, &tail));
    TRY(ints(a, p->events, &s->of_event));
    for (int i = 0; i < p->n; i++) {
        int q = queue_of(p, &p->at[i]);
        s->span[i] = (SimSpan){ NAN, NAN, -1, -1 };
        *(tail[q] >= 0 ? &s->next[tail[q]] : &s->head[q]) = i;
        tail[q] = i;
        if (p->at[i].signal >= 0) s->of_event[p->at[i].signal] = i;
    }
    return OK;
}

/* When and because of what the action at the head of a queue may start: false while an event is
 * still to come. */
static bool ready(const RankState *s, int queue, SimSpan *out)
{
    const Action *a = &s->p->at[s->head[queue]];
    SimSpan at = { 0, 0, -1, -1 };
    int before[1 + ACTION_WAITS] = { s->last[queue] };
    for (int i = 0; i < ACTION_WAITS; i++) {
        before[i + 1] = a->wait[i] < 0 ? -1 : s->of_event[a->wait[i]];
        if (a->wait[i] < 0) continue;
        if (before[i + 1] < 0 || isnan(s->span[before[i + 1]].end)) return false;
    }
    for (int i = 0; i < 1 + ACTION_WAITS; i++) {
        if (before[i] < 0 || s->span[before[i]].end < at.start) continue;
        at.start = s->span[before[i]].end;
        at.cause_rank = s->p->rank;
        at.cause = before[i];
    }
    *out = at;
    return true;
}

static void look_at(Run *run, int rank)
{
    if (run->listed[rank]) return;
    run->listed[rank] = true;
    run->todo[(run->first + run->waiting++) % run->stages] = rank;
}

static void commit(Run *run, int rank, int queue, SimSpan span)
{
    RankState *s = &run->rank[rank];
    int i = s->head[queue];
    s->span[i] = span;
    s->last[queue] = i;
    s->head[queue] = s->next[i];
    look_at(run, rank);
}

/* Its other end is the queue of the peer's opposite kind on the neighbouring hop. */
static Status start_transfer(Run *run, int rank, int queue, SimSpan mine, bool *moved)
{
    const Program *p = run->rank[rank].p;
    const Action *a = &p->at[run->rank[rank].head[queue]];
    Place to = place_across(p, a);
    bool sends = action_is_send(a->kind);
    int other = queue_of(
        p, &(Action){ .kind = sends ? a->kind + 1 : a->kind - 1, .chunk = (short)to.chunk });
    RankState *peer = &run->rank[to.rank];
    SimSpan theirs;
    if (peer->head[other] < 0 || !ready(peer, other, &theirs)) return OK;
    const Action *b = &peer->p->at[peer->head[other]];
    if (b->micro != a->micro) {
        return FAIL(ERR_ARG,
                    "pipeline: rank %d is to %s of micro-batch %d where rank %d is to %s of %d",
                    rank, action_name(a->kind), a->micro, to.rank, action_name(b->kind), b->micro);
    }
    SimSpan span = theirs.start > mine.start ? theirs : mine;
    span.end =
        span.start + run->cost->duration(run->cost->ctx, sends ? rank : to.rank, sends ? a : b);
    commit(run, rank, queue, span);
    commit(run, to.rank, other, span);
    *moved = true;
    return OK;
}

static Status start(Run *run, int rank, int queue, bool *moved)
{
    RankState *s = &run->rank[rank];
    SimSpan span;
    *moved = false;
    if (s->head[queue] < 0 || !ready(s, queue, &span)) return OK;
    const Action *a = &s->p->at[s->head[queue]];
    if (action_is_transfer(a->kind)) return start_transfer(run, rank, queue, span, moved);
    span.end = span.start + run->cost->duration(run->cost->ctx, rank, a);
    commit(run, rank, queue, span);
    *moved = true;
    return OK;
}

static Status look(Run *run)
{
    int rank = run->todo[run->first];
    run->first = (run->first + 1) % run->stages;
    run->waiting--;
    run->listed[rank] = false;
    for (int q = 0; q < queue_count(run->rank[rank].p); q++) {
        for (bool moved = true; moved;) TRY(start(run, rank, q, &moved));
    }
    return OK;
}

static Status check_done(const Run *run)
{
    for (int r = 0; r < run->stages; r++) {
        const RankState *s = &run->rank[r];
        for (int q = 0; q < queue_count(s->p); q++) {
            int i = s->head[q];
            if (i < 0) continue;
            const Action *a = &s->p->at[i];
            return FAIL(ERR_ARG,
                        "pipeline: rank %d waits for ever before action %d, %s of micro-batch %d, "
                        "chunk %d",
                        r, i, action_name(a->kind), a->micro, a->chunk);
        }
    }
    return OK;
}

Status simulate_spans(const Pipeline *p, const SimCost *cost, Arena *a, SimSpan **out)
{
    Run run = { .cost = cost, .stages = p->stages };
    TRY(ARENA_ZEROED(a, p->stages, &run.rank));
    TRY(ARENA_NEW(a, p->stages, &run.todo));
    TRY(ARENA_ZEROED(a, p->stages, &run.listed));
    for (int r = 0; r < p->stages; r++) {
        TRY(make_rank(&run.rank[r], &p->rank[r], a));
        out[r] = run.rank[r].span;
        look_at(&run, r);
    }
    while (run.waiting > 0) TRY(look(&run));
    return check_done(&run);
}
