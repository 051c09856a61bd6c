/* A model under two rules: one that needs whole matrices, for those of hidden layers, and AdamW for all
 * else. Where buckets and buffers lie, who owns what, and what an update is given. */
#include "harness/param_view.h"
#include "harness/tiny.h"

#include "engine/base/file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/numbers.h"
#include "engine/step/shards.h"
#include "engine/step/update.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* The rule of these tests: w becomes scalar * w, equal matrices side by side at a time. */
enum { CALLS_MAX = 256 };
static struct {
    Tensor w[CALLS_MAX];
    int n, matrices;
} calls;

static void count_scalars(const Config *c, double lr, double updates, float out[OPTIMIZER_SCALARS])
{
    (void)c;
    out[0] = (float)(lr * updates);
}

static OpCost cost_of_columns(const OptimizerSpec *o, const UpdateRange *r)
{
    (void)o;
    double cols = (double)tensor_cols(&r->w);
    return (OpCost){ .flops = (double)tensor_elems(&r->w) * cols };
}

static Status scale_matrix(Exec *ex, const Config *c, const UpdateRange *r, Tensor clip,
                           Tensor scalars)
{
    (void)ex, (void)c, (void)clip;
    const Tensor *all[] = { &r->w, &r->g, &r->state[0] };
    for (int i = 0; i < 3; i++) {
        if (all[i]->rank != r->w.rank || all[i]->rank < 2 || all[i]->rank > 3 ||
            memcmp(all[i]->dim, r->w.dim, (size_t)r->w.rank * sizeof *r->w.dim) != 0)
            return FAIL(ERR_SHAPE, "not matrices");
    }
    if (r->state[1].data != NULL || calls.n == CALLS_MAX) return FAIL(ERR_SHAPE, "too much");
    float *w = r->w.data, by = *(const float *)scalars.data;
    for (int64_t i = 0; i < tensor_elems(&r->w); i++) w[i] *= by;
    calls.w[calls.n++] = r->w;
    calls.matrices += r->w.rank == 3 ? (int)r->w.dim[0] : 1;
    return OK;
}

static size_t no_scratch(const Exec *ex, const OptimizerSpec *o, const UpdateRange *r)
{
    (void)ex, (void)o, (void)r;
    return 0;
}

static const OptimizerDesc whole = { .name = "whole",
                                     .n_states = 1,
                                     .state = { { "momentum", -FLT_MAX } },
                                     .whole_matrices = true,
                                     .others = &optimizer_adamw,
                                     .scalars = count_scalars,
                                     .cost = cost_of_columns,
                                     .scratch = no_scratch,
                                     .run = scale_matrix };

static bool is_hidden_matrix(const Param *p)
{
    return p->rank == 2 && p->dim[0] > 1 && p->role != ROLE_TABLE && p->role != ROLE_HEAD &&
           p->role != ROLE_ROUTER;
}

/* A table of the tiny model under both rules, as a rank of `ranks` has it. */
static void build(Tiny *t, int ranks, int rank, ModelSpec *spec, ParamTable *table)
{
    ParamShards shards = {
        .zero = 2, .dense = ranks, .expert = ranks, .dense_rank = rank, .expert_rank = rank
    };
    CHECK_OK(spec_build(&t->config, &t->arena, spec));
    spec->optimizer = optimizer_with(&whole, DTYPE_F32);
    CHECK_OK(params_build(spec, 0, &shards, &t->arena, table));
}

/* ---- buckets and buffers ---- */

static void each_rule_has_buckets_of_its_own_and_buffers_that_it_names(void **state)
{
    (void)state;
    Tiny t = { 0 };
    ModelSpec spec;
    ParamTable table;
    CHECK_OK(tiny_config(&t, TINY("moe.bias_rate=0.01", "moe.shared_gate=true")));
    build(&t, 1, 0, &spec, &table);
    int64_t matrices = 0, others = 0;
    for (int i = 0; i < table.n; i++) {
        const Param *p = &table.at[i];
        if (p->bucket < 0) continue;
        bool hidden = is_hidden_matrix(p);
        CHECK(p->rule == (hidden ? &whole : &optimizer_adamw));
        CHECK(param_bucket_rule(&table, p) == p->rule);
        CHECK(p->first[BUF_OPTIMIZER] == p->first[BUF_MAIN]);
        CHECK_INT(p->first[BUF_OPTIMIZER + 1], hidden ? -1 : p->first[BUF_MAIN]);
        *(hidden ? &matrices : &others) += param_elems(p);
    }
    CHECK(matrices > 0 && others > 0);
    CHECK_INT(table.elems[BUF_OPTIMIZER], table.elems[BUF_MAIN]);
    CHECK(table.elems[BUF_OPTIMIZER + 1] >= others);
    CHECK(table.elems[BUF_OPTIMIZER + 1] < others + PARAM_ALIGN * table.n_buckets * 4);
    CHECK_INT(table.elems[BUF_OPTIMIZER + 1], table.spaces.of[BUF_OPTIMIZER + 1].flat);
    CHECK_TEXT(buffer_desc(&whole, BUF_OPTIMIZER).name, "momentum");
    CHECK_TEXT(buffer_desc(&optimizer_adamw, BUF_OPTIMIZER + 1).name, "moment2");
    arena_free(&t.arena);
}

/* Over all ranks: each matrix of the rule has one owner, and all else is cut anywhere. */
static void only_buckets_of_that_rule_are_cut_between_matrices(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    Tiny t = { 0 };
    ModelSpec spec;
    ParamTable table[RANKS];
    CHECK_OK(tiny_config(&t, TINY("moe.experts=6")));
    for (int r = 0; r < RANKS; r++) build(&t, RANKS, r, &spec, &table[r]);
    for (int i = 0; i < table[0].n_buckets; i++) {
        const ParamBucket *k = &table[0].bucket[i];
        CHECK((k->cuts != NULL) == (k->rule == &whole && k->ranks > 1));
        CHECK_INT(bucket_cut(k, 0), 0);
        CHECK_INT(bucket_cut(k, k->ranks), k->n);
        for (int r = 0; r < RANKS && k->ranks > 1; r++)
            CHECK_INT(bucket_cut(&table[r].bucket[i], r), bucket_cut(k, r));
    }
    for (int i = 0; i < table[0].n; i++) {
        int owners = 0;
        const Param *p = &table[0].at[i];
        if (p->bucket < 0 || p->rule != &whole) continue;
        const ParamBucket *k = &table[0].bucket[p->bucket];
        int64_t at = p->first[BUF_MAIN] - k->first;
        for (int r = 0; r < RANKS; r++)
            owners += at >= bucket_cut(k, r) && at + param_elems(p) <= bucket_cut(k, r + 1);
        CHECK_INT(owners, 1);
    }
    arena_free(&t.arena);
}

/* Gives an engine's parameters both rules, and new memory. */
static void follow_both(Tiny *t)
{
    Engine *e = &t->engine;
    e->spec.optimizer = optimizer_with(&whole, DTYPE_F32);
    CHECK_OK(params_build(&e->spec, 0, NULL, &t->arena, &e->params.table));
    CHECK_OK(
        params_alloc(&e->spec, &e->params.table, &t->arena, &t->arena, true, &e->params.memory));
    for (int b = 0; b < BUF_STATE; b++)
        CHECK_OK(engine_zero(&e->arenas, &e->params.memory.buffer[b]));
    e->params.n_ranges = e->params.norm.n = 0;
    CHECK_OK(shards_make(&e->params));
}

/* ---- the update ---- */

static const Param *find(const Engine *e, const char *name)
{
    int i = 0;
    while (strcmp(e->params.table.at[i].name, name) != 0) CHECK(++i < e->params.table.n);
    return &e->params.table.at[i];
}

/* Does the range that begins here have `count` matrices of this size? */
static bool was_given(const float *w, int64_t count, int64_t rows, int64_t cols)
{
    for (int i = 0; i < calls.n; i++) {
        const Tensor *t = &calls.w[i];
        if (t->data != w) continue;
        return count == 1
                   ? t->rank == 2 && t->dim[0] == rows && t->dim[1] == cols
                   : t->rank == 3 && t->dim[0] == count && t->dim[1] == rows && t->dim[2] == cols;
    }
    return false;
}

static void an_update_is_given_equal_matrices_and_its_own_scalars(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY("optimizer.weight_decay=0", "train.clip_norm=0", "optimizer.beta1=0.5",
                       "optimizer.beta2=0.75"));
    Engine *e = &t.engine;
    int matrices = 0;
    calls.n = calls.matrices = 0;
    follow_both(&t);
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        matrices += p->rule == &whole;
        if (p->bucket < 0) continue;
        float *w = param_view(p, &e->params.memory, BUF_MAIN).data;
        float *g = param_view(p, &e->params.memory, BUF_GRAD).data;
        for (int64_t k = 0; k < param_elems(p); k++) w[k] = g[k] = 1;
    }
    memset(e->io.record.sums.data, 0, tensor_bytes(&e->io.record.sums));
    memset(e->io.record.load.data, 0, tensor_bytes(&e->io.record.load));
    update_scalars(&e->params, 0.25, 3, e->io.hyper.data);
    CHECK_OK(update_run(&e->params, &e->io));
    CHECK_INT(calls.matrices, matrices);
    const ParamMemory *m = &e->params.memory;
    CHECK(was_given(
        param_view(find(e, "model.layers.1.mlp.experts.0.gate_proj.weight"), m, BUF_MAIN).data, 12,
        20, 32)); /* gates and ups of 6 experts, in turn */
    CHECK(was_given(
        param_view(find(e, "model.layers.1.mlp.experts.0.down_proj.weight"), m, BUF_MAIN).data, 6,
        32, 20));
    CHECK(was_given(param_view(find(e, "model.layers.1.self_attn.o_proj.weight"), m, BUF_MAIN).data,
                    1, 32, 20));
    /* the third update of moments that were 0: m / c1 = 0.5 / (1 - 0.125), v / c2 = 0.25 / (1 - 0.75^3) */
    double adamw = 1 - 0.25 * (0.5 / 0.875) / sqrt(0.25 / (1 - 0.421875));
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        if (p->bucket < 0) continue;
        const float *w = param_view(p, &e->params.memory, BUF_MAIN).data;
        for (int64_t k = 0; k < param_elems(p); k++)
            CHECK_NEAR((double)w[k], p->rule == &whole ? 0.75 : adamw, 1e-5);
    }
    tiny_close(&t);
}

/* A gradient with one element is a matrix with one singular value: 1, once it is normalised. Five steps
 * of the iteration take it to x, and the update is lr * factor * x, at that element. */
static void check_muon_scale(const char *mode, double tall, double wide)
{
    Tiny t;
    double x = 1, lr = 0.25;
    char scale[64];
    (void)snprintf(scale, sizeof scale, "optimizer.muon_scale=%s", mode);
    tiny_open(
        &t, TINY("optimizer.kind=muon", "train.clip_norm=0", "optimizer.weight_decay=0.1", scale));
    Engine *e = &t.engine;
    for (int i = 0; i < 5; i++) x = 3.4445 * x - 4.7750 * pow(x, 3) + 2.0315 * pow(x, 5);
    const Param *p[] = { find(e, "model.layers.1.self_attn.o_proj.weight"),
                         find(e, "model.layers.1.mlp.experts.2.up_proj.weight") };
    for (int b = 0; b < BUF_STATE; b++)
        CHECK_OK(engine_zero(&e->arenas, &e->params.memory.buffer[b]));
    for (int i = 0; i < 2; i++) {
        ((float *)param_view(p[i], &e->params.memory, BUF_MAIN).data)[1] = 2;
        ((float *)param_view(p[i], &e->params.memory, BUF_GRAD).data)[0] = 3;
    }
    memset(e->io.record.sums.data, 0, tensor_bytes(&e->io.record.sums));
    memset(e->io.record.load.data, 0, tensor_bytes(&e->io.record.load));
    update_scalars(&e->params, lr, 1, e->io.hyper.data);
    CHECK_OK(update_run(&e->params, &e->io));
    for (int i = 0; i < 2; i++) {
        const float *w = param_view(p[i], &e->params.memory, BUF_MAIN).data;
        CHECK_NEAR((double)w[0], -lr * (i == 0 ? tall : wide) * x, 1e-6);
        CHECK_NEAR((double)w[1], 2 * (1 - lr * 0.1), 1e-6);
        CHECK_NEAR((double)((float *)param_view(p[i], &e->params.memory, BUF_OPTIMIZER).data)[0], 3,
                   1e-6);
    }
    tiny_close(&t);
}

/* A tall matrix (32, 20) and a wide one (20, 32). */
static void muon_scales_by_the_sides_of_a_matrix(void **state)
{
    (void)state;
    check_muon_scale("match_rms_adamw", 0.2 * sqrt(32), 0.2 * sqrt(32));
    check_muon_scale("spectral", sqrt(32), sqrt(32));
    check_muon_scale("shape_scaling", sqrt(1.6), 1);
    check_muon_scale("unit_rms_norm", sqrt(1.6), sqrt(1 / 1.6));
}

static void a_bf16_momentum_that_would_stand_still_is_an_error(void **state)
{
    (void)state;
    Tiny t = { 0 };
    CHECK_FAILS(tiny_config(&t, TINY("optimizer.kind=muon", "optimizer.moments=bf16",
                                     "optimizer.momentum=0.995")),
                ERR_ARG, "optimizer.momentum 0.995 is more than 0.99, the most for");
    arena_free(&t.arena);
    CHECK_OK(tiny_config(&t, TINY("optimizer.moments=bf16", "optimizer.momentum=0.995")));
    arena_free(&t.arena);
}

/* ---- checkpoints ---- */

/* AdamW's first moment is in the same buffer, but it is no momentum. */
static void state_of_another_rule_is_not_taken(void **state)
{
    (void)state;
    char folder[] = "/tmp/switchyard_test_XXXXXX", dir[64], path[128];
    Tiny t;
    Checkpointer saver;
    CheckpointInfo info;
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(dir, sizeof dir, "run.dir=%s", folder);
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-0000000001", folder);
    tiny_open(&t, TINY(dir, "checkpoint.async=false"));
    CHECK_OK(checkpointer_open(&saver, &t.config, &t.engine.params, &t.arena));
    CHECK_OK(checkpoint_save(&saver, 1, 4));
    CHECK_OK(checkpoint_finish(&saver));
    checkpointer_close(&saver);
    CHECK_OK(checkpoint_load(&t.engine.params, path, &t.arena, &info));
    follow_both(&t);
    CHECK_FAILS(checkpoint_load(&t.engine.params, path, &t.arena, &info), ERR_ARG,
                "has no moments of ");
    CHECK_OK(checkpoint_load_init(&t.engine.params, path, NULL, false, &t.arena, &info));
    tiny_close(&t);
    CHECK_OK(file_remove_tree(folder));
}

static void sentences_name_the_rule_and_its_buffer(void **state)
{
    (void)state;
    char who[NUMBERS_WHO_BYTES];
    int at = 0;
    CHECK_TEXT(numbers_writer(who, &whole, BUF_MAIN, 2), "whole, in step 2 or before, left");
    CHECK_TEXT(numbers_writer(who, NULL, BUF_MAIN, 2),
               "a fault of memory, in step 2 or before, left");
    CHECK_TEXT(numbers_writer(who, NULL, BUF_STATE, 2),
               "moe_bias_update, in step 2 or before, left");
    CHECK(optimizer_find_state("moment2", &at) == &optimizer_adamw);
    CHECK_INT(at, 1);
    CHECK(optimizer_find_state("momentum", &at) == &optimizer_muon);
    CHECK_INT(at, 0);
    CHECK(optimizer_find_state("velocity", &at) == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_rule_has_buckets_of_its_own_and_buffers_that_it_names),
        TEST(only_buckets_of_that_rule_are_cut_between_matrices),
        TEST(an_update_is_given_equal_matrices_and_its_own_scalars),
        TEST(muon_scales_by_the_sides_of_a_matrix),
        TEST(a_bf16_momentum_that_would_stand_still_is_an_error),
        TEST(state_of_another_rule_is_not_taken),
        TEST(sentences_name_the_rule_and_its_buffer),
    };
    return TEST_RUN(tests);
}
