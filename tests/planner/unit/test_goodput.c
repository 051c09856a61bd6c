/* Days of a training that fails now and then: closed forms beside a simulation of every failure, published figures,
 * limits, and what a plan prints of them. */
#include "harness/question.h"

#include "engine/base/rng.h"
#include "planner/answer.h"
#include "planner/goodput.h"

#include <math.h>
#include <stdlib.h>

#define CHECK_SAYS(text, part)                                                                     \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL) fail_msg("\"%s\" is not in: %.2000s", part, text);     \
    } while (0)

static const double DAY_S = 86400;

/* ---- a simulation ---- */

/* Draws times between failures. */
typedef struct Failures {
    uint64_t next;
    double mtbf_s;
} Failures;

static double until_next(Failures *f)
{
    return -f->mtbf_s * log(1 - rng_uniform(7, rng_stream("failures"), f->next++));
}

/* The training event by event. A checkpoint counts write_s after its stall; a failure goes back to the last that
 * counts, and may interrupt a restart. */
static double simulated_s(const GoodputCase *c, Failures *f)
{
    double t = 0, done = 0, saved = 0, pending = 0, counts_at = 0, fails = until_next(f);
    while (done < c->work_s) {
        double next = fmin(done + c->interval_s, c->work_s), end = t + next - done + c->stall_s;
        if (end <= fails) {
            if (counts_at <= end) saved = pending;
            t = end, done = pending = next, counts_at = end + c->write_s;
            continue;
        }
        t = fails;
        if (counts_at <= t) saved = pending;
        done = pending = saved;
        for (fails = t + until_next(f); fails < t + c->restart_s; fails = t + until_next(f))
            t = fails;
        t += c->restart_s;
    }
    return t;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From under one failure in a training to more than one in each segment. Within 2 % of each value, and of the time
 * that failures add within 6 %: that is what a mistake would change. */
static void days_are_those_of_a_simulation_of_every_failure(void **state)
{
    (void)state;
    enum { RUN_COUNT = RUNS(4000, 1000) };
    static const GoodputCase cases[] = {
        { 40 * 86400, 20, 3600 * 3, 600, 30, 0, 0 },    /* Llama 3's rate */
        { 40 * 86400, 20, 3600 * 3, 600, 2, 300, 0 },   /* written while it goes on */
        { 10 * 86400, 20, 86400 * 15, 600, 120, 0, 0 }, /* two thirds of a failure */
        { 10 * 86400, 20, 86400, 3600, 60, 0, 20000 },  /* an interval that is too long */
        { 5 * 86400, 20, 1800, 600, 60, 0, 0 },         /* a failure in half an hour */
        { 2 * 86400, 20, 1000, 700, 200, 0, 0 },        /* most restarts fail, too */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static double seen[RUN_COUNT];
        Failures f = { .mtbf_s = cases[i].mtbf_s };
        Goodput g;
        double sum = 0;
        goodput_times(&cases[i], &g);
        double shortest = g.of.work_s * (1 + g.of.stall_s / g.of.interval_s);
        for (int k = 0; k < RUN_COUNT; k++) sum += seen[k] = simulated_s(&g.of, &f);
        qsort(seen, RUN_COUNT, sizeof *seen, by_value);
        CHECK_NEAR(g.mean_s / (sum / RUN_COUNT), 1, 0.02);
        CHECK_NEAR(g.p50_s / seen[RUN_COUNT / 2], 1, 0.02);
        CHECK_NEAR(g.p90_s / seen[RUN_COUNT * 9 / 10], 1, 0.02);
        CHECK_NEAR((g.mean_s - shortest) / (sum / RUN_COUNT - shortest), 1, 0.06);
    }
}

/* ---- formulas ---- */

/* Worked by hand: x = (900 + 100) / 1000 = 1, y = 500 / 1000, so a segment takes
 * 1000 e^0.5 (e - 1) = 2832.96 s; the training has ten. */
static void the_mean_is_dalys(void **state)
{
    (void)state;
    const GoodputCase c = { 9000, 10, 1000, 500, 100, 0, 900 };
    Goodput g;
    goodput_times(&c, &g);
    CHECK_NEAR(g.mean_s, 10 * 1000 * exp(0.5) * (exp(1) - 1), 1e-6);
    CHECK_NEAR(g.failures, g.mean_s / 1000, 1e-9);
    CHECK_NEAR(g.redone_s, 1000 - 1000 / (exp(1) - 1), 1e-9);
    CHECK_NEAR(g.young_s, sqrt(2 * 100 * 1000.0), 1e-9);
}

/* No other number of steps has a smaller mean. Where a checkpoint is short beside the time between failures, Daly's
 * approximation lies within 1 % and Young's within 10 %. */
static void the_best_interval_is_the_best(void **state)
{
    (void)state;
    static const double stall[] = { 1, 30, 300, 3000 };
    for (int i = 0; i < 4; i++) {
        GoodputCase c = { 30 * 86400, 50, 10000, 600, stall[i], 0, 0 };
        Goodput best, other;
        goodput_times(&c, &best);
        for (int steps = 1; steps < 400; steps++) {
            c.interval_s = steps * c.step_s;
            goodput_times(&c, &other);
            CHECK(best.mean_s <= other.mean_s * (1 + 1e-12));
            CHECK_INT(other.interval_steps, steps);
        }
        if (stall[i] == 1) continue; /* less than a step matters */
        CHECK_NEAR(best.of.interval_s / best.daly_s, 1, stall[i] < 1000 ? 0.05 : 0.2);
    }
    const GoodputCase fine = { 30 * 86400, 0.1, 1e5, 600, 10, 0, 0 };
    Goodput g;
    goodput_times(&fine, &g);
    CHECK_NEAR(g.of.interval_s / g.daly_s, 1, 0.001);
    CHECK_NEAR(g.of.interval_s / g.young_s, 1, 0.01);
    const GoodputCase slow = { 30 * 86400, 10, 10000, 600, 1, 2000, 0 }; /* takes 2000 s to write */
    goodput_times(&slow, &g);
    CHECK_NEAR(g.of.interval_s, 2000, 0);
}

/* More of what hurts never helps, and nothing of it is full speed. */
static void days_grow_with_what_interrupts(void **state)
{
    (void)state;
    const GoodputCase usual = { 20 * 86400, 10, 20000, 600, 20, 60, 0 };
    static const double worse[][4] = { { 1e5, 600, 20, 60 },
                                       { 2e4, 900, 20, 60 },
                                       { 2e4, 600, 90, 60 },
                                       { 2e4, 600, 20, 400 },
                                       { 5e3, 600, 20, 60 } };
    Goodput g, at;
    goodput_times(&usual, &g);
    for (int i = 0; i < 5; i++) {
        const double *w = worse[i];
        const GoodputCase c = { usual.work_s, usual.step_s, w[0], w[1], w[2], w[3], 0 };
        goodput_times(&c, &at);
        CHECK(i == 0 ? at.mean_s < g.mean_s && at.p90_s < g.p90_s
                     : at.mean_s > g.mean_s && at.p50_s > g.p50_s && at.p90_s > g.p90_s);
        CHECK(at.p50_s <= at.p90_s);
    }
    const GoodputCase never = { 20 * 86400, 10, HUGE_VAL, 600, 20, 0, 0 };
    goodput_times(&never, &at);
    CHECK_NEAR(at.mean_s, 20 * 86400 + 20, 1e-6); /* one checkpoint, at the end */
    CHECK_NEAR(at.p90_s, at.mean_s, 0);
    CHECK_NEAR(at.failures, 0, 0);
    for (double mtbf = 1e-3; mtbf < 1e16; mtbf *= 10) { /* no overflow and no cancellation */
        const GoodputCase c = { 20 * 86400, 10, mtbf, 600, 20, 60, 0 };
        goodput_times(&c, &at);
        CHECK(at.mean_s >= 20 * 86400 && at.p90_s >= at.p50_s && at.p50_s >= 20 * 86400);
    }
}

/* ---- plans ---- */

#define LAYOUT "run.compute=bf16", "mesh.pp=2", "mesh.ep=8", "train.batch=2048"

static void load(Question *q, int64_t gpus, const char *const *set, int n, PlanPrice *price)
{
    question_load(q, "deepseek-v2-lite", "h100", gpus, "switchyard", set, n);
    question_open(q);
    CHECK_OK(planner_price(q->planner, &q->layout, price));
}

/* Llama 3 (arXiv:2407.21783): 419 unexpected interruptions in 54 days on 16,384 H100, over 90 % of the time effective.
 * The defaults are its failures and its storage. */
static void a_published_training_comes_out(void **state)
{
    (void)state;
    const char *set[] = { "run.compute=bf16", "train.batch=16384", "mesh.zero=1" };
    Question q;
    PlanPrice p;
    Goodput g;
    load(&q, 16384, set, 3, &p);
    double per_day = p.tokens_per_s_per_gpu * 16384 * DAY_S;
    plan_goodput(&q.request, &p, 54 * per_day, &g);
    CHECK_NEAR(g.full_s / DAY_S, 54, 1e-9);
    CHECK_NEAR(54 * DAY_S / g.of.mtbf_s, 419, 10);
    CHECK(g.share > 0.9 && g.share < 0.97);
    CHECK_NEAR(g.whole_s, 1.1 * g.mean_s, 1e-3);
    CHECK_NEAR(g.gpu_hours, g.whole_s / 3600 * 16384, 1e-3);
    CHECK_NEAR(g.megawatt_h, g.gpu_hours * 700 * 1.8e-6, 1e-6); /* an H100's 700 W */
    question_close(&q);
}

/* Days of smaller steps beside the price of a training whose batch is that size. */
static void a_ramp_takes_the_time_of_its_smaller_steps(void **state)
{
    (void)state;
    static const char *const layouts[] = { "mesh.pp=1", "mesh.pp=4" };
    for (int i = 0; i < 2; i++) {
        const char *ramp[] = { "run.compute=bf16", "train.batch=128", "train.micro_batch=1",
                               layouts[i], "train.batch_ramp=[\"1000: 32\", \"3000: 64\"]" };
        double steps[] = { 1000, 2000, 500 }, tokens = 0, want = 0;
        Question q;
        PlanPrice p;
        Goodput g;
        load(&q, 8, ramp, 5, &p);
        for (int k = 0; k < 3; k++) {
            char batch[32];
            const char *set[] = { ramp[0], batch, ramp[2], ramp[3] };
            Question one;
            PlanPrice alone;
            (void)snprintf(batch, sizeof batch, "train.batch=%d", 32 << k);
            load(&one, 8, set, 4, &alone);
            tokens += steps[k] * (32 << k) * (double)one.config.data_sequence;
            want += steps[k] * alone.step_s;
            question_close(&one);
        }
        plan_goodput(&q.request, &p, tokens, &g);
        CHECK_NEAR(g.full_s / want, 1, i == 0 ? 0.005 : 0.03); /* a bubble is a mean of ranks */
        plan_goodput(&q.request, &p, tokens / 1000, &g);       /* ends within the first size */
        CHECK(g.full_s > 1.02 * want / 1000);
        question_close(&q);
    }
}

/* A checkpoint holds f32 weights and two moments: 12 bytes of each of 16 B parameters, over all ranks. */
static void a_checkpoint_has_the_bytes_of_weights_and_moments(void **state)
{
    (void)state;
    static const char *const types[] = { "run.compute=bf16", "run.compute=f32" };
    for (int i = 0; i < 2; i++) {
        const char *set[] = { types[i], "mesh.ep=8", "train.batch=64", "plan.checkpoint_s=3",
                              "plan.storage_gb_s=0.5" };
        Question q;
        PlanPrice p;
        Goodput g;
        load(&q, 8, set, 5, &p);
        plan_goodput(&q.request, &p, 1e12, &g);
        CHECK_NEAR(g.saved_bytes * 8 / (12 * 15.7e9), i == 0 ? 1 : 1.2,
                   0.01); /* f32: weights whole */
        CHECK_NEAR(g.of.stall_s, 3, 0);
        CHECK_NEAR(g.of.write_s, g.saved_bytes / 0.5e9, 1e-6);
        CHECK_NEAR(g.of.work_s / g.full_s, 1, 1e-9); /* the step waits for the slowest GPU */
        CHECK_NEAR(g.of.step_s / p.step_s, 1, 1e-9);
        question_close(&q);
    }
}

/* 30.84 M H100 hours for 3.8e25 FLOPs at 400 TFLOP/s (Llama 3, goodput.h) is what the default comes to, in its
 * range. */
static void the_default_is_a_published_one(void **state)
{
    (void)state;
    const char *set[] = { "run.compute=bf16", "train.batch=16384", "mesh.zero=1" };
    const double published = 30.84e6 / (3.8e25 / 400e12 / 3600);
    Question q;
    PlanPrice p;
    Goodput g;
    load(&q, 16384, set, 3, &p);
    plan_goodput(&q.request, &p, 15.6e12, &g);
    CHECK_NEAR(g.whole_s / g.full_s / published, 1, 0.03);
    CHECK(GOODPUT_LOST_LEAST * g.mean_s < published * g.full_s);
    CHECK(GOODPUT_LOST_MOST * g.mean_s > published * g.full_s);
    question_close(&q);
}

static void what_never_ends_is_said(void **state)
{
    (void)state;
    const char *set[] = { LAYOUT, "plan.mtbf_hours=0.1" };
    Question q;
    PlanPrice p;
    Goodput g;
    load(&q, 64, set, 5, &p);
    plan_goodput(&q.request, &p, 1e12, &g);
    CHECK(g.share == 0 && isinf(g.mean_s) && isfinite(g.full_s));
    CHECK_FAILS(plan_goodput_ends(&q.request, &g), ERR_FIT,
                "this training never ends: of 64 GPUs one fails every 5.62 s");
    PlanScale row[2] = { { .gpus = 64, .price = p, .goodput = g }, { .price = p } };
    row[0].price.fits = row[1].price.fits = true;
    CHECK_FAILS(plan_scale_fits(row, 1, "64"), ERR_FIT, "of --scale 64 no training ends");
    CHECK_OK(plan_scale_fits(row, 2, "64,8"));
    question_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(days_are_those_of_a_simulation_of_every_failure),
        TEST(the_mean_is_dalys),
        TEST(the_best_interval_is_the_best),
        TEST(days_grow_with_what_interrupts),
        TEST(a_published_training_comes_out),
        TEST(a_ramp_takes_the_time_of_its_smaller_steps),
        TEST(a_checkpoint_has_the_bytes_of_weights_and_moments),
        TEST(the_default_is_a_published_one),
        TEST(what_never_ends_is_said),
    };
    return TEST_RUN(tests);
}
