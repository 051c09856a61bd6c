/* Answers to a planner's question: what limits it, what does not fit, the same training on more GPUs. */
#include "harness/question.h"

#include "planner/answer.h"

static Question asked;

/* Its arena lives until question_close. */
static PlanQuestion question(const char *gpu, int64_t gpus, bool search, const char *const *set,
                             int n)
{
    question_load(&asked, "deepseek-v2-lite", gpu, gpus, "switchyard", set, n);
    return (PlanQuestion){ .request = asked.request, .search = search, .top = 3 };
}

/* Axes of one value, so that a search looks at a handful. */
#define NARROW                                                                                     \
    "search.cp=[1]", "search.vpp=[1]", "search.schedule=[1f1b]", "search.zero=[1]",                \
        "search.micro_batch=[1]", "run.compute=bf16", "search.ep=[1,8]"
enum { NARROWS = 7 };

static void the_layout_is_the_configurations_or_the_best(void **state)
{
    (void)state;
    const char *set[] = { NARROW, "mesh.pp=2", "mesh.ep=8", "train.batch=64" };
    PlanQuestion q = question("b200", 16, false, set, NARROWS + 3);
    PlanAnswer given, best;
    PlanReport r;
    CHECK_OK(plan_answer(&q, &asked.arena, &given));
    CHECK_INT(given.layout.pp, 2);
    CHECK(given.price.fits);
    CHECK_OK(plan_answer_fits(&given, &asked.arena));
    CHECK_OK(plan_answer_report(&given, &asked.arena, &r));
    CHECK(r.search == NULL && r.price == &given.price && *r.partition != '\0');
    q.search = true;
    CHECK_OK(plan_answer(&q, &asked.arena, &best));
    CHECK(best.price.step_s <= given.price.step_s);
    CHECK_OK(plan_answer_report(&best, &asked.arena, &r));
    CHECK(r.search == &best.found && best.found.n_best == 3);
    for (int i = 0; i < 3; i++) CHECK(*best.found.best[i].partition != '\0');
    plan_answer_free(&given);
    plan_answer_free(&best);
    question_close(&asked);
}

static void gpus_that_cannot_share_the_batch_are_said(void **state)
{
    (void)state;
    const char *set[] = { NARROW, "train.batch=12", "search.pp=[1]" };
    PlanQuestion q = question("b200", 16, true, set, NARROWS + 2);
    PlanAnswer r;
    Text t;
    CHECK_OK(plan_answer(&q, &asked.arena, &r));
    CHECK_INT(r.asked, 16);
    CHECK_INT(r.request.gpus, 12);
    CHECK_INT(q.request.gpus, 16);
    CHECK_OK(text_init(&t, &asked.arena));
    CHECK_OK(plan_answer_limits(&r, &t));
    CHECK(text_starts(
        t.data, "gpus        16 cannot share out train.batch 12: this is for 12 of them, the most "
                "that can; all share out train.batch=16 above\n"));
    plan_answer_free(&r);
    question_close(&asked);
}

static void a_layout_that_does_not_fit_names_the_nearest_that_does(void **state)
{
    (void)state;
    const char *set[] = { NARROW, "train.batch=64" };
    PlanQuestion q = question("h100", 16, false, set, NARROWS + 1);
    PlanAnswer r;
    CHECK_OK(plan_answer(&q, &asked.arena, &r));
    CHECK(!r.price.fits);
    CHECK_FAILS(plan_answer_fits(&r, &asked.arena), ERR_FIT, "the nearest found that fits takes");
    plan_answer_free(&r);
    question_close(&asked);
}

/* Published runs have used 99 % of a GPU: such a layout is an answer, with a word. */
static void a_layout_within_the_gpu_and_not_the_margin_is_tight(void **state)
{
    (void)state;
    const char *set[] = { NARROW, "mesh.pp=2", "mesh.ep=8", "train.batch=64", "moe.buffers=worst" };
    PlanQuestion q = question("b200", 16, false, set, NARROWS + 4);
    PlanAnswer r;
    CHECK_OK(plan_answer(&q, &asked.arena, &r));
    const double gib = r.price.peak_bytes / PLAN_GIB;
    CHECK(!r.price.tight);
    for (int i = 0; i < 2; i++) {
        plan_answer_free(&r);
        asked.hardware.memory_gib = gib / (i == 0 ? 0.98 : 1.01);
        if (i == 1) asked.config.plan_margin = 0; /* it lacks 1 %, which the GPU has not */
        CHECK_OK(plan_answer(&q, &asked.arena, &r));
        CHECK(!r.price.fits && r.price.tight == (i == 0));
        CHECK_TEXT(plan_fit_word(&r.price), i == 0 ? "tight" : "does not fit");
        CHECK_INT(plan_answer_fits(&r, &asked.arena), i == 0 ? OK : ERR_FIT);
        status_clear();
    }
    plan_answer_free(&r);
    question_close(&asked);
}

/* Where the host sets the pace the step is as long. */
static void more_rows_on_the_busiest_rank_are_never_faster(void **state)
{
    (void)state;
    static const char *const set[] = { "run.compute=bf16", "data.sequence=1024", "train.batch=64",
                                       "mesh.ep=8", "train.micro_batch=2" };
    PlanAnswer a;
    PlanReport r;
    question_load(&asked, "deepseek-v2-lite", "mi355x", 8, "primus", set, 5);
    const PlanQuestion q = { .request = asked.request };
    CHECK_OK(plan_answer(&q, &asked.arena, &a));
    CHECK_OK(plan_answer_report(&a, &asked.arena, &r));
    CHECK(a.price.part_s[PLAN_HOST] > 0.5 * a.price.step_s);
    CHECK_NEAR(r.unbalanced / a.price.tokens_per_s_per_gpu, 1, 0);
    plan_answer_free(&a);
    question_close(&asked);
}

/* Layers are evenly spread, so a layer more on each stage is what the model with so many more layers plans. */
static void the_slope_is_what_a_deeper_model_takes_more(void **state)
{
    (void)state;
    static const struct {
        const char *pp, *vpp, *schedule, *layers, *deeper, *dense, *of;
        int64_t more, chunks;
    } models[] = {
        { "mesh.pp=1", "mesh.vpp=1", "mesh.schedule=1f1b", "model.layers=12", "model.layers=13",
          "model.dense_layers=1", "with experts", 1, 1 },
        { "mesh.pp=4", "mesh.vpp=1", "mesh.schedule=1f1b", "model.layers=12", "model.layers=16",
          "model.dense_layers=1", "with experts", 4, 1 },
        { "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=interleaved", "model.layers=12",
          "model.layers=16", "model.dense_layers=1", "with experts", 4, 2 },
        { "mesh.pp=2", "mesh.vpp=1", "mesh.schedule=1f1b", "model.layers=12", "model.layers=14",
          NULL, "without experts", 2, 1 },
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        PlanPrice price[2];
        PlanReport r = { 0 };
        for (int k = 0; k < 2; k++) {
            const char *layers = k == 0 ? models[i].layers : models[i].deeper;
            char dense[64];
            (void)snprintf(dense, sizeof dense, "model.dense_layers=%s", strchr(layers, '=') + 1);
            const char *set[] = { NARROW,
                                  "train.batch=64",
                                  models[i].pp,
                                  models[i].vpp,
                                  models[i].schedule,
                                  layers,
                                  models[i].dense != NULL ? models[i].dense : dense };
            PlanQuestion q = question("b200", 8, false, set, NARROWS + 6);
            PlanAnswer a;
            PlanReport report;
            CHECK_OK(plan_answer(&q, &asked.arena, &a));
            CHECK_OK(plan_answer_report(&a, &asked.arena, &report));
            price[k] = a.price;
            if (k == 0) {
                r = report;
                CHECK_TEXT(r.slope_of, models[i].of);
            }
            plan_answer_free(&a);
            question_close(&asked);
        }
        CHECK_NEAR(r.slope_s * (double)models[i].more / (price[1].step_s - price[0].step_s), 1,
                   1e-9);
        CHECK_NEAR(r.slope_bytes * (double)models[i].chunks /
                       (price[1].peak_bytes - price[0].peak_bytes),
                   1, 1e-9);
    }
}

/* 1 GPU holds it in no way: what lacks is of the layout that lacks least, not of the one asked for. */
static void where_nothing_fits_the_layout_that_lacks_least_is_named(void **state)
{
    (void)state;
    const char *set[] = { NARROW, "train.batch=64", "train.micro_batch=64" };
    PlanQuestion q = question("h100", 1, false, set, NARROWS + 2);
    PlanAnswer r;
    char lacks[64];
    CHECK_OK(plan_answer(&q, &asked.arena, &r));
    CHECK_FAILS(plan_answer_fits(&r, &asked.arena), ERR_FIT,
                "plan: nothing near it fits: the nearest, PP1");
    CHECK(r.found.nearest.price.peak_bytes < r.price.peak_bytes);
    (void)snprintf(lacks, sizeof lacks, "takes %.2f GiB",
                   r.found.nearest.price.peak_bytes / PLAN_GIB);
    CHECK(strstr(status_message(), lacks) != NULL);
    plan_answer_free(&r);
    question_close(&asked);
}

/* A row outlives its answer: the list of recomputed layers, too. */
static void a_scaling_is_the_same_training_on_more_gpus(void **state)
{
    (void)state;
    const char *set[] = { NARROW, "mesh.ep=8", "train.batch=64", "recompute.pieces=[layer]",
                          "recompute.layers=[1,2,5]" };
    PlanQuestion q = question("h100", 1, false, set, NARROWS + 4);
    PlanScale row[2];
    const char *limits = NULL;
    int n = 0;
    char text[PLAN_LAYOUT_BYTES];
    CHECK_OK(plan_scale_add(&q, 8, &asked.arena, row, &n, &limits));
    CHECK_OK(plan_scale_add(&q, 16, &asked.arena, row, &n, &limits));
    CHECK_INT(n, 2);
    CHECK_TEXT(limits, "");
    CHECK_INT(row[1].gpus, 16);
    CHECK(strstr(plan_layout_text(text, &row[0].layout, &row[0].price), "layer in 1-2+5") != NULL);
    CHECK(row[1].price.step_s < row[0].price.step_s);
    row[0].price.fits = false, row[1].price.fits = true;
    CHECK_OK(plan_scale_fits(row, 2, "8,16"));
    CHECK_FAILS(plan_scale_fits(row, 1, "8"), ERR_FIT, "of --scale 8 no row does");
    CHECK_FAILS(plan_scale_add(&q, 12, &asked.arena, row, &n, &limits), ERR_ARG, "mesh.ep 8");
    CHECK_INT(n, 2);
    question_close(&asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_layout_is_the_configurations_or_the_best),
        TEST(gpus_that_cannot_share_the_batch_are_said),
        TEST(a_layout_that_does_not_fit_names_the_nearest_that_does),
        TEST(a_layout_within_the_gpu_and_not_the_margin_is_tight),
        TEST(more_rows_on_the_busiest_rank_are_never_faster),
        TEST(the_slope_is_what_a_deeper_model_takes_more),
        TEST(where_nothing_fits_the_layout_that_lacks_least_is_named),
        TEST(a_scaling_is_the_same_training_on_more_gpus),
    };
    return TEST_RUN(tests);
}
