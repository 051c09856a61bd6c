/* Schedules against their published bubbles and memory, with equal passes and free communication.
 */
#include "engine/schedule/pipelines.h"

#include <float.h>

/* The bubble is the whole ranks', so it is the same on each: all have the same work. */
static void bubble_is(const Simulation *sim, int stages, double want)
{
    for (int r = 0; r < stages; r++) CHECK_NEAR(sim->rank[r].bubble, want, 64 * DBL_EPSILON);
}

static void bubble_of_gpipe_1f1b_and_interleaved_is_theirs(void **state)
{
    (void)state;
    static const int shapes[][3] = { { 4, 1, 8 },   { 8, 1, 32 },  { 8, 2, 32 }, { 16, 1, 16 },
                                     { 16, 3, 16 }, { 16, 6, 16 }, { 2, 5, 4 },  { 3, 4, 9 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int p = shapes[i][0], v = shapes[i][1], m = shapes[i][2];
        ScheduleShape s = { p, v, m, 1, 1, 1, .blocks = 0 };
        double want = (p - 1) / (double)(p - 1 + m * v);
        static const char *const names[] = { "gpipe", "1f1b" };
        for (int n = 0; n < 2 && v == 1; n++) {
            Pipeline x = pipeline_of(names[n], &s);
            Simulation sim = pipeline_simulate(&x, s);
            bubble_is(&sim, p, want);
        }
        if (v > 1) {
            Pipeline x = pipeline_of("interleaved", &s);
            Simulation sim = pipeline_simulate(&x, s);
            bubble_is(&sim, p, want);
        }
        pipeline_forget();
    }
}

/* arXiv:2104.04473's formula as AMD's MoE article states it, 16 stages, 16 micro-batches: 48.4 %
 * with one chunk, 13.5 % with six; its simulator, 8 stages, 32 micro-batches: 17.95 and 9.86 %. */
static void published_bubbles_come_out(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int stages, chunks, micros;
        double percent, rounding;
    } rows[] = { { "1f1b", 16, 1, 16, 48.4, 0.05 },
                 { "interleaved", 16, 3, 16, 23.8, 0.05 },
                 { "interleaved", 16, 6, 16, 13.5, 0.05 },
                 { "1f1b", 8, 1, 32, 17.95, 0.005 },
                 { "interleaved", 8, 2, 32, 9.86, 0.005 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ScheduleShape s = { rows[i].stages, rows[i].chunks, rows[i].micros, 1, 1, 1, .blocks = 0 };
        Pipeline p = pipeline_of(rows[i].name, &s);
        Simulation sim = pipeline_simulate(&p, s);
        for (int r = 0; r < s.stages; r++) {
            CHECK_NEAR(100 * sim.rank[r].bubble, rows[i].percent, rows[i].rounding);
        }
        pipeline_forget();
    }
}

/* Stages of 8, 32 micro-batches: 1F1B keeps 8, 7, ... 1; interleaved over two chunks 11.5 ... 4.5
 * stages' worth; GPipe all. */
static void slots_in_flight_are_theirs(void **state)
{
    (void)state;
    ScheduleShape one = { 8, 1, 32, 1, 1, 1, .blocks = 0 },
                  two = { 8, 2, 32, 0.5, 0.5, 0.5, .blocks = 0 };
    Pipeline gpipe = pipeline_of("gpipe", &one), p1f1b = pipeline_of("1f1b", &one);
    Pipeline interleaved = pipeline_of("interleaved", &two);
    Simulation of_1f1b = pipeline_simulate(&p1f1b, one);
    Simulation of_interleaved = pipeline_simulate(&interleaved, two);
    for (int r = 0; r < 8; r++) {
        CHECK_INT(gpipe.rank[r].slots, 32);
        CHECK_INT(p1f1b.rank[r].slots, 8 - r);
        CHECK_INT(interleaved.rank[r].slots, 23 - 2 * r);
        CHECK_NEAR(of_1f1b.rank[r].peak_bytes, 8 - r, 0);
        CHECK_NEAR(of_interleaved.rank[r].peak_bytes, 23 - 2 * r, 0);
    }
    pipeline_forget();
}

/* 8 stages, 32 micro-batches, F = I = W = 1 a stage (so 0.5 a chunk of two): 6.80 % of ZB-H1 is
 * (p-1)/(3m+p-1), 3.52 % of ZBV (p-1)/(6m+p-1). Slots are of one chunk: 16 of half a stage are the 8
 * stages of AMD's simulator. */
static void zero_bubble_family_is_its_theory(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int chunks, slots;
        double step;
    } rows[] = { { "zb-h1", 1, 8, 103 }, { "zbv", 2, 16, 99.5 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double each = 1.0 / rows[i].chunks;
        ScheduleShape s = { 8, rows[i].chunks, 32, each, each, each, .blocks = 0 };
        Pipeline p = pipeline_of(rows[i].name, &s);
        Simulation sim = pipeline_simulate(&p, s);
        int most = 0;
        for (int r = 0; r < 8; r++) most = p.rank[r].slots > most ? p.rank[r].slots : most;
        CHECK_NEAR(sim.step, rows[i].step, 0);
        bubble_is(&sim, 8, 1 - 96 / rows[i].step);
        CHECK_INT(most, rows[i].slots);
        pipeline_forget();
    }
}

/* ZB-H1: (p-1)(F+I-W), arXiv:2401.10241, table 1, while W is not the longest; ZBV: (p-1) of a
 * chunk. */
static void zero_bubble_closed_forms_hold_for_other_sizes(void **state)
{
    (void)state;
    for (int p = 2; p <= 16; p += 2) {
        ScheduleShape s = { p, 1, 4 * p, 1, 1.25, 0.75, .blocks = 0 },
                      v = { p, 2, 4 * p, 1, 1, 1, .blocks = 0 };
        Pipeline h1 = pipeline_of("zb-h1", &s), zbv = pipeline_of("zbv", &v);
        CHECK_NEAR(pipeline_simulate(&h1, s).step - 12 * p, (p - 1) * 1.5, 1e-12 * p);
        CHECK_NEAR(pipeline_simulate(&zbv, v).step - 24 * p, p - 1, 0);
        for (int r = 0; r < p; r++) CHECK(h1.rank[r].slots <= p && zbv.rank[r].slots <= 2 * p);
        pipeline_forget();
    }
}

/* DeepSeek's table: (PP/2-1)(F&B + B - 3W) with PP+1 slots, where F&B is one piece. A forward that
 * is sent on before its pair's backward has run saves I: (PP/2-1)(F + I - W) where the three are
 * equal. */
static void dualpipe_is_within_its_theory(void **state)
{
    (void)state;
    static const double input[] = { 1, 1.25 };
    for (int pp = 4; pp <= 16; pp += 2) {
        for (int i = 0; i < 2; i++) {
            ScheduleShape s = { pp, 2, 4 * pp, 1, input[i], 2 - input[i], .blocks = 1 }, half = s;
            half.stages = pp / 2;
            Pipeline two = pipeline_of("dualpipe", &s), one = pipeline_of("dualpipe-v", &half);
            double published = (pp / 2.0 - 1) * (s.forward + 2 * s.input - s.weight);
            double of_two = pipeline_simulate(&two, s).step - 4 * pp * 3.0;
            double of_one = pipeline_simulate(&one, half).step - 8 * pp * 3.0;
            if (i == 0) CHECK_NEAR(of_two, pp / 2.0 - 1, 0);
            if (i == 0) CHECK_NEAR(of_one, pp / 2.0 - 1, 0);
            CHECK(of_two <= published && of_one <= published);
            for (int r = 0; r < pp; r++) CHECK_INT(two.rank[r].slots, pp + 1);
            for (int r = 0; r < pp / 2; r++) CHECK_INT(one.rank[r].slots, pp + 1);
            pipeline_forget();
        }
    }
}

/* Compute of a phase takes 1 in each of F, I and W, an exchange 0.5. */
static double block_cost(void *ctx, int rank, const Action *a)
{
    (void)rank;
    if (!action_is_pass(a->kind)) return 0;
    return a->lane == LANE_COMM ? *(const double *)ctx : 1;
}

/* In the middle of a step of DualPipe, too, 64 more micro-batches take their compute alone: half of them on each
 * chunk of a rank, or all of them on both. */
static void dualpipe_hides_exchanges(void **state)
{
    (void)state;
    static const char *const names[] = { "dualpipe", "dualpipe-v" };
    double exchange = 0.5;
    for (int i = 0; i < 2; i++) {
        double step[2];
        for (int k = 0; k < 2; k++) {
            ScheduleShape s = { 4, 2, k == 0 ? 32 : 96, 4, 4, 4, .blocks = 2 };
            Pipeline p = pipeline_of(names[i], &s);
            Simulation sim;
            SimCost cost = { .ctx = &exchange, .duration = block_cost };
            CHECK_OK(simulate_run(&p, &cost, &made, &sim));
            step[k] = sim.step;
            pipeline_forget();
        }
        CHECK_NEAR(step[1] - step[0], 64 * 12 * (i + 1), 1e-9);
    }
}

static double exchange_step(int stages, int chunks, int micros, double exchange)
{
    ScheduleShape s = { stages, chunks, micros, 4, 4, 4, .blocks = 2 };
    Pipeline p = pipeline_of("1f1b-overlap", &s);
    Simulation sim;
    SimCost cost = { .ctx = &exchange, .duration = block_cost };
    CHECK_OK(simulate_run(&p, &cost, &made, &sim));
    for (int r = 0; r < stages; r++) {
        CHECK_INT(p.rank[r].slots, 2 * (stages - 1 - r) + (chunks - 1) * stages + 2);
    }
    pipeline_forget();
    return sim.step;
}

/* Two blocks on one rank: a pair takes its compute, 12, and no exchange is left over. The first
 * forward has nothing to hide behind: 4 + 4 * 0.5; the last backward hides one exchange of a block
 * behind weight gradients, the other one opens the block's memory: 8 + 2 * 0.5. */
static void exchanges_hide_behind_the_other_micro_batch(void **state)
{
    (void)state;
    for (int m = 2; m < 20; m += 3) {
        CHECK_NEAR(exchange_step(1, 1, m, 0.5), 12 * m + 6 * 0.5, 0);
        CHECK_NEAR(exchange_step(1, 1, m, 0), 12 * m, 0);
    }
    /* over ranks, too: what 64 more micro-batches take is their compute alone */
    for (int chunks = 1; chunks <= 3; chunks++) {
        double few = exchange_step(4, chunks, 32, 0.5), many = exchange_step(4, chunks, 96, 0.5);
        CHECK_NEAR(many - few, 64 * 12 * chunks, 1e-9);
    }
}

static const struct CMUnitTest tests[] = {
    TEST(bubble_of_gpipe_1f1b_and_interleaved_is_theirs),
    TEST(published_bubbles_come_out),
    TEST(slots_in_flight_are_theirs),
    TEST(zero_bubble_family_is_its_theory),
    TEST(zero_bubble_closed_forms_hold_for_other_sizes),
    TEST(dualpipe_is_within_its_theory),
    TEST(dualpipe_hides_exchanges),
    TEST(exchanges_hide_behind_the_other_micro_batch),
};
PIPELINE_TESTS(tests)
