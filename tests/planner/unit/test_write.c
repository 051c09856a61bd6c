/* Rows of a search can be typed back: the configuration that --write writes has the row's layout and its price, bit by
 * bit. And every preset has a price on every GPU. */
#include "harness/test.h"

#include "engine/config/config_private.h"
#include "hardware/presets.h"
#include "planner/answer.h"
#include "planner/stack/stack.h"

#include <stdio.h>

static Arena arena;

typedef struct Asked {
    Config config;
    Hardware hardware;
    PlanStack stack;
    PlanQuestion question;
} Asked;

static void ask(Asked *q, const char *gpu, int64_t gpus, const char *stack, bool search, int top)
{
    CHECK_OK(hardware_load(&q->hardware, &arena, gpu));
    CHECK_OK(stack_load(&q->stack, &arena, stack));
    q->question = (PlanQuestion){ .request = { &q->config, &q->hardware, &q->stack, gpus },
                                  .search = search,
                                  .top = top };
}

/* A search, and the rows of it that are written. */
static const struct {
    const char *gpu, *stack;
    int64_t gpus;
    const char *set[6];
} searches[] = {
    { "h200", "switchyard", 8, { "search.pp=[1,2]", "search.schedule=[1f1b]" } },
    { "h200", "switchyard", 8, { "search.pp=[4]", "search.recompute=[layer/4]" } },
    { "h200", "switchyard", 16, { "search.pp=[1]", "search.shard=[8]", "search.zero=[2,3]" } },
    { "h200",
      "switchyard",
      8,
      { "search.schedule=[interleaved]", "search.pp=[2,4]", "search.recompute=[layer/2]" } },
    { "h200", "switchyard", 8, { "search.schedule=[dualpipe,dualpipe-v]", "search.pp=[2,4]" } },
    { "h200", "switchyard", 8, { "search.pp=[2]", "search.schedule=[zbv]", "fp8.recipe=block" } },
    { "h200",
      "switchyard",
      16,
      { "search.pp=[2]", "search.schedule=[1f1b]", "mtp.layers=1",
        "search.recompute=[pieces,layer]" } },
    { "h200",
      "switchyard",
      8,
      { "search.pp=[2]", "search.schedule=[1f1b]", "search.compute=[f32,bf16]",
        "search.buffers=[pooled,worst]" } },
    { "mi355x", "primus", 8, { "search.pp=[2,4]", "search.schedule=[1f1b,interleaved]" } },
    { "h200",
      "megatron",
      16,
      { "search.tp=[1,2]", "search.pp=[2]", "search.recipe=[none,tensor]" } },
    { "mi355x", "torchtitan", 8, { "search.pp=[2]", "search.schedule=[1f1b,zbv]" } },
};

enum { SEARCHES = sizeof searches / sizeof *searches, TOP = 12 };

static void check_row(const Asked *asked, PlanAnswer *found, const PlanReport *report, int row)
{
    Asked again = *asked;
    PlanAnswer *one = NULL;
    Arena text = { 0 };
    Text yaml;
    const SearchRow *want = &found->found.best[row - 1];
    char left[PLAN_LAYOUT_BYTES], right[PLAN_LAYOUT_BYTES];
    CHECK_OK(arena_init(&text, "text", MEM_HOST, (size_t)1 << 24));
    CHECK_OK(text_init(&yaml, &text));
    CHECK_OK(plan_answer_write(found, report, row, &arena, &yaml));
    CHECK_OK(config_parse(&again.config, &arena, "row.yaml", yaml.data, yaml.used));
    CHECK_OK(config_check(&again.config));
    again.question.request.config = &again.config;
    again.question.search = false;
    CHECK_OK(ARENA_ZEROED(&arena, 1, &one));
    CHECK_OK(plan_answer(&again.question, &arena, one));
    CHECK_TEXT(plan_layout_text(left, &one->layout, &one->price),
               plan_layout_text(right, &want->layout, &want->price));
    CHECK_NEAR(one->price.step_s, want->price.step_s, 0);
    CHECK_NEAR(one->price.bubble, want->price.bubble, 0);
    CHECK_NEAR(one->price.peak_bytes, want->price.peak_bytes, 0);
    for (int i = 0; i < PLAN_KINDS; i++) CHECK_NEAR(one->price.memory[i], want->price.memory[i], 0);
    for (int i = 0; i < PLAN_PARTS; i++) CHECK_NEAR(one->price.part_s[i], want->price.part_s[i], 0);
    CHECK_NEAR(one->price.room.pool, want->price.room.pool, 0);
    plan_answer_free(one);
    arena_free(&text);
}

static void a_written_row_has_the_same_price_and_layout(void **state)
{
    (void)state;
    int rows = 0, sharded = 0, again = 0, chunked = 0;
    for (int i = 0; i < SEARCHES; i++) {
        const char *set[10] = { "train.batch=64", "data.sequence=4096" };
        int n = 2;
        Asked q;
        PlanAnswer *found = NULL;
        PlanReport report;
        CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)4 << 30));
        for (int k = 0; k < 6 && searches[i].set[k] != NULL; k++) set[n++] = searches[i].set[k];
        CHECK_OK(config_load(&q.config, &arena, "deepseek-v2-lite", set, n));
        ask(&q, searches[i].gpu, searches[i].gpus, searches[i].stack, true, TOP);
        CHECK_OK(ARENA_ZEROED(&arena, 1, &found));
        CHECK_OK(plan_answer(&q.question, &arena, found));
        CHECK_OK(plan_answer_report(found, &arena, &report));
        CHECK(found->found.n_best > 0);
        for (int row = 1; row <= found->found.n_best; row += 2) {
            const PlanLayout *l = &found->found.best[row - 1].layout;
            check_row(&q, found, &report, row);
            rows++;
            sharded += l->shard > 0;
            again += l->recompute != 0 && l->recompute_blocks < 100;
            chunked += l->vpp > 1;
        }
        plan_answer_free(found);
        arena_free(&arena);
    }
    CHECK(rows >= 30 && sharded > 0 && again > 3 && chunked > 3);
}

static void a_row_that_is_not_there_is_named(void **state)
{
    (void)state;
    Asked q;
    PlanAnswer *one = NULL;
    PlanReport report;
    Text yaml;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)4 << 30));
    CHECK_OK(config_load(&q.config, &arena, "deepseek-v2-lite", NULL, 0));
    ask(&q, "h200", 8, "switchyard", false, 1);
    CHECK_OK(ARENA_ZEROED(&arena, 1, &one));
    CHECK_OK(plan_answer(&q.question, &arena, one));
    CHECK_OK(plan_answer_report(one, &arena, &report));
    CHECK_OK(text_init(&yaml, &arena));
    CHECK_FAILS(plan_answer_write(one, &report, 2, &arena, &yaml), ERR_ARG,
                "--row 2: there are rows 1 to 1");
    plan_answer_free(one);
    arena_free(&arena);
}

/* ---- presets and GPUs ---- */

static void every_preset_has_a_price_on_every_gpu(void **state)
{
    (void)state;
    static const char *const types[] = { "run.compute=bf16", "run.compute=f32" };
    int large = 0;
    for (int i = 0; i < config_presets_n; i++) {
        for (int k = 0; k < 2 * hardware_presets_n; k++) {
            const char *set[] = { "train.batch=64", "train.micro_batch=1", types[k % 2] };
            Asked q;
            PlanAnswer *one = NULL;
            CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)4 << 30));
            CHECK_OK(config_load(&q.config, &arena, config_presets[i].name, set, 2));
            const bool is_large = q.config.model_hidden >= 1024;
            if (is_large && q.config.run_compute != COMPUTE_BF16)
                fail_msg("%s is not in bf16", config_presets[i].name);
            large += is_large;
            CHECK_OK(config_override(&q.config, &arena, set[2]));
            ask(&q, hardware_presets[k / 2].name, 64, "switchyard", false, 1);
            CHECK_OK(ARENA_ZEROED(&arena, 1, &one));
            Status s = plan_answer(&q.question, &arena, one);
            if (s != OK)
                fail_msg("%s on %s: %s", config_presets[i].name, q.hardware.name, status_message());
            CHECK(one->price.step_s > 0 && isfinite(one->price.step_s));
            CHECK(one->price.peak_bytes > 0 && isfinite(one->price.peak_bytes));
            plan_answer_free(one);
            arena_free(&arena);
        }
    }
    CHECK(large >= 20 * 2 * hardware_presets_n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_written_row_has_the_same_price_and_layout),
        TEST(a_row_that_is_not_there_is_named),
        TEST(every_preset_has_a_price_on_every_gpu),
    };
    return TEST_RUN(tests);
}
