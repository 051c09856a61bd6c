#include "schedule/greedy.h"

#include <math.h>

/* The kinds that compete, each with its next micro-batch by chunk. */
enum { FORWARD, INPUT, KINDS };

typedef struct GreedyRank {
    int *next; /* by (kind, chunk) */
    int *live; /* by chunk */
    int live_all;
    int first_weight; /* the input gradients of order.at[first_weight..] still lack their weights'
                       */
    int pending;
    double busy, wake; /* until when; when to look again */
} GreedyRank;

typedef struct GreedyRun {
    const Greedy *g;
    Program like;
    OrderTimes times;
    GreedyRank *rank;
    Order *order;
} GreedyRun;

/* When the input of a pass is there: NaN while nobody has begun to make it. */
static double arrives(const GreedyRun *run, int rank, const Pass *p)
{
    Place at = { rank, p->chunk }, from = order_source(&run->like, at, p);
    bool forward = p->kind == ACTION_FORWARD;
    if (from.rank >= 0) {
        const double *of = forward ? run->times.forward : run->times.input;
        return of[order_index(&run->like, from, p->micro)];
    }
    return forward ? 0 : run->times.forward[order_index(&run->like, at, p->micro)];
}

static bool has_room(const GreedyRun *run, int rank, int chunk)
{
    const GreedyRank *r = &run->rank[rank];
    const Greedy *g = run->g;
    if (r->live_all >= g->limit) return false;
    if (g->in_turn) return true;
    if (r->live[chunk] >= g->chunk_limit[rank * g->shape->chunks + chunk]) return false;
    return !(g->spare && r->pending > 0 && r->live_all >= g->limit - 1);
}

/* The pass to run now; kind COUNT if none. wake: when the next one that is on its way arrives. */
static Pass choose(const GreedyRun *run, int rank, double now, double *wake)
{
    const ScheduleShape *s = run->g->shape;
    Pass best = { .kind = ACTION_KIND_COUNT };
    double first = INFINITY;
    *wake = INFINITY;
    for (int i = 0; i < KINDS * s->chunks; i++) {
        Pass p = { .kind = i < s->chunks ? ACTION_FORWARD : ACTION_BACKWARD_INPUT,
                   .chunk = i % s->chunks,
                   .micro = run->rank[rank].next[i] };
        if (p.micro >= s->micros) continue;
        double turn = run->g->turn(run->g, rank, &p), at = arrives(run, rank, &p);
        bool could = at <= now && (p.kind != ACTION_FORWARD || has_room(run, rank, p.chunk));
        if (at > now && at < *wake) *wake = at;
        if (turn >= first || (!could && !run->g->in_turn)) continue;
        first = turn;
        best = p;
        if (!could) best.kind = ACTION_KIND_COUNT;
    }
    return best;
}

static void wake_up(GreedyRun *run, Place at, double when)
{
    if (at.rank < 0) return;
    GreedyRank *r = &run->rank[at.rank];
    if (when < r->busy) when = r->busy;
    if (when < r->wake) r->wake = when;
}

static void work_until(GreedyRun *run, GreedyRank *r, double when)
{
    r->busy = r->wake = when;
    if (when > run->times.step) run->times.step = when;
}

static void run_pass(GreedyRun *run, int rank, Pass p, double now)
{
    const ScheduleShape *s = run->g->shape;
    GreedyRank *r = &run->rank[rank];
    Place at = { rank, p.chunk };
    int i = order_index(&run->like, at, p.micro);
    order_add(&run->order[rank], p.kind, p.chunk, p.micro);
    if (p.kind == ACTION_FORWARD) {
        run->times.forward[i] = now + s->forward;
        work_until(run, r, run->times.forward[i]);
        r->live[p.chunk]++;
        r->live_all++;
        r->next[FORWARD * s->chunks + p.chunk]++;
    } else {
        run->times.input[i] = now + s->input;
        work_until(run, r, run->times.input[i]);
        r->pending++;
        r->next[INPUT * s->chunks + p.chunk]++;
    }
    Place to = order_target(&run->like, at, &p);
    if (to.rank != rank) wake_up(run, to, r->busy);
}

/* The oldest input gradients' weight gradients. */
static void run_weight(GreedyRun *run, int rank, double now)
{
    GreedyRank *r = &run->rank[rank];
    Order *o = &run->order[rank];
    while (o->at[r->first_weight].kind != ACTION_BACKWARD_INPUT) r->first_weight++;
    Pass p = o->at[r->first_weight++];
    order_add(o, ACTION_BACKWARD_WEIGHT, p.chunk, p.micro);
    r->pending--;
    r->live[p.chunk]--;
    r->live_all--;
    work_until(run, r, now + run->g->shape->weight);
}

static Status make_ranks(GreedyRun *run, Arena *a)
{
    const ScheduleShape *s = run->g->shape;
    void *memory = NULL;
    TRY(arena_alloc_zero(a, (size_t)s->stages * sizeof(GreedyRank), &memory));
    run->rank = memory;
    size_t row = (size_t)(KINDS + 1) * (size_t)s->chunks;
    TRY(arena_alloc_zero(a, (size_t)s->stages * row * sizeof(int), &memory));
    for (int r = 0; r < s->stages; r++) {
        run->rank[r].next = (int *)memory + (size_t)r * row;
        run->rank[r].live = run->rank[r].next + (size_t)KINDS * (size_t)s->chunks;
        run->order[r].n = 0;
    }
    return OK;
}

/* Times only grow: the rank that wakes first decides knowing all that has ended by then. */
static int first_awake(const GreedyRun *run)
{
    int first = 0;
    for (int r = 1; r < run->like.stages; r++) {
        if (run->rank[r].wake < run->rank[first].wake) first = r;
    }
    return first;
}

Status greedy_run(const Greedy *g, Arena *scratch, Order *ranks, double *step)
{
    const ScheduleShape *s = g->shape;
    OrderTimes times;
    GreedyRun run = { .g = g,
                      .like = { .micros = s->micros,
                                .chunks = s->chunks,
                                .stages = s->stages,
                                .placement = g->placement },
                      .order = ranks };
    TRY(order_times(&run.like, scratch, &times));
    run.times = times;
    TRY(make_ranks(&run, scratch));
    for (;;) {
        int r = first_awake(&run);
        double now = run.rank[r].wake, wake;
        if (isinf(now)) break;
        Pass p = choose(&run, r, now, &wake);
        if (p.kind != ACTION_KIND_COUNT)
            run_pass(&run, r, p, now);
        else if (run.rank[r].pending > 0)
            run_weight(&run, r, now);
        else
            run.rank[r].wake = wake;
    }
    *step = run.times.step;
    for (int r = 0; r < s->stages; r++) {
        if (ranks[r].n < 3 * s->chunks * s->micros) *step = NAN;
    }
    return OK;
}
