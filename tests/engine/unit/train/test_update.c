/* update: the learning rate over the steps, which parameters decay, what clipping does. */
#include "engine/step/update.h"
#include "harness/param_view.h"
#include "harness/tiny.h"

/* ---- learning rate ---- */

static Config schedule(double lr, double min_lr, int64_t warmup, int64_t steps)
{
    return (Config){ .optimizer_lr = lr,
                     .optimizer_min_lr = min_lr,
                     .optimizer_warmup_steps = warmup,
                     .train_steps = steps };
}

static void the_rate_rises_linearly_then_falls_along_a_cosine(void **state)
{
    (void)state;
    Config c = schedule(1e-2, 1e-3, 10, 110);
    CHECK_NEAR(learning_rate(&c, 1), 1e-3, 1e-18);
    CHECK_NEAR(learning_rate(&c, 7), 7e-3, 1e-17);
    CHECK_NEAR(learning_rate(&c, 10), 1e-2, 1e-17);
    /* 25, 50 and 75 of the 100 steps of the cosine: (1 + cos(pi/4)) / 2 = 0.8535533905932737 */
    CHECK_NEAR(learning_rate(&c, 35), 1e-3 + 9e-3 * 0.8535533905932737, 1e-15);
    CHECK_NEAR(learning_rate(&c, 60), 5.5e-3, 1e-15);
    CHECK_NEAR(learning_rate(&c, 85), 1e-3 + 9e-3 * 0.1464466094067263, 1e-15);
    CHECK_NEAR(learning_rate(&c, 110), 1e-3, 1e-17);
}

static void without_warm_up_the_first_step_is_already_on_the_cosine(void **state)
{
    (void)state;
    Config c = schedule(1, 0, 0, 4);
    CHECK_NEAR(learning_rate(&c, 1), 0.8535533905932737, 1e-15);
    CHECK_NEAR(learning_rate(&c, 4), 0, 1e-15);
}

static void behind_its_end_the_rate_stays_at_the_minimum(void **state)
{
    (void)state;
    Config c = schedule(1e-2, 1e-3, 2, 1000);
    c.optimizer_decay_steps = 12;
    CHECK_NEAR(learning_rate(&c, 7), 5.5e-3, 1e-15);
    CHECK_NEAR(learning_rate(&c, 12), 1e-3, 1e-17);
    CHECK_NEAR(learning_rate(&c, 500), 1e-3, 1e-17);
}

static void a_warm_up_longer_than_the_run_never_falls(void **state)
{
    (void)state;
    Config c = schedule(1, 0, 100, 10);
    CHECK_NEAR(learning_rate(&c, 10), 0.1, 1e-15);
    CHECK_NEAR(learning_rate(&c, 100), 1, 1e-15);
    CHECK_NEAR(learning_rate(&c, 101), 0, 1e-15);
}

static void the_rate_falls_along_the_chosen_curve(void **state)
{
    (void)state;
    Config c = schedule(1e-2, 2e-3, 10, 110);
    c.optimizer_schedule = RATE_LINEAR;
    CHECK_NEAR(learning_rate(&c, 5), 5e-3, 1e-17);
    CHECK_NEAR(learning_rate(&c, 35), 8e-3, 1e-17);
    CHECK_NEAR(learning_rate(&c, 85), 4e-3, 1e-17);
    CHECK_NEAR(learning_rate(&c, 200), 2e-3, 1e-17);
    c.optimizer_schedule = RATE_CONSTANT;
    CHECK_NEAR(learning_rate(&c, 5), 5e-3, 1e-17);
    CHECK_NEAR(learning_rate(&c, 11), 1e-2, 0);
    CHECK_NEAR(learning_rate(&c, 500), 1e-2, 0);
}

/* 400 steps end the curve of a run of 1000. The fall of 100 steps has four equal parts below. */
static void wsd_stays_at_the_peak_and_falls_at_its_end(void **state)
{
    (void)state;
    static const double left[][3] = {
        [DECAY_LINEAR] = { 0.75, 0.5, 0.25 },
        [DECAY_COSINE] = { 0.8535533905932737, 0.5, 0.1464466094067263 },
        [DECAY_SQRT] = { 0.5, 0.2928932188134524, 0.1339745962155614 },
    };
    Config c = schedule(1e-2, 2e-3, 10, 1000);
    c.optimizer_schedule = RATE_WSD;
    c.optimizer_decay_steps = 400;
    c.optimizer_decay_length = 100;
    for (c.optimizer_decay = 0; c.optimizer_decay < 3; c.optimizer_decay++) {
        CHECK_NEAR(learning_rate(&c, 9), 9e-3, 1e-17);
        CHECK_NEAR(learning_rate(&c, 11), 1e-2, 0);
        CHECK_NEAR(learning_rate(&c, 300), 1e-2, 0);
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(learning_rate(&c, 325 + 25 * i), 2e-3 + 8e-3 * left[c.optimizer_decay][i],
                       1e-16);
        CHECK_NEAR(learning_rate(&c, 400), 2e-3, 1e-17);
        CHECK_NEAR(learning_rate(&c, 999), 2e-3, 1e-17);
    }
}

static void the_fall_of_wsd_is_a_tenth_and_never_within_the_warm_up(void **state)
{
    (void)state;
    Config c = schedule(1, 0, 10, 200);
    c.optimizer_schedule = RATE_WSD;
    CHECK_NEAR(learning_rate(&c, 180), 1, 0);
    CHECK_NEAR(learning_rate(&c, 190), 0.5, 1e-15);
    c.optimizer_decay_length = 1000;
    CHECK_NEAR(learning_rate(&c, 10), 1, 0);
    CHECK_NEAR(learning_rate(&c, 105), 0.5, 1e-15);
    c.optimizer_warmup_steps = 300;
    CHECK_NEAR(learning_rate(&c, 150), 0.5, 1e-15);
    CHECK_NEAR(learning_rate(&c, 301), 0, 0);
}

/* ---- spikes ---- */

/* Norms of 2, then one of 9: the limit is 4 times the mean of the norms before. */
static void the_limit_is_a_multiple_of_the_running_mean(void **state)
{
    (void)state;
    const Config c = { .optimizer_skip_spikes = 4 };
    StepMeans m = { 0 };
    for (int i = 0; i < 20; i++) {
        CHECK(norm_limit(&c, &m) > 1e38F);
        CHECK(!norm_follow(&c, &m, i == 7 ? 21 : 1)); /* the mean is 2 */
    }
    CHECK_NEAR(norm_limit(&c, &m), 8, 1e-6);
    CHECK(!norm_follow(&c, &m, 7.99));
    m = (StepMeans){ .norms = { .mean = 2, .steps = 20 } };
    CHECK(norm_follow(&c, &m, 9));
    CHECK_NEAR(m.norms.mean, 2 + (8 - 2) / 21.0, 1e-12); /* it counts as 8 */
    CHECK_INT(m.norms.steps, 21);
    CHECK(!norm_follow(&c, &m, (double)INFINITY));
    CHECK_INT(m.norms.steps, 21);
    m = (StepMeans){ .norms = { .mean = 2, .steps = 5000 } };
    CHECK(!norm_follow(&c, &m, 5));
    CHECK_NEAR(m.norms.mean, 2 + 3 / 100.0, 1e-12);
    const Config off = { 0 };
    CHECK(!norm_follow(&off, &m, 1e30));
    CHECK(norm_limit(&off, &m) > 1e38F);
}

static void the_average_begins_as_a_plain_mean(void **state)
{
    (void)state;
    const Config c = { .optimizer_ema = 0.875 };
    CHECK_NEAR(average_rate(&c, &(StepMeans){ .weights = 0 }), 1, 0);
    CHECK_NEAR(average_rate(&c, &(StepMeans){ .weights = 3 }), 0.25, 0);
    CHECK_NEAR(average_rate(&c, &(StepMeans){ .weights = 7 }), 0.125, 0);
    CHECK_NEAR(average_rate(&c, &(StepMeans){ .weights = 8 }), 0.125, 0);
}

/* ---- decay ---- */

static void ranges_cover_every_parameter_once_under_its_own_rule(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("attention.q_rank=9", "moe.bias_rate=0.01"));
    const Engine *e = &t.engine;
    int64_t at = 0;
    CHECK(e->params.n_ranges > 2);
    for (int i = 0; i < e->params.n_ranges; i++) {
        CHECK(e->params.ranges[i].w.data == tensor_at(&e->params.memory.buffer[BUF_MAIN], at));
        CHECK(tensor_elems(&e->params.ranges[i].w) > 0);
        if (i > 0) CHECK(e->params.ranges[i].decay != e->params.ranges[i - 1].decay);
        at += tensor_elems(&e->params.ranges[i].w);
    }
    CHECK_INT(at, e->params.table.elems[BUF_MAIN]);
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        if (p->first[BUF_MAIN] < 0) continue;
        const UpdateRange *r = e->params.ranges;
        int64_t end = tensor_elems(&r->w);
        for (; p->first[BUF_MAIN] >= end; end += tensor_elems(&r->w)) r++;
        CHECK(p->first[BUF_MAIN] + param_elems(p) <= end);
        CHECK_INT(r->decay, p->decay);
        CHECK_INT(p->decay, p->rank == 2); /* matrices, and no norms */
    }
    tiny_close(&t);
}

static void set_hyper(Tiny *t, float lr)
{
    float *h = t->engine.io.hyper.data;
    h[0] = lr, h[1] = 1, h[2] = 1;
}

/* Without a gradient AdamW only decays: w (1 - lr decay) for matrices, norms stay as they are. */
static void without_gradients_matrices_shrink_and_norms_stay(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("optimizer.weight_decay=0.5"));
    Tensor *buffer = t.engine.params.memory.buffer;
    int64_t n = t.engine.params.table.elems[BUF_MAIN];
    void *copy = NULL;
    CHECK_OK(arena_alloc(&t.arena, (size_t)n * sizeof(float), &copy));
    memcpy(copy, buffer[BUF_MAIN].data, (size_t)n * sizeof(float));
    memset(buffer[BUF_GRAD].data, 0, tensor_bytes(&buffer[BUF_GRAD]));
    memset(t.engine.io.record.sums.data, 0, tensor_bytes(&t.engine.io.record.sums));
    memset(t.engine.io.record.load.data, 0, tensor_bytes(&t.engine.io.record.load));
    set_hyper(&t, 0.1F);
    CHECK_OK(update_run(&t.engine.params, &t.engine.io));
    for (int i = 0; i < t.engine.params.table.n; i++) {
        const Param *p = &t.engine.params.table.at[i];
        const float *was = (const float *)copy + p->first[BUF_MAIN];
        Tensor now = param_view(p, &t.engine.params.memory, BUF_MAIN);
        for (int64_t j = 0; j < param_elems(p); j++) {
            double want = (double)was[j] * (p->decay ? 1 - 0.1 * 0.5 : 1);
            CHECK_NEAR(((const float *)now.data)[j], want, 1e-7 * fabs(want));
        }
    }
    tiny_close(&t);
}

/* ---- norms by group ---- */

static GradGroup group_by_name(const char *name)
{
    static const struct {
        const char *part;
        GradGroup group;
    } of[] = {
        { "norm", GRAD_NORMS },           { "embed_tokens", GRAD_EMBEDDING },
        { "lm_head", GRAD_HEAD },         { "self_attn", GRAD_ATTENTION },
        { ".experts.", GRAD_EXPERTS },    { "mlp.gate.", GRAD_ROUTER },
        { "shared_experts", GRAD_DENSE }, { "mlp.", GRAD_DENSE },
        { "eh_proj", GRAD_DENSE },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (strstr(name, of[i].part) != NULL) return of[i].group;
    }
    fail_msg("no group for %s", name);
    return GRAD_GROUPS;
}

/* The gradients themselves say what their norms are. */
static void norms_by_group_are_those_of_the_groups_gradients(void **state)
{
    (void)state;
    static const char *const kinds[][4] = {
        { "attention.q_rank=9", "mtp.layers=1", "moe.shared=1", "optimizer.kind=muon" },
        { "attention.kind=gqa", "attention.qk_norm=rms", "attention.sinks=true",
          "moe.shared_gate=true" },
        { "model.dense_layers=3", "model.tied=true", "moe.shared=0", "train.micro_batch=2" },
    };
    for (int kind = 0; kind < 3; kind++) {
        Tiny t;
        double want[GRAD_GROUPS] = { 0 }, all = 0;
        const char *set[] = { kinds[kind][0], kinds[kind][1], kinds[kind][2], kinds[kind][3],
                              NULL };
        tiny_open(&t, set);
        StepResult r = tiny_steps(&t, 0, 1);
        for (int i = 0; i < t.engine.params.table.n; i++) {
            const Param *p = &t.engine.params.table.at[i];
            if (p->first[BUF_GRAD] < 0) continue;
            Tensor g = param_view(p, &t.engine.params.memory, BUF_GRAD);
            const float *x = g.data;
            for (int64_t k = 0; k < param_elems(p); k++)
                want[group_by_name(p->name)] += (double)x[k] * (double)x[k];
        }
        for (int g = 0; g < GRAD_GROUPS; g++) {
            CHECK_NEAR(r.group_norm[g], sqrt(want[g]), 1e-5 * sqrt(want[g]));
            all += r.group_norm[g] * r.group_norm[g];
        }
        CHECK_NEAR(sqrt(all), r.grad_norm, 1e-5 * r.grad_norm);
        CHECK_INT(r.group_norm[GRAD_EXPERTS] > 0, kind < 2);
        CHECK_INT(r.group_norm[GRAD_HEAD] > 0, kind < 2);
        tiny_close(&t);
    }
}

/* Without a load-balancing loss, aux_loss is the z-loss: the coefficient times the mean square of z, over layers. */
static void the_z_of_each_layer_is_what_its_loss_is_made_of(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("moe.aux_loss=0", "moe.z_loss=0.5"));
    StepResult r = tiny_steps(&t, 0, 1);
    CHECK_INT(t.engine.spec.n_moe, 2);
    CHECK(r.router_z[0] > 0 && r.router_z[1] > 0 && r.router_z[0] != r.router_z[1]);
    double sum = (double)r.router_z[0] + (double)r.router_z[1];
    CHECK_NEAR(r.aux_loss, 0.5 * sum / (4 * 24), 1e-6 * r.aux_loss);
    tiny_close(&t);
}

/* ---- clipping ---- */

/* Gradients of ones have norm sqrt(n); the first moment is (1 - beta1) times what was clipped. */
static void check_clip(const char *setting, double scale_of_norm)
{
    Tiny t;
    tiny_open(&t, TINY(setting, "optimizer.beta1=0.5"));
    Tensor *buffer = t.engine.params.memory.buffer;
    int64_t n = t.engine.params.table.elems[BUF_GRAD];
    float *g = buffer[BUF_GRAD].data;
    for (int64_t i = 0; i < n; i++) g[i] = 1;
    memset(t.engine.io.record.sums.data, 0, tensor_bytes(&t.engine.io.record.sums));
    memset(t.engine.io.record.load.data, 0, tensor_bytes(&t.engine.io.record.load));
    set_hyper(&t, 0);
    CHECK_OK(update_run(&t.engine.params, &t.engine.io));
    double norm = sqrt((double)n);
    CHECK_NEAR((double)*(float *)t.engine.io.record.grad_norm.data / norm, 1, 1e-6);
    double want = 0.5 * (scale_of_norm > 0 ? scale_of_norm / norm : 1);
    const float *m = buffer[BUF_OPTIMIZER].data;
    for (int64_t i = 0; i < n; i++) CHECK_NEAR((double)m[i] / want, 1, 1e-5);
    tiny_close(&t);
}

static void gradients_are_scaled_to_the_largest_norm(void **state)
{
    (void)state;
    check_clip("train.clip_norm=2", 2);
}

static void smaller_gradients_are_left_alone(void **state)
{
    (void)state;
    check_clip("train.clip_norm=1e6", 0);
}

static void clip_norm_0_clips_nothing(void **state)
{
    (void)state;
    check_clip("train.clip_norm=0", 0);
}

/* AdamW reads weight, gradient and moments and writes all but the gradient, in f32 or moments in
 * bf16, and the copy that compute reads; the norm reads the gradient. */
static void a_parameter_s_update_moves_32_bytes_and_2_of_a_copy(void **state)
{
    (void)state;
    ModelSpec s = { .optimizer = optimizer_with(&optimizer_adamw, DTYPE_F32) };
    CHECK_NEAR(engine_update_bytes(&s), 7 * 4 + 4, 0);
    s.weights = copies_plain(DTYPE_BF16);
    CHECK_NEAR(engine_update_bytes(&s), 7 * 4 + 4 + 2, 0);
    s.optimizer = optimizer_with(&optimizer_adamw, DTYPE_BF16);
    CHECK_NEAR(engine_update_bytes(&s), 3 * 4 + 4 * 2 + 4 + 2, 0);
    s.optimizer.rules = 1U << RULE_AVERAGE;
    CHECK_NEAR(engine_update_bytes(&s), 3 * 4 + 4 * 2 + 4 + 2 + 3 * 4, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_rate_rises_linearly_then_falls_along_a_cosine),
        TEST(without_warm_up_the_first_step_is_already_on_the_cosine),
        TEST(behind_its_end_the_rate_stays_at_the_minimum),
        TEST(a_warm_up_longer_than_the_run_never_falls),
        TEST(the_rate_falls_along_the_chosen_curve),
        TEST(wsd_stays_at_the_peak_and_falls_at_its_end),
        TEST(the_fall_of_wsd_is_a_tenth_and_never_within_the_warm_up),
        TEST(the_limit_is_a_multiple_of_the_running_mean),
        TEST(the_average_begins_as_a_plain_mean),
        TEST(ranges_cover_every_parameter_once_under_its_own_rule),
        TEST(without_gradients_matrices_shrink_and_norms_stay),
        TEST(norms_by_group_are_those_of_the_groups_gradients),
        TEST(the_z_of_each_layer_is_what_its_loss_is_made_of),
        TEST(gradients_are_scaled_to_the_largest_norm),
        TEST(smaller_gradients_are_left_alone),
        TEST(clip_norm_0_clips_nothing),
        TEST(a_parameter_s_update_moves_32_bytes_and_2_of_a_copy),
    };
    return TEST_RUN(tests);
}
