/* The parameter table: totals, names, how parameters of a role lie, initial values. */
#include "harness/param_view.h"
#include "harness/tiny.h"

#include <stdlib.h>

static void build(const char *preset, Arena *a, ModelSpec *spec, ParamTable *table)
{
    Config c;
    CHECK_OK(config_load(&c, a, preset, NULL, 0));
    CHECK_OK(spec_build(&c, a, spec));
    CHECK_OK(params_build(spec, 0, NULL, a, table));
}

static const Param *find(const ParamTable *t, const char *name)
{
    for (int i = 0; i < t->n; i++) {
        if (strcmp(t->at[i].name, name) == 0) return &t->at[i];
    }
    fail_msg("there is no parameter %s", name);
    return NULL;
}

/*
 * Totals are published (DeepSeek-V3 671,026,404,352 without its multi-token prediction module,
 * Mixtral 8x7B 46,702,792,704, Llama 3 8B 8,030,261,248, DeepSeek-V2-Lite 15.7 B) or follow from
 * the published dimensions; the experts' biases are buffers and count in none.
 *
 * Active is what a token meets: everything but the experts that it does not take, embedding and
 * head included, so total less moe_layers * idle * 3 * hidden * ffn. (The 44B and 80B that Primus'
 * files call active leave out the projections of queries and of attention's output as well.)
 */
static void presets_have_exactly_their_published_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        int64_t total, moe_layers, idle, hidden, ffn;
        double active; /* to the digits known, in billions */
    } want[] = {
        { "deepseek-v2-lite", 15706484224, 26, 64 - 6, 2048, 1408, 2.661 },
        { "deepseek-v2", 235741434880, 59, 160 - 6, 5120, 1536, 21.376 },
        { "deepseek-v3", 671026404352, 58, 256 - 8, 7168, 2048, 37.552 },
        { "moe-515b", 528135782400, 96, 112 - 8, 8192, 1920, 57.032 },
        { "moe-1t", 1035566874624, 96, 224 - 8, 8192, 1920, 57.120 },
        { "moe-2t", 2050429059072, 96, 448 - 16, 8192, 1920, 93.535 },
        { "qwen3-30b-a3b", 30532122624, 48, 128 - 8, 2048, 768, 3.353 },
        { "qwen3-next-80b-a3b", 79674391296, 48, 512 - 10, 2048, 512, 3.875 },
        { "qwen3-235b-a22b", 235093634560, 94, 128 - 8, 4096, 1536, 22.191 },
        { "olmoe-1b-7b", 6919161856, 16, 64 - 8, 2048, 1024, 1.282 },
        { "qwen1.5-moe-a2.7b", 14315784192, 24, 60 - 4, 2048, 1408, 2.689 },
        { "qwen2-57b-a14b", 57408658944, 28, 64 - 8, 3584, 2560, 14.249 },
        { "mixtral-8x7b", 46702792704, 32, 8 - 2, 4096, 14336, 12.880 },
        { "mixtral-8x22b", 140620634112, 56, 8 - 2, 6144, 16384, 39.152 },
        { "llama4-scout", 107769861120, 48, 16 - 1, 5120, 8192, 17.173 },
        { "llama4-maverick", 400711848960, 24, 128 - 1, 5120, 8192, 17.185 },
        { "gpt-oss-20b", 20914757184, 24, 32 - 4, 2880, 2880, 4.187 },
        { "gpt-oss-120b", 116829156672, 36, 128 - 4, 2880, 2880, 5.712 },
        { "kimi-k2", 1026408209408, 60, 384 - 8, 7168, 2048, 32.861 },
        { "glm-4.5-air", 106852245504, 45, 128 - 8, 4096, 1408, 13.424 },
        { "qwen3-8b", 8190735360, 0, 0, 0, 0, 8.191 },
        { "llama2-7b", 6738415616, 0, 0, 0, 0, 6.738 },
        { "llama3-8b", 8030261248, 0, 0, 0, 0, 8.030 },
        { "llama3-70b", 70553706496, 0, 0, 0, 0, 70.554 },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        Arena a;
        ModelSpec spec;
        ParamTable table;
        int64_t biases =
            strncmp(want[i].preset, "gpt-oss", 7) == 0 ? 3 * 2880 : 0; /* an expert's */
        CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
        build(want[i].preset, &a, &spec, &table);
        CHECK_INT(table.total, want[i].total);
        CHECK_INT(spec.n_moe, want[i].moe_layers);
        CHECK_INT(table.total - table.active,
                  want[i].moe_layers * want[i].idle * (3 * want[i].hidden * want[i].ffn + biases));
        CHECK_NEAR((double)table.active / 1e9, want[i].active, 5e-4);
        arena_free(&a);
    }
}

/* The heads' norms of Qwen3 and the layers of Llama 4 that see all keys. */
static void a_layer_has_the_norms_and_chunks_of_its_own(void **state)
{
    (void)state;
    Arena a;
    ModelSpec spec;
    ParamTable table;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    build("qwen3-30b-a3b", &a, &spec, &table);
    const Param *k = find(&table, "model.layers.47.self_attn.k_norm.weight");
    CHECK_INT(k->rank, 1);
    CHECK_INT(k->dim[0], 128);
    CHECK(!k->decay && k->keep_f32 && k->role == ROLE_KV_NORM);
    CHECK_INT(find(&table, "model.layers.0.self_attn.q_norm.weight")->dim[0], 128);
    build("llama4-scout", &a, &spec, &table);
    for (int block = 0; block < 48; block++) {
        const AttentionSpec *s = &spec.layers[1 + 2 * block].as.attention;
        bool full = block % 4 == 3;
        CHECK_INT(s->chunk, full ? 0 : 8192);
        CHECK_INT(s->qk_norm, full ? QK_NORM_NONE : QK_NORM_L2);
        CHECK_INT(s->rotary, full ? 0 : 128);
        CHECK_INT(s->temper_floor, full ? 8192 : 0);
    }
    arena_free(&a);
}

/* q, k and v have their biases in one row; mla has those of both down-projections. */
static void biases_lie_side_by_side_and_begin_at_zero(void **state)
{
    (void)state;
    static const char *const sets[2][4] = {
        { "attention.bias=true", "attention.out_bias=true", "attention.kind=gqa", NULL },
        { "attention.bias=true", "attention.out_bias=true", "attention.q_rank=9", NULL },
    };
    static const char *const parts[2][4] = { { "q_proj", "k_proj", "v_proj", "o_proj" },
                                             { "q_a_proj", "kv_a_proj_with_mqa", "o_proj" } };
    const int64_t cols[2][4] = { { 24, 12, 12, 32 }, { 9, 12 + 4, 32 } };
    for (int m = 0; m < 2; m++) {
        Tiny t;
        int64_t sum = 0;
        tiny_open(&t, sets[m]);
        for (int i = 0; i < 4 && parts[m][i] != NULL; i++) {
            char name[PARAM_NAME_MAX];
            snprintf(name, sizeof name, "model.layers.1.self_attn.%s.bias", parts[m][i]);
            const Param *p = find(&t.engine.params.table, name);
            CHECK(p->rank == 1 && p->dim[0] == cols[m][i] && !p->decay && p->keep_f32);
            CHECK_INT(p->init, INIT_ZERO);
            bool out = strcmp(parts[m][i], "o_proj") == 0;
            CHECK_INT(p->role, out ? ROLE_O_BIAS : ROLE_A_BIAS);
            sum += out ? 0 : p->dim[0];
        }
        const Tensor *all = &t.engine.params.layer[3].w[ROLE_A_BIAS].data;
        CHECK_INT(all->dim[0], 1);
        CHECK_INT(all->dim[1], sum);
        tiny_close(&t);
    }
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
    const ParamTable *p = &t.engine.params.table;
    const LayerWeights *w =
        &t.engine.params.layer[4]; /* the first MoE layer: embed, attention, mlp, attention, moe */
    const Param *gate1 = find(p, "model.layers.1.mlp.experts.1.gate_proj.weight");
    const Param *up5 = find(p, "model.layers.1.mlp.experts.5.up_proj.weight");
    CHECK_INT(w->w[ROLE_EXPERT_GATE_UP].data.dim[0], 6);
    CHECK_INT(w->w[ROLE_EXPERT_GATE_UP].data.dim[1], 40);
    CHECK_INT(w->w[ROLE_EXPERT_DOWN].data.dim[0], 6);
    CHECK_INT(w->w[ROLE_GATE_UP].data.dim[0], 80);
    CHECK(param_view(gate1, &t.engine.params.memory, BUF_MAIN).data ==
          tensor_at(&w->w[ROLE_EXPERT_GATE_UP].data, 40 * 32));
    CHECK(param_view(up5, &t.engine.params.memory, BUF_MAIN).data ==
          tensor_at(&w->w[ROLE_EXPERT_GATE_UP].data, 5 * 40 * 32 + 20 * 32));
    tiny_close(&t);
}

/* 6 experts of 20 columns: biases lie as the matrices do, without decay, and begin as zeros. */
static void biases_of_experts_are_rows_in_the_order_of_their_matrices(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("moe.expert_bias=true"));
    const ParamTable *p = &t.engine.params.table;
    const LayerWeights *w = &t.engine.params.layer[4];
    const Tensor *up = &w->w[ROLE_EXPERT_GATE_UP_BIAS].data,
                 *down = &w->w[ROLE_EXPERT_DOWN_BIAS].data;
    const Param *up5 = find(p, "model.layers.1.mlp.experts.5.up_proj.bias");
    const Param *down5 = find(p, "model.layers.1.mlp.experts.5.down_proj.bias");
    CHECK(up->rank == 2 && up->dim[0] == 6 && up->dim[1] == 40);
    CHECK(down->rank == 2 && down->dim[0] == 6 && down->dim[1] == 32);
    CHECK_INT(w->dw[ROLE_EXPERT_GATE_UP_BIAS].dim[1], 40);
    CHECK(param_view(up5, &t.engine.params.memory, BUF_MAIN).data == tensor_at(up, 5 * 40 + 20));
    CHECK(param_view(down5, &t.engine.params.memory, BUF_MAIN).data == tensor_at(down, 5 * 32));
    CHECK(!up5->decay && !down5->decay && up5->rank == 1 && up5->expert == 5);
    CHECK_NEAR(((const float *)up->data)[7], 0, 0);
    find(p, "model.layers.2.mlp.experts.0.gate_proj.bias");
    int64_t biased = p->total;
    tiny_close(&t);
    tiny_open(&t, TINY("moe.expert_bias=false"));
    CHECK_INT(biased - t.engine.params.table.total, 2 * 6 * (40 + 32));
    tiny_close(&t);
}

/* In one bucket with biases, which products read in bf16, 8-bit matrices would keep a copy in bf16, too. */
static void biases_of_experts_keep_no_copy_of_their_matrices(void **state)
{
    (void)state;
    for (int eight = 0; eight < 2; eight++) {
        Tiny t;
        tiny_open(&t, TINY("moe.expert_bias=true", "run.compute=bf16",
                           eight ? "fp8.recipe=block" : "fp8.recipe=none"));
        const ParamTable *p = &t.engine.params.table;
        int biases = 0, matrices = 0;
        for (int i = 0; i < p->n_buckets; i++) {
            const ParamBucket *k = &p->bucket[i];
            if (k->shard_group != SHARD_EXPERT) continue;
            (k->biases ? biases++ : matrices++);
            CHECK((k->weight < 0) == (eight == 1 && !k->biases));
        }
        CHECK(matrices > 0);
        CHECK_INT(biases, eight ? matrices : 0);
        tiny_close(&t);
    }
}

static void no_two_parameters_overlap(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("attention.q_rank=9", "moe.bias_rate=0.01", "moe.expert_bias=true"));
    const ParamTable *p = &t.engine.params.table;
    for (int b = 0; b < BUF_COUNT; b++) {
        char *taken = calloc((size_t)p->elems[b] + 1, 1);
        for (int i = 0; i < p->n; i++) {
            if (p->at[i].first[b] < 0) continue;
            CHECK(p->at[i].first[b] + param_elems(&p->at[i]) <= p->elems[b]);
            for (int64_t k = 0; k < param_elems(&p->at[i]); k++) {
                CHECK_INT(taken[p->at[i].first[b] + k]++, 0);
            }
        }
        free(taken);
    }
    tiny_close(&t);
}

/* Loops over a bucket walk this range only. It is short, whatever the number of layers. */
static void a_bucket_knows_where_its_parameters_are(void **state)
{
    (void)state;
    Arena a = { 0 };
    ModelSpec spec;
    ParamTable t;
    CHECK_OK(arena_init(&a, "params", MEM_HOST, (size_t)1 << 30));
    build("deepseek-v2-lite", &a, &spec, &t);
    for (int i = 0; i < t.n; i++) {
        if (t.at[i].bucket < 0) continue;
        const ParamBucket *k = &t.bucket[t.at[i].bucket];
        CHECK(i >= k->begin && i < k->end);
        CHECK_INT(t.at[k->begin].layer, t.at[i].layer);
        CHECK_INT(t.at[k->end - 1].layer, t.at[i].layer);
    }
    arena_free(&a);
}

static void initial_values_depend_on_seed_and_name_only(void **state)
{
    (void)state;
    Tiny t, wide;
    tiny_open(&t, TINY("model.layers=3"));
    tiny_open(&wide, TINY("model.layers=4")); /* other places in the buffers */
    const char *name = "model.layers.2.mlp.experts.3.down_proj.weight";
    Tensor a = param_view(find(&t.engine.params.table, name), &t.engine.params.memory, BUF_MAIN);
    Tensor b =
        param_view(find(&wide.engine.params.table, name), &wide.engine.params.memory, BUF_MAIN);
    CHECK(memcmp(a.data, b.data, tensor_bytes(&a)) == 0);
    CHECK_OK(engine_init_weights(&wide.engine.params, 43));
    CHECK(memcmp(a.data, b.data, tensor_bytes(&a)) != 0);
    const char *other = "model.layers.2.mlp.experts.4.down_proj.weight";
    Tensor c = param_view(find(&t.engine.params.table, other), &t.engine.params.memory, BUF_MAIN);
    CHECK_INT(tensor_bytes(&c), tensor_bytes(&a));
    CHECK(memcmp(a.data, c.data, tensor_bytes(&a)) != 0);
    const float *norm = param_view(find(&t.engine.params.table, "model.norm.weight"),
                                   &t.engine.params.memory, BUF_MAIN)
                            .data;
    CHECK_NEAR(norm[5], 1, 0);
    tiny_close(&t);
    tiny_close(&wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(presets_have_exactly_their_published_parameters),
        TEST(a_layer_has_the_norms_and_chunks_of_its_own),
        TEST(biases_lie_side_by_side_and_begin_at_zero),
        TEST(names_and_shapes_are_those_of_hugging_face),
        TEST(parameters_of_a_role_lie_without_a_gap),
        TEST(biases_of_experts_are_rows_in_the_order_of_their_matrices),
        TEST(biases_of_experts_keep_no_copy_of_their_matrices),
        TEST(no_two_parameters_overlap),
        TEST(a_bucket_knows_where_its_parameters_are),
        TEST(initial_values_depend_on_seed_and_name_only),
    };
    return TEST_RUN(tests);
}
