/*
 * Meshes of a model with 8-bit products, beside one rank: what a mesh promises with a recipe.
 *
 * A row of activations or gradients has the same codes and scales on every mesh, if its scale is its own
 * (row, block). Three things depend on the mesh, and each has a limit here:
 *
 * - Which rows a sum over tokens has, and so the scales of columns and of whole tensors. Data and
 *   pipeline parallelism keep micro-batches, so nothing changes. With mesh.ep an expert sees rows of all
 *   ranks at once, with mesh.cp a rank sees a part of a sequence. With scales that are powers of two
 *   (block) numbers keep their codes, but for those below the smallest normal of a block. With exact scales
 *   both sides are rounded anew: each by a relative 0.026 an operand, so that two sums of many such
 *   terms are 0.05 apart, and short ones up to three times that.
 * - The order of sums of f32. It moves last bits, which turn the code of one number in a million. A
 *   turned code is a relative 1/16 of that number, and some 1e-4 of a small gradient. Of a gradient in e5m2
 *   (hybrid) it is up to 1/4, and up to 2e-2.
 * - What is quantised. Under mesh.cp each rank has a part of the gradient of mla's keys and values, and
 *   quantises that part: as with exact scales. Under mesh.tp so it is with the gradient of mla's latents, and
 *   of heads of keys that ranks share.
 *
 * Where routes hang on it (tensor), positions choose experts. Each step begins with equal weights.
 */
#include "harness/mesh_cases.h"

#define FORCED "moe.forced_balance=true"
#define HEAD   "fp8.recipe=block", "fp8.head=true", "model.vocab=128", "model.loss_chunk=128"

static const double SAME = 1e-5, TURNED = 2e-3, TURNED_SHORT = 2e-2, ROUNDED = 0.15, SHORT = 0.3;

typedef struct RecipeCase {
    double limit;
    ManyCase mesh;
} RecipeCase;

static const RecipeCase cases[] = {
    { SAME, { "dp 2, zero 2", 2, { MLA, BATCH, "mesh.zero=2", "fp8.recipe=tensor" } } },
    { SAME,
      { "dp 2, zero 3, recompute",
        2,
        { MLA, BATCH, "mesh.zero=3", "recompute.layers=[0,1,2,3]", "fp8.recipe=block" } } },
    { TURNED,
      { "dp 2, zero 3, bf16",
        2,
        { MLA, BATCH, "mesh.zero=3", "run.compute=bf16", "moe.bias_rate=0",
          "fp8.recipe=block" } } },
    { SAME,
      { "dp 2, zero 1, bf16 weight gradients",
        2,
        { GQA, BATCH, "mesh.zero=1", "fp8.recipe=tensor", "fp8.wgrad=bf16" } } },
    { TURNED,
      { "dp 2, zero 2, bf16, whole matrices",
        2,
        { MLA, BATCH, "mesh.zero=2", "run.compute=bf16", "moe.bias_rate=0", "fp8.recipe=block",
          "optimizer.kind=muon" } } },
    { TURNED,
      { "dp 2, zero 2, bf16, biases of experts",
        2,
        { MLA, BATCH, "mesh.zero=2", "run.compute=bf16", "moe.bias_rate=0", "moe.expert_bias=true",
          "fp8.recipe=block" } } },
    { TURNED,
      { "dp 2, zero 3, bf16, biases of experts",
        2,
        { GQA, BATCH, "mesh.zero=3", "run.compute=bf16", "moe.bias_rate=0", "moe.expert_bias=true",
          "fp8.recipe=block" } } },
    { SAME,
      { "pp 2, interleaved, hybrid",
        2,
        { MLA, BATCH, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=interleaved", "fp8.recipe=row",
          "fp8.format=hybrid" } } },
    { SAME,
      { "pp 2, zb-h1, some layers",
        2,
        { GQA, BATCH, "mesh.pp=2", "mesh.schedule=zb-h1", "fp8.recipe=tensor",
          "fp8.layers=[1,2]" } } },
    { SAME,
      { "dp 2, zero 3, 1 x 32",
        2,
        { MLA, BATCH, "mesh.zero=3", "fp8.recipe=mx", "fp8.format=e2m3" } } },
    { TURNED, { "ep 2, a pool", 2, { MLA, BATCH, POOLED, "mesh.ep=2", "fp8.recipe=block" } } },
    { TURNED,
      { "ep 2, a pool of 8-bit rows",
        2,
        { MLA, BATCH, POOLED, "mesh.ep=2", "moe.ffn=128", "fp8.recipe=block" } } },
    { TURNED,
      { "ep 2, direct", 2, { MLA, BATCH, WORST, "mesh.ep=2", DIRECT, "fp8.recipe=block" } } },
    { TURNED,
      { "ep 2, allgather, recompute",
        2,
        { GQA, BATCH, POOLED, "mesh.ep=2", "moe.exchange=allgather", "recompute.layers=[1,2]",
          "recompute.pieces=[exchange,norm,act]", "fp8.recipe=block" } } },
    { TURNED,
      { "ep 4, hier over 2 hosts",
        4,
        { GQA, BATCH, WORST, "mesh.ep=4", HIER, "mesh.ranks_per_host=2", "fp8.recipe=block" } } },
    { TURNED,
      { "pp 2, ep 2, 1f1b-overlap",
        4,
        { MLA, BATCH, POOLED, "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=1f1b-overlap",
          "fp8.recipe=block" } } },
    { TURNED_SHORT,
      { "ep 2, hybrid, bf16 weight gradients",
        2,
        { MLA, BATCH, WORST, "mesh.ep=2", "moe.exchange=alltoall", "moe.expert_bias=true",
          "fp8.recipe=block", "fp8.format=hybrid", "fp8.wgrad=bf16" } } },
    { TURNED,
      { "ep 4, inputs scaled, some layers",
        4,
        { GQA, BATCH, POOLED, SCORED, "mesh.ep=4", "fp8.recipe=block", "fp8.layers=[1,3]" } } },
    { TURNED,
      { "ep 2, bf16 rows",
        2,
        { MLA, BATCH, WORST, "mesh.ep=2", "fp8.recipe=block", "fp8.dispatch=bf16" } } },
    { TURNED,
      { "ep 2, rows alone",
        2,
        { MLA, BATCH, WORST, "mesh.ep=2", "fp8.recipe=row", "fp8.wgrad=bf16" } } },
    { SAME, { "dp 2, zero 2, gates", 2, { GQA, BATCH, GATE, "mesh.zero=2", "fp8.recipe=block" } } },
    { SAME,
      { "dp 2, zero 3, delta, recompute",
        2,
        { MLA, DELTA, BATCH, "mesh.zero=3", "recompute.layers=[0,1]",
          "recompute.pieces=[norm,attn_up,act]", "fp8.recipe=block" } } },
    { SAME,
      { "pp 2, delta, zb-h1, tensors",
        2,
        { GQA, DELTA, BATCH, "mesh.pp=2", "mesh.schedule=zb-h1", "fp8.recipe=tensor" } } },
    { TURNED, { "cp 2, gqa", 2, { GQA, BATCH, "mesh.cp=2", "fp8.recipe=block" } } },
    { SAME, { "dp 2, zero 3, the head", 2, { MLA, BATCH, "mesh.zero=3", HEAD } } },
    { SAME,
      { "pp 2, dp 2, zero 1, the head, next tokens",
        4,
        { MLA, BATCH, "mesh.pp=2", "mesh.zero=1", "mtp.layers=1", HEAD } } },
    { ROUNDED,
      { "tp 2, the head",
        2,
        { GQA, BATCH, "mesh.tp=2", "mesh.tp_pieces=1", "attention.kv_heads=2", HEAD } } },
    { ROUNDED, { "tp 2, delta", 2, { MLA, DELTA, BATCH, TP2, "fp8.recipe=block" } } },
    { ROUNDED, { "tp 2", 2, { MLA, BATCH, TP2, "fp8.recipe=block" } } },
    { TURNED,
      { "tp 2, dp 2, zero 3, recompute",
        4,
        { GQA, BATCH, TP2, "attention.kv_heads=2", "mesh.zero=3", "recompute.layers=[1,2]",
          "recompute.pieces=[norm,act]", "fp8.recipe=block" } } },
    { ROUNDED, { "ep 2, a pool", 2, { MLA, BATCH, POOLED, "mesh.ep=2", "fp8.recipe=row" } } },
    { ROUNDED, { "ep 2", 2, { GQA, BATCH, WORST, "mesh.ep=2", FORCED, "fp8.recipe=tensor" } } },
    { ROUNDED, { "cp 2, gqa", 2, { GQA, BATCH, "mesh.cp=2", "fp8.recipe=row" } } },
    { SHORT, { "cp 2, mla", 2, { MLA, BATCH, "mesh.cp=2", "fp8.recipe=block" } } },
};

enum { CASES = sizeof cases / sizeof *cases };

static void a_mesh_is_as_close_to_one_rank_as_its_recipe_lets_it_be(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < CASES; i += MANY_EVERY) {
        const ManyCase *c = &cases[i].mesh;
        Many m = { .what = c, .steps = RUNS(3, 2), .limit = cases[i].limit, .afresh = 1 };
        int failed = -1;
        Status s = comm_threads(c->ranks, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", c->name, failed, status_message());
        wrong += s != OK;
    }
    CHECK_INT(wrong, 0);
}

/* The limits say something: with exact scales an expert parallel mesh is not as close. */
static void exact_scales_of_columns_depend_on_the_mesh(void **state)
{
    (void)state;
    ManyCase c = { "exact",
                   2,
                   { MLA, BATCH, WORST, "mesh.ep=2", "fp8.recipe=block", "fp8.scales=exact" } };
    Many m = { .what = &c, .steps = 1, .limit = TURNED };
    int failed = -1;
    CHECK(comm_threads(c.ranks, 60, many_run, &m, &failed) != OK);
    m.limit = ROUNDED;
    CHECK_OK(comm_threads(c.ranks, 60, many_run, &m, &failed));
}

/* ---- copies after an update ---- */

static uint64_t bytes_hash(uint64_t hash, const Tensor *t)
{
    const uint8_t *at = t->data;
    for (size_t i = 0; at != NULL && i < tensor_bytes(t); i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

static const uint64_t NO_COPIES = 14695981039346656037u; /* FNV-1a of nothing */

static uint64_t copies_hash(const EngineParams *w)
{
    uint64_t hash = NO_COPIES;
    for (int i = 0; i < w->spec->n_layers * 2 * ROLE_COUNT; i++) {
        const LayerWeights *layer = &w->layer[i / (2 * ROLE_COUNT)];
        const Operand *q = &layer->scaled[i / ROLE_COUNT % 2][i % ROLE_COUNT];
        hash = bytes_hash(bytes_hash(hash, &q->data), &q->scale);
    }
    return hash;
}

/* After two steps, and what the next step begins with, copies are those that a load would make. */
static Status run_copies(void *state, Comm *world)
{
    ManyRank r = { 0 };
    StepResult out = { 0 };
    uint64_t hash = 0;
    Status s = many_open(&r, state, world);
    EngineParams *w = &r.t.engine.params;
    for (int64_t k = 0; k < 2 && s == OK; k++) s = many_step(&r, k, &out);
    if (s == OK) s = copies_quantise(w, false);
    if (s == OK) hash = copies_hash(w), s = copies_refresh(w);
    if (s == OK && !w->table.sharded[BUF_WEIGHT] && hash == NO_COPIES)
        s = FAIL(ERR_NUMERIC, "there are no 8-bit copies");
    if (s == OK && copies_hash(w) != hash)
        s = FAIL(ERR_NUMERIC, "8-bit copies are not those of the weights");
    many_close(&r);
    return s;
}

static int count_old_copies(const ManyCase *c)
{
    ManyCase own = *c;
    int failed = -1;
    Status s = comm_threads(c->ranks, 60, run_copies, &own, &failed);
    if (s != OK) print_error("%s, rank %d: %s\n", c->name, failed, status_message());
    return s != OK;
}

/* A fused matrix lies in several runs of parameters if some are frozen, or if ranks of tp share heads of keys. */
static void copies_are_those_of_the_new_weights(void **state)
{
    (void)state;
    static const ManyCase split[] = {
        { "q frozen", 1, { GQA, BATCH, "init.frozen=[\"*q_proj*\"]", "fp8.recipe=block" } },
        { "up projections frozen, zero 1",
          2,
          { MLA, BATCH, "mesh.zero=1", "init.frozen=[\"*up_proj*\"]", "fp8.recipe=row" } },
        { "tp 4, two heads of keys",
          4,
          { "model.vocab=64", "model.dense_layers=1", "attention.kind=gqa", "attention.heads=4",
            "attention.kv_heads=2", BATCH, "mesh.tp=4", "mesh.zero=0", "fp8.recipe=block" } },
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof split / sizeof *split; i++) wrong += count_old_copies(&split[i]);
    for (int i = 0; i < CASES; i += MANY_EVERY) wrong += count_old_copies(&cases[i].mesh);
    CHECK_INT(wrong, 0);
}

/* ---- weights that are staged ---- */

/* Every 8-bit copy of both engines has the same bytes. */
static Status same_copies(const EngineParams *a, const EngineParams *b)
{
    for (int i = 0; i < a->spec->n_layers * 2 * ROLE_COUNT; i++) {
        const int layer = i / (2 * ROLE_COUNT), turned = i / ROLE_COUNT % 2, role = i % ROLE_COUNT;
        const Operand *x = &a->layer[layer].scaled[turned][role];
        const Operand *y = &b->layer[layer].scaled[turned][role];
        if (x->data.data == NULL && y->data.data == NULL) continue;
        if (memcmp(x->data.data, y->data.data, tensor_bytes(&x->data)) != 0 ||
            memcmp(x->scale.data, y->scale.data, tensor_bytes(&x->scale)) != 0)
            return FAIL(ERR_NUMERIC, "layer %d has other copies of role %d", layer, role);
    }
    return OK;
}

static Status forget_copies(EngineParams *w)
{
    for (int i = 0; i < w->spec->n_layers * ROLE_COUNT; i++) {
        const Operand *q = &w->layer[i / ROLE_COUNT].scaled[0][i % ROLE_COUNT];
        if (q->data.data != NULL) memset(q->data.data, 0x7F, tensor_bytes(&q->data));
    }
    return copies_refresh(w); /* as after a load */
}

typedef struct Staged {
    const char *name;
    int64_t stage; /* elements of the largest bucket of which a rank has a part */
    const char *settings[8];
} Staged;

/* Where a rank has main weights: all of them, and parts of two kinds. */
enum { WAYS = 4 };
static const char *const staged_zero[WAYS] = { "mesh.zero=0", "mesh.zero=1", "mesh.zero=2",
                                               "mesh.zero=1" };

static Status staged_open(ManyRank *r, const Staged *x, int way, Comm *world)
{
    ManyCase c = { x->name, 2, { MLA, "train.batch=4", "train.micro_batch=2" } };
    const char *also[] = { "run.compute=bf16", "train.clip_norm=0", staged_zero[way], NULL };
    int n = 0;
    while (c.settings[n] != NULL) n++;
    for (int i = 0; i < 8; i++) c.settings[n++] = x->settings[i];
    r->also = also;
    r->cut = way == 3 ? CUT_MATRICES : CUT_ELEMENTS;
    TRY(many_open(r, &c, world));
    const Tensor *stage = &r->t.engine.params.memory.stage;
    int64_t have = stage->data == NULL ? 0 : tensor_elems(stage), want = way == 0 ? 0 : x->stage;
    if (way == 3 || have == want) return OK;
    return FAIL(ERR_SHAPE, "a stage of %lld elements", (long long)have);
}

/* Three steps and an evaluation. Before the last step copies are made as after a load. */
static Status staged_run(ManyRank *r, StepResult *out)
{
    const float *losses = NULL;
    for (int64_t k = 0; k < 3; k++) {
        if (k == 2) TRY(forget_copies(&r->t.engine.params));
        TRY(many_step(r, k, out));
    }
    Batch some = many_rows(&r->own, 0, r->t.shape.micro_batch, r->t.config.data_sequence);
    TRY(engine_losses(&r->t.engine, &some, &losses));
    for (int a = 0; a < ENGINE_ARENAS; a++) {
        if (engine_peak_bytes(&r->t.engine, (EngineArena)a) != r->t.plan.bytes[a])
            return FAIL(ERR_SHAPE, "arena %s is not as planned", engine_arena_names[a]);
    }
    return OK;
}

static Status run_staged(void *state, Comm *world)
{
    ManyRank r[WAYS] = { 0 };
    StepResult last[WAYS] = { 0 };
    Status s = OK;
    for (int i = 0; s == OK && i < WAYS; i++) {
        s = staged_open(&r[i], state, i, world);
        if (s == OK) s = staged_run(&r[i], &last[i]);
        if (s == OK) s = same_copies(&r[0].t.engine.params, &r[i].t.engine.params);
        if (s == OK && last[i].loss != last[0].loss) s = FAIL(ERR_NUMERIC, "another loss");
        if (s != OK) print_error("way %d: %s\n", i, status_message());
    }
    for (int i = 0; i < WAYS; i++) many_close(&r[i]);
    return s;
}

/* One micro-batch a rank, and no clipping: so sums of gradients have one order. Experts: 8 x 3 x 20 x 32
 * elements; with mesh.ep=2 a rank has its experts whole, and the MLP's 3 x 40 x 32 are the most. */
static void staged_weights_are_quantised_as_whole_ones(void **state)
{
    (void)state;
    static const Staged all[] = {
        { "block", 15360, { "fp8.recipe=block", "moe.shared=1" } },
        { "row",
          15360,
          { "fp8.recipe=row", "moe.shared=1", "moe.shared_gate=true",
            "init.frozen=[\"model.layers.2.*\"]" } },
        { "ep 2", 3840, { "fp8.recipe=tensor", WORST, "mesh.ep=2" } },
    };
    for (int i = 0; i < 3; i++) {
        Staged x = all[i];
        int failed = -1;
        Status s = comm_threads(2, 60, run_staged, &x, &failed);
        if (s != OK) fail_msg("%s, rank %d: %s", x.name, failed, status_message());
    }
}

/* In front of the CPU: the memory in which an exchange packs its rows holds 3.4e38 before. */
static Status dirty_run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    char *workspace = ex->workspace;
    if (strcmp(op->name, "exchange_dispatch") == 0 && workspace != NULL)
        memset(workspace, 0x7F, (size_t)(ex->scratch->base + ex->scratch->used_bytes - workspace));
    return op_next(ex, level, op, args);
}

static const Decorator dirty = { .run = dirty_run };

/* Two engines on the same steps, one of them with dirty memory. */
static Status run_dirty(void *state, Comm *world)
{
    const ManyCase *c = state;
    ManyRank r[2] = { 0 };
    Status s = OK;
    for (int i = 0; s == OK && i < 2; i++) {
        StepResult result;
        s = many_open(&r[i], c, world);
        if (s == OK && i == 1) exec_push(&r[i].t.engine.ex, &dirty);
        for (int64_t k = 0; s == OK && k < 2; k++) s = many_step(&r[i], k, &result);
    }
    if (s == OK && !tiny_same_state(&r[0].t, &r[1].t))
        s = FAIL(ERR_NUMERIC, "what was in memory before a step changes it");
    for (int i = 0; i < 2; i++) many_close(&r[i]);
    return s;
}

/* Blocks of received rows have gaps, which hold what was in memory. */
static void gaps_between_received_rows_move_no_scale(void **state)
{
    (void)state;
    static const char *const recipes[][3] = { { "fp8.recipe=tensor" },
                                              { "fp8.recipe=row" },
                                              { "fp8.recipe=block" },
                                              { "fp8.recipe=block", "fp8.wgrad=bf16" },
                                              { "fp8.recipe=block", "fp8.dispatch=bf16" } };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        ManyCase c = { "gaps",
                       2,
                       { MLA, BATCH, WORST, "mesh.ep=2", "moe.exchange=alltoall", recipes[i][0],
                         recipes[i][1] } };
        int failed = -1;
        CHECK_OK(comm_threads(c.ranks, 60, run_dirty, &c, &failed));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_mesh_is_as_close_to_one_rank_as_its_recipe_lets_it_be),
        TEST(exact_scales_of_columns_depend_on_the_mesh),
        TEST(copies_are_those_of_the_new_weights),
        TEST(staged_weights_are_quantised_as_whole_ones),
        TEST(gaps_between_received_rows_move_no_scale),
    };
    return TEST_RUN(tests);
}
