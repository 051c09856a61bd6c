/* The estimator against the simulator over the Programs that it prices, and what it promises. */
#include "engine/schedule/pipelines.h"

#include "engine/schedule/estimate.h"

enum { TRIES = RUNS(100, 16) };
enum { INTERLEAVED = 2, PLACES = 32 * 6, PASSES_MOST = 4500 };

static Estimator estimator;
static ChunkTimes times[PLACES];
static SlotBytes slots[PLACES];

static int draw(const char *what, int i, int from, int to)
{
    uint64_t width = (uint64_t)to - (uint64_t)from + 1;
    return from + (int)rng_below(11, rng_stream(what), (uint64_t)i, width);
}

static double draw_one(const char *what, int i)
{
    return rng_uniform(11, rng_stream(what), (uint64_t)i);
}

/* Chunks differ by up to `spread` of their mean; slots of whole bytes add up without rounding. */
static void draw_places(int i, double spread)
{
    for (int p = 0; p < PLACES; p++) {
        double *of = times[p].forward; /* the three rows of one struct */
        for (int k = 0; k < 3 * PHASES; k++) {
            double mean = draw_one("mean", 16 * i + k) * (k % 2 == 0 ? 1 : 0.4);
            of[k] = mean * (1 + spread * (draw_one("spread", (16 * i + k) * PLACES + p) - 0.5));
        }
        of[2 * PHASES + PHASE_DISPATCH] = of[2 * PHASES + PHASE_COMBINE] = 0;
        slots[p] = (SlotBytes){ draw("input", i * PLACES + p, 0, 1 << 20),
                                draw("weight", i * PLACES + p, 0, 1 << 20),
                                draw("gradients", i * PLACES + p, 0, 1 << 18), 0,
                                draw("whole", i * PLACES + p, 0, 1 << 19) };
    }
}

static double sum_of(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}

static double cost_of(void *ctx, int rank, const Action *a)
{
    const EstimateInput *in = ctx;
    if (action_is_transfer(a->kind)) return in->send_s;
    if (a->micro < 0) return 0;
    const ChunkTimes *t = &in->time[rank * in->chunks + a->chunk];
    const double *of = a->kind == ACTION_FORWARD           ? t->forward
                       : a->kind == ACTION_BACKWARD_WEIGHT ? t->weight
                                                           : t->input;
    if (in->schedule->phases) return of[part_of(a)] / in->blocks;
    return sum_of(of, a->kind == ACTION_BACKWARD ? 2 * PHASES : PHASES);
}

static SlotBytes bytes_of(void *ctx, int rank, int chunk)
{
    const EstimateInput *in = ctx;
    return in->slot[rank * in->chunks + chunk];
}

/* An arena for a slot, or one that a split pass takes for its gradients. */
typedef struct SlotArena {
    double slot, gradients;
    int user; /* slot + 1, 0: free */
} SlotArena;

/* The largest chunk in each slot, and in each arena of gradients, of which the lowest free one is
 * taken. */
static double arena_of(const EstimateInput *in, const Program *p, double *first)
{
    SlotArena *of = NULL;
    double sum = 0;
    CHECK_OK(ARENA_ZEROED(&scratch, p->slots, &of));
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (a->slot < 0) continue;
        SlotBytes b = in->slot[p->rank * in->chunks + a->chunk];
        double backward = b.input + b.weight + (a->apart ? 0 : b.whole);
        if (a->kind != ACTION_FORWARD) of[a->slot].slot = fmax(of[a->slot].slot, backward);
        bool takes = a->kind == ACTION_BACKWARD_INPUT && a->first == 0;
        bool gives = a->kind == ACTION_BACKWARD_WEIGHT && a->end == action_row(p, a)->n;
        if (!a->apart || !(takes || gives)) continue;
        int k = 0;
        while (of[k].user != (takes ? 0 : a->slot + 1)) k++;
        of[k].user = takes ? a->slot + 1 : 0;
        of[k].gradients = fmax(of[k].gradients, b.gradients);
    }
    for (int s = 0; s < p->slots; s++) sum += of[s].slot + of[s].gradients;
    *first = of[0].slot;
    return sum;
}

/* How the program goes back over each chunk. */
static void check_passes(const Program *p, const unsigned *of)
{
    unsigned want[SCHEDULE_CHUNKS_MAX] = { 0 };
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (a->kind == ACTION_BACKWARD) want[a->chunk] |= CHUNK_WHOLE;
        if (a->kind == ACTION_BACKWARD_INPUT)
            want[a->chunk] |= a->apart ? CHUNK_SPLIT : CHUNK_PHASED;
    }
    for (int c = 0; c < p->chunks; c++) CHECK_INT(of[c], want[c]);
}

/* The step is never above the simulator's; how far below in units of it is returned. */
static double compare(EstimateInput *in)
{
    Estimate e;
    Pipeline p;
    Simulation sim;
    ScheduleShape s = estimate_shape(in);
    unsigned passes[PLACES];
    CHECK_OK(estimate_passes(&estimator, in, passes));
    CHECK_OK(estimate(&estimator, in, &e));
    CHECK_OK(schedule_make(in->schedule, &s, &made, &scratch, &p));
    SimCost cost = { .ctx = in, .duration = cost_of, .slot = bytes_of };
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    double bubble = 0;
    for (int r = 0; r < in->stages; r++) {
        CHECK_INT(e.rank[r].slots, p.rank[r].slots);
        CHECK_INT(e.rank[r].entries, p.rank[r].entries);
        double first = 0;
        CHECK_NEAR(e.rank[r].slot_arena_bytes, arena_of(in, &p.rank[r], &first), 0);
        CHECK_NEAR(e.rank[r].first_slot_bytes, first, 0);
        check_passes(&p.rank[r], &passes[r * in->chunks]);
        bubble += sim.rank[r].bubble / in->stages;
    }
    CHECK_NEAR(e.step_s, sim.step, 0.01 * sim.step);
    CHECK(e.step_s <= (1 + 1e-12) * sim.step);
    CHECK_NEAR(e.bubble, bubble, 0.01);
    pipeline_forget();
    return 1 - e.step_s / sim.step;
}

static EstimateInput input_of(int i, const ScheduleDesc *d)
{
    EstimateInput in = { .schedule = d,
                         .stages = draw("stages", i, 1, 32),
                         .chunks = d->placement == PLACE_LOOP ? draw("chunks", i, 1, 6) : 2,
                         .blocks = draw("blocks", i, 1, 5),
                         .time = times,
                         .slot = slots };
    ScheduleShape one = { 4, in.chunks, 4, 1, 1, 1, .blocks = 1 };
    if (d->placement == PLACE_LOOP && schedule_legal(d, &one) != OK) in.chunks = 1;
    if (in.chunks > 1 && in.stages == 1) in.stages = 2;
    in.micros = draw("micros", i, 1, 1 + PASSES_MOST / (in.stages * in.chunks));
    if (in.chunks > 1) in.micros = (in.micros / in.stages + 2) * in.stages;
    if (d->placement == PLACE_BOTH) in.stages += in.stages % 2, in.micros += in.micros % 2;
    draw_places(i, i % 4 == 0 ? 0 : draw_one("width", i));
    in.send_s = i % 3 == 0 ? 0 : 0.1 * draw_one("send", i) * sum_of(times[0].forward, PHASES);
    return in;
}

static void estimates_are_the_simulators(void **state)
{
    (void)state;
    int n = 0, same = 0;
    for (int d = 0; d < schedule_table_n; d++) {
        double worst = 0;
        for (int i = 0; i < TRIES; i++) {
            EstimateInput in = input_of(i, &schedule_table[d]);
            ScheduleShape s = estimate_shape(&in);
            if (schedule_legal(in.schedule, &s) != OK) continue;
            double off = compare(&in);
            worst = fmax(worst, off);
            same += off < 1e-12;
            n++;
        }
        printf("%s: at most %.2g of the step below\n", schedule_table[d].name, worst);
    }
    printf("%d layouts, %d as the simulator has them\n", n, same);
    CHECK(n >= 7 * TRIES && 10 * same >= 9 * n);
}

static void thousands_of_micro_batches_are_walked(void **state)
{
    (void)state;
    for (int d = 0; d < schedule_table_n; d++) {
        for (int i = 0; i < RUNS(4, 2); i++) {
            EstimateInput in = input_of(TRIES + i, &schedule_table[d]);
            in.stages = 2 + 2 * i;
            in.micros = 1440;
            if (in.chunks > 2 || d == INTERLEAVED) in.chunks = 2;
            (void)compare(&in);
        }
    }
}

/* With equal chunks the most that lives on a rank is the peak of the simulator. */
static void what_lives_is_the_simulators(void **state)
{
    (void)state;
    int n = 0;
    for (int d = 0; d < schedule_table_n; d++) {
        for (int i = 0; i < 8; i++) {
            Estimate e;
            Pipeline p;
            Simulation sim;
            EstimateInput in = input_of(i, &schedule_table[d]);
            ScheduleShape s = estimate_shape(&in);
            if (in.schedule->phases || schedule_legal(in.schedule, &s) != OK) continue;
            for (int k = 0; k < PLACES; k++)
                slots[k] = slots[0], slots[k].weight = slots[k].whole = 0;
            in.frees = true;
            CHECK_OK(estimate(&estimator, &in, &e));
            CHECK_OK(schedule_make(in.schedule, &s, &made, &scratch, &p));
            SimCost cost = { .ctx = &in, .duration = cost_of, .slot = bytes_of };
            CHECK_OK(simulate_run(&p, &cost, &made, &sim));
            for (int r = 0; r < in.stages; r++)
                CHECK_NEAR(e.rank[r].slot_arena_bytes, sim.rank[r].peak_bytes, 0);
            n++;
            pipeline_forget();
        }
    }
    CHECK(n > 30);
}

static void a_cache_that_is_full_starts_anew(void **state)
{
    (void)state;
    Estimator small;
    Estimate first, again;
    const ScheduleDesc *d = NULL;
    CHECK_OK(schedule_find("interleaved", &d));
    CHECK_OK(estimator_init(&small, (size_t)1 << 18));
    EstimateInput in = input_of(1, d);
    in.stages = 4, in.chunks = 2;
    for (int i = 0; i < 2; i++) {
        in.micros = 16;
        CHECK_OK(estimate(&small, &in, i == 0 ? &first : &again));
        for (in.micros = 4; in.micros <= 160; in.micros += 4) {
            Estimate e;
            CHECK_OK(estimate(&small, &in, &e));
        }
    }
    CHECK_NEAR(first.step_s, again.step_s, 0);
    in.stages = 32, in.chunks = 6, in.micros = 320;
    CHECK_FAILS(estimate(&small, &in, &again), ERR_MEMORY, "estimator");
    estimator_free(&small);
}

static void wrong_layouts_are_errors(void **state)
{
    (void)state;
    Estimate e;
    const ScheduleDesc *d = NULL;
    CHECK_OK(schedule_find("interleaved", &d));
    EstimateInput in = input_of(1, d);
    in.stages = 4, in.chunks = 2, in.micros = 41;
    CHECK_FAILS(estimate(&estimator, &in, &e), ERR_ARG, "numbers are 40 and 44");
    in.micros = 8, in.send_s = NAN;
    CHECK_FAILS(estimate(&estimator, &in, &e), ERR_ARG, "add up to nan");
    in.send_s = 0;
    times[7].input[PHASE_EXPERTS] = -1;
    CHECK_FAILS(estimate(&estimator, &in, &e), ERR_ARG, "the least is -1");
}

/* By hand, as test_simulate draws it: passes take 1, a message 0.5, a whole backward 2. */
static void two_stages_with_slow_links_take_ten(void **state)
{
    (void)state;
    Estimate e;
    const ScheduleDesc *d = NULL;
    const double each[PHASES] = { 0.5, 0, 0.25, 0.25 };
    CHECK_OK(schedule_find("1f1b", &d));
    EstimateInput in = { d, 2, 1, 2, 1, times, slots, 0.5, false };
    for (int i = 0; i < 2; i++) {
        memcpy(times[i].forward, each, sizeof each);
        memcpy(times[i].input, each, sizeof each);
        memcpy(times[i].weight, each, sizeof each);
        slots[i] = (SlotBytes){ 1, 2, 4, 0.5, 0 };
    }
    CHECK_OK(estimate(&estimator, &in, &e));
    CHECK_NEAR(e.step_s, 10, 0);
    CHECK_NEAR(e.bubble, 0.4, 1e-15);
    CHECK_NEAR(e.rank[1].slot_arena_bytes, 3, 0);
    CHECK_NEAR(e.rank[1].pool_bytes, 0.5, 0);
}

static const struct CMUnitTest tests[] = {
    TEST(estimates_are_the_simulators), TEST(thousands_of_micro_batches_are_walked),
    TEST(what_lives_is_the_simulators), TEST(a_cache_that_is_full_starts_anew),
    TEST(wrong_layouts_are_errors),     TEST(two_stages_with_slow_links_take_ten),
};

int main(void)
{
    if (arena_init(&made, "made", MEM_HOST, (size_t)1 << 30) != OK) return 1;
    if (arena_init(&scratch, "scratch", MEM_HOST, (size_t)1 << 30) != OK) return 1;
    if (estimator_init(&estimator, (size_t)1 << 26) != OK) return 1;
    int failed = TEST_RUN(tests);
    estimator_free(&estimator);
    arena_free(&made);
    arena_free(&scratch);
    return failed;
}
