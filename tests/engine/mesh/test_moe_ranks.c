/*
 * A MoE layer over ranks, forward and backward, against the same layer on one: outputs and
 * gradients of the tokens, auxiliary loss, loads, and the gradients of all weights, which are those
 * of one rank once they are added over the ranks that have them.
 */
#include "harness/optest.h"
#include "harness/param_view.h"
#include "kernels/exchange/exchange.h"

#include "engine/model/layer.h"

enum { RANKS_MAX = 4, B = 4, T = 8, D = 24, LAYER = 2 };

static const char *const base[] = {
    "model.vocab=16",     "model.hidden=24",      "model.layers=1",       "model.init_std=0.3",
    "moe.experts=12",     "moe.top_k=3",          "moe.ffn=10",           "moe.shared=1",
    "moe.aux_loss=10",    "data.sequence=8",      "train.batch=4",        "train.micro_batch=4",
    "moe.scaling=2",      "model.dense_layers=0", "moe.buffers=worst",    "run.compute=f32",
    "moe.normalise=true", "attention.heads=1",    "attention.kv_heads=1",
};

typedef struct Rank {
    Arena arena, block, keep, ring, scratch; /* keep and ring lie in the block */
    Exec ex;
    Mesh mesh;
    ModelSpec spec;
    ParamTable table;
    ParamMemory memory;
    LayerWeights *weights;
    MicroBatch batch;
    Record record;
    LayerRun run;
    RowPool pool;
} Rank;

typedef struct World {
    const char *settings[6]; /* NULL-terminated */
    MeshShape shape;
    float skew; /* how much all tokens have in common */
    Rank rank[RANKS_MAX];
} World;

#define WORLD(mesh, all, ...)                                                                      \
    ((World){ .settings = { __VA_ARGS__ }, .shape = (mesh), .skew = (all) })

static Status open_spec(Rank *r, const World *w)
{
    Config c;
    TRY(config_default(&c, &r->arena));
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        TRY(config_override(&c, &r->arena, base[i]));
    for (int i = 0; w->settings[i] != NULL; i++)
        TRY(config_override(&c, &r->arena, w->settings[i]));
    c.mesh_ep = w->shape.ep, c.mesh_cp = w->shape.cp, c.mesh_ranks_per_host = w->shape.inside;
    c.train_micro_batch = B / w->shape.shard;
    TRY(spec_build(&c, &r->arena, &r->spec));
    spec_place(&r->spec, &r->mesh);
    return OK;
}

static Status open_weights(Rank *r)
{
    TRY(params_build(&r->spec, 0, NULL, &r->arena, &r->table));
    TRY(params_alloc(&r->spec, &r->table, &r->arena, &r->arena, true, &r->memory));
    TRY(params_bind(&r->spec, &r->table, &r->memory, &r->arena, &r->weights));
    for (int i = 0; i < r->table.n; i++) {
        if (r->table.at[i].init == INIT_ZERO)
            r->table.at[i].init = INIT_NORMAL, r->table.at[i].init_std = 0.3f;
        Tensor view = param_view(&r->table.at[i], &r->memory, BUF_MAIN);
        Piece all = piece_range(0, tensor_elems(&view));
        param_fill(&r->table.at[i], 5, &all, 0, all.n, view.data);
    }
    memset(r->memory.buffer[BUF_GRAD].data, 0, tensor_bytes(&r->memory.buffer[BUF_GRAD]));
    return OK;
}

/* Which row of the whole batch row n of a rank is. */
static int64_t global_row(const Rank *r, int64_t n)
{
    int64_t b = r->batch.b * r->mesh.at.shard + n / r->batch.t;
    return b * T + r->batch.t * r->mesh.at.cp + n % r->batch.t;
}

static Status stream_rows(Rank *r, uint64_t stream, float skew, Tensor *out)
{
    int64_t n = r->batch.b * r->batch.t;
    TRY(tensor_new2(&r->arena, DTYPE_F32, n, D, out));
    for (int64_t i = 0; i < n; i++) {
        float *row = (float *)out->data + i * D;
        rng_fill_normal(row, D, 9, stream, (uint64_t)(global_row(r, i) * D), 1);
        for (int64_t d = 0; d < D; d++) row[d] += skew;
    }
    return OK;
}

static Status zeros(Arena *a, Dtype type, int64_t rows, int64_t cols, Tensor *out)
{
    TRY(tensor_new2(a, type, rows, cols, out));
    memset(out->data, 0, tensor_bytes(out));
    return OK;
}

/* A pool with rows of another layer before this one's. */
static Status open_pool(Rank *r)
{
    enum { BEFORE = 5 };
    LayerRun *run = &r->run;
    PoolNeed need = layer_moe.pooled(&r->spec, run->layer, r->batch.b * r->batch.t);
    if (r->spec.capacity.pool == 0 || need.most == 0) return OK;
    need.balanced = BEFORE / r->spec.capacity.pool + need.balanced, need.most += BEFORE;
    TRY(pool_make(&r->ex, &r->arena, &need, r->spec.capacity.pool, &r->pool));
    *(int32_t *)r->pool.top.data = BEFORE;
    run->pool = &r->pool;
    return OK;
}

static Status open_run(Rank *r, const World *w)
{
    void *state = NULL;
    r->batch = (MicroBatch){ .b = B / w->shape.shard, .t = T / w->shape.cp };
    TRY(zeros(&r->arena, DTYPE_I32, r->batch.b, 1, &r->batch.domain));
    TRY(zeros(&r->arena, DTYPE_F32, 1, 1, &r->record.aux_loss));
    TRY(zeros(&r->arena, DTYPE_F32, 2, 1, &r->record.overflow));
    TRY(zeros(&r->arena, DTYPE_F32, 1, 1, &r->record.router_z));
    TRY(zeros(&r->arena, DTYPE_I32, 1, r->spec.experts, &r->record.load));
    r->record.load = tensor_as4(&r->record.load, 1, 1, r->spec.experts, 1);
    TRY(arena_array_zero(&r->arena, layer_moe.state_bytes, 1, &state));
    r->run = (LayerRun){ .ex = &r->ex,
                         .spec = &r->spec,
                         .layer = &r->spec.layers[LAYER],
                         .weights = &r->weights[LAYER],
                         .batch = &r->batch,
                         .tokens = r->batch.b * r->batch.t,
                         .rows = r->batch.b * r->batch.t,
                         .record = &r->record,
                         .keep = &r->keep,
                         .ring = &r->ring,
                         .scratch = &r->scratch,
                         .state = state,
                         .training = true };
    TRY(open_pool(r));
    TRY(stream_rows(r, 1, w->skew, &r->run.h));
    TRY(stream_rows(r, 2, 0, &r->run.dh_out));
    TRY(tensor_new2(&r->arena, DTYPE_F32, r->run.h.dim[0], D, &r->run.h_out));
    return tensor_new2(&r->arena, DTYPE_F32, r->run.h.dim[0], D, &r->run.dh);
}

static Status forward(LayerRun *r)
{
    for (int i = 0; i < layer_moe.n_phases; i++) {
        TRY(layer_moe.phases[i].forward(r));
        arena_release(r->scratch, (ArenaMark){ 0 });
    }
    arena_release(r->ring, (ArenaMark){ 0 });
    return OK;
}

static Status both_ways(LayerRun *r)
{
    TRY(layer_moe.prepare(r));
    ArenaMark kept = arena_mark(r->keep);
    TRY(forward(r));
    if ((r->layer->recompute & RECOMPUTE_LAYER) != 0) {
        arena_release(r->keep, kept);
        r->recomputing = true;
        TRY(forward(r));
        r->recomputing = false;
    }
    for (int i = layer_moe.n_phases - 1; i >= 0; i--) {
        const Phase *p = &layer_moe.phases[i];
        if (p->backward_input != NULL) TRY(p->backward_input(r));
        if (p->backward_weight != NULL) TRY(p->backward_weight(r));
        arena_release(r->scratch, (ArenaMark){ 0 });
    }
    return OK;
}

static Status rank_body(void *state, Comm *world)
{
    enum { BYTES = 1 << 20, FRONT = 1 << 16 };
    World *w = state;
    Rank *r = &w->rank[world->rank];
    TRY(arena_init(&r->arena, "rank", MEM_HOST, (size_t)4 * BYTES));
    void *at = NULL;
    TRY(arena_init(&r->block, "block", MEM_HOST, FRONT + (size_t)2 * BYTES));
    TRY(arena_alloc(&r->block, r->block.cap_bytes, &at));
    arena_over(&r->keep, "keep", MEM_HOST, (char *)at + FRONT, BYTES);
    arena_over(&r->ring, "ring", MEM_HOST, (char *)at + FRONT + BYTES, BYTES);
    TRY(arena_init(&r->scratch, "scratch", MEM_HOST, BYTES));
    TRY(exec_init(&r->ex, &r->arena, &r->scratch, 1, CPU_AUTO));
    exec_push(&r->ex, &backend_guard);
    TRY(mesh_make(world, &w->shape, false, &r->arena, &r->mesh));
    r->ex.mesh = &r->mesh;
    TRY(open_spec(r, w));
    TRY(exchange_open(&r->ex, r->spec.ranks.exchange, at, r->block.cap_bytes, &r->arena));
    TRY(open_weights(r));
    TRY(open_run(r, w));
    TRY(both_ways(&r->run));
    exchange_close(&r->ex);
    Mesh over = r->mesh; /* its place is still asked for */
    mesh_free(&over);
    return OK;
}

static int ranks_of(const World *w) { return mesh_ranks(&w->shape); }

static void world_run(World *w)
{
    int failed = -1;
    CHECK_OK(comm_threads(ranks_of(w), 20, rank_body, w, &failed));
}

static void world_close(World *w)
{
    for (int i = 0; i < ranks_of(w); i++) {
        Rank *r = &w->rank[i];
        exec_free(&r->ex);
        arena_free(&r->scratch), arena_free(&r->block), arena_free(&r->arena);
    }
}

/* Comparison */

static double ref[B * T * D];

static void check_rows(const Rank *r, const Tensor *got, const Tensor *whole)
{
    for (int64_t i = 0; i < tensor_elems(got); i++)
        ref[i] = optest_get(whole, global_row(r, i / D) * D + i % D);
    CHECK_TENSOR_WITHIN(got, ref, 2e-6);
}

static void check_gradients(const World *w, const Rank *whole)
{
    static float sum[B * T * D * 10];
    for (int p = 0; p < whole->table.n; p++) {
        const Param *want = &whole->table.at[p];
        if (want->layer != LAYER) continue;
        Tensor dw = param_view(want, &whole->memory, BUF_GRAD), got = dw;
        got.data = memset(sum, 0, tensor_bytes(&dw));
        int found = 0;
        for (int i = 0; i < ranks_of(w) * whole->table.n; i++) {
            const Rank *r = &w->rank[i / whole->table.n];
            int at = i % whole->table.n;
            if (at >= r->table.n || strcmp(r->table.at[at].name, want->name) != 0) continue;
            Tensor part = param_view(&r->table.at[at], &r->memory, BUF_GRAD);
            for (int64_t j = 0; j < tensor_elems(&dw); j++) sum[j] += (float)optest_get(&part, j);
            found++;
        }
        CHECK_INT(found, want->expert < 0 ? ranks_of(w) : ranks_of(w) / w->shape.ep);
        for (int64_t j = 0; j < tensor_elems(&dw); j++) ref[j] = optest_get(&dw, j);
        OpMatch m = optest_match_above(&got, ref, 1);
        if (!(m.ratio <= 5e-6)) fail_msg("%s: off by %.3g", want->name, m.ratio);
    }
}

static void check_world(const World *w, const World *one, double overflow)
{
    const Rank *whole = &one->rank[0];
    double aux = 0, load[12] = { 0 };
    for (int i = 0; i < ranks_of(w); i++) {
        const Rank *r = &w->rank[i];
        CHECK_NEAR(optest_get(&r->record.overflow, OVERFLOW_BLOCKS), overflow, 0);
        CHECK_NEAR(optest_get(&r->record.overflow, OVERFLOW_ROWS), overflow, 0);
        check_rows(r, &r->run.h_out, &whole->run.h_out);
        check_rows(r, &r->run.dh, &whole->run.dh);
        aux += optest_get(&r->record.aux_loss, 0);
        for (int e = 0; e < 12; e++) load[e] += optest_get(&r->record.load, e);
    }
    double want = optest_get(&whole->record.aux_loss, 0);
    CHECK_NEAR(aux, want, 1e-6 * want);
    for (int e = 0; e < 12; e++) CHECK_NEAR(load[e], optest_get(&whole->record.load, e), 0);
    check_gradients(w, whole);
}

/* pp, replicate, shard, ep, cp, inside, tp, keys, matrices */
static const MeshShape alone = { 1, 1, 1, 1, 1, 0, 1, 1, 1, false };
static const MeshShape meshes[] = {
    { 1, 1, 2, 2, 1, 0, 1, 1, 1, false }, { 1, 1, 4, 4, 1, 0, 1, 1, 1, false },
    { 1, 1, 1, 2, 2, 0, 1, 1, 1, false }, { 1, 1, 2, 4, 2, 0, 1, 1, 1, false },
    { 1, 1, 2, 2, 2, 0, 1, 1, 1, false }, { 1, 1, 4, 2, 1, 0, 1, 1, 1, false },
    { 1, 1, 2, 1, 2, 0, 1, 1, 1, false },
};
/* The same over hosts. */
static const MeshShape hosts[] = {
    { 1, 1, 4, 4, 1, 2, 1, 1, 1, false }, { 1, 1, 2, 2, 1, 1, 1, 1, 1, false },
    { 1, 1, 2, 4, 2, 2, 1, 1, 1, false }, { 1, 1, 4, 4, 1, 1, 1, 1, 1, false },
    { 1, 1, 4, 4, 1, 4, 1, 1, 1, false },
};
enum { MESHES = sizeof meshes / sizeof *meshes, HOSTS = sizeof hosts / sizeof *hosts };

static void compare(World w, double overflow)
{
    static World one, many;
    one = many = w;
    one.shape = alone;
    world_run(&one);
    world_run(&many);
    check_world(&many, &one, overflow);
    world_close(&one);
    world_close(&many);
}

static void a_layer_over_ranks_is_the_layer_on_one(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        compare(WORLD(meshes[i], 0, "moe.exchange=alltoall"), 0);
        compare(WORLD(meshes[i], 0, "moe.exchange=allgather"), 0);
        compare(WORLD(meshes[i], 0, "moe.exchange=direct"), 0);
    }
    for (int i = 0; i < HOSTS; i++) compare(WORLD(hosts[i], 0, "moe.exchange=hier"), 0);
}

static void so_it_is_where_all_tokens_want_the_same_experts(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        compare(WORLD(meshes[i], 3, "moe.exchange=alltoall"), 0);
        compare(WORLD(meshes[i], 3, "moe.exchange=allgather"), 0);
        compare(WORLD(meshes[i], 3, "moe.exchange=direct"), 0);
    }
    for (int i = 0; i < HOSTS; i++) compare(WORLD(hosts[i], 3, "moe.exchange=hier"), 0);
}

static void a_global_loss_is_that_of_all_its_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++) compare(WORLD(meshes[i], 0, "moe.aux_scope=global"), 0);
}

/* Biases, which training begins with zeros, are random here; gates and ups reach the limit. */
static void experts_with_biases_are_those_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++)
        compare(WORLD(meshes[i], 0, "moe.expert_bias=true", "moe.activation=clamped",
                      "moe.limit=0.5", "moe.buffers=pooled", "moe.pool_factor=3"),
                0);
    compare(WORLD(hosts[0], 3, "moe.expert_bias=true", "moe.exchange=hier"), 0);
    compare(WORLD(meshes[1], 0, "moe.expert_bias=true", "moe.activation=clamped", "moe.limit=0.5",
                  "recompute.layers=[0]", "recompute.pieces=[layer]"),
            0);
}

static void what_is_made_again_is_the_same(void **state)
{
    (void)state;
    static const char *const pieces[] = { "recompute.pieces=[exchange,norm]",
                                          "recompute.pieces=[layer]" };
    static const char *const kinds[] = { "moe.exchange=alltoall", "moe.exchange=allgather",
                                         "moe.exchange=direct", "moe.exchange=hier" };
    for (int i = 0; i < 8; i++)
        compare(WORLD(i < 6 ? meshes[1] : hosts[0], 0, "recompute.layers=[0]", pieces[i % 2],
                      kinds[i / 2]),
                0);
}

static void buffers_that_are_large_enough_change_nothing(void **state)
{
    (void)state;
    compare(WORLD(meshes[0], 0, "moe.buffers=pooled", "moe.pool_factor=3"), 0);
    compare(WORLD(meshes[1], 0, "moe.buffers=pooled", "moe.pool_factor=3", "recompute.layers=[0]",
                  "moe.exchange=allgather"),
            0);
    compare(WORLD(hosts[0], 0, "moe.buffers=pooled", "moe.buffer_factor=3", "moe.exchange=hier"),
            0);
    compare(WORLD(meshes[1], 0, "moe.buffers=pooled", "moe.pool_factor=3", "moe.exchange=direct"),
            0);
}

/* One-sided stores bring the rows in the order of alltoall's, so everything has its bits. */
static void stores_bring_the_bits_of_calls(void **state)
{
    (void)state;
    static World a, b;
    for (int i = 0; i < 2 * MESHES; i++) {
        if (meshes[i / 2].ep == 1) continue;
        a = WORLD(meshes[i / 2], i % 2 == 0 ? 0 : 3, "moe.exchange=alltoall");
        b = WORLD(meshes[i / 2], i % 2 == 0 ? 0 : 3, "moe.exchange=direct");
        world_run(&a);
        world_run(&b);
        for (int r = 0; r < ranks_of(&a); r++) {
            CHECK_SAME(&a.rank[r].run.h_out, &b.rank[r].run.h_out);
            CHECK_SAME(&a.rank[r].run.dh, &b.rank[r].run.dh);
            CHECK_SAME(&a.rank[r].memory.buffer[BUF_GRAD], &b.rank[r].memory.buffer[BUF_GRAD]);
        }
        world_close(&a);
        world_close(&b);
    }
}

/* Everything stays finite (the guard looks) and the same, run to run. */
static void buffers_that_are_too_small_are_flagged(void **state)
{
    (void)state;
    static const char *const kinds[] = { "moe.exchange=alltoall", "moe.exchange=allgather",
                                         "moe.exchange=direct", "moe.exchange=hier" };
    static World a, b;
    for (int i = 0; i < 4; i++) {
        a = WORLD(i < 3 ? meshes[1] : hosts[0], 3, "moe.buffers=pooled",
                  i == 1 ? "moe.pool_factor=1" : "moe.buffer_factor=1", kinds[i]);
        b = a;
        world_run(&a);
        world_run(&b);
        double overflow = 0;
        for (int r = 0; r < 4; r++) {
            overflow += optest_get(&a.rank[r].record.overflow, i == 1);
            CHECK_SAME(&a.rank[r].run.h_out, &b.rank[r].run.h_out);
            CHECK_SAME(&a.rank[r].run.dh, &b.rank[r].run.dh);
        }
        CHECK(overflow >= 1);
        world_close(&a);
        world_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_layer_over_ranks_is_the_layer_on_one),
        TEST(so_it_is_where_all_tokens_want_the_same_experts),
        TEST(a_global_loss_is_that_of_all_its_ranks),
        TEST(experts_with_biases_are_those_of_one_rank),
        TEST(what_is_made_again_is_the_same),
        TEST(buffers_that_are_large_enough_change_nothing),
        TEST(stores_bring_the_bits_of_calls),
        TEST(buffers_that_are_too_small_are_flagged),
    };
    return TEST_RUN(tests);
}
