/* Every preset, shrunk (--shrink): it keeps its structure, trains, and all its gradients are derivatives
 * of its loss; also with a module of multi-token prediction, which presets leave to mtp.layers. */
#include "harness/slope.h"

#include "engine/config/config_private.h"

/* Deviations so large that no part of so small a network is too quiet to be seen. */
static const char *const settings[] = {
    "run.compute=f32",          "run.device=cpu",     "run.threads=2",
    "run.tune=false",           "model.init_std=0.2", "train.clip_norm=0",
    "optimizer.weight_decay=0", "optimizer.eps=1e-5", "train.batch=2",
    "data.sequence=20"
};

/* all_experts: all are chosen, so that no move of a weight changes which. */
static void open_preset(Tiny *t, const char *name, int modules, bool all_experts)
{
    *t = (Tiny){ 0 };
    CHECK_OK(arena_init(&t->arena, "preset", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(config_load_as(&t->config, &t->arena, CONFIG_SMALL, name, settings,
                            sizeof settings / sizeof *settings));
    t->config.mtp_layers = modules;
    /* the router's bias must stay as it is while we look */
    if (t->config.moe_bias_rate > 0) t->config.moe_bias_rate = 1e-9;
    if (all_experts) {
        t->config.moe_groups = t->config.moe_top_groups = t->config.moe_group_score_top = 1;
        if (t->config.moe_score_input) t->config.moe_experts = 1; /* a token takes one */
        t->config.moe_top_k = t->config.moe_experts;
    }
    CHECK_OK(tiny_start(t, NULL));
}

static void each_preset_s_gradients_are_derivatives(void **state)
{
    (void)state;
    for (int i = 0; i < config_presets_n; i += MANY_EVERY) {
        Tiny t;
        open_preset(&t, config_presets[i].name, 0, true);
        slope_each_role(&t);
        tiny_close(&t);
    }
}

/* Of those whose release has a module. */
static void with_a_module_gradients_are_derivatives_too(void **state)
{
    static const char *const names[] = { "deepseek-v3", "glm-4.5-air" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i += RUNS(1, 2)) {
        Tiny t;
        open_preset(&t, names[i], 1, true);
        CHECK_INT(t.engine.spec.depths, 1);
        slope_each_role(&t);
        tiny_close(&t);
    }
}

/* The same batch again and again: it is learnt. */
static void each_preset_trains(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * config_presets_n; i += MANY_EVERY) {
        Tiny t;
        StepResult first, r;
        const char *name = config_presets[i / 2].name;
        open_preset(&t, name, i % 2, false);
        CHECK_OK(engine_step(&t.engine, &t.batch, 3e-3, 1, &first));
        for (int64_t step = 2; step <= 3; step++)
            CHECK_OK(engine_step(&t.engine, &t.batch, 3e-3, step, &r));
        if (!(r.finite && r.loss < first.loss - 0.05))
            fail_msg("%s: loss %g, then %g", name, first.loss, r.loss);
        if (i % 2 == 1 && !(r.next_loss[0] < first.next_loss[0] - 0.05))
            fail_msg("%s: the module's %g, then %g", name, first.next_loss[0], r.next_loss[0]);
        tiny_close(&t);
    }
}

/* What makes a model that model is no size. */
static void shrinking_keeps_the_structure(void **state)
{
    (void)state;
    for (int i = 0; i < config_presets_n; i++) {
        Arena a = { 0 };
        Config large, small;
        ModelSpec l, s;
        CHECK_OK(arena_init(&a, "preset", MEM_HOST, (size_t)1 << 24));
        CHECK_OK(config_load(&large, &a, config_presets[i].name, NULL, 0));
        CHECK_OK(config_load_as(&small, &a, CONFIG_SMALL, config_presets[i].name, NULL, 0));
        CHECK_OK(spec_build(&large, &a, &l));
        CHECK_OK(spec_build(&small, &a, &s));
        CHECK((large.model_dense_layers > 0) == (small.model_dense_layers > 0));
        CHECK((l.n_moe > 0) == (s.n_moe > 0));
        CHECK((large.attention_q_rank > 0) == (small.attention_q_rank > 0));
        CHECK((large.attention_kv_heads == large.attention_heads) ==
              (small.attention_kv_heads == small.attention_heads));
        CHECK((large.moe_groups > 1) == (small.moe_groups > 1));
        CHECK((large.moe_top_groups < large.moe_groups) ==
              (small.moe_top_groups < small.moe_groups));
        CHECK_INT(small.moe_shared, large.moe_shared);
        CHECK((large.moe_top_k > 1) == (small.moe_top_k > 1));
        CHECK(small.moe_top_k < small.moe_experts || large.moe_top_k == large.moe_experts);
        CHECK_INT(small.attention_full_every, large.attention_full_every);
        CHECK(small.model_hidden * small.model_layers < 1000);
        arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_preset_s_gradients_are_derivatives),
        TEST(with_a_module_gradients_are_derivatives_too),
        TEST(each_preset_trains),
        TEST(shrinking_keeps_the_structure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
