/* greedy: runs the step and lets each free rank choose its next pass (greedy.h). */
#include "schedule/greedy.h"

#include <math.h>

/* The kinds that compete, each with its next micro-batch by chunk; one chunk a rank or two. */
enum { FORWARD, INPUT, KINDS };

typedef struct GreedyRank {
    int next[KINDS][2], live[2]; /* by chunk */
    int live_all;
    int put_off; /* the input gradients of order.at[put_off..] still lack their weights' */
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

static bool has_room(const GreedyRun *run, int rank, int chunk)
{
    const GreedyRank *r = &run->rank[rank];
    const Greedy *g = run->g;
    if (r->live_all >= g->limit) return false;
    if (g->in_turn || g->chunk_limit == NULL) return true;
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
        int chunk = i % s->chunks, kind = i / s->chunks;
        Pass p = { .kind = kind == FORWARD ? ACTION_FORWARD : ACTION_BACKWARD_INPUT,
                   .chunk = (short)chunk,
                   .micro = run->rank[rank].next[kind][chunk] };
        if (p.micro >= s->micros) continue;
        double turn = run->g->turn(run->g, rank, &p);
        double at = order_arrives(&run->times, (StageAt){ rank, chunk }, &p);
        bool could = at <= now && (p.kind != ACTION_FORWARD || has_room(run, rank, p.chunk));
        if (at > now && at < *wake) *wake = at;
        if (turn >= first || (!could && !run->g->in_turn)) continue;
        first = turn;
        best = p;
        if (!could) best.kind = ACTION_KIND_COUNT;
    }
    return best;
}

static void work_until(GreedyRun *run, GreedyRank *r, double when)
{
    r->busy = r->wake = when;
    run->times.step = fmax(run->times.step, when);
}

static void order_add(Order *o, Pass p) { o->at[o->n++] = p; }

static void run_pass(GreedyRun *run, int rank, Pass p, double now)
{
    const ScheduleShape *s = run->g->shape;
    bool forward = p.kind == ACTION_FORWARD;
    GreedyRank *r = &run->rank[rank];
    StageAt at = { rank, p.chunk }, to = order_target(&run->like, at, &p);
    work_until(run, r, now + (forward ? s->forward : s->input));
    (forward ? run->times.forward : run->times.input)[order_index(&run->like, at, p.micro)] =
        r->busy;
    order_add(&run->order[rank], p);
    r->live[p.chunk] += forward;
    r->live_all += forward;
    r->pending += !forward;
    r->next[forward ? FORWARD : INPUT][p.chunk]++;
    if (to.rank < 0 || to.rank == rank) return;
    GreedyRank *next = &run->rank[to.rank];
    next->wake = fmin(next->wake, fmax(r->busy, next->busy));
}

/* The oldest input gradients' weight gradients. */
static void run_weight(GreedyRun *run, int rank, double now)
{
    GreedyRank *r = &run->rank[rank];
    Order *o = &run->order[rank];
    while (o->at[r->put_off].kind != ACTION_BACKWARD_INPUT) r->put_off++;
    Pass p = o->at[r->put_off++];
    p.kind = ACTION_BACKWARD_WEIGHT;
    order_add(o, p);
    r->pending--;
    r->live[p.chunk]--;
    r->live_all--;
    work_until(run, r, now + run->g->shape->weight);
}

/* Times only grow, so the rank that wakes first knows every pass that has ended by then. */
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
    GreedyRun run = { .g = g, .order = ranks };
    run.like = (Program){
        .micros = s->micros, .chunks = s->chunks, .stages = s->stages, .placement = g->placement
    };
    TRY(order_times(&run.like, scratch, &run.times));
    TRY(ARENA_ZEROED(scratch, s->stages, &run.rank));
    for (int r = 0; r < s->stages; r++) ranks[r].n = 0;
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
