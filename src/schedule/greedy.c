/* greedy: runs the step and lets each free rank choose its next pass (greedy.h). */
#include "schedule/greedy.h"

#include <math.h>

/* The kinds of passes that compete; each has its next micro-batch, by chunk. A rank has one or two chunks. */
enum { FORWARD, INPUT, KINDS };

typedef struct GreedyRank {
    int next[KINDS][2], live[2]; /* by chunk */
    int live_all;
    int put_off;       /* from order.at[put_off] on, input gradients lack their weight gradients */
    int pending;       /* how many */
    double busy, wake; /* when it is free; when it may choose again */
} GreedyRank;

typedef struct GreedyRun {
    const Greedy *g;
    Program like;
    OrderTimes times;
    GreedyRank *rank;
    Order *order;
} GreedyRun;

/* Is there a slot for one more forward? */
static bool has_slot(const GreedyRun *run, int rank, int chunk)
{
    const GreedyRank *r = &run->rank[rank];
    const Greedy *g = run->g;
    if (r->live_all >= g->limit) return false;
    if (g->in_turn || g->chunk_limit == NULL) return true;
    if (r->live[chunk] >= g->chunk_limit[rank * g->shape->chunks + chunk]) return false;
    return !(g->spare && r->pending > 0 && r->live_all >= g->limit - 1);
}

/* The pass to run now; kind ACTION_KIND_COUNT: none. wake: when the next input arrives. */
static Pass choose_pass(const GreedyRun *run, int rank, double now, double *wake)
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
        bool could = at <= now && (p.kind != ACTION_FORWARD || has_slot(run, rank, p.chunk));
        if (at > now && at < *wake) *wake = at;
        if (turn >= first || (!could && !run->g->in_turn)) continue;
        first = turn;
        best = p;
        if (!could) best.kind = ACTION_KIND_COUNT;
    }
    return best;
}

/* A rank that runs a pass wakes when the pass ends. The step lasts until the last of these
 * moments. */
static void set_busy(GreedyRun *run, GreedyRank *r, double when)
{
    r->busy = r->wake = when;
    run->times.step = fmax(run->times.step, when);
}

static void order_add(Order *o, Pass p) { o->at[o->n++] = p; }

/* Runs a forward or input gradient. The rank that reads its output wakes when the output exists and
 * the rank itself is free, unless it wakes before that. */
static void run_chosen(GreedyRun *run, int rank, Pass p, double now)
{
    const ScheduleShape *s = run->g->shape;
    bool forward = p.kind == ACTION_FORWARD;
    GreedyRank *r = &run->rank[rank];
    StageAt at = { rank, p.chunk }, to = order_target(&run->like, at, &p);
    set_busy(run, r, now + (forward ? s->forward : s->input));
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

/* Runs the weight gradients that have waited longest. */
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
    set_busy(run, r, now + run->g->shape->weight);
}

/* The rank that wakes first. Times only grow, so all passes that end before that moment are known. */
static int first_awake(const GreedyRun *run)
{
    int first = 0;
    for (int r = 1; r < run->like.stages; r++) {
        if (run->rank[r].wake < run->rank[first].wake) first = r;
    }
    return first;
}

/* An infinite wake of the first rank means that nobody waits for a known moment. Either all passes
 * ran, or the limits allow none: then a rank has fewer than its 3 passes for each micro-batch and
 * chunk. */
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
        Pass p = choose_pass(&run, r, now, &wake);
        if (p.kind != ACTION_KIND_COUNT)
            run_chosen(&run, r, p, now);
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
