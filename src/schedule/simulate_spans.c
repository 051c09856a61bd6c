/* simulate_spans: computes when each action of all ranks runs. It is an event simulation: time jumps from one end
 * of an action to the next, and each queue then starts what its events allow. */
#include "schedule/simulate.h"

#include <math.h>

/* The state of a rank; -1: none.
 * next      by action: the action after it in its queue
 * head      by queue: its next or running action; last: the one before
 * of_event  by event: the action that signals it
 * end       by queue: when head ends; INFINITY: it does not run
 * held      by queue: the share of the multiprocessors that head holds
 * first     the earliest of `end`
 * bound     the share of the running compute action's time that multiprocessors bound */
typedef struct RankState {
    const Program *p;
    SimSpan *span;
    int *next, *head, *last, *of_event;
    double *end, *held, first, bound;
} RankState;

typedef struct Run {
    const SimCost *cost;
    RankState *rank;
    int stages;
    double now;
    int *todo; /* ring of ranks whose queues may start something; listed: is a rank in it? */
    bool *listed;
    int first, waiting;
} Run;

static double no_cost(void *ctx, int rank, const Action *a)
{
    (void)ctx;
    (void)rank;
    (void)a;
    return 0;
}

const SimCost simulate_free = { .duration = no_cost };

static Status new_indices(Arena *a, int n, int **out)
{
    TRY(ARENA_NEW(a, n, out));
    for (int i = 0; i < n; i++) (*out)[i] = -1;
    return OK;
}

/* Links the actions of each queue in the order of the list, and finds for each event who signals
 * it. */
static Status make_rank(RankState *s, const Program *p, Arena *a)
{
    int *tail = NULL, queues = queue_count(p);
    s->p = p;
    TRY(ARENA_NEW(a, p->n, &s->span));
    TRY(new_indices(a, p->n, &s->next));
    TRY(new_indices(a, queues, &s->head));
    TRY(new_indices(a, queues, &s->last));
    TRY(new_indices(a, queues, &tail));
    TRY(new_indices(a, p->events, &s->of_event));
    TRY(ARENA_ZEROED(a, queues, &s->held));
    TRY(ARENA_NEW(a, queues, &s->end));
    for (int q = 0; q < queues; q++) s->end[q] = INFINITY;
    s->first = INFINITY;
    for (int i = 0; i < p->n; i++) {
        int q = queue_of(p, &p->at[i]);
        s->span[i] = (SimSpan){ NAN, NAN, 0, -1, -1 };
        *(tail[q] >= 0 ? &s->next[tail[q]] : &s->head[q]) = i;
        tail[q] = i;
        if (p->at[i].signal >= 0) s->of_event[p->at[i].signal] = i;
    }
    return OK;
}

/* When the action at the head of a queue may start, and its cause. False: an event is not signalled yet. */
static bool head_ready(const RankState *s, int queue, SimSpan *out)
{
    const Action *a = &s->p->at[s->head[queue]];
    SimSpan at = { 0, NAN, 0, -1, -1 };
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

/* A rank is listed once, however many of its queues may start: the ring therefore has room for all
 * ranks. */
static void schedule_rank(Run *run, int rank)
{
    if (run->listed[rank]) return;
    run->listed[rank] = true;
    run->todo[(run->first + run->waiting++) % run->stages] = rank;
}

static double share_of(const Run *run, int rank, const Action *a)
{
    return run->cost->share == NULL ? 0 : run->cost->share(run->cost->ctx, rank, a);
}

/* Seconds that a second of the running compute action's own time takes. */
static double compute_pace(const RankState *s)
{
    double held = 0;
    if (s->bound == 0) return 1;
    for (int q = 0, n = queue_count(s->p); q < n; q++) held += s->held[q];
    held =
        fmin(held, 0.9); /* real kernels would wait for each other instead of slowing down more */
    return 1 + s->bound * held / (1 - held);
}

/* From now on the head of a queue holds this share of the multiprocessors. The rest of the running compute
 * action gets slower or faster. */
static void hold_share(Run *run, RankState *s, int queue, double share)
{
    double *end = &s->end[LANE_COMPUTE];
    if (s->held[queue] == share) return;
    double before = compute_pace(s);
    s->held[queue] = share;
    if (isinf(*end)) return;
    double longer = (*end - run->now) * (compute_pace(s) / before - 1);
    s->span[s->head[LANE_COMPUTE]].slowed += longer;
    *end += longer;
}

/* The compute action is slowed by what others hold already; any other action slows the compute
 * action from now on. */
static void begin_span(Run *run, int rank, int queue, SimSpan span, double own_s)
{
    RankState *s = &run->rank[rank];
    int i = s->head[queue];
    double share = share_of(run, rank, &s->p->at[i]);
    if (queue == LANE_COMPUTE) {
        s->bound = share;
        span.slowed = own_s * (compute_pace(s) - 1);
    } else {
        hold_share(run, s, queue, share);
    }
    s->span[i] = span;
    s->end[queue] = span.start + own_s + span.slowed;
}

/* Several queues of a rank can end at the same moment, so all of them are looked at. */
static void finish_actions(Run *run, int rank)
{
    RankState *s = &run->rank[rank];
    for (int q = 0, n = queue_count(s->p); q < n; q++) {
        int i = s->head[q];
        if (s->end[q] > run->now) continue;
        s->span[i].end = s->end[q];
        s->end[q] = INFINITY;
        s->last[q] = i;
        s->head[q] = s->next[i];
        if (q != LANE_COMPUTE) hold_share(run, s, q, 0);
    }
    schedule_rank(run, rank);
}

/* Starts a transfer if the other end has reached it, too: the opposite kind in the peer's queue on the
 * neighbouring hop. Until then this end's kernel waits, and holds its multiprocessors. */
static Status begin_transfer(Run *run, int rank, int queue, SimSpan mine)
{
    RankState *s = &run->rank[rank];
    const Action *a = &s->p->at[s->head[queue]];
    StageAt to = transfer_other_end(s->p, a);
    bool sends = action_is_send(a->kind);
    int other = queue_of(
        s->p, &(Action){ .kind = sends ? a->kind + 1 : a->kind - 1, .chunk = (short)to.chunk });
    RankState *peer = &run->rank[to.rank];
    SimSpan theirs;
    hold_share(run, s, queue, share_of(run, rank, a));
    if (peer->head[other] < 0 || !head_ready(peer, other, &theirs)) return OK;
    const Action *b = &peer->p->at[peer->head[other]];
    if (b->micro != a->micro || b->chunk != to.chunk) {
        return FAIL(ERR_ARG,
                    "pipeline: rank %d is to %s of micro-batch %d where rank %d is to %s of %d, "
                    "chunk %d; the other end of the first is chunk %d",
                    rank, action_name(a->kind), a->micro, to.rank, action_name(b->kind), b->micro,
                    b->chunk, to.chunk);
    }
    SimSpan span = theirs.start > mine.start ? theirs : mine;
    double own_s = run->cost->duration(run->cost->ctx, sends ? rank : to.rank, sends ? a : b);
    begin_span(run, rank, queue, span, own_s);
    begin_span(run, to.rank, other, span, own_s);
    schedule_rank(run, to.rank);
    return OK;
}

/* Nothing to do if the queue is empty or runs already. */
static Status start_queue(Run *run, int rank, int queue)
{
    RankState *s = &run->rank[rank];
    SimSpan span;
    if (s->head[queue] < 0 || !isinf(s->end[queue]) || !head_ready(s, queue, &span)) return OK;
    const Action *a = &s->p->at[s->head[queue]];
    if (action_is_transfer(a->kind)) return begin_transfer(run, rank, queue, span);
    begin_span(run, rank, queue, span, run->cost->duration(run->cost->ctx, rank, a));
    return OK;
}

static Status start_queues(Run *run)
{
    int rank = run->todo[run->first];
    RankState *s = &run->rank[rank];
    int queues = queue_count(s->p);
    run->first = (run->first + 1) % run->stages;
    run->waiting--;
    run->listed[rank] = false;
    for (int q = 0; q < queues; q++) TRY(start_queue(run, rank, q));
    s->first = INFINITY;
    for (int q = 0; q < queues; q++) s->first = s->end[q] < s->first ? s->end[q] : s->first;
    return OK;
}

/* Called when no action runs and none can start. A queue that is not empty then waits for ever. */
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

/* Two steps by turns: start all that can start now, then let time jump to the next end. */
Status simulate_spans(const Pipeline *p, const SimCost *cost, Arena *a, SimSpan **out)
{
    Run run = { .cost = cost, .stages = p->stages };
    TRY(ARENA_ZEROED(a, p->stages, &run.rank));
    TRY(ARENA_NEW(a, p->stages, &run.todo));
    TRY(ARENA_ZEROED(a, p->stages, &run.listed));
    for (int r = 0; r < p->stages; r++) {
        TRY(make_rank(&run.rank[r], &p->rank[r], a));
        out[r] = run.rank[r].span;
        schedule_rank(&run, r);
    }
    while (!isinf(run.now)) {
        while (run.waiting > 0) TRY(start_queues(&run));
        run.now = INFINITY;
        for (int r = 0; r < p->stages; r++) run.now = fmin(run.now, run.rank[r].first);
        for (int r = 0; r < p->stages && !isinf(run.now); r++) {
            if (run.rank[r].first <= run.now) finish_actions(&run, r);
        }
    }
    return check_done(&run);
}
