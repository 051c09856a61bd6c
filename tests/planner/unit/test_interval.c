/* Intervals of prices: which input makes which step longer, and by how much. */
#include "harness/question.h"

#include "calibrate/calibrate.h"
#include "planner/search/interval.h"
#include "planner/stack/stack.h"

#include <math.h>

static Question asked;

/* Of the layout that the configuration of `asked` names. */
static PlanInterval interval_asked(int gpus)
{
    PlanLayout l;
    PlanInterval v;
    const PlanLayout *one = &l;
    CHECK_OK(plan_layout_of(&asked.config, gpus, &asked.arena, &l));
    CHECK_OK(plan_intervals(&asked.request, &one, 1, &v));
    return v;
}

/* The interval of a model with 8 layers, all of whose GPUs share the experts. `measured`: an exchange that was measured
 * on them; NULL: none. */
static PlanInterval interval_of_model(const char *model, const char *gpu, int gpus,
                                      const char *stack, const char *measured)
{
    char ep[16];
    const char *set[] = { "run.compute=bf16", "model.layers=8", ep, "train.batch=512",
                          "train.micro_batch=4" };
    (void)snprintf(ep, sizeof ep, "mesh.ep=%d", gpus);
    question_load(&asked, model, gpu, gpus, stack, set, 5);
    if (measured != NULL) CHECK_OK(calibrate_exchange(measured, &asked.arena, &asked.hardware));
    return interval_asked(gpus);
}

static PlanInterval interval_on(const char *gpu, int gpus, const char *stack, const char *measured)
{
    return interval_of_model("deepseek-v2-lite", gpu, gpus, stack, measured);
}

static PlanInterval interval_of(const char *gpu, const char *stack)
{
    return interval_on(gpu, 8, stack, NULL);
}

static void inputs_add_up_in_squares(void **state)
{
    (void)state;
    static const char *const gpus[] = { "h200", "mi355x", "gb200" };
    for (int g = 0; g < 3; g++) {
        PlanInterval v = interval_of(gpus[g], "switchyard");
        double sum = 0;
        for (int i = 0; i < INTERVAL_INPUTS; i++) {
            CHECK(v.by[i] >= 0);
            sum += v.by[i] * v.by[i];
        }
        CHECK_NEAR(v.time, sqrt(sum), 1e-12);
        CHECK(v.by[INTERVAL_PRODUCTS] > 0 && v.by[INTERVAL_ATTENTION] > 0);
        CHECK(v.by[INTERVAL_MEMORY] > 0 && v.by[INTERVAL_LINKS] > 0);
        question_close(&asked);
    }
}

/* On an H200 products are measured, on a B200 published, and attention there assumed. A step has a share of each,
 * so its interval is at most what rates are off by: 3, 10 and 25 %. */
static void what_is_assumed_is_less_sure(void **state)
{
    (void)state;
    PlanInterval h200 = interval_of("h200", "switchyard");
    question_close(&asked);
    PlanInterval b200 = interval_of("b200", "switchyard");
    question_close(&asked);
    CHECK(h200.by[INTERVAL_PRODUCTS] < 0.03 && h200.by[INTERVAL_PRODUCTS] > 0.005);
    CHECK(b200.by[INTERVAL_PRODUCTS] > 1.5 * h200.by[INTERVAL_PRODUCTS]);
    CHECK(b200.by[INTERVAL_ATTENTION] > 3 * h200.by[INTERVAL_ATTENTION]);
    CHECK(h200.faster < 0.05 && b200.faster < 0.30);
}

/* Primus' constants are fitted to published runs; our own bytes are counted but for what libraries reserve. On GPUs
 * where our engine never ran its constants are assumed. */
static void a_stack_has_constants_of_its_own(void **state)
{
    (void)state;
    PlanInterval primus = interval_of("mi355x", "primus");
    question_close(&asked);
    PlanInterval amd = interval_of("mi355x", "switchyard");
    question_close(&asked);
    PlanInterval ours = interval_of("h200", "switchyard");
    question_close(&asked);
    CHECK(primus.by[INTERVAL_STACK] > 0.05 && primus.by[INTERVAL_STACK] <= 0.1 + 1e-9);
    CHECK(primus.bytes > 0.01 && primus.bytes <= 0.10 + 1e-9);
    CHECK(ours.bytes > 0 && ours.bytes < 0.02);
    CHECK(amd.by[INTERVAL_STACK] > 2 * ours.by[INTERVAL_STACK]);
}

/* Worked by hand: the largest of 8 and of 64 normal values lies about 1.3771 and 2.3250 deviations above their mean. A
 * mean GPU computes what compute takes and what it waits for its host. */
static void the_slowest_of_all_gpus_sets_the_step(void **state)
{
    (void)state;
    static const struct {
        int gpus;
        double deviations;
        const char *set[4];
    } row[] = {
        { 1, 0, { "mesh.ep=1", "mesh.pp=1", "mesh.schedule=1f1b", "mesh.vpp=1" } },
        { 8, 1.3771, { "mesh.ep=8", "mesh.pp=1", "mesh.schedule=1f1b", "mesh.vpp=1" } },
        { 64, 2.3250, { "mesh.ep=8", "mesh.pp=2", "mesh.schedule=1f1b", "mesh.vpp=1" } },
        { 8, 1.3771, { "mesh.ep=4", "mesh.pp=2", "mesh.schedule=dualpipe", "mesh.vpp=2" } },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        PlanPrice price[2], list[2];
        double bytes, bound_s[2];
        for (int k = 0; k < 2; k++) {
            const char *set[] = { "run.compute=bf16",
                                  "model.layers=8",
                                  "train.batch=512",
                                  "train.micro_batch=1",
                                  row[i].set[0],
                                  row[i].set[1],
                                  row[i].set[2],
                                  row[i].set[3],
                                  k == 0 ? "plan.spread=0" : "plan.spread=0.1" };
            question_load(&asked, "deepseek-v2-lite", "h200", row[i].gpus, "switchyard", set, 9);
            question_open(&asked);
            CHECK_OK(plan_spread_evenly(&asked.config, &asked.arena, &asked.layout));
            CHECK_OK(planner_price(asked.planner, &asked.layout, &price[k]));
            CHECK_OK(
                planner_price_list(asked.planner, &asked.layout, &asked.arena, &list[k], NULL));
            CHECK_OK(planner_bound(asked.planner, &asked.layout, &bytes, &bound_s[k]));
            question_close(&asked);
        }
        const double *part = price[0].part_s, slowest = price[1].part_s[PLAN_SLOWEST];
        double mean_s = part[PLAN_COMPUTE] + part[PLAN_HOST] - asked.hardware.host_sync_us * 1e-6;
        CHECK_NEAR(part[PLAN_SLOWEST], 0, 0);
        CHECK_NEAR(slowest, 0.1 * row[i].deviations * mean_s, 1e-4 * slowest);
        CHECK_NEAR(price[1].step_s - price[0].step_s, slowest, 1e-9);
        CHECK_NEAR(list[1].step_s - list[0].step_s, slowest, 1e-6 * slowest);
        CHECK(bound_s[1] - bound_s[0] <= slowest + 1e-9); /* with the least room for rows */
        CHECK_NEAR(bound_s[1] - bound_s[0], slowest, 5e-3 * slowest);
    }
}

static void the_spread_of_gpus_is_an_input_of_its_own(void **state)
{
    (void)state;
    PlanInterval v = interval_of("h200", "switchyard"); /* 1.5 % x 1.377 deviations, 2.75 times */
    CHECK(v.by[INTERVAL_SPREAD] > 0.02 && v.by[INTERVAL_SPREAD] < 0.015 * 1.377 * 1.75);
    question_close(&asked);
}

/* The busiest rank may have 1.4 times the mean rows where something balances a router, twice the mean where nothing does;
 * a capacity factor ends it earlier. A forced balance, and an imbalance that is said, are known. It slows steps alone. */
static void rows_of_the_busiest_rank_widen_the_slow_side(void **state)
{
    (void)state;
    static const struct {
        const char *set;
        double least, most; /* of by[], over that of the first row */
    } row[] = {
        { "moe.bias_rate=0", 1, 1 },         { "moe.aux_loss=0", 2, 3 },
        { "moe.capacity=1.2", 0.4, 0.6 },    { "moe.capacity=0.5", 0, 0 },
        { "moe.forced_balance=true", 0, 0 }, { "plan.imbalance=1.1", 0, 0 },
    };
    double first = 0;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *set[] = { "run.compute=bf16", "model.layers=8",      "mesh.ep=8",
                              "train.batch=512",  "train.micro_batch=4", row[i].set };
        question_load(&asked, "deepseek-v2-lite", "h200", 8, "switchyard", set, 6);
        const PlanInterval v = interval_asked(8);
        if (i == 0) first = v.by[INTERVAL_BALANCE];
        CHECK(v.by[INTERVAL_BALANCE] >= row[i].least * first);
        CHECK(v.by[INTERVAL_BALANCE] <= row[i].most * first);
        CHECK_NEAR(v.faster,
                   sqrt(v.time * v.time - v.by[INTERVAL_BALANCE] * v.by[INTERVAL_BALANCE]), 1e-12);
        question_close(&asked);
    }
    CHECK(first > 0.05 && first < 0.4);
}

/* Experts over two hosts send through NICs that the H100's sheet assumes: at half of their rate an exchange takes
 * twice as long, so links alone are worth more than the 25 % of other assumed rates, and the fast side is narrower. What a
 * user measured is as sure as the rest, and is not asymmetric. */
static void an_assumed_network_is_wide_and_a_measured_one_is_narrow(void **state)
{
    (void)state;
    PlanInterval v = interval_on("h100", 16, "switchyard", NULL);
    question_close(&asked);
    CHECK(v.assumed && v.by[INTERVAL_LINKS] > 0.3);
    CHECK(v.time > 0.3 && v.faster < v.time / 2);
    CHECK(v.faster > v.by[INTERVAL_PRODUCTS] + 0.02); /* a better network is faster, too */
    PlanInterval one_host = interval_on("h100", 8, "switchyard", NULL);
    question_close(&asked);
    CHECK(!one_host.assumed);
    CHECK_NEAR(hypot(one_host.faster, one_host.by[INTERVAL_BALANCE]), one_host.time, 1e-12);
    PlanInterval measured =
        interval_on("h100", 16, "switchyard", "16 GPUs, 64 MiB, 1 ms"); /* 35 GB/s */
    question_close(&asked);
    CHECK(!measured.assumed && measured.by[INTERVAL_LINKS] < 0.03);
    CHECK_NEAR(hypot(measured.faster, measured.by[INTERVAL_BALANCE]), measured.time, 1e-12);
    CHECK(measured.faster < v.by[INTERVAL_LINKS] / 3);
}

/* Without DeepEP a step is slower: on the slow side alone. Given behind the stack's name it is sure. */
static void an_option_that_is_not_given_may_be_the_other_one(void **state)
{
    (void)state;
    PlanInterval unsaid = interval_of("mi355x", "primus");
    question_close(&asked);
    PlanInterval said =
        interval_of("mi355x", "primus,deepep=1,sync_free=1,loss_fusion=1,tp_overlap=0,"
                              "turbo_attention=1,legacy_grouped=0,balance=0");
    question_close(&asked);
    CHECK(unsaid.by[INTERVAL_OPTIONS] > 0.05 && unsaid.time > said.time);
    CHECK(unsaid.option.name != NULL && unsaid.option_step > 1.05);
    CHECK_NEAR(hypot(said.time, unsaid.by[INTERVAL_OPTIONS]), unsaid.time, 1e-9);
    CHECK_NEAR(said.by[INTERVAL_OPTIONS], 0, 0);
    CHECK(said.option.name == NULL);
    PlanInterval either = interval_of("mi355x", "primus,sync_free=1,loss_fusion=1,tp_overlap=0,"
                                                "turbo_attention=1,balance=0,legacy_grouped=0");
    question_close(&asked);
    CHECK_TEXT(either.option.name, "deepep");
    CHECK_NEAR(either.option.value, 0, 0);
    CHECK(either.by[INTERVAL_OPTIONS] > 0);
    CHECK_NEAR(either.faster, said.faster, 1e-9); /* nothing is faster without it */
}

/* Primus' attention is off in models with 128 heads of MLA, so there it is what could make a step faster. */
static void options_of_a_model_are_set_the_other_way(void **state)
{
    (void)state;
    static const char stack[] = "primus,deepep=1,sync_free=1,loss_fusion=1,tp_overlap=0,balance=0,"
                                "legacy_grouped=0";
    static const char *const model[] = { "deepseek-v2", "deepseek-v2-lite" };
    for (int i = 0; i < 2; i++) {
        PlanInterval v = interval_of_model(model[i], "mi355x", 32, stack, NULL);
        question_close(&asked);
        CHECK_TEXT(v.option.name, "turbo_attention");
        CHECK_NEAR(v.option.value, 1 - i, 0);
        CHECK((v.option_step < 1) == (i == 0));
    }
}

/* DualPipe's ranks hold two stages each of a model that has as many as there are ranks. */
static void a_schedule_with_two_copies_of_the_model_has_an_interval(void **state)
{
    (void)state;
    const char *set[] = { "run.compute=bf16",   "model.layers=8",         "mesh.pp=8",
                          "mesh.vpp=2",         "mesh.schedule=dualpipe", "train.batch=512",
                          "train.micro_batch=4" };
    question_load(&asked, "deepseek-v2-lite", "h200", 8, "switchyard", set, 7);
    CHECK(interval_asked(8).time > 0);
    question_close(&asked);
}

/* Graphs make a step faster, so they widen the fast side; flash 3 is the other kernel of torchtitan. */
static void an_option_that_makes_a_step_faster_widens_the_fast_side(void **state)
{
    (void)state;
    static const char others[] =
        "deepep=1,sync_free=0,loss_fusion=1,tp_overlap=0,balance=0,flash=3";
    char stack[160];
    (void)snprintf(stack, sizeof stack, "megatron,%s", others);
    PlanInterval unsaid = interval_of("h200", stack);
    question_close(&asked);
    (void)snprintf(stack, sizeof stack, "megatron,graphs=0,%s", others);
    PlanInterval said = interval_of("h200", stack);
    question_close(&asked);
    CHECK_TEXT(unsaid.option.name, "graphs");
    CHECK_NEAR(unsaid.option.value, 1, 0);
    CHECK_NEAR(unsaid.time, said.time, 1e-9);
    CHECK_NEAR(unsaid.faster, hypot(said.faster, 1 / unsaid.option_step - 1), 1e-9);
    PlanInterval flash = interval_of(
        "h200", "torchtitan,deepep=0,graphs=0,sync_free=0,balance=0,tp_overlap=0,fused_moe=0,"
                "loss_fusion=1,compiled=1");
    question_close(&asked);
    CHECK_TEXT(flash.option.name, "flash"); /* on Hopper it is 2, on Blackwell 3 */
    CHECK_NEAR(flash.option.value, 3, 0);
    CHECK(flash.option_step < 1);
}

static void a_slower_section_is_alone(void **state)
{
    (void)state;
    Arena a = { 0 };
    Hardware h, slow;
    CHECK_OK(arena_init(&a, "hardware", MEM_HOST, (size_t)1 << 24));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    slow = h;
    hardware_slow(&slow, "scale_up", 2);
    CHECK_NEAR(slow.scale_up_achieved_gb_s, h.scale_up_achieved_gb_s / 2, 0);
    CHECK_NEAR(slow.scale_up_latency_us, h.scale_up_latency_us * 2, 0);
    CHECK_NEAR(slow.scale_up_gb_s, h.scale_up_gb_s, 0);
    hardware_slow(&slow, "gemm", 4);
    for (int i = 0; i < h.gemm_bf16.n; i++) {
        CHECK_NEAR(slow.gemm_bf16.at[i].tflops, h.gemm_bf16.at[i].tflops / 4, 0);
        CHECK_NEAR(slow.gemm_bf16.at[i].size, h.gemm_bf16.at[i].size, 0);
    }
    CHECK_NEAR(slow.grouped_bf16.at[0].tflops, h.grouped_bf16.at[0].tflops, 0);
    CHECK_NEAR(slow.memory_achieved_gb_s, h.memory_achieved_gb_s, 0);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(inputs_add_up_in_squares),
        TEST(what_is_assumed_is_less_sure),
        TEST(a_stack_has_constants_of_its_own),
        TEST(the_slowest_of_all_gpus_sets_the_step),
        TEST(the_spread_of_gpus_is_an_input_of_its_own),
        TEST(rows_of_the_busiest_rank_widen_the_slow_side),
        TEST(an_assumed_network_is_wide_and_a_measured_one_is_narrow),
        TEST(an_option_that_is_not_given_may_be_the_other_one),
        TEST(a_schedule_with_two_copies_of_the_model_has_an_interval),
        TEST(options_of_a_model_are_set_the_other_way),
        TEST(an_option_that_makes_a_step_faster_widens_the_fast_side),
        TEST(a_slower_section_is_alone),
    };
    return TEST_RUN(tests);
}
