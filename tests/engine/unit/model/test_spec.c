/* From the configuration to the list of layers: every setting arrives, none is taken for another. */
#include "harness/test.h"
#include "kernels/exchange/exchange.h"

#include "engine/comm/mesh.h"
#include "engine/model/layer.h"

static void build(Arena *a, const char *const *settings, ModelSpec *out)
{
    static Config c; /* its texts live in the arena */
    CHECK_OK(arena_init(a, "spec", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(config_load(&c, a, NULL, settings, 0));
    for (; *settings != NULL; settings++) CHECK_OK(config_override(&c, a, *settings));
    CHECK_OK(config_check(&c));
    CHECK_OK(spec_build(&c, a, out));
}

#define SETTINGS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* No two numbers are the same, and none is its fallback. */
static void every_number_of_the_model_arrives(void **state)
{
    (void)state;
    Arena a;
    ModelSpec s;
    build(&a,
          SETTINGS(
              "model.name=numbers", "model.vocab=301", "model.hidden=48", "model.layers=5",
              "model.dense_layers=2", "model.ffn=77", "model.norm_eps=0.25", "model.init_std=0.5",
              "model.loss_chunk=19", "model.tied=true", "attention.heads=3", "attention.q_rank=11",
              "attention.kv_rank=13", "attention.nope_dim=7", "attention.rope_dim=6",
              "attention.v_dim=9", "attention.rope_theta=123", "attention.rope_interleaved=false",
              "attention.bias=true", "attention.latent_eps=0.125", "attention.document_mask=false",
              "moe.experts=12", "moe.shared=3", "moe.top_k=5", "moe.ffn=21", "moe.score=sigmoid",
              "moe.groups=4", "moe.top_groups=2", "moe.scaling=1.5", "moe.group_score_top=3",
              "moe.normalise=true", "moe.bias_rate=0.125", "moe.aux_loss=0.75", "train.batch=6",
              "train.micro_batch=2", "run.compute=bf16"),
          &s);
    CHECK_TEXT(s.name, "numbers");
    CHECK_INT(s.vocab, 301);
    CHECK_INT(s.hidden, 48);
    CHECK_INT(s.blocks, 5);
    CHECK_INT(s.n_layers, 12);
    CHECK_INT(s.n_moe, 3);
    CHECK_INT(s.experts, 12);
    CHECK_NEAR(s.eps, 0.25, 0);
    CHECK_NEAR(s.init_std, 0.5, 0);
    CHECK_NEAR(s.rotary.theta, 123, 0);
    CHECK_INT(s.rotary.dim, 6);
    CHECK_INT(s.loss.chunk, 19);
    CHECK_INT(s.act, DTYPE_BF16);
    CHECK(s.tied);
    const AttentionSpec *t = &s.layers[7].as.attention;
    CHECK_INT(s.layers[7].kind, LAYER_ATTENTION);
    CHECK_INT(t->kind, ATTENTION_MLA);
    CHECK_INT(t->heads, 3);
    CHECK_INT(t->q_rank, 11);
    CHECK_INT(t->kv_rank, 13);
    CHECK_INT(t->nope, 7);
    CHECK_INT(t->rope, 6);
    CHECK_INT(t->v, 9);
    CHECK(!t->interleaved && !t->document_mask);
    CHECK(t->bias && !t->out_bias);
    CHECK_NEAR(t->norm_eps, 0.125, 0);
    CHECK_NEAR(t->scale, 1 / sqrt(13), 1e-7);
    CHECK_INT(s.layers[4].kind, LAYER_MLP);
    CHECK_INT(s.layers[4].as.ffn, 77);
    const MoeSpec *m = &s.layers[6].as.moe; /* of block 2, the first with experts */
    CHECK_INT(s.layers[6].kind, LAYER_MOE);
    CHECK_INT(s.layers[6].load, 0);
    CHECK_INT(s.layers[10].load, 2);
    CHECK_INT(m->experts, 12);
    CHECK_INT(m->ffn, 21);
    CHECK_INT(m->shared_ffn, 63);
    CHECK(m->bias && m->rule.normalise && !m->rule.aux_per_batch);
    CHECK_NEAR(m->bias_rate, 0.125, 0);
    CHECK_INT(m->rule.score, ROUTE_SIGMOID);
    CHECK_INT(m->rule.top_k, 5);
    CHECK_INT(m->rule.groups, 4);
    CHECK_INT(m->rule.top_groups, 2);
    CHECK_INT(m->rule.group_score_top, 3);
    CHECK_NEAR(m->rule.scaling, 1.5, 0);
    CHECK_NEAR(m->rule.aux_scale, 0.75 / 6, 1e-7); /* a group is a sequence of the step */
    arena_free(&a);
}

/* A layer more for each depth, before the head; numbered on, and as the layers' pattern goes on. */
static void depths_stand_before_the_head(void **state)
{
    (void)state;
    static const LayerKind want[] = { LAYER_EMBED,     LAYER_ATTENTION, LAYER_MLP,
                                      LAYER_ATTENTION, LAYER_MOE,       LAYER_NEXT,
                                      LAYER_ATTENTION, LAYER_MLP,       LAYER_NEXT,
                                      LAYER_ATTENTION, LAYER_MOE,       LAYER_HEAD };
    Arena a;
    ModelSpec s;
    build(&a,
          SETTINGS("model.layers=2", "model.dense_layers=0", "moe.every=2", "mtp.layers=2",
                   "mtp.loss=0.5", "recompute.layers=[1, 2]", "recompute.pieces=[layer]"),
          &s);
    CHECK_INT(s.n_layers, 12);
    for (int i = 0; i < s.n_layers; i++) {
        const LayerSpec *l = &s.layers[i];
        bool next = l->kind == LAYER_NEXT, ends = l->kind == LAYER_HEAD;
        CHECK_INT(l->kind, want[i]);
        CHECK_INT(l->depth, i < 5 ? 0 : i < 8 ? 1 : 2);
        CHECK_INT(l->block, i == 0 || ends ? -1 : i < 3 ? 0 : i < 5 ? 1 : i < 8 ? 2 : 3);
        CHECK(l->trains == (i > 5));
        CHECK_INT(l->recompute, (l->block == 1 || l->block == 2) && !next ? RECOMPUTE_LAYER : 0);
    }
    CHECK_INT(s.n_moe, 2);
    CHECK_INT(s.layers[10].load, 1);
    CHECK_INT(s.block_first[2], 5);
    CHECK(spec_opens(&s, 5) && !spec_opens(&s, 6));
    CHECK_INT(s.block_layers, 3);
    CHECK_NEAR(s.loss.depth_weight, 0.25, 0);
    arena_free(&a);
    build(&a, SETTINGS("model.layers=2", "model.dense_layers=2", "mtp.layers=1"), &s);
    CHECK_INT(s.n_moe, 0);
    CHECK_INT(s.layers[7].kind, LAYER_MLP);
    arena_free(&a);
}

static void grouped_attention_and_the_loss_of_a_batch_have_their_own(void **state)
{
    (void)state;
    Arena a;
    ModelSpec s;
    build(&a,
          SETTINGS("attention.kind=gqa", "attention.heads=6", "attention.kv_heads=3",
                   "attention.head_dim=10", "moe.aux_scope=batch", "moe.aux_loss=0.75",
                   "attention.out_bias=true", "attention.rotary=0.8", "train.batch=6",
                   "train.micro_batch=2", "moe.bias_rate=0"),
          &s);
    const AttentionSpec *t = &s.layers[1].as.attention;
    CHECK_INT(t->kind, ATTENTION_GQA);
    CHECK_INT(t->heads, 6);
    CHECK_INT(t->kv_heads, 3);
    CHECK_INT(t->head, 10);
    CHECK_INT(s.rotary.dim, 8);
    CHECK_INT(t->rotary, 8);
    CHECK(!t->bias && t->out_bias);
    CHECK_NEAR(t->scale, 1 / sqrt(10), 1e-7);
    CHECK_INT(s.act, DTYPE_F32);
    CHECK(!s.tied && t->interleaved && t->document_mask);
    const MoeSpec *m = &s.layers[4].as.moe;
    CHECK(m->rule.aux_per_batch && !m->bias && !m->rule.normalise);
    CHECK_INT(m->rule.score, ROUTE_SOFTMAX);
    CHECK_NEAR(m->rule.aux_scale, 0.75 / 3, 1e-7); /* a group is a micro-batch */
    arena_free(&a);
}

/* Blocks 1 and 3 have no positions, block 2 sees all keys: the two say nothing of each other. */
/* Numbers of kernels/moe/glu.h. */
static void an_activation_reaches_the_experts(void **state)
{
    static const struct {
        const char *word;
        float limit, slope, cube;
    } rows[] = {
        { "moe.activation=swiglu", 0, 0, 0 },
        { "moe.activation=clamped", 7, 1.702f, 0 },
        { "moe.activation=gelu", INFINITY, 1.5957691f, 0.07135481f },
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        Arena a;
        ModelSpec s;
        build(&a, SETTINGS("model.layers=2", "model.dense_layers=0", rows[i].word), &s);
        const Glu glu = s.layers[2].as.moe.glu;
        CHECK(glu.limit == rows[i].limit); /* infinity, too */
        CHECK_NEAR(glu.slope, rows[i].slope, 1e-6);
        CHECK_NEAR(glu.cube, rows[i].cube, 1e-7);
        arena_free(&a);
    }
}

static void layers_without_positions_are_not_those_that_see_all_keys(void **state)
{
    (void)state;
    Arena a;
    ModelSpec s;
    build(&a,
          SETTINGS("attention.kind=gqa", "attention.head_dim=10", "attention.qk_norm=l2",
                   "attention.chunk=16", "attention.full_every=3", "attention.nope_every=2",
                   "attention.temper_floor=7", "attention.temper_scale=0.5", "model.layers=4"),
          &s);
    for (int block = 0; block < 4; block++) {
        const AttentionSpec *t = &s.layers[s.block_first[block]].as.attention;
        bool nope = block % 2 == 1;
        CHECK_INT(t->chunk, block == 2 ? 0 : 16);
        CHECK_INT(t->rotary, nope ? 0 : 10);
        CHECK_INT(t->qk_norm, nope ? QK_NORM_NONE : QK_NORM_L2);
        CHECK_INT(t->temper_floor, nope ? 7 : 0);
        CHECK_NEAR(t->temper_scale, 0.5, 0);
    }
    arena_free(&a);
}

/* A block is its attention and its MLP or MoE: both, and no other. */
static void the_layers_that_are_listed_are_recomputed(void **state)
{
    (void)state;
    Arena a;
    ModelSpec s;
    build(&a, SETTINGS("model.layers=4", "recompute.layers=[0, 2]", "recompute.pieces=[norm, act]"),
          &s);
    for (int i = 0; i < s.n_layers; i++) {
        int block = s.layers[i].block;
        bool listed = block == 0 || block == 2;
        CHECK_INT(s.layers[i].recompute, listed ? RECOMPUTE_NORM | RECOMPUTE_ACT : 0);
    }
    CHECK_INT(s.layers[0].block, -1);
    CHECK_INT(s.layers[9].block, -1);
    arena_free(&a);
}

static void each_piece_has_its_own_word(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        unsigned piece;
    } c[] = { { "recompute.pieces=[norm]", RECOMPUTE_NORM },
              { "recompute.pieces=[attn_up]", RECOMPUTE_ATTN_UP },
              { "recompute.pieces=[act]", RECOMPUTE_ACT },
              { "recompute.pieces=[shared]", RECOMPUTE_SHARED },
              { "recompute.pieces=[exchange]", RECOMPUTE_EXCHANGE },
              { "recompute.pieces=[layer]", RECOMPUTE_LAYER } };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        Arena a;
        ModelSpec s;
        build(&a, SETTINGS("recompute.layers=[1]", c[i].setting), &s);
        CHECK_INT(s.layers[3].recompute, c[i].piece);
        arena_free(&a);
    }
}

/* 8 ranks: 2 stages of 4, which are 2 shards x 2 of a sequence and share out experts by 4. */
static void a_rank_has_its_place_and_its_room(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        double room;
    } c[] = { { "moe.buffers=pooled", 1.75 }, { "moe.buffers=worst", 0 } };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        Arena a;
        ModelSpec s;
        MeshShape shape;
        build(&a,
              SETTINGS("mesh.pp=2", "mesh.cp=2", "mesh.ep=4", "moe.buffer_factor=1.75",
                       "moe.exchange=allgather", c[i].setting),
              &s);
        CHECK_OK(mesh_shape(8, 2, 4, 2, 1, 0, &shape));
        Mesh m = mesh_alone(&shape, 6);
        spec_place(&s, &m);
        CHECK_INT(s.ranks.ep, 4);
        CHECK_INT(s.ranks.cp, 2);
        CHECK_INT(s.ranks.ep_rank, 2);
        CHECK_INT(s.ranks.stage, 4);
        CHECK_INT(s.ranks.exchange, EXCHANGE_ALLGATHER);
        CHECK_NEAR(s.capacity.blocks, c[i].room, 0);
        arena_free(&a);
    }
}

static void every_kind_of_exchange_has_its_word(void **state)
{
    (void)state;
    for (int kind = 0; kind < EXCHANGE_KINDS; kind++) {
        Arena a;
        ModelSpec s;
        char setting[64];
        (void)snprintf(setting, sizeof setting, "moe.exchange=%s", exchange_kinds[kind]->name);
        build(&a, SETTINGS(setting), &s);
        CHECK_INT(s.ranks.exchange, kind);
        arena_free(&a);
    }
}

static void another_word_of_an_exchange_is_told_all_kinds(void **state)
{
    (void)state;
    Arena a;
    Config c;
    CHECK_OK(arena_init(&a, "spec", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(config_default(&c, &a));
    CHECK_FAILS(config_override(&c, &a, "moe.exchange=ring"), ERR_ARG, "one of alltoall|allgather");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_number_of_the_model_arrives),
        TEST(depths_stand_before_the_head),
        TEST(grouped_attention_and_the_loss_of_a_batch_have_their_own),
        TEST(an_activation_reaches_the_experts),
        TEST(layers_without_positions_are_not_those_that_see_all_keys),
        TEST(the_layers_that_are_listed_are_recomputed),
        TEST(each_piece_has_its_own_word),
        TEST(a_rank_has_its_place_and_its_room),
        TEST(every_kind_of_exchange_has_its_word),
        TEST(another_word_of_an_exchange_is_told_all_kinds),
    };
    return TEST_RUN(tests);
}
