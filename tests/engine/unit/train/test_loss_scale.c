/* run.compute=f16: gradients are those of f32, whatever the scale of the loss is; a step that overflows
 * halves the scale and changes nothing else. Nor does a spike of the gradient norm. */
#include "engine/step/update.h"
#include "harness/param_view.h"
#include "harness/tiny.h"

#include <math.h>

#define F16     "run.compute=f16"
#define NO_CLIP "train.clip_norm=0"
/* Large auxiliary losses: their gradients are not scaled by the head. */
#define AUXILIARY "moe.aux_loss=2", "moe.z_loss=0.5", "mtp.layers=1"

/* The relative difference of two models' gradients, over all parameters of a role; -1: all roles.
 * `times`: the second model's are so many times as large. */
static double apart(const Tiny *a, const Tiny *b, int role, double times)
{
    double error = 0, size = 0;
    for (int i = 0; i < a->engine.params.table.n; i++) {
        const Param *p = &a->engine.params.table.at[i];
        if (p->first[BUF_GRAD] < 0 || (role >= 0 && (int)p->role != role)) continue;
        const Tensor x = param_view(p, &a->engine.params.memory, BUF_GRAD);
        const Tensor y =
            param_view(&b->engine.params.table.at[i], &b->engine.params.memory, BUF_GRAD);
        for (int64_t k = 0; k < tensor_elems(&x); k++) {
            double want = (double)((const float *)x.data)[k];
            double have = (double)((const float *)y.data)[k] / times;
            error += (have - want) * (have - want), size += want * want;
        }
    }
    return sqrt(error / size);
}

/* f16 rounds by 2^-12 of a number on average. A step rounds some thirty times on its way. */
static void gradients_are_those_of_f32_times_the_scale(void **state)
{
    (void)state;
    static const char *const kinds[] = { "attention.kind=mla", "attention.kind=gqa" };
    for (int i = 0; i < 2; i++) {
        Tiny wide, half;
        tiny_open(&wide, TINY("moe.forced_balance=true", AUXILIARY, kinds[i]));
        tiny_open(&half, TINY(F16, "moe.forced_balance=true", AUXILIARY, kinds[i]));
        StepResult x = tiny_steps(&wide, 0, 1), y = tiny_steps(&half, 0, 1);
        CHECK(y.finite && !y.skipped);
        CHECK_NEAR(y.loss_scale, 65536, 0);
        CHECK_NEAR(y.loss, x.loss, 1e-3 * x.loss);
        CHECK_NEAR(y.aux_loss, x.aux_loss, 1e-3 * x.aux_loss);
        CHECK_NEAR(y.next_loss[0], x.next_loss[0], 1e-3 * x.next_loss[0]);
        CHECK_NEAR(y.grad_norm, x.grad_norm, 2e-3 * x.grad_norm);
        CHECK_NEAR(y.group_norm[GRAD_EXPERTS] / x.group_norm[GRAD_EXPERTS], 1, 4e-3);
        CHECK(apart(&wide, &half, -1, 65536) < 4e-3);
        CHECK(apart(&wide, &half, ROLE_ROUTER, 65536) < 4e-3);
        tiny_close(&wide);
        tiny_close(&half);
    }
}

/* Powers of two only move exponents. Without clipping, weights differ by what underflows: by less than 1e-6
 * of a norm. The choices of experts are forced: a difference of 1e-7 can change one, and a token at another
 * expert moves the norm by some 3e-3 (measured on processors with AVX2). */
static void the_scale_does_not_reach_the_weights(void **state)
{
    (void)state;
    Tiny one, two;
    tiny_open(&one, TINY(F16, AUXILIARY, NO_CLIP, "moe.forced_balance=true"));
    tiny_open(&two, TINY(F16, AUXILIARY, NO_CLIP, "moe.forced_balance=true"));
    one.engine.params.kept.loss_scale.now = 1024;
    two.engine.params.kept.loss_scale.now = 8192;
    StepResult x = tiny_steps(&one, 0, 3), y = tiny_steps(&two, 0, 3);
    CHECK_NEAR(x.loss_scale, 1024, 0);
    CHECK_NEAR(y.loss_scale, 8192, 0);
    CHECK_NEAR(x.loss, y.loss, 1e-5);
    CHECK_NEAR(x.grad_norm, y.grad_norm, 1e-5 * y.grad_norm);
    tiny_close(&one);
    tiny_close(&two);
}

/* A model that meets a scale that is far too large, beside one that begins with the scale at which the
 * step succeeds: after it both are the same. */
static void an_overflow_halves_the_scale_and_changes_nothing_else(void **state)
{
    (void)state;
    Tiny one, two;
    tiny_open(&one, TINY(F16, "moe.bias_rate=0.01"));
    tiny_open(&two, TINY(F16, "moe.bias_rate=0.01"));
    LossScale *scale = &one.engine.params.kept.loss_scale;
    scale->now = 0x1p40, scale->good = 7;
    int skipped = 0;
    for (StepResult r = { .skipped = true }; r.skipped && skipped < 40;) {
        double before = scale->now;
        tiny_batch(&one, 0);
        CHECK_OK(engine_step(&one.engine, &one.batch, 1e-2, skipped + 1, &r));
        CHECK_NEAR(r.loss_scale, before, 0);
        CHECK(isfinite(r.loss));
        CHECK(r.finite != r.skipped);
        CHECK_NEAR(scale->now, r.skipped ? before / 2 : before, 0);
        CHECK_INT(scale->good, r.skipped ? 0 : 1);
        skipped += r.skipped;
        CHECK_INT(scale->skipped, skipped);
        if (r.skipped) CHECK(tiny_same_state(&one, &two));
    }
    CHECK(skipped > 5 && skipped < 40);
    two.engine.params.kept.loss_scale.now = scale->now;
    tiny_steps(&two, 0,
               1); /* its first update, as that of the other model: steps skipped do not count */
    CHECK(tiny_same_state(&one, &two));
    tiny_close(&one);
    tiny_close(&two);
}

/* The mean of earlier norms is set so low that the step is a spike. Its norm counts as three times the
 * mean, the batch is gone, and the next update is the model's first. */
static void a_spike_changes_nothing_but_the_running_mean(void **state)
{
    (void)state;
    Tiny one, two;
    StepResult r;
    tiny_open(&one, TINY("moe.bias_rate=0.01", "optimizer.skip_spikes=3"));
    tiny_open(&two, TINY("moe.bias_rate=0.01"));
    StepMeans *mean = &one.engine.params.kept.means;
    *mean = (StepMeans){ .norms = { .mean = 1e-6, .steps = 99 } };
    tiny_batch(&one, 0);
    CHECK_OK(engine_step(&one.engine, &one.batch, 1e-2, 1, &r));
    CHECK(r.skipped && r.finite && r.grad_norm > 1e-3);
    CHECK_NEAR(r.norm_limit, 3e-6, 1e-12);
    CHECK(tiny_same_state(&one, &two));
    CHECK_NEAR(mean->norms.mean, 1.02e-6, 1e-12);
    CHECK_INT(one.engine.params.kept.loss_scale.skipped, 1);
    *mean = (StepMeans){ .norms = { .mean = r.grad_norm, .steps = 99 } };
    CHECK_OK(engine_step(&one.engine, &one.batch, 1e-2, 2, &r));
    CHECK(!r.skipped);
    CHECK_INT(one.engine.params.kept.loss_scale.skipped, 1);
    tiny_steps(&two, 0, 1);
    CHECK(tiny_same_state(&one, &two));
    tiny_close(&one);
    tiny_close(&two);
}

static void good_steps_double_the_scale(void **state)
{
    (void)state;
    const Config dynamic = { .run_compute = COMPUTE_F16 };
    LossScale s = loss_scale_start(&dynamic);
    for (int i = 0; i < 1999; i++) CHECK(loss_scale_follow(&dynamic, &s, true));
    CHECK_NEAR(s.now, 65536, 0);
    CHECK(loss_scale_follow(&dynamic, &s, true));
    CHECK_NEAR(s.now, 131072, 0);
    CHECK_INT(s.good, 0);
    s.now = 0x1p24, s.good = 1999; /* the most */
    CHECK(loss_scale_follow(&dynamic, &s, true));
    CHECK_NEAR(s.now, 0x1p24, 0);
    s.now = 2;
    CHECK(loss_scale_follow(&dynamic, &s, false));
    CHECK_NEAR(s.now, 1, 0);
    CHECK(!loss_scale_follow(&dynamic, &s, false)); /* the least */
    CHECK_NEAR(s.now, 1, 0);
}

static void other_types_have_no_scale(void **state)
{
    (void)state;
    const Config bf16 = { .run_compute = COMPUTE_BF16 };
    const LossScale saved = { .now = 512, .good = 3, .skipped = 2 };
    LossScale s = loss_scale_start(&bf16);
    CHECK_NEAR(s.now, 1, 0);
    CHECK(!loss_scale_follow(&bf16, &s, false));
    CHECK(loss_scale_follow(&bf16, &s, true));
    CHECK_NEAR(s.now, 1, 0);
    CHECK_INT(s.good + s.skipped, 0);
    s = loss_scale_resume(&bf16, &saved);
    CHECK_NEAR(s.now, 1, 0);
    CHECK_INT(s.skipped, 2);
    s = loss_scale_resume(&(Config){ .run_compute = COMPUTE_F16 }, &saved);
    CHECK_NEAR(s.now, 512, 0);
    CHECK_INT(s.good, 3);
}

/* Infinities that a smaller scale does not explain end a run as in any type. */
static void the_least_scale_that_overflows_is_explained(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY(F16, "moe.aux_loss=100", "moe.z_loss=100", "model.init_std=3"));
    t.engine.params.kept.loss_scale.now = 1;
    CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 1, &r));
    CHECK(!r.finite && !r.skipped && isfinite(r.loss));
    CHECK_FAILS(engine_explain_nan(&t.engine, &t.batch, 1), ERR_NUMERIC, "step 1");
    tiny_close(&t);
}

static void a_gpu_is_refused_before_it_is_asked_for(void **state)
{
    (void)state;
    Tiny t = { 0 };
    CHECK_OK(tiny_config(&t, TINY(F16, "run.device=cuda")));
    CHECK_FAILS(tiny_start(&t, NULL), ERR_UNSUPPORTED, "run.compute=f16 has no kernels on a GPU");
    tiny_close(&t);
}

static void used_bytes_are_the_planned_bytes(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY(F16, "recompute.layers=[1]"));
    tiny_steps(&t, 0, 2);
    tiny_check_planned(&t);
    tiny_close(&t);
}

static void types_without_a_scale_save_none(void **state)
{
    (void)state;
    ModelSpec spec = { .act = DTYPE_F32 };
    EngineParams w = { .spec = &spec, .kept.loss_scale = { .now = 1, .skipped = 3 } };
    CHECK_NEAR(rules_save(&w).loss_scale.now, 0, 0);
    CHECK_INT(rules_save(&w).loss_scale.skipped, 3);
    spec.act = DTYPE_F16;
    CHECK_NEAR(rules_save(&w).loss_scale.now, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gradients_are_those_of_f32_times_the_scale),
        TEST(the_scale_does_not_reach_the_weights),
        TEST(an_overflow_halves_the_scale_and_changes_nothing_else),
        TEST(a_spike_changes_nothing_but_the_running_mean),
        TEST(good_steps_double_the_scale),
        TEST(types_without_a_scale_save_none),
        TEST(other_types_have_no_scale),
        TEST(the_least_scale_that_overflows_is_explained),
        TEST(a_gpu_is_refused_before_it_is_asked_for),
        TEST(used_bytes_are_the_planned_bytes),
    };
    return TEST_RUN(tests);
}
