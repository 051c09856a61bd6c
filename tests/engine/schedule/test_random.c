/* Every schedule over random stages, chunks, micro-batches and costs: a legal one passes the check
 * and keeps its promises in the simulator, an illegal one is refused with a sentence. */
#include "engine/schedule/pipelines.h"
#include "harness/posted.h"

#include "engine/schedule/order.h"

enum { TRIES = RUNS(800, 100) };
enum { MOST_ACTIONS = 240 };

static int draw(const char *what, int i, int from, int to)
{
    uint64_t width = (uint64_t)to - (uint64_t)from + 1;
    return from + (int)rng_below(7, rng_stream(what), (uint64_t)i, width);
}

static double draw_cost(const char *what, int i)
{
    return rng_uniform(7, rng_stream(what), (uint64_t)i) * 3;
}

static ScheduleShape shape_of(int i)
{
    ScheduleShape s = { .stages = draw("stages", i, 1, 12),
                        .chunks = draw("chunks", i, 1, 4),
                        .micros = draw("micros", i, 1, 40),
                        .forward = draw_cost("forward", i),
                        .input = draw_cost("input", i),
                        .weight = draw_cost("weight", i),
                        .blocks = draw("blocks", i, 0, 3) };
    /* legal sizes are few for some schedules: half of the tries are multiples of them */
    if (i % 2 == 0) s.micros = s.stages * draw("groups", i, 2, 5);
    if (i % 4 == 0) s.chunks = 2; /* all that schedules on a V take */
    return s;
}

/* The orders without any entries or transfers in between. */
static double bare_step(const ScheduleDesc *d, const ScheduleShape *s)
{
    Order *ranks = NULL;
    OrderTimes times;
    Program like = {
        .micros = s->micros, .chunks = s->chunks, .stages = s->stages, .placement = d->placement
    };
    CHECK_OK(schedule_orders(d, s, &scratch, &ranks));
    CHECK_OK(order_run(&like, s, ranks, &scratch, &times));
    return times.step;
}

/* No gap on the critical path: each action on it starts when its cause ends. */
static void path_is_whole(const Simulation *sim)
{
    double at = 0;
    for (int i = 0; i < sim->n_path; i++) {
        const SimSpan *span = &sim->rank[sim->path[i].rank].span[sim->path[i].action];
        CHECK_NEAR(span->start, at, 0);
        at = span->end;
    }
    CHECK_NEAR(at, sim->step, 0);
}

static void memory_is_bounded_and_given_back(const Pipeline *p, const Simulation *sim)
{
    for (int r = 0; r < p->stages; r++) {
        const SimRank *rank = &sim->rank[r];
        CHECK_NEAR(rank->memory[rank->n_memory - 1].bytes, 0, 0);
        CHECK_NEAR(rank->peak_bytes, p->rank[r].slots, 0);
        for (int i = 1; i < rank->n_memory; i++) {
            CHECK(rank->memory[i].at >= rank->memory[i - 1].at);
        }
    }
}

/* Passes and links that nobody foretold. */
static double any_cost(void *ctx, int rank, const Action *a)
{
    const int *salt = ctx;
    uint64_t at = (uint64_t)rank * 1024 + (uint64_t)a->kind * 64 + (uint64_t)(a->chunk + 1) * 16;
    at += (uint64_t)(a->first + 1);
    return rng_uniform((uint64_t)*salt, rng_stream("any"), at);
}

/* Each action has its own; two of a rank that hold multiprocessors may be under way at a time. */
static SimUse any_use(void *ctx, int rank, const Action *a)
{
    double x = any_cost(&(int){ *(const int *)ctx + 1000 }, rank, a);
    return a->lane == LANE_COMPUTE ? (SimUse){ .bound = x } : (SimUse){ .blocks = 0.5 * x };
}

/* Links alone: all actions use all of them for a while. */
static SimUse any_links(void *ctx, int rank, const Action *a)
{
    double x = any_cost(&(int){ *(const int *)ctx + 2000 }, rank, a);
    return (SimUse){ .into = { x, 1 - x }, .out = { 1 - x, x } };
}

/* Both ends of a transfer begin and end together, whichever of them is slowed meanwhile. */
static void ends_meet(const Pipeline *p, const SimRank *rank)
{
    for (int r = 0; r < p->stages; r++) {
        for (int i = 0; i < p->rank[r].n; i++) {
            const Action *a = &p->rank[r].at[i];
            if (!action_is_send(a->kind)) continue;
            StageAt to = transfer_other_end(&p->rank[r], a);
            const Program *other = &p->rank[to.rank];
            int k = 0;
            while (other->at[k].kind != a->kind + 1 || other->at[k].micro != a->micro ||
                   other->at[k].chunk != to.chunk)
                k++;
            const SimSpan *x = &rank[r].span[i], *y = &rank[to.rank].span[k];
            CHECK_NEAR(x->start, y->start, 0);
            CHECK_NEAR(x->end, y->end, 1e-12 * x->end);
        }
    }
}

/* The work that an action on the compute lane has done by its end, from what the others of its rank
 * held in the meantime; `from`: since when. */
static double work_of(const Program *p, const SimSpan *span, const double *from, int at,
                      const SimCost *cost)
{
    double work = 0, bound = cost->use(cost->ctx, p->rank, &p->at[at]).bound;
    for (double now = span[at].start, next = now; now < span[at].end; now = next) {
        double held = 0;
        next = span[at].end;
        for (int i = 0; i < p->n; i++) {
            const Action *a = &p->at[i];
            if (queue_of(p, a) == LANE_COMPUTE) continue;
            if (from[i] <= now && span[i].end > now) {
                held += cost->use(cost->ctx, p->rank, a).blocks;
                next = fmin(next, span[i].end);
            }
            if (from[i] > now) next = fmin(next, from[i]);
        }
        held = fmin(held, 0.9);
        work += (next - now) / (1 - bound + bound / (1 - held));
    }
    return work;
}

static void compute_does_its_work(const Pipeline *p, const SimRank *rank, const SimCost *cost)
{
    for (int r = 0; r < p->stages; r++) {
        double slowed = 0, from[MOST_ACTIONS];
        for (int i = 0; i < p->rank[r].n; i++) from[i] = posted(&p->rank[r], rank[r].span, i);
        for (int i = 0; i < p->rank[r].n; i++) {
            const Action *a = &p->rank[r].at[i];
            const SimSpan *x = &rank[r].span[i];
            if (queue_of(&p->rank[r], a) != LANE_COMPUTE) continue;
            double own = cost->duration(cost->ctx, r, a);
            CHECK_NEAR(work_of(&p->rank[r], rank[r].span, from, i, cost), own, 1e-9);
            CHECK_NEAR(x->end - x->start - x->slowed, own, 1e-9);
            CHECK(x->slowed >= -1e-12);
            slowed += x->slowed;
        }
        CHECK_NEAR(rank[r].slowed, slowed, 1e-9);
    }
}

/* Each action begins behind the one before it in its queue and behind all that it waits for: of a
 * transfer this holds at both ends, as both have its span. */
static void spans_keep_the_order(const Program *p, const SimRank *rank)
{
    int *last = NULL, *by = NULL;
    ArenaMark mark = arena_mark(&scratch);
    CHECK_OK(ARENA_NEW(&scratch, queue_count(p), &last));
    CHECK_OK(ARENA_NEW(&scratch, p->events + 1, &by));
    for (int q = 0; q < queue_count(p); q++) last[q] = -1;
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        int queue = queue_of(p, a);
        if (last[queue] >= 0) CHECK(rank->span[i].start >= rank->span[last[queue]].end);
        last[queue] = i;
        for (int k = 0; k < ACTION_WAITS; k++) {
            if (a->wait[k] >= 0) CHECK(rank->span[i].start >= rank->span[by[a->wait[k]]].end);
        }
        if (a->signal >= 0) by[a->signal] = i;
    }
    arena_release(&scratch, mark);
}

static void legal_shape(const ScheduleDesc *d, const ScheduleShape *s, int salt)
{
    Pipeline p = pipeline_of(d->name, s);
    Simulation sim = pipeline_simulate(&p, *s), other;
    double bare = bare_step(d, s);
    if (d->phases)
        CHECK(sim.step <= bare * (1 + 1e-9)); /* there a pair's outputs wait for its end */
    else
        CHECK_NEAR(sim.step, bare, 1e-9 * sim.step);
    path_is_whole(&sim);
    memory_is_bounded_and_given_back(&p, &sim);
    SimCost cost = { .ctx = &salt, .duration = any_cost };
    CHECK_OK(simulate_run(&p, &cost, &made, &other));
    path_is_whole(&other);
    for (int r = 0; r < s->stages; r++) {
        CHECK(other.rank[r].busy <= other.step * (1 + 1e-12));
        spans_keep_the_order(&p.rank[r], &other.rank[r]);
        CHECK_NEAR(other.rank[r].slowed, 0, 0);
    }
    cost.use = any_links;
    CHECK_OK(simulate_run(&p, &cost, &made, &other));
    path_is_whole(&other);
    if (p.rank[0].n < MOST_ACTIONS / 2) ends_meet(&p, other.rank);
    cost.use = any_use;
    CHECK_OK(simulate_run(&p, &cost, &made, &other));
    path_is_whole(&other);
    if (p.rank[0].n < MOST_ACTIONS / 2) compute_does_its_work(&p, other.rank, &cost);
    for (int r = 0; r < s->stages; r++) spans_keep_the_order(&p.rank[r], &other.rank[r]);
}

static void every_schedule_keeps_its_promises(void **state)
{
    (void)state;
    for (int d = 0; d < schedule_table_n; d++) {
        int legal = 0, illegal = 0;
        for (int i = 0; i < TRIES; i++) {
            ScheduleShape s = shape_of(i);
            if (schedule_legal(&schedule_table[d], &s) == OK) {
                legal_shape(&schedule_table[d], &s, i);
                legal++;
            } else {
                Pipeline p;
                CHECK_FAILS(schedule_make(&schedule_table[d], &s, &made, &scratch, &p), ERR_ARG,
                            "schedule");
                illegal++;
            }
            pipeline_forget();
        }
        CHECK(legal >= TRIES / 20 && illegal >= TRIES / 20);
    }
}

static void wrong_shapes_are_errors_with_the_limit(void **state)
{
    (void)state;
    const ScheduleDesc *d = NULL;
    Pipeline p;
    CHECK_FAILS(schedule_find("1f1", &d), ERR_ARG, "did you mean 1f1b?");
    CHECK_FAILS(schedule_find("round robin", &d), ERR_ARG, "there is no \"round robin\"");
    CHECK_FAILS(schedule_find("zb1p", &d), ERR_ARG,
                "schedule zb1p was removed after 0.9.0: zb-h1 has the same bubble and memory");
    CHECK_FAILS(schedule_find("Interleaved1F1B", &d), ERR_ARG,
                "schedule Interleaved1F1B is called interleaved [");
    CHECK_FAILS(schedule_find("v-half", &d), ERR_ARG, "removed after 0.9.0: take zb-h1, ");
    CHECK_FAILS(schedule_find("v-min", &d), ERR_ARG, "removed after 0.9.0: take zb-h1, ");
    CHECK_OK(schedule_find("interleaved", &d));
    ScheduleShape s = { 4, 2, 6, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG, "legal numbers are 4 and 8");
    s = (ScheduleShape){ 0, 2, 8, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG,
                "0 stages (mesh.pp), legal are 1 to 4096");
    s = (ScheduleShape){ 4, -1, 8, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG, "-1 chunks");
    s = (ScheduleShape){ 4, 2, 1 << 20, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG, "1048576 micro-batches");
    s = (ScheduleShape){ 4, 2, 8, 1, NAN, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG, "duration nan");
    s = (ScheduleShape){ 4, 1, 8, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG,
                "1 chunks a rank, this one takes 2 or more");
    CHECK_OK(schedule_find("1f1b", &d));
    s = (ScheduleShape){ 4, 3, 8, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG, "3 chunks");
    CHECK_OK(schedule_find("1f1b-overlap", &d));
    s = (ScheduleShape){ 4, 1, 8, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG,
                "0 blocks a chunk to take apart");
    CHECK_OK(schedule_find("zbv", &d));
    s = (ScheduleShape){ 4, 3, 8, 1, 1, 1, .blocks = 0 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG,
                "3 chunks a rank, this one takes 2");
    CHECK_OK(schedule_find("dualpipe", &d));
    s = (ScheduleShape){ 5, 2, 20, 1, 1, 1, .blocks = 1 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG,
                "5 stages and 20 micro-batches");
    CHECK_OK(schedule_find("dualpipe-v", &d));
    s = (ScheduleShape){ 5, 2, 9, 1, 1, 1, .blocks = 1 };
    CHECK_FAILS(schedule_make(d, &s, &made, &scratch, &p), ERR_ARG, "at least 10");
}

static const struct CMUnitTest tests[] = {
    TEST(every_schedule_keeps_its_promises),
    TEST(wrong_shapes_are_errors_with_the_limit),
};
PIPELINE_TESTS(tests)
