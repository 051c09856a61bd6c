/* Schedules against their published bubbles and memory, with equal passes and free communication.
 */
#include "schedule/pipelines.h"

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
        ScheduleShape s = { p, v, m, 1, 1, 1 };
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
        ScheduleShape s = { rows[i].stages, rows[i].chunks, rows[i].micros, 1, 1, 1 };
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
    ScheduleShape one = { 8, 1, 32, 1, 1, 1 }, two = { 8, 2, 32, 0.5, 0.5, 0.5 };
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

static const struct CMUnitTest tests[] = {
    TEST(bubble_of_gpipe_1f1b_and_interleaved_is_theirs),
    TEST(published_bubbles_come_out),
    TEST(slots_in_flight_are_theirs),
};
PIPELINE_TESTS(tests)
