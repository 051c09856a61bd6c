/* The parameter table: totals, names, how parameters of a role lie, initial values. */
#include "harness/tiny.h"

#include <stdlib.h>

static void build(const char *preset, Arena *a, ModelSpec *spec, ParamTable *table)
{
    Config c;
    CHECK_OK(config_load(&c, a, preset, NULL, 0));
    CHECK_OK(spec_build(&c, a, spec));
    CHECK_OK(params_build(spec, a, table));
}

static void deepseek_v2_lite_has_exactly_its_published_parameters(void **state)
{
    (void)state;
    Arena a;
    ModelSpec spec;
    ParamTable table;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    build("deepseek-v2-lite", &a, &spec, &table);
    CHECK_INT(table.total, 15706484224);
    /* one dense and 26 MoE layers, each MoE layer 6 of 64 experts */
    CHECK_INT(table.total - table.active, (int64_t)26 * 58 * 3 * 2048 * 1408);
    arena_free(&a);
}

static const Param *find(const ParamTable *t, const char *name)
{
    for (int i = 0; i < t->n; i++) {
        if (strcmp(t->at[i].name, name) == 0) return &t->at[i];
    }
    fail_msg("there is no parameter %s", name);
    return NULL;
}

static void names_and_shapes_are_those_of_hugging_face(void **state)
{
    (void)state;
    Arena a;
    ModelSpec spec;
    ParamTable table;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    build("deepseek-v2-lite", &a, &spec, &table);
    const struct {
        const char *name;
        int64_t rows, cols;
    } want[] = {
        { "model.embed_tokens.weight", 102400, 2048 },
        { "model.layers.0.self_attn.q_proj.weight", 3072, 2048 },
        { "model.layers.26.self_attn.kv_a_proj_with_mqa.weight", 576, 2048 },
        { "model.layers.3.self_attn.kv_b_proj.weight", 4096, 512 },
        { "model.layers.3.self_attn.o_proj.weight", 2048, 2048 },
        { "model.layers.0.mlp.gate_proj.weight", 10944, 2048 },
        { "model.layers.1.mlp.experts.63.down_proj.weight", 2048, 1408 },
        { "model.layers.26.mlp.shared_experts.up_proj.weight", 2816, 2048 },
        { "model.layers.5.mlp.gate.weight", 64, 2048 },
        { "lm_head.weight", 102400, 2048 },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const Param *p = find(&table, want[i].name);
        CHECK_INT(p->dim[0], want[i].rows);
        CHECK_INT(p->dim[1], want[i].cols);
    }
    arena_free(&a);
}

static void parameters_of_a_role_lie_without_a_gap(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("moe.shared=2"));
    const ParamTable *p = &t.engine.params;
    const LayerWeights *w =
        &t.engine.weights[4]; /* the first MoE layer: embed, attention, mlp, attention, moe */
    const Param *gate1 = find(p, "model.layers.1.mlp.experts.1.gate_proj.weight");
    const Param *up5 = find(p, "model.layers.1.mlp.experts.5.up_proj.weight");
    CHECK_INT(w->w[ROLE_EXPERT_GATE_UP].dim[0], 6);
    CHECK_INT(w->w[ROLE_EXPERT_GATE_UP].dim[1], 40);
    CHECK_INT(w->w[ROLE_EXPERT_DOWN].dim[0], 6);
    CHECK_INT(w->w[ROLE_GATE_UP].dim[0], 80);
    CHECK(param_view(gate1, &t.engine.memory, BUF_MAIN).data ==
          tensor_at(&w->w[ROLE_EXPERT_GATE_UP], 40 * 32));
    CHECK(param_view(up5, &t.engine.memory, BUF_MAIN).data ==
          tensor_at(&w->w[ROLE_EXPERT_GATE_UP], 5 * 40 * 32 + 20 * 32));
    tiny_close(&t);
}

static void no_two_parameters_overlap(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("attention.q_rank=9", "moe.bias_rate=0.01"));
    const ParamTable *p = &t.engine.params;
    int64_t end[BUF_COUNT] = { 0 };
    for (int i = 0; i < p->n; i++) {
        for (int b = 0; b < BUF_COUNT; b++) {
            if (p->at[i].first[b] < 0) continue;
            CHECK(p->at[i].first[b] >= end[b]);
            end[b] = p->at[i].first[b] + param_elems(&p->at[i]);
        }
    }
    for (int b = 0; b < BUF_COUNT; b++) CHECK(end[b] <= p->elems[b]);
    tiny_close(&t);
}

static void initial_values_depend_on_seed_and_name_only(void **state)
{
    (void)state;
    Tiny t, wide;
    tiny_open(&t, TINY("model.layers=3"));
    tiny_open(&wide, TINY("model.layers=4")); /* other places in the buffers */
    const char *name = "model.layers.2.mlp.experts.3.down_proj.weight";
    Tensor a = param_view(find(&t.engine.params, name), &t.engine.memory, BUF_MAIN);
    Tensor b = param_view(find(&wide.engine.params, name), &wide.engine.memory, BUF_MAIN);
    CHECK(memcmp(a.data, b.data, tensor_bytes(&a)) == 0);
    CHECK_OK(engine_init_weights(&wide.engine, 43));
    CHECK(memcmp(a.data, b.data, tensor_bytes(&a)) != 0);
    const float *norm =
        param_view(find(&t.engine.params, "model.norm.weight"), &t.engine.memory, BUF_MAIN).data;
    CHECK_NEAR(norm[5], 1, 0);
    tiny_close(&t);
    tiny_close(&wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(deepseek_v2_lite_has_exactly_its_published_parameters),
        TEST(names_and_shapes_are_those_of_hugging_face),
        TEST(parameters_of_a_role_lie_without_a_gap),
        TEST(no_two_parameters_overlap),
        TEST(initial_values_depend_on_seed_and_name_only),
    };
    return TEST_RUN(tests);
}
