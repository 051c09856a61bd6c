/* Documents: pairs of query and key that they hide, what a plan counts of them, and what attention computes. */
#include "harness/question.h"

#include "planner/report.h"

#include <math.h>
#include <stdio.h>

enum { T = 4096, BATCH = 8 };

static const double ALL = (T + 1) / 2.0;

typedef struct Seen {
    double step_s, mfu, peak_flops;
    bool report_skips;
    char notes[512];
} Seen;

/* A plan of 8 sequences on one B200 where a query sees `mean` keys. */
static Seen seen_on(const char *stack, double mean, const char *more)
{
    Question q;
    PlanPrice price;
    Text t;
    char context[64];
    (void)snprintf(context, sizeof context, "plan.mean_context=%.17g", mean);
    const char *set[] = { "data.sequence=4096", "train.batch=8", "train.micro_batch=1",
                          "run.compute=bf16",   context,         more };
    question_load(&q, "olmoe-1b-7b", "b200", 1, stack, set, 6);
    question_open(&q);
    CHECK_OK(planner_price(q.planner, &q.layout, &price));
    CHECK_OK(text_init(&t, &q.arena));
    const PlanReport r = { .request = &q.request,
                           .layout = &q.layout,
                           .price = &price,
                           .skips_documents = planner_skips_documents(q.planner) };
    CHECK_OK(plan_report_notes(&r, &t));
    Seen s = { price.step_s, price.mfu, 1e12 * q.hardware.peak_bf16, r.skips_documents, "" };
    (void)snprintf(s.notes, sizeof s.notes, "%.500s", t.used > 0 ? t.data : "");
    question_close(&q);
    return s;
}

static const char PLAIN[] = "attention.window=0";

/* 16 layers, 16 heads of 128: two products forward and five backward, each of 2 x 128 FLOPs a pair. */
static double pair_flops(void) { return 16.0 * 16 * 7 * 2 * 128; }

/* Other stacks' kernels compute all pairs: a step takes as long. MFU counts those that exist. */
static void hidden_pairs_are_no_work_of_the_model(void **state)
{
    (void)state;
    const Seen all = seen_on("megatron", 0, PLAIN), same = seen_on("megatron", ALL, PLAIN);
    const Seen some = seen_on("megatron", 500, PLAIN);
    CHECK_NEAR(same.mfu / all.mfu, 1, 1e-12);
    CHECK_NEAR(some.step_s / all.step_s, 1, 1e-12);
    const double hidden = pair_flops() * BATCH * T * (ALL - 500);
    CHECK_NEAR((all.mfu - some.mfu) * all.step_s * all.peak_flops / hidden, 1, 1e-6);
    CHECK_TEXT(all.notes, "");
    CHECK(strstr(some.notes, "sees 500 of 2048.5 keys") != NULL);
    CHECK(strstr(some.notes, "attention computes all") != NULL);
}

/* A kernel that skips them works on what is left, at the rate of sequences as short as have so many pairs. Below the
 * first point of the sheet's curve the rate falls with the size, so that the time stays. */
static void a_kernel_that_skips_documents_works_on_what_is_left(void **state)
{
    (void)state;
    static const char SKIPS[] = "megatron,skips_documents=1";
    const Seen all = seen_on(SKIPS, 0, PLAIN), most = seen_on(SKIPS, 2000, PLAIN);
    const Seen some = seen_on(SKIPS, 1200, PLAIN), slow = seen_on("megatron", 1200, PLAIN);
    const Seen own = seen_on("switchyard", 1200, PLAIN), own_all = seen_on("switchyard", 0, PLAIN);
    CHECK(some.report_skips && own.report_skips && !slow.report_skips);
    CHECK(own.step_s < own_all.step_s);
    CHECK(some.step_s < most.step_s && most.step_s < all.step_s && all.step_s <= slow.step_s);
    CHECK(seen_on(SKIPS, 20, PLAIN).step_s > 0.5 * all.step_s);
    CHECK_NEAR(some.mfu * some.step_s / (slow.mfu * slow.step_s), 1, 1e-9);
    CHECK(strstr(some.notes, "attention computes no others") != NULL);
    const double least = seen_on(SKIPS, 100, PLAIN).step_s, less = seen_on(SKIPS, 50, PLAIN).step_s;
    CHECK_NEAR(less / least, 1, 1e-2);
    CHECK((all.step_s - least) / all.step_s > 0.01);
}

/* With a window of 128 a query sees 126 keys anyway: documents of 500 hide none of them, those of 63 half. */
static void a_window_hides_what_documents_would(void **state)
{
    (void)state;
    static const char WINDOW[] = "attention.window=128";
    const double keys = 128 - 128 * 127 / (2.0 * T);
    const Seen all = seen_on("megatron", 0, WINDOW), wide = seen_on("megatron", 500, WINDOW);
    const Seen half = seen_on("megatron", keys / 2, WINDOW);
    CHECK_NEAR(wide.mfu / all.mfu, 1, 1e-12);
    const double hidden = pair_flops() * BATCH * T * keys / 2;
    CHECK_NEAR((all.mfu - half.mfu) * all.step_s * all.peak_flops / hidden, 1, 1e-6);
    static const char CHUNK[] = "attention.chunk=1024";
    const Seen chunks = seen_on("megatron", 0, CHUNK), part = seen_on("megatron", 100, CHUNK);
    const double left = pair_flops() * BATCH * T * (512.5 - 100);
    CHECK_NEAR((chunks.mfu - part.mfu) * chunks.step_s * chunks.peak_flops / left, 1, 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hidden_pairs_are_no_work_of_the_model),
        TEST(a_kernel_that_skips_documents_works_on_what_is_left),
        TEST(a_window_hides_what_documents_would),
    };
    return TEST_RUN(tests);
}
