/* Prices of narrow types: f16 costs what bf16 does; scales of 1 x 32 and 4, 6 and 8 bits are priced by the
 * peaks of hardware that has them, packed as it would hold them. */
#include "harness/question.h"
#include "planner/price/price_private.h"

static void open_plan(Question *q, const char *model, const char *hardware, int64_t gpus,
                      const char *stack, const char *const *set, int n)
{
    question_load(q, model, hardware, gpus, stack, set, n);
    question_open(q);
}

/* A copy of a weight takes its bits and a byte for 32, in each orientation; rates are those of the peaks:
 * fp6 has fp8's on a B200, fp4 twice that. */
static void narrow_formats_take_less_memory_and_time(void **state)
{
    (void)state;
    static const char *const formats[] = { "fp8.format=e4m3", "fp8.format=e3m2",
                                           "fp8.format=e2m1" };
    PlanPrice p[4];
    for (int i = 0; i < 4; i++) {
        const char *const set[] = {
            "run.compute=bf16",
            "mesh.ep=32", /* and one stage: its layers are the same for all formats */
            "train.batch=2048",
            "train.micro_batch=1",
            "moe.buffers=worst", /* of one capacity */
            i < 3 ? "fp8.recipe=mx" : "fp8.recipe=none",
            formats[i % 3]
        };
        Question q;
        open_plan(&q, "deepseek-v3", "b200", 512, "switchyard", set, i < 3 ? 7 : 6);
        CHECK_OK(planner_price(q.planner, &q.layout, &p[i]));
        question_close(&q);
    }
    /* No other weights are held: 2 x (1 + 1/32) bytes instead of bf16's 2. */
    double eight = p[0].memory[PLAN_WEIGHTS], half = eight - p[2].memory[PLAN_WEIGHTS];
    CHECK_NEAR((eight - p[1].memory[PLAN_WEIGHTS]) / half, 0.5, 1e-3);
    CHECK_NEAR((eight - p[3].memory[PLAN_WEIGHTS]) / half, 1.0 / 16, 1e-3);
    for (int i = 1; i < 3; i++) {
        CHECK(p[i].part_s[PLAN_UPDATE] < p[i - 1].part_s[PLAN_UPDATE]);
        CHECK(p[i].part_s[PLAN_COMPUTE] < p[i - 1].part_s[PLAN_COMPUTE]);
        CHECK(p[i].memory[PLAN_ACTIVATIONS] < p[i - 1].memory[PLAN_ACTIVATIONS]);
    }
}

/* Its products have the rate of 8 bits. Copies in both orientations take the place of one in bf16, and the update writes
 * them: 2 bytes a number. Its 30 bytes then move at 0.916 of the rate of memory. */
static void an_8_bit_head_is_priced_by_its_rate(void **state)
{
    (void)state;
    static const char *const heads[] = { "fp8.head=false", "fp8.head=true" };
    const double tokens = 32 * 4096, matrix = 102400.0 * 2048;
    PlanPrice p[2];
    double rate[2];
    for (int i = 0; i < 2; i++) {
        const char *const set[] = {
            "run.compute=bf16", "fp8.recipe=block",    "model.layers=6", "data.sequence=4096",
            "train.batch=32",   "train.micro_batch=4", heads[i]
        };
        Question q;
        open_plan(&q, "deepseek-v2-lite", "h200", 1, "switchyard", set, 7);
        CHECK_OK(planner_price(q.planner, &q.layout, &p[i]));
        CHECK_OK(hardware_rate(&q.hardware, WORK_HEAD, i == 0 ? HARDWARE_BF16 : HARDWARE_FP8, 2048,
                               &rate[i]));
        question_close(&q);
    }
    double saved = 6 * tokens * matrix * (1 / rate[0] - 1 / rate[1]);
    CHECK_NEAR((p[0].part_s[PLAN_COMPUTE] - p[1].part_s[PLAN_COMPUTE]) / saved, 1, 1e-6);
    CHECK_NEAR(p[1].memory[PLAN_WEIGHTS] / p[0].memory[PLAN_WEIGHTS], 1, 1e-3);
    double slower = matrix * 30 * (1 / 0.916 - 1) / 4260e9;
    CHECK_NEAR((p[1].part_s[PLAN_UPDATE] - p[0].part_s[PLAN_UPDATE]) / slower, 1,
               1e-3); /* scales */
}

static void f16_costs_what_bf16_does(void **state)
{
    (void)state;
    static const char *const types[] = { "run.compute=bf16", "run.compute=f16" };
    PlanPrice p[2];
    for (int i = 0; i < 2; i++) {
        const char *const set[] = { types[i], "mesh.ep=8", "train.batch=64",
                                    "train.micro_batch=1" };
        Question q;
        open_plan(&q, "deepseek-v2-lite", "h200", 8, "switchyard", set, 4);
        CHECK_OK(planner_price(q.planner, &q.layout, &p[i]));
        question_close(&q);
    }
    CHECK_NEAR(p[1].step_s, p[0].step_s, 0);
    /* but for the scale of the loss, and for what products in bf16 work in under sanitizers, which have one set of ops */
    for (int i = 0; i < PLAN_KINDS; i++)
        if (i != PLAN_WORKSPACE) CHECK_NEAR(p[1].memory[i], p[0].memory[i], 1024);
    CHECK_NEAR(p[1].memory[PLAN_WORKSPACE], p[0].memory[PLAN_WORKSPACE], 1 << 20);
}

/* The kernel that auto takes on an A100, and by name on an H200, where it is slower, too. */
static void attention_runs_by_mma_where_no_faster_kernel_does(void **state)
{
    (void)state;
    static const char *const gpu[] = { "a100", "a100", "h200", "h200" };
    static const char *const kernel[] = { "attention.kernel=auto", "attention.kernel=mma",
                                          "attention.kernel=auto", "attention.kernel=mma" };
    double step_s[4];
    for (int i = 0; i < 4; i++) {
        const char *const set[] = { kernel[i], "run.compute=bf16", "train.batch=64",
                                    "train.micro_batch=1" };
        Question q;
        PlanPrice p;
        open_plan(&q, "llama3-8b", gpu[i], 8, "switchyard", set, 4);
        CHECK_INT(plan_attends_slower(&q.request), i < 2);
        CHECK_OK(planner_price(q.planner, &q.layout, &p));
        step_s[i] = p.step_s;
        question_close(&q);
    }
    CHECK_NEAR(step_s[0], step_s[1], 0);
    CHECK(step_s[3] > 1.1 * step_s[2]);
}

/* Of Megatron-LM: gradients have the type that is reduced, and with scales by tensor there are no weights in bf16. */
static void buffers_of_megatron_have_the_types_that_are_sent(void **state)
{
    (void)state;
    static const struct {
        const char *stack, *reduce, *recipe;
    } cases[] = { { "megatron", "mesh.reduce=f32", "fp8.recipe=none" },
                  { "megatron", "mesh.reduce=bf16", "fp8.recipe=none" },
                  { "megatron", "mesh.reduce=bf16", "fp8.recipe=tensor" },
                  { "megatron,fp8_params=0", "mesh.reduce=f32", "fp8.recipe=tensor" },
                  { "primus", "mesh.reduce=f32", "fp8.recipe=none" },
                  { "primus", "mesh.reduce=bf16", "fp8.recipe=none" } };
    double grads[6], weights[6];
    for (int i = 0; i < 6; i++) {
        const char *const set[] = { cases[i].reduce, cases[i].recipe, "run.compute=bf16",
                                    "train.batch=64", "train.micro_batch=1" };
        Question q;
        PlanPrice p;
        open_plan(&q, "llama3-8b", "h200", 8, cases[i].stack, set, 5);
        CHECK_OK(planner_price(q.planner, &q.layout, &p));
        grads[i] = p.memory[PLAN_GRADS], weights[i] = p.memory[PLAN_WEIGHTS];
        question_close(&q);
    }
    CHECK_NEAR(grads[1], grads[0] / 2, 1);
    CHECK_NEAR(grads[2], grads[1], 1);
    CHECK_NEAR(grads[3], grads[0], 1);
    CHECK_NEAR(grads[5], grads[4] / 2, 1);
    CHECK_NEAR(weights[2], weights[0], 1);
    CHECK_NEAR(weights[3], 2 * weights[0], 1);
}

/* As published recipes have them: userbuffers of dense models with tp, CUDA graphs of experts in 8 bits on Blackwell. */
static void options_of_megatron_are_those_of_recipes(void **state)
{
    (void)state;
    static const struct {
        const char *model, *gpu, *recipe, *on, *off;
        bool is_on;
    } cases[] = {
        { "llama3-8b", "h100", "fp8.recipe=none", "megatron,tp_overlap=1", "megatron,tp_overlap=0",
          true },
        { "qwen3-30b-a3b", "h100", "fp8.recipe=none", "megatron,tp_overlap=1",
          "megatron,tp_overlap=0", false },
        { "qwen3-30b-a3b", "b200", "fp8.recipe=mx", "megatron,graphs=1", "megatron,graphs=0",
          true },
        { "qwen3-30b-a3b", "b200", "fp8.recipe=none", "megatron,graphs=1", "megatron,graphs=0",
          false },
        { "qwen3-30b-a3b", "h100", "fp8.recipe=tensor", "megatron,graphs=1", "megatron,graphs=0",
          false },
        { "llama3-8b", "b200", "fp8.recipe=mx", "megatron,graphs=1", "megatron,graphs=0", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const stack[] = { cases[i].on, cases[i].off, "megatron" };
        double step_s[3];
        for (int k = 0; k < 3; k++) {
            const char *const set[] = { cases[i].recipe, "run.compute=bf16", "mesh.tp=2",
                                        "train.batch=64", "train.micro_batch=1" };
            Question q;
            PlanPrice p;
            open_plan(&q, cases[i].model, cases[i].gpu, 8, stack[k], set, 5);
            CHECK_OK(planner_price(q.planner, &q.layout, &p));
            step_s[k] = p.step_s;
            question_close(&q);
        }
        CHECK(step_s[0] < step_s[1]);
        CHECK_NEAR(step_s[2], step_s[cases[i].is_on ? 0 : 1], 0);
    }
}

static void scales_of_1x32_need_hardware_that_has_them(void **state)
{
    (void)state;
    static const struct {
        const char *gpu, *format, *part;
    } cases[] = {
        { "h200", "fp8.format=e4m3", "fp8.recipe=mx: h200 has no products with scales of 1 x 32" },
        { "h200", "fp8.format=e2m1", "fp8.recipe=mx: h200 has no products with scales of 1 x 32" },
        { "mi450", "fp8.format=e3m2", "fp8.format=e3m2: mi450 has no 6-bit products, as its" },
    };
    for (int i = 0; i < 3; i++) {
        const char *const set[] = { "fp8.recipe=mx", cases[i].format };
        Question q;
        question_load(&q, "quickstart", cases[i].gpu, 1, "switchyard", set, 2);
        CHECK_FAILS(planner_make(&q.request, &q.planner), ERR_ARG, cases[i].part);
        q.config.fp8_recipe = 0;
        question_open(&q);
        question_close(&q);
    }
}

static void shapes_that_no_kernel_takes_are_refused_as_a_run_refuses_them(void **state)
{
    (void)state;
    static const struct {
        const char *model, *set[3], *part;
        Status code;
    } cases[] = {
        { "gpt-oss-20b",
          { "fp8.attention=true", "run.compute=bf16", "mesh.ep=1" },
          "fp8.attention: h200 has no kernel for attention of layer 0 (gqa): heads are 64 and 64 "
          "wide",
          ERR_UNSUPPORTED },
        { "deepseek-v2-lite",
          { "fp8.attention=true", "run.compute=f32", "mesh.ep=1" },
          "tensors are f32, it takes bf16",
          ERR_UNSUPPORTED },
        { "quickstart",
          { "fp8.recipe=row", "moe.ffn=200", "mesh.ep=1" },
          "is in a matrix of 256 x 200: 8-bit products",
          ERR_ARG },
    };
    for (int i = 0; i < 3; i++) {
        Question q;
        question_load(&q, cases[i].model, "h200", 1, "switchyard", cases[i].set, 3);
        CHECK_FAILS(planner_make(&q.request, &q.planner), cases[i].code, cases[i].part);
        q.config.fp8_attention = false, q.config.fp8_recipe = RECIPE_NONE;
        question_open(&q);
        question_close(&q);
    }
}

static void tokens_that_no_kernel_takes_are_refused_as_a_run_refuses_them(void **state)
{
    (void)state;
    static const char *const of[] = { "fp8.wgrad=fp8", "fp8.wgrad=bf16" };
    for (int i = 0; i < 2; i++) {
        const char *const set[] = { "fp8.recipe=row", "data.sequence=250", "train.micro_batch=2",
                                    "train.batch=16", of[i] };
        Question q;
        PlanPrice price;
        question_load(&q, "quickstart", "h200", 1, "switchyard", set, 5);
        question_open(&q);
        if (i == 1) CHECK_OK(planner_price(q.planner, &q.layout, &price));
        if (i == 0)
            CHECK_FAILS(planner_price(q.planner, &q.layout, &price), ERR_ARG,
                        "a micro-batch has 500 tokens on a rank");
        question_close(&q);
    }
}

static void each_width_has_its_peak(void **state)
{
    (void)state;
    static const Dtype types[] = { DTYPE_E4M3, DTYPE_E5M2, DTYPE_E2M3, DTYPE_E3M2, DTYPE_E2M1 };
    static const double tflops[] = { 4500, 4500, 4500, 4500, 9000 };
    for (int i = 0; i < 5; i++) {
        double have = 0;
        CHECK_OK(hardware_sheet_flops("NVIDIA B200", types[i], &have));
        CHECK_NEAR(have, tflops[i] * 1e12, 1);
        CHECK_OK(hardware_sheet_flops("NVIDIA H200", types[i], &have));
        CHECK_NEAR(have, i < 2 ? 1978.9e12 : 0, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(shapes_that_no_kernel_takes_are_refused_as_a_run_refuses_them),
        TEST(tokens_that_no_kernel_takes_are_refused_as_a_run_refuses_them),
        TEST(each_width_has_its_peak),
        TEST(narrow_formats_take_less_memory_and_time),
        TEST(an_8_bit_head_is_priced_by_its_rate),
        TEST(f16_costs_what_bf16_does),
        TEST(attention_runs_by_mma_where_no_faster_kernel_does),
        TEST(buffers_of_megatron_have_the_types_that_are_sent),
        TEST(options_of_megatron_are_those_of_recipes),
        TEST(scales_of_1x32_need_hardware_that_has_them),
    };
    return TEST_RUN(tests);
}
