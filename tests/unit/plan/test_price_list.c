/* The price of the list that train runs: against measured steps, and its parts. */
#include "harness/test.h"

#include "plan/hardware.h"
#include "plan/plan.h"
#include "plan/stack.h"
#include "schedule/layout.h"

#include <math.h>

/* Whole DeepSeek-V2-Lite in bf16 on H200s of one host, sequence 4096, random tokens: tokens a
 * second and GPU (docs/performance.md). Blocks lie evenly, as without mesh.layout. */
static const struct {
    double measured;
    const char *set[8];
} row[] = {
    { 16373, { "mesh.ep=4", "train.batch=16", "train.micro_batch=4" } },
    { 15225, { "mesh.ep=4", "train.batch=16", "train.micro_batch=1" } },
    { 15919, { "mesh.zero=3", "mesh.ep=2", "train.batch=16", "train.micro_batch=4" } },
    { 14656, { "mesh.pp=2", "mesh.ep=2", "train.batch=32", "train.micro_batch=2" } },
    { 15411,
      { "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=interleaved", "train.batch=32",
        "train.micro_batch=2" } },
    { 13232, { "mesh.pp=4", "train.batch=32", "train.micro_batch=2" } },
    { 14952, { "mesh.zero=3", "train.batch=64", "train.micro_batch=4" } },
    { 14629, { "mesh.zero=3", "train.batch=16", "train.micro_batch=4" } },
};
enum { ROWS = sizeof row / sizeof *row, GPUS = 4 };

typedef struct Question {
    Arena arena;
    Config config;
    Hardware hardware;
    PlanStack stack;
    PlanLayout layout;
    Layout even;
    Planner *planner;
} Question;

/* links: the bandwidth of the host's links, as a share of what they have. */
static void open_plan(Question *q, const char *const *more, const char *stack, double links)
{
    const char *set[16] = { "run.compute=bf16", "data.sequence=4096" };
    int n = 2;
    *q = (Question){ 0 };
    while (*more != NULL) set[n++] = *more++;
    CHECK_OK(arena_init(&q->arena, "plan", MEM_HOST, (size_t)1 << 32));
    CHECK_OK(config_load(&q->config, &q->arena, "deepseek-v2-lite", set, n));
    CHECK_OK(hardware_load(&q->hardware, &q->arena, "h200"));
    q->hardware.scale_up_achieved_gb_s *= links;
    CHECK_OK(stack_load(&q->stack, &q->arena, stack));
    CHECK_OK(plan_layout_of(&q->config, GPUS, &q->arena, &q->layout));
    int stages = q->layout.pp * q->layout.vpp;
    CHECK_OK(layout_even(stages, (int)q->config.model_layers, &q->arena, &q->even));
    q->layout.partition = &q->even;
    PlanRequest r = { &q->config, &q->hardware, &q->stack, GPUS };
    CHECK_OK(planner_make(&r, &q->planner));
}

static void close_plan(Question *q)
{
    planner_free(q->planner);
    arena_free(&q->arena);
}

static void measured_steps_are_foretold(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        Question q;
        PlanPrice price;
        open_plan(&q, row[i].set, "switchyard", 1);
        CHECK_OK(planner_price_list(q.planner, &q.layout, &price));
        CHECK_NEAR(price.tokens_per_s_per_gpu / row[i].measured, 1, 0.08);
        close_plan(&q);
    }
}

static void parts_of_a_list_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        Question q;
        PlanPrice list, passes;
        double sum = 0;
        open_plan(&q, row[i].set, "switchyard", 1);
        CHECK_OK(planner_price(q.planner, &q.layout, &passes));
        CHECK_OK(planner_price_list(q.planner, &q.layout, &list));
        for (int k = 0; k < PLAN_PARTS; k++) {
            CHECK(list.part_s[k] >= 0);
            sum += list.part_s[k];
        }
        CHECK_NEAR(sum / list.step_s, 1, 1e-9);
        CHECK(list.schedule_s > 0 && list.schedule_s <= list.step_s);
        CHECK(list.bubble >= 0 && list.bubble < 1);
        CHECK_NEAR(list.peak_bytes, passes.peak_bytes, 0);
        close_plan(&q);
    }
}

/* Of a stack that is not ours nobody knows the list. */
static void other_stacks_keep_their_price(void **state)
{
    (void)state;
    static const char *const stacks[] = { "torchtitan", "switchyard,list=0" };
    for (int i = 0; i < 2; i++) {
        Question q;
        PlanPrice list, passes;
        open_plan(&q, row[6].set, stacks[i], 1);
        CHECK(!planner_runs_list(q.planner));
        CHECK_OK(planner_price(q.planner, &q.layout, &passes));
        CHECK_OK(planner_price_list(q.planner, &q.layout, &list));
        CHECK_NEAR(list.step_s, passes.step_s, 0);
        close_plan(&q);
    }
}

/* Each action's time is there: links longer, so the step is. */
static void what_links_carry_shows(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        Question q;
        PlanPrice fast, slow;
        open_plan(&q, row[i].set, "switchyard", 1);
        CHECK_OK(planner_price_list(q.planner, &q.layout, &fast));
        close_plan(&q);
        open_plan(&q, row[i].set, "switchyard", 0.2);
        CHECK_OK(planner_price_list(q.planner, &q.layout, &slow));
        CHECK(slow.step_s > 1.0005 * fast.step_s);
        close_plan(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(measured_steps_are_foretold),
        TEST(parts_of_a_list_add_up),
        TEST(other_stacks_keep_their_price),
        TEST(what_links_carry_shows),
    };
    return TEST_RUN(tests);
}
