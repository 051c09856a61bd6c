/* simulate_spans: computes when each action of all ranks runs. It is an event simulation: time jumps from one end
 * of an action to the next, and each queue then starts what its events allow. */
#include "engine/schedule/simulate.h"

#include <math.h>

/* The state of a rank; -1: none.
 * span      by action; end is NAN until it has ended
 * next      by action: the action after it in its queue
 * head      by queue: its next or running action; last: the one before
 * of_event  by event: the action that signals it
 * end       by queue: when head ends; INFINITY: it does not run
 * use       by queue: what head uses now; all 0: it does not run and is not posted
 * pace      by queue: how many times as long as alone head takes now
 * blocker   by queue: an action that head waits for, if it has not ended when head is looked at again
 * posted    by queue: is head a transfer that waits for its other end alone? That end will start both */
typedef struct RankState {
    const Program *p;
    int queues;
    SimSpan *span;
    int *next, *head, *last, *of_event, *blocker;
    double *end, *pace;
    SimUse *use;
    bool *posted;
} RankState;

typedef struct Run {
    const SimCost *cost;
    RankState *rank;
    int stages;
    double now,
        *end; /* end: a tree of queues' earliest ends: of all ranks at 1, of rank r at leaves + r */
    int leaves; /* a power of two */
    int *todo;  /* ring of ranks whose queues may start something; listed: is a rank in it? */
    bool *listed;
    int first, waiting;
    bool late; /* an action that ended a rounding later ends now: its rank may have had its turn */
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

/* Links the actions of each queue in the order of the list, and finds for each event who signals it. */
static Status make_rank(RankState *s, const Program *p, Arena *a)
{
    int *tail = NULL, queues = queue_count(p);
    s->p = p;
    s->queues = queues;
    TRY(ARENA_NEW(a, p->n, &s->span));
    TRY(new_indices(a, p->n, &s->next));
    TRY(new_indices(a, queues, &s->head));
    TRY(new_indices(a, queues, &s->last));
    TRY(new_indices(a, queues, &s->blocker));
    TRY(new_indices(a, queues, &tail));
    TRY(new_indices(a, p->events, &s->of_event));
    TRY(ARENA_ZEROED(a, queues, &s->use));
    TRY(ARENA_ZEROED(a, queues, &s->pace));
    TRY(ARENA_ZEROED(a, queues, &s->posted));
    TRY(ARENA_NEW(a, queues, &s->end));
    for (int q = 0; q < queues; q++) s->end[q] = INFINITY;
    for (int i = 0; i < p->n; i++) {
        int q = queue_of(p, &p->at[i]);
        s->span[i] = (SimSpan){ NAN, NAN, 0, -1, -1 };
        *(tail[q] >= 0 ? &s->next[tail[q]] : &s->head[q]) = i;
        tail[q] = i;
        if (p->at[i].signal >= 0) s->of_event[p->at[i].signal] = i;
        if (p->at[i].early >= 0) s->of_event[p->at[i].early] = i; /* SimCost.duration knows */
    }
    return OK;
}

/* When the action at the head of a queue may start, and its cause. False: an event is not signalled yet. */
static bool head_ready(const RankState *s, int queue, SimSpan *out)
{
    const int blocker = s->blocker[queue];
    if (blocker >= 0 && isnan(s->span[blocker].end)) return false;
    const Action *a = &s->p->at[s->head[queue]];
    SimSpan at = { 0, NAN, 0, -1, -1 };
    for (int i = -1; i < ACTION_WAITS; i++) {
        if (i < 0 ? s->last[queue] < 0 : a->wait[i] < 0) continue;
        const int before = i < 0 ? s->last[queue] : s->of_event[a->wait[i]];
        const double end = before < 0 ? (double)NAN : s->span[before].end;
        if (isnan(end)) {
            s->blocker[queue] = before;
            return false;
        }
        if (end < at.start) continue;
        at.start = end, at.cause_rank = s->p->rank, at.cause = before;
    }
    *out = at;
    return true;
}

/* A rank is listed once, however many of its queues may start, so the ring has room for all. */
static void schedule_rank(Run *run, int rank)
{
    if (run->listed[rank]) return;
    run->listed[rank] = true;
    run->todo[(run->first + run->waiting++) % run->stages] = rank;
}

static SimUse use_of(const Run *run, int rank, const Action *a)
{
    return run->cost->use == NULL ? (SimUse){ 0 } : run->cost->use(run->cost->ctx, rank, a);
}

/* What the actions of the other queues use together. */
static SimUse use_of_others(const RankState *s, int queue)
{
    SimUse sum = { 0 };
    for (int q = 0; q < s->queues; q++) {
        if (q == queue) continue;
        sum.blocks += s->use[q].blocks;
        for (int l = 0; l < SIM_LINKS; l++) {
            sum.into[l] += s->use[q].into[l];
            sum.out[l] += s->use[q].out[l];
        }
    }
    return sum;
}

/* How many times as long as alone the head of a queue takes beside the others (simulate.h). */
static double pace_of(const RankState *s, int queue)
{
    const SimUse *own = &s->use[queue];
    SimUse other = use_of_others(s, queue);
    /* beyond that real kernels would wait for each other instead of slowing down more */
    double held = other.blocks < 0.9 ? other.blocks : 0.9, link = 0;
    for (int l = 0; l < SIM_LINKS; l++) {
        link = later_of(link, own->into[l] * other.into[l]);
        link = later_of(link, own->out[l] * other.out[l]);
    }
    return 1 + own->bound * held / (1 - held) + link;
}

/* The queue of a transfer's other end, and its rank. */
static RankState *other_end(const Run *run, const RankState *s, const Action *a, int *queue)
{
    StageAt to = transfer_other_end(s->p, a);
    ActionKind kind = action_is_send(a->kind) ? a->kind + 1 : a->kind - 1;
    *queue = queue_of(s->p, &(Action){ .kind = kind, .chunk = (short)to.chunk });
    return &run->rank[to.rank];
}

/* From now on the head of a queue takes `pace` times its own time. */
static void set_pace(Run *run, RankState *s, int queue, double pace)
{
    double longer = (s->end[queue] - run->now) * (pace / s->pace[queue] - 1);
    s->span[s->head[queue]].slowed += longer;
    s->end[queue] += longer;
    s->pace[queue] = pace;
    run->late |= s->end[queue] <= run->now;
}

/* Both ends of a transfer end at the same time, to the last bit: the next ones of their queues then meet. */
static void copy_times(const RankState *s, int queue, RankState *peer, int other)
{
    SimSpan *span = &peer->span[peer->head[other]];
    const SimSpan *like = &s->span[s->head[queue]];
    span->start = like->start, span->slowed = like->slowed;
    peer->end[other] = s->end[queue];
    peer->pace[other] = s->pace[queue];
}

/* Do two uses slow down others by as much? */
static bool disturbs_alike(const SimUse *a, const SimUse *b)
{
    bool alike = a->blocks == b->blocks;
    for (int l = 0; l < SIM_LINKS; l++)
        alike = alike && a->into[l] == b->into[l] && a->out[l] == b->out[l];
    return alike;
}

/* From now on the head of a queue uses this. What runs beside it gets slower or faster. A transfer has
 * the pace of its slower end, so both ends change. */
static void set_use(Run *run, int rank, int queue, SimUse use)
{
    RankState *s = &run->rank[rank];
    if (run->cost->use == NULL) return;
    const SimUse before = s->use[queue];
    s->use[queue] = use;
    if (disturbs_alike(&before, &use)) return;
    for (int q = 0, other; q < s->queues; q++) {
        if (q == queue || isinf(s->end[q]) || s->end[q] <= run->now) continue;
        const Action *a = &s->p->at[s->head[q]];
        bool transfer = action_is_transfer(a->kind);
        RankState *peer = transfer ? other_end(run, s, a, &other) : NULL;
        double pace = pace_of(s, q);
        if (transfer) pace = later_of(pace, pace_of(peer, other));
        if (pace == s->pace[q]) continue;
        set_pace(run, s, q, pace);
        if (!transfer) continue;
        copy_times(s, q, peer, other);
        schedule_rank(run, peer->p->rank);
    }
}

/* An action begins beside those that run or are posted already. */
static void begin_span(Run *run, int rank, int queue, SimSpan span, double own_s, double pace)
{
    RankState *s = &run->rank[rank];
    span.slowed = own_s * (pace - 1);
    s->pace[queue] = pace;
    s->span[s->head[queue]] = span;
    s->end[queue] = span.start + own_s * pace;
    const int next = s->next[s->head[queue]];
    if (next < 0) return;
    __builtin_prefetch(&s->p->at[next]); /* lists of all ranks exceed the caches */
    __builtin_prefetch(&s->p->at[next].early);
    __builtin_prefetch(&s->span[next], 1);
}

/* Several queues of a rank can end at the same moment, so all of them are looked at. */
static void finish_actions(Run *run, int rank)
{
    RankState *s = &run->rank[rank];
    for (int q = 0; q < s->queues; q++) {
        int i = s->head[q];
        if (s->end[q] > run->now) continue;
        s->span[i].end = s->end[q];
        s->end[q] = INFINITY;
        s->last[q] = i;
        s->head[q] = s->next[i];
        set_use(run, rank, q, (SimUse){ 0 });
    }
    schedule_rank(run, rank);
}

/* Starts a transfer if the other end has reached it, too: the opposite kind in the peer's queue on the
 * neighbouring hop. Until then this end's kernel waits: it holds its multiprocessors and moves nothing. */
static Status begin_transfer(Run *run, int rank, int queue, SimSpan mine)
{
    RankState *s = &run->rank[rank];
    const Action *a = &s->p->at[s->head[queue]];
    StageAt to = transfer_other_end(s->p, a);
    bool sends = action_is_send(a->kind);
    int other;
    RankState *peer = other_end(run, s, a, &other);
    SimSpan theirs;
    SimUse use = use_of(run, rank, a);
    if (s->use[queue].blocks != use.blocks)
        set_use(run, rank, queue, (SimUse){ .blocks = use.blocks });
    s->posted[queue] = peer->head[other] < 0 || !head_ready(peer, other, &theirs);
    if (s->posted[queue]) return OK;
    peer->posted[other] = false;
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
    set_use(run, rank, queue, use);
    set_use(run, to.rank, other, use_of(run, to.rank, b));
    double pace = later_of(pace_of(s, queue), pace_of(peer, other));
    begin_span(run, rank, queue, span, own_s, pace);
    begin_span(run, to.rank, other, span, own_s, pace);
    copy_times(s, queue, peer, other);
    schedule_rank(run, to.rank);
    return OK;
}

/* Nothing to do if the queue is empty or runs already. */
static Status start_queue(Run *run, int rank, int queue)
{
    RankState *s = &run->rank[rank];
    SimSpan span;
    if (s->head[queue] < 0 || s->posted[queue] || !isinf(s->end[queue])) return OK;
    if (!head_ready(s, queue, &span)) return OK;
    const Action *a = &s->p->at[s->head[queue]];
    if (action_is_transfer(a->kind)) return begin_transfer(run, rank, queue, span);
    double own_s = run->cost->duration(run->cost->ctx, rank, a);
    set_use(run, rank, queue, use_of(run, rank, a));
    begin_span(run, rank, queue, span, own_s, pace_of(s, queue));
    return OK;
}

/* Sets the end of a leaf of the tree. */
static void set_end(Run *run, int leaf, double end)
{
    if (run->end[leaf] == end) return;
    run->end[leaf] = end;
    for (ptrdiff_t i = leaf / 2; i > 0; i /= 2) {
        const double left = run->end[2 * i], right = run->end[2 * i + 1];
        run->end[i] = left < right ? left : right;
    }
}

/* Finishes what ends now on the ranks below a node of the tree, by rising rank. */
static void finish_due(Run *run, int node)
{
    if (run->end[node] > run->now) return;
    if (node >= run->leaves) {
        finish_actions(run, node - run->leaves);
        return;
    }
    finish_due(run, 2 * node);
    finish_due(run, 2 * node + 1);
}

static Status start_queues(Run *run)
{
    int rank = run->todo[run->first];
    RankState *s = &run->rank[rank];
    run->first = (run->first + 1) % run->stages;
    run->waiting--;
    run->listed[rank] = false;
    double end = INFINITY;
    for (int q = 0; q < s->queues; q++) TRY(start_queue(run, rank, q));
    for (int q = 0; q < s->queues; q++) end = s->end[q] < end ? s->end[q] : end;
    set_end(run, run->leaves + rank, end);
    return OK;
}

/* Called when no action runs and none can start. A queue that is not empty then waits for ever. */
static Status check_done(const Run *run)
{
    for (int r = 0; r < run->stages; r++) {
        const RankState *s = &run->rank[r];
        for (int q = 0; q < s->queues; q++) {
            int i = s->head[q];
            if (i < 0) continue;
            const Action *a = &s->p->at[i];
            return FAIL(ERR_ARG,
                        "pipeline: rank %d waits forever before action %d, %s of micro-batch %d, "
                        "chunk %d",
                        r, i, action_name(a->kind), a->micro, a->chunk);
        }
    }
    return OK;
}

/* Two steps by turns: start all that can start now, then let time jump to the next end. */
Status simulate_spans(const Pipeline *p, const SimCost *cost, Arena *a, SimSpan **out)
{
    Run run = { .cost = cost, .stages = p->stages, .leaves = 1 };
    while (run.leaves < p->stages) run.leaves *= 2;
    TRY(ARENA_ZEROED(a, p->stages, &run.rank));
    TRY(ARENA_NEW(a, p->stages, &run.todo));
    TRY(ARENA_NEW(a, 2 * run.leaves, &run.end));
    for (int i = 0; i < 2 * run.leaves; i++) run.end[i] = INFINITY;
    TRY(ARENA_ZEROED(a, p->stages, &run.listed));
    for (int r = 0; r < p->stages; r++) {
        TRY(make_rank(&run.rank[r], &p->rank[r], a));
        out[r] = run.rank[r].span;
        schedule_rank(&run, r);
    }
    for (;;) {
        while (run.waiting > 0) TRY(start_queues(&run));
        run.now = run.end[1];
        if (isinf(run.now)) break;
        finish_due(&run, 1);
        while (run.late) {
            run.late = false;
            for (int r = 0; r < p->stages; r++) finish_actions(&run, r);
        }
    }
    return check_done(&run);
}
