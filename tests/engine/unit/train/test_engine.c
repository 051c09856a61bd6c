/* The engine: plans come true, bits do not depend on threads, recompute or run, gradients are
 * derivatives. */
#include "harness/slope.h"

#include "engine/base/clock.h"

#include <float.h>

enum { OPTIONS_MAX = 10 };

/* Models that differ in every option of the layers. */
static const char *const models[][OPTIONS_MAX] = {
    { "moe.shared=1" },
    { "attention.q_rank=9", "moe.shared=2", "moe.score=sigmoid", "moe.normalise=true",
      "moe.scaling=2.5", "moe.bias_rate=0.01" },
    { "attention.kind=gqa", "moe.groups=3", "moe.top_groups=2", "moe.shared=0",
      "attention.rope_interleaved=false" },
    { "attention.kind=gqa", "model.tied=true", "model.dense_layers=3", "attention.qk_norm=l2" },
    { "attention.kind=gqa", "attention.qk_norm=rms", "moe.shared=0", "moe.normalise=true" },
    { "moe.aux_scope=batch", "moe.aux_loss=0.1", "attention.document_mask=false",
      "model.dense_layers=0" },
    { "attention.q_rank=9", "attention.bias=true", "attention.out_bias=true",
      "attention.latent_eps=0.1", "rope.scaling=yarn", "rope.factor=4", "rope.original=16",
      "rope.mscale=0.7", "rope.mscale_all_dim=1.1" },
    { "moe.router_bias=true", "moe.shared_gate=true", "moe.every=2", "model.dense_layers=0",
      "moe.activation=gelu" },
    { "attention.kind=gqa", "attention.bias=true", "attention.out_bias=true",
      "attention.qk_norm=width", "attention.rotary=0.5", "attention.nope_every=2",
      "attention.temper_floor=5", "rope.scaling=linear", "rope.factor=2" },
    { "attention.kind=gqa", "moe.expert_bias=true", "moe.activation=clamped", "moe.limit=2",
      "moe.shared=1" },
    { "mtp.layers=1", "mtp.loss=1", "moe.score=sigmoid", "moe.bias_rate=0.01" },
    { "mtp.layers=2", "mtp.loss=2", "attention.kind=gqa", "model.tied=true" },
    { "attention.kind=gqa", "attention.qk_norm=rms", "attention.gate=true", "attention.rotary=0.5",
      "model.dense_layers=3" },
    { "delta.full_every=3", "delta.key_heads=2", "delta.heads=4", "delta.key_dim=6",
      "delta.value_dim=5", "model.norm_eps=0.01", "model.init_std=0.15" },
};
enum { MODELS = sizeof models / sizeof *models };

/* A model's overrides, then more. */
static void open_with(Tiny *t, int model, const char *const *more)
{
    const char *all[24] = { 0 };
    int n = 0;
    for (int i = 0; i < OPTIONS_MAX && models[model][i] != NULL; i++) all[n++] = models[model][i];
    for (; *more != NULL; more++) all[n++] = *more;
    tiny_open(t, all);
}

static const char *const recomputes[] = {
    "recompute.pieces=[layer]",   "recompute.pieces=[norm]",
    "recompute.pieces=[attn_up]", "recompute.pieces=[act]",
    "recompute.pieces=[shared]",  "recompute.pieces=[norm, attn_up, act, shared]",
};

static void recompute_changes_memory_and_not_one_bit(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        Tiny plain;
        open_with(&plain, m, TINY("train.micro_batch=2"));
        tiny_steps(&plain, 0, RUNS(3, 2));
        for (size_t i = 0; i < sizeof recomputes / sizeof *recomputes; i++) {
            Tiny t;
            open_with(&t, m,
                      TINY("train.micro_batch=2", "recompute.layers=[0, 1, 2]", recomputes[i]));
            tiny_steps(&t, 0, RUNS(3, 2));
            CHECK(tiny_same_state(&plain, &t));
            CHECK(t.plan.bytes[ENGINE_SLOT] <= plain.plan.bytes[ENGINE_SLOT]);
            if (i == 0) CHECK(t.plan.bytes[ENGINE_SLOT] < plain.plan.bytes[ENGINE_SLOT]);
            tiny_close(&t);
        }
        tiny_close(&plain);
    }
}

/* Of a model with grouped-query attention and micro-batches of two, without making it. */
static EnginePlan plan_of(int64_t batch, const char *setting)
{
    Tiny t = { 0 };
    EnginePlan plan;
    CHECK_OK(arena_init(&t.arena, "tiny", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(config_default(&t.config, &t.arena));
    for (size_t i = 0; i < sizeof tiny_base / sizeof *tiny_base; i++) {
        CHECK_OK(config_override(&t.config, &t.arena, tiny_base[i]));
    }
    CHECK_OK(config_override(&t.config, &t.arena, "attention.kind=gqa"));
    CHECK_OK(config_override(&t.config, &t.arena, setting));
    t.shape = (EngineShape){ batch, 2, 24, .positions = 24, .domains = 2, .threads = 2 };
    CHECK_OK(engine_plan(&t.config, ENGINE_TRAIN, &t.shape, &plan));
    arena_free(&t.arena);
    return plan;
}

static void every_micro_batch_costs_what_the_first_does(void **state)
{
    (void)state;
    const char *usual = "attention.chunk=0";
    EnginePlan one = plan_of(2, usual), two = plan_of(4, usual);
    EnginePlan nine = plan_of(18, usual);
    CHECK(two.step.ops > one.step.ops);
    CHECK_INT(nine.step.ops - one.step.ops, 8 * (two.step.ops - one.step.ops));
    CHECK_NEAR(nine.step.flops - one.step.flops, 8 * (two.step.flops - one.step.flops), 0);
    CHECK_INT(nine.bytes[ENGINE_SLOT], one.bytes[ENGINE_SLOT]);
}

/* 3 layers of 48 tokens, 2 heads and 1 key/value head of 12: f32 rows of 48, then a float a head.
 */
static void heads_that_are_normalised_keep_where_they_came_from(void **state)
{
    (void)state;
    EnginePlan plain = plan_of(2, "attention.chunk=0");
    EnginePlan rms = plan_of(2, "attention.qk_norm=rms");
    EnginePlan l2 = plan_of(2, "attention.qk_norm=l2");
    EnginePlan width = plan_of(2, "attention.qk_norm=width");
    size_t layer = arena_rounded((size_t)48 * 48 * 4) + arena_rounded((size_t)48 * 3 * 4);
    CHECK_INT(rms.bytes[ENGINE_SLOT] - plain.bytes[ENGINE_SLOT], 3 * layer);
    CHECK_INT(l2.bytes[ENGINE_SLOT], rms.bytes[ENGINE_SLOT]);
    CHECK_INT(rms.params_total - plain.params_total, 3 * 2 * 12);
    CHECK_INT(l2.params_total, plain.params_total);
    CHECK_INT(width.params_total - plain.params_total, 3 * (24 + 12));
}

/* 3 layers; q, k and v of 24, 12 and 12, rows of 32. What biases add is not kept. */
static void biases_are_vectors_and_keep_nothing(void **state)
{
    (void)state;
    EnginePlan plain = plan_of(2, "attention.chunk=0");
    EnginePlan qkv = plan_of(2, "attention.bias=true");
    EnginePlan out = plan_of(2, "attention.out_bias=true");
    CHECK_INT(qkv.params_total - plain.params_total, 3 * (24 + 2 * 12));
    CHECK_INT(out.params_total - plain.params_total, 3 * 32);
    CHECK_INT(qkv.bytes[ENGINE_SLOT], plain.bytes[ENGINE_SLOT]);
    CHECK_INT(out.bytes[ENGINE_SLOT], plain.bytes[ENGINE_SLOT]);
}

/* 3 layers, 2 micro-batches, 2 sequences and 2 heads of 12: of 24 * 25 / 2 pairs of a query and a
 * key, chunks of 10, 10 and 4 leave 120, a window of 10 leaves 195; 4 products forward and 10
 * backward a pair and column. */
static void masks_leave_fewer_pairs_to_attend_to(void **state)
{
    (void)state;
    EnginePlan plain = plan_of(4, "attention.chunk=0");
    EnginePlan chunks = plan_of(4, "attention.chunk=10");
    CHECK_NEAR(plain.step.flops - chunks.step.flops, 3 * 2 * 2 * 2 * 12 * 14.0 * (300 - 120), 0);
    CHECK_INT(chunks.bytes[ENGINE_SLOT], plain.bytes[ENGINE_SLOT]);
    EnginePlan window = plan_of(4, "attention.window=10");
    CHECK_NEAR(plain.step.flops - window.step.flops, 3 * 2 * 2 * 2 * 12 * 14.0 * (300 - 195), 0);
    CHECK_INT(window.bytes[ENGINE_SLOT], plain.bytes[ENGINE_SLOT]);
}

/* A number a head and layer; what is kept does not grow. */
static void sinks_are_a_number_a_head(void **state)
{
    (void)state;
    EnginePlan plain = plan_of(2, "attention.sinks=false");
    EnginePlan sinks = plan_of(2, "attention.sinks=true");
    CHECK_INT(sinks.params_total - plain.params_total, 3 * 2);
    CHECK_INT(sinks.bytes[ENGINE_SLOT], plain.bytes[ENGINE_SLOT]);
    CHECK(sinks.step.ops > plain.step.ops);
}

static void used_bytes_are_the_planned_bytes(void **state)
{
    (void)state;
    static const char *const settings[] = { "run.compute=f32", "run.compute=bf16",
                                            "recompute.layers=[0, 2]", "train.micro_batch=1",
                                            "optimizer.moments=bf16" };
    for (int m = 0; m < MODELS; m++) {
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            Tiny t;
            open_with(&t, m, TINY(settings[i]));
            tiny_steps(&t, 0, 2);
            tiny_check_planned(&t);
            tiny_close(&t);
        }
    }
}

static void bf16_moments_take_half_of_what_f32_ones_do(void **state)
{
    (void)state;
    EnginePlan wide = plan_of(4, "optimizer.moments=f32");
    EnginePlan low = plan_of(4, "optimizer.moments=bf16");
    Tiny t;
    tiny_open(&t, TINY("attention.kind=gqa"));
    size_t n = (size_t)t.engine.params.table.elems[BUF_OPTIMIZER];
    CHECK_INT(wide.bytes[ENGINE_RUN] - low.bytes[ENGINE_RUN],
              2 * (arena_rounded(4 * n) - arena_rounded(2 * n)));
    tiny_close(&t);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        Tiny one, two;
        open_with(&one, m, TINY("run.threads=1"));
        open_with(&two, m, TINY("run.threads=2"));
        tiny_steps(&one, 0, 3);
        tiny_steps(&two, 0, 3);
        CHECK(tiny_same_state(&one, &two));
        tiny_close(&one);
        tiny_close(&two);
    }
}

static void what_gradients_held_before_a_step_does_not_matter(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        Tiny one, two;
        /* 5 * 3 * 19 * 32 is no multiple of 64: a gap lies behind the experts. */
        const char *const *odd = TINY("moe.experts=5", "moe.ffn=19", "moe.groups=1",
                                      "moe.top_groups=1", "train.batch=4", "train.micro_batch=2");
        open_with(&one, m, odd);
        open_with(&two, m, odd);
        for (int step = 0; step < 3; step++) {
            Tensor *grads = &two.engine.params.memory.buffer[BUF_GRAD];
            memset(grads->data, 0xFF, tensor_bytes(grads)); /* NaN */
            tiny_steps(&one, step, 1);
            tiny_steps(&two, step, 1);
        }
        CHECK(tiny_same_state(&one, &two));
        tiny_close(&one);
        tiny_close(&two);
    }
}

/* Loss of the current weights on the current batch (a step that only looks: rate 0), and how often
 * each expert was chosen. */
/* The derivative of the loss along its gradient is the gradient's square. Where the step makes a
 * token change its expert the loss jumps, so the step shrinks until none does. */
static void gradient_is_the_derivative(Tiny *t)
{
    int64_t n = t->engine.params.table.elems[BUF_MAIN];
    void *memory = NULL;
    CHECK_OK(arena_alloc(&t->arena, (size_t)n * sizeof(float), &memory));
    slope_look(t);
    memcpy(memory, t->engine.params.memory.buffer[BUF_GRAD].data, (size_t)n * sizeof(float));
    const float *g = memory;
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += (double)g[i] * (double)g[i];
    for (double h = 2e-3 / sqrt(square); h * sqrt(square) > 1e-4; h /= 2) {
        slope_move(t, g, h);
        SlopeLook up = slope_look(t);
        slope_move(t, g, -2 * h);
        SlopeLook down = slope_look(t);
        slope_move(t, g, h);
        if (memcmp(up.load, down.load, sizeof up.load) != 0) continue;
        CHECK_NEAR((up.loss - down.loss) / (2 * h) / square, 1, 5e-3);
        return;
    }
    fail_msg("experts change along the gradient at every step size");
}

static void gradients_are_derivatives_of_the_loss(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        Tiny t;
        /* the router's bias must stay as it is while we look */
        open_with(&t, m,
                  TINY("train.clip_norm=0", "optimizer.weight_decay=0", "moe.bias_rate=1e-9"));
        gradient_is_the_derivative(&t);
        tiny_close(&t);
    }
}

/* Along the gradient itself nobody misses what it lacks. All experts are chosen, so that no step
 * changes which. */
static void no_role_s_gradient_is_dropped(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m += MANY_EVERY) {
        Tiny t;
        open_with(&t, m,
                  TINY("train.clip_norm=0", "optimizer.weight_decay=0", "moe.bias_rate=1e-9",
                       "moe.groups=1", "moe.top_groups=1", "moe.top_k=6", "train.batch=2",
                       "train.micro_batch=1", "run.threads=1"));
        slope_each_role(&t);
        tiny_close(&t);
    }
}

static void bf16_follows_f32_closely(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        Tiny f32, bf16;
        open_with(&f32, m, TINY("run.compute=f32"));
        open_with(&bf16, m, TINY("run.compute=bf16"));
        double a = tiny_steps(&f32, 0, 5).loss, b = tiny_steps(&bf16, 0, 5).loss;
        CHECK_NEAR(b / a, 1, 0.01);
        tiny_close(&f32);
        tiny_close(&bf16);
    }
}

/* Experts of which a layer saw fewer than the mean rise, and none looks at another layer's. */
static void a_bias_moves_against_the_load_of_its_own_layer(void **state)
{
    (void)state;
    Tiny t;
    int differ = 0;
    tiny_open(&t, TINY("moe.bias_rate=0.01"));
    StepResult r = tiny_steps(&t, 0, 1);
    int slots = (int)t.batch.targets * 2; /* top-k of those that count */
    for (int layer = 0; layer < 2; layer++) {
        const float *bias = t.engine.params.layer[4 + 2 * layer].w[ROLE_ROUTER_BIAS].data.data;
        for (int e = 0; e < 6; e++) {
            const int32_t *load = r.load + layer * 12 + e, *other = r.load + (1 - layer) * 12 + e;
            int under = slots - 6 * (load[0] + load[6]);
            int there = slots - 6 * (other[0] + other[6]);
            CHECK_NEAR(bias[e], 0.01 * ((under > 0) - (under < 0)), 1e-8);
            differ += (under > 0) != (there > 0);
        }
    }
    CHECK(differ > 0);
    tiny_close(&t);
}

/* What a setting does is tested elsewhere; here that none of them is ignored on its way. */
static void every_setting_of_a_step_changes_it(void **state)
{
    (void)state;
    static const char *const change[] = {
        "model.norm_eps=0.1",       "model.init_std=0.05",
        "attention.rope_theta=100", "attention.rope_interleaved=false",
        "moe.score=softmax",        "attention.document_mask=false",
        "moe.top_groups=2",         "moe.group_score_top=2",
        "moe.normalise=false",      "moe.scaling=2",
        "moe.aux_loss=0.02",        "moe.aux_scope=batch",
        "moe.bias_rate=0.02",       "run.compute=bf16",
        "optimizer.beta1=0.8",      "optimizer.beta2=0.9",
        "optimizer.eps=1e-3",       "optimizer.weight_decay=0.2",
        "train.clip_norm=0.1",      "attention.latent_eps=0.1",
    };
    Tiny plain;
    const char *set[] = { "moe.groups=3",
                          "moe.top_groups=1",
                          "moe.score=sigmoid",
                          "moe.normalise=true",
                          "moe.shared=1",
                          "moe.aux_loss=0.01",
                          "moe.bias_rate=0.01",
                          "moe.scaling=1",
                          NULL,
                          NULL };
    tiny_open(&plain, set);
    tiny_steps(&plain, 0, 3);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        Tiny t;
        set[8] = change[i];
        tiny_open(&t, set);
        tiny_steps(&t, 0, 3);
        if (tiny_same_state(&plain, &t)) fail_msg("%s changes nothing", change[i]);
        tiny_close(&t);
    }
    tiny_close(&plain);
}

static void the_loss_is_the_mean_over_the_targets_that_count(void **state)
{
    (void)state;
    Tiny t;
    const float *losses = NULL;
    double sum = 0;
    int n = 0;
    tiny_open(&t, TINY("moe.shared=1"));
    CHECK_OK(engine_losses(&t.engine, &t.batch, &losses));
    for (int i = 0; i < 4 * 24; i++) {
        if (((const int32_t *)t.batch.target.data)[i] < 0) continue;
        sum += (double)losses[i];
        n++;
    }
    CHECK(n < 4 * 24);
    StepResult r = tiny_steps(&t, 0, 1);
    CHECK_NEAR(r.loss / (sum / n), 1, 1e-6);
    tiny_close(&t);
}

static void a_batch_without_the_depths_is_refused(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY("mtp.layers=2"));
    t.batch.depths = 1;
    CHECK_FAILS(engine_step(&t.engine, &t.batch, 1e-2, 1, &r), ERR_ARG,
                "a batch with 1 depths of multi-token prediction, mtp.layers is 2");
    tiny_close(&t);
}

/* A depth's experts are chosen by what it predicts, and by nothing else. */
static void a_depth_counts_its_own_targets(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("mtp.layers=2", "moe.top_k=3", "train.micro_batch=1"));
    StepResult r = tiny_steps(&t, 0, 1);
    for (int d = 0; d < 2; d++) {
        int64_t sum = 0; /* of both domains */
        for (int i = 0; i < 2 * 6; i++) sum += r.load[(2 + d) * 2 * 6 + i];
        CHECK(t.batch.next[d].targets < t.batch.targets);
        CHECK_INT(sum, 3 * t.batch.next[d].targets);
    }
    tiny_close(&t);
}

/* No target: no loss, and no division by none of them. */
static void a_depth_without_a_target_has_no_loss(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY("mtp.layers=1"));
    memset(t.batch.next[0].target.data, 0xFF, tensor_bytes(&t.batch.next[0].target));
    t.batch.next[0].targets = 0;
    CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 1, &r));
    CHECK(r.finite && r.loss > 0);
    CHECK_NEAR(r.next_loss[0], 0, 0);
    tiny_close(&t);
}

/* Rows of about 1e30 into the loss: finite, but not the square of the gradient. */
static void a_norm_that_is_infinite_skips_the_step(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY("moe.shared=1"));
    Tensor norm = t.engine.params.layer[t.engine.spec.n_layers - 1].w[ROLE_NORM].data;
    for (int64_t i = 0; i < tensor_elems(&norm); i++) ((float *)norm.data)[i] = 1e30F;
    float before = ((float *)t.engine.params.layer[1].w[ROLE_KV_B].data.data)[0];
    CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 1, &r));
    CHECK(isfinite(r.loss));
    CHECK(!r.finite);
    CHECK_NEAR(((float *)t.engine.params.layer[1].w[ROLE_KV_B].data.data)[0], before, 0);
    tiny_close(&t);
}

static void count_look(void *self) { ++*(int *)self; }

static void a_step_is_timed_and_looked_at_on_every_backend(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    int looks = 0;
    tiny_open(&t, TINY("moe.shared=1"));
    t.engine.observer = (EngineObserver){ count_look, &looks };
    for (int step = 1; step <= 2; step++) {
        double start = clock_s();
        CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, step, &r));
        CHECK(r.device_s > 0 && r.device_s < clock_s() - start + 1e-6);
        CHECK_INT(looks, step);
    }
    CHECK_INT(r.launches, 0);
    CHECK_INT(r.kernels, 0);
    CHECK_INT(r.waits, 0);
    tiny_close(&t);
}

static void training_on_one_batch_learns_it(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m += MANY_EVERY) {
        Tiny t;
        StepResult r = { 0 };
        open_with(&t, m, TINY("attention.document_mask=true"));
        double first = 0, next[CONFIG_DEPTHS_MAX];
        for (int i = 0; i < 40; i++) {
            CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, i + 1, &r));
            if (i > 0) continue;
            first = r.loss;
            memcpy(next, r.next_loss, sizeof next);
        }
        CHECK_NEAR(first, log(61), 0.6);
        CHECK(r.loss < first / 2);
        for (int d = 0; d < t.config.mtp_layers; d++) {
            CHECK_NEAR(next[d], log(61), 0.6);
            CHECK(r.next_loss[d] < next[d] / 2);
        }
        tiny_close(&t);
    }
}

/* What has no target is padding. */
static void every_target_counts_at_top_k_experts_in_its_domain(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("moe.top_k=3", "train.micro_batch=1"));
    StepResult r = tiny_steps(&t, 0, 1);
    const int32_t *target = t.batch.target.data, *domain = t.batch.domain.data;
    int64_t targets[2] = { 0 };
    for (int i = 0; i < 4 * 24; i++) targets[domain[i / 24]] += target[i] >= 0;
    CHECK(targets[0] > 24 && targets[1] > 24 && targets[0] + targets[1] < 4 * 24);
    for (int layer = 0; layer < 2; layer++) {
        for (int d = 0; d < 2; d++) {
            int64_t sum = 0;
            for (int e = 0; e < 6; e++) sum += r.load[(layer * 2 + d) * 6 + e];
            CHECK_INT(sum, targets[d] * 3);
        }
    }
    tiny_close(&t);
}

static void a_nan_skips_the_step_and_is_named(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY("moe.bias_rate=0.01"));
    tiny_steps(&t, 0, 1);
    /* weights of the last block's attention become so large that their product overflows */
    Tensor w = t.engine.params.layer[5].w[ROLE_KV_B].data;
    for (int i = 0; i < 12; i++) ((float *)w.data)[i] = FLT_MAX;
    float before = ((float *)t.engine.params.layer[1].w[ROLE_KV_B].data.data)[0];
    float bias = ((float *)t.engine.params.layer[4].w[ROLE_ROUTER_BIAS].data.data)[0];
    CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 2, &r));
    CHECK(!r.finite);
    CHECK_NEAR(((float *)t.engine.params.layer[1].w[ROLE_KV_B].data.data)[0], before, 0);
    CHECK_NEAR(((float *)t.engine.params.layer[4].w[ROLE_ROUTER_BIAS].data.data)[0], bias, 0);
    CHECK_FAILS(engine_explain_nan(&t.engine, &t.batch, 2), ERR_NUMERIC,
                "step 2, layer 2: linear_fwd");
    ((float *)w.data)[3] = NAN;
    CHECK_FAILS(engine_explain_nan(&t.engine, &t.batch, 2), ERR_NUMERIC,
                "adamw, in step 1 or before, left model.layers.2.self_attn.kv_b_proj.weight");
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(recompute_changes_memory_and_not_one_bit),
        TEST(every_micro_batch_costs_what_the_first_does),
        TEST(heads_that_are_normalised_keep_where_they_came_from),
        TEST(biases_are_vectors_and_keep_nothing),
        TEST(masks_leave_fewer_pairs_to_attend_to),
        TEST(sinks_are_a_number_a_head),
        TEST(used_bytes_are_the_planned_bytes),
        TEST(bf16_moments_take_half_of_what_f32_ones_do),
        TEST(threads_do_not_change_a_bit),
        TEST(what_gradients_held_before_a_step_does_not_matter),
        TEST(gradients_are_derivatives_of_the_loss),
        TEST(no_role_s_gradient_is_dropped),
        TEST(bf16_follows_f32_closely),
        TEST(a_bias_moves_against_the_load_of_its_own_layer),
        TEST(every_setting_of_a_step_changes_it),
        TEST(the_loss_is_the_mean_over_the_targets_that_count),
        TEST(a_batch_without_the_depths_is_refused),
        TEST(a_depth_counts_its_own_targets),
        TEST(a_depth_without_a_target_has_no_loss),
        TEST(a_norm_that_is_infinite_skips_the_step),
        TEST(a_step_is_timed_and_looked_at_on_every_backend),
        TEST(training_on_one_batch_learns_it),
        TEST(every_target_counts_at_top_k_experts_in_its_domain),
        TEST(a_nan_skips_the_step_and_is_named),
    };
    return TEST_RUN(tests);
}
