/* How parameters are sharded over ranks: what each holds of them, and what each updates. */
#include "engine/step/shards.h"
#include "engine/train/train.h"
#include "harness/tiny.h"

#include <stdlib.h>
#include <string.h>

/* The stage of ZeRO from which on a buffer is sharded; with f32 compute the main weights are
 * the weights. */
static int zero_of(ParamBuffer b, bool bf16)
{
    static const int zero[BUF_STATE] = { 3, 2, 1, 1, 1, 1 };
    return b == BUF_MAIN && !bf16 ? zero[BUF_WEIGHT] : zero[b];
}

typedef struct Case {
    int ranks, ep, cp, replicas, zero; /* ranks: of a shard group, in each replica */
    bool bf16;
} Case;

static void each_case(void (*check)(const Case *))
{
    static const int shape[][4] = {
        { 1, 1, 1, 1 }, { 2, 1, 1, 1 }, { 2, 2, 1, 1 }, { 2, 1, 2, 1 },
        { 3, 1, 1, 1 }, { 3, 3, 1, 1 }, { 4, 1, 1, 1 }, { 4, 2, 1, 1 },
        { 4, 2, 2, 1 }, { 1, 1, 1, 2 }, { 2, 1, 1, 2 }, { 2, 2, 1, 2 }
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        for (int k = 0; k < 8; k++) {
            const int *n = shape[i];
            check(&(Case){ n[0], n[1], n[2], n[3], k / 2, k % 2 == 1 });
        }
    }
}

/* A rank's table and memory. */
typedef struct Holder {
    Tiny t;
    ModelSpec spec;
    ParamTable table;
    ParamMemory memory;
} Holder;

static void holder_open(Holder *h, const Case *c, int rank)
{
    char set[4][32];
    MeshShape shape;
    *h = (Holder){ 0 };
    (void)snprintf(set[0], sizeof set[0], "mesh.ep=%d", c->ep);
    (void)snprintf(set[1], sizeof set[1], "mesh.cp=%d", c->cp);
    (void)snprintf(set[2], sizeof set[2], "mesh.zero=%d", c->zero);
    (void)snprintf(set[3], sizeof set[3], "run.compute=%s", c->bf16 ? "bf16" : "f32");
    CHECK_OK(tiny_config(&h->t, TINY("optimizer.ema=0.5", set[0], set[1], set[2], set[3])));
    CHECK_OK(mesh_shape(c->ranks * c->replicas, 1, c->ep, c->cp, 1, c->ranks / c->cp, &shape));
    Mesh mesh = mesh_alone(&shape, rank);
    ParamShards shards = shards_of(&h->t.config, &mesh);
    CHECK_OK(spec_build(&h->t.config, &h->t.arena, &h->spec));
    spec_place(&h->spec, &mesh);
    CHECK_OK(params_build(&h->spec, 0, &shards, &h->t.arena, &h->table));
    CHECK_OK(params_alloc(&h->spec, &h->table, &h->t.arena, &h->t.arena, true, &h->memory));
}

static const Param *find(const ParamTable *t, const char *name)
{
    int i = 0;
    while (i < t->n && strcmp(t->at[i].name, name) != 0) i++;
    CHECK(i < t->n);
    return &t->at[i];
}

/* ---- pieces ---- */

/* Marks a piece in its buffer: inside, and nobody else's. */
static void take(const ParamPiece *piece, const Tensor *buffer, char *taken)
{
    size_t size = dtype_bytes(buffer->dtype);
    int64_t at = ((char *)piece->at.data - (char *)buffer->data) / (int64_t)size;
    CHECK(at >= 0 && at + piece->in.n <= tensor_elems(buffer));
    for (int64_t i = 0; i < piece->in.n; i++) CHECK_INT(taken[at + i]++, 0);
}

/* Counts the holders of each element of the whole model, where `whole` has it. */
static void count_pieces(const Holder *h, const ParamTable *whole, ParamBuffer b, int *holders)
{
    char *taken = calloc((size_t)h->table.elems[b] + 1, 1);
    for (int i = 0; i < h->table.n; i++) {
        const Param *p = &h->table.at[i], *q = find(whole, p->name);
        ParamPiece piece = param_piece(&h->table, p, &h->memory, b);
        CHECK(piece.in.first >= 0 && piece.in.first + piece.in.n <= param_elems(q));
        if (piece.in.n > 0) take(&piece, &h->memory.buffer[b], taken);
        for (int64_t k = 0; k < piece.in.n; k++) holders[q->first[b] + piece.in.first + k]++;
    }
    free(taken);
}

static int holders_wanted(const Case *c, ParamBuffer b, const Param *p)
{
    bool sharded = b != BUF_STATE && c->zero >= zero_of(b, c->bf16) && !p->keep_f32;
    return c->replicas * (sharded ? 1 : p->expert >= 0 ? c->ranks / c->ep : c->ranks);
}

static void check_pieces(const Case *c)
{
    static Holder rank[4], all;
    int ranks = c->ranks * c->replicas;
    holder_open(&all, &(Case){ 1, 1, 1, 1, 0, c->bf16 }, 0);
    for (int r = 0; r < ranks; r++) holder_open(&rank[r], c, r);
    for (ParamBuffer b = 0; b < BUF_COUNT; b++) {
        int *holders = calloc((size_t)all.table.elems[b] + 1, sizeof *holders);
        for (int r = 0; r < ranks; r++) count_pieces(&rank[r], &all.table, b, holders);
        for (int i = 0; i < all.table.n; i++) {
            const Param *p = &all.table.at[i];
            for (int64_t k = 0; k < param_elems(p) && p->first[b] >= 0; k++) {
                CHECK_INT(holders[p->first[b] + k], holders_wanted(c, b, p));
            }
        }
        free(holders);
    }
    for (int r = 0; r < ranks; r++) arena_free(&rank[r].t.arena);
    arena_free(&all.t.arena);
}

static void what_is_sharded_has_one_holder_and_what_is_not_has_all(void **state)
{
    (void)state;
    each_case(check_pieces);
}

/* ---- buckets and buffers ---- */

static void check_buckets(const Case *c)
{
    static Holder h;
    for (int r = 0; r < c->ranks * c->replicas; r++) {
        int64_t flat = 0, shard = 0;
        holder_open(&h, c, r);
        for (int i = 0; i < h.table.n_buckets; i++) {
            const ParamBucket *k = &h.table.bucket[i];
            int64_t ranks = k->shard_group == SHARD_WHOLE || c->zero == 0 ? 1
                            : k->shard_group == SHARD_EXPERT              ? c->ranks / c->ep
                                                                          : c->ranks;
            CHECK_INT(k->ranks, ranks);
            CHECK(k->own >= 0 && k->own < k->ranks);
            CHECK_INT(k->n % (ranks * PARAM_ALIGN), 0);
            CHECK_INT(k->first, flat);
            CHECK_INT(k->shard, shard);
            flat += k->n, shard += k->n / ranks;
        }
        CHECK_INT(h.table.spaces.of[BUF_MAIN].flat, flat);
        for (ParamBuffer b = 0; b < BUF_STATE; b++) {
            bool out = c->ranks > 1 && c->zero >= zero_of(b, c->bf16);
            CHECK_INT(h.table.elems[b], out ? shard : flat);
            CHECK_INT(tensor_elems(&h.memory.buffer[b]), h.table.elems[b]);
        }
        arena_free(&h.t.arena);
    }
}

static void buckets_are_cut_in_equal_parts_and_buffers_hold_what_they_say(void **state)
{
    (void)state;
    each_case(check_buckets);
}

/* ---- updates ---- */

/* Elements are numbered from 1 in the flat space, which all ranks have in common; padding is 0. */
static void number(const Engine *e, ParamBuffer b)
{
    const Tensor *t = &e->params.memory.buffer[b];
    memset(t->data, 0, tensor_bytes(t));
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, b);
        for (int64_t k = 0; k < piece.in.n && b != BUF_STATE; k++) {
            int64_t id = p->first[b] + piece.in.first + k + 1;
            if (t->dtype == DTYPE_F32)
                ((float *)piece.at.data)[k] = (float)id;
            else
                ((uint16_t *)piece.at.data)[k] = (uint16_t)id;
        }
    }
}

/* The buffers of a range run side by side. */
static void count_range(const UpdateRange *r, bool bf16, int *decays, int *stays)
{
    const float *w = r->w.data, *g = r->g.data, *m = r->state[0].data, *v = r->state[1].data;
    const float *average = r->average.data;
    const uint16_t *low = r->low.data;
    CHECK((low != NULL) == bf16);
    for (int64_t i = 0; i < tensor_elems(&r->w); i++) {
        CHECK_NEAR(g[i], w[i], 0);
        CHECK_NEAR(m[i], w[i], 0);
        CHECK_NEAR(v[i], w[i], 0);
        CHECK_NEAR(average[i], w[i], 0);
        if (bf16) CHECK_INT(low[i], (uint16_t)(int64_t)w[i]);
        (r->decay ? decays : stays)[(int64_t)w[i]]++;
    }
}

/* A lone engine with rank r's shards, as planning has it. */
static void count_updates(const Case *c, int rank, Tiny *t, int *count[2])
{
    static ParamShards shards;
    shards = (ParamShards){ .zero = c->zero,
                            .dense = c->ranks,
                            .expert = c->ranks,
                            .dense_rank = rank,
                            .expert_rank = rank };
    *t = (Tiny){ 0 };
    CHECK_OK(tiny_config(t, TINY("moe.expert_bias=true", "optimizer.ema=0.5",
                                 c->bf16 ? "run.compute=bf16" : "run.compute=f32")));
    t->shape = (EngineShape){ .batch = 1,
                              .micro_batch = 1,
                              .sequence = 4,
                              .positions = 4,
                              .domains = 1,
                              .threads = 1,
                              .shards = &shards };
    CHECK_OK(engine_plan(&t->config, ENGINE_TRAIN, &t->shape, &t->plan));
    CHECK_OK(engine_open(&t->engine, &t->config, ENGINE_TRAIN, &t->shape, &t->plan));
    for (ParamBuffer b = 0; b < BUF_STATE; b++) number(&t->engine, b);
    if (rank == 0) {
        for (int d = 0; d < 2; d++) {
            count[d] =
                calloc((size_t)t->engine.params.table.spaces.of[BUF_MAIN].flat + 1, sizeof **count);
        }
    }
    for (int i = 0; i < t->engine.params.n_ranges; i++) {
        count_range(&t->engine.params.ranges[i], c->bf16, count[1], count[0]);
    }
}

static void check_updates(const Case *c)
{
    int *count[2] = { NULL, NULL };
    Tiny t;
    for (int r = 0; r < c->ranks; r++) {
        count_updates(c, r, &t, count);
        if (r < c->ranks - 1) tiny_close(&t);
    }
    for (int i = 0; i < t.engine.params.table.n; i++) {
        const Param *p = &t.engine.params.table.at[i];
        int want = c->zero == 0 || p->keep_f32 ? c->ranks : 1;
        for (int64_t k = 1; k <= param_elems(p) && p->first[BUF_MAIN] >= 0; k++) {
            CHECK_INT(count[p->decay][p->first[BUF_MAIN] + k], want);
            CHECK_INT(count[!p->decay][p->first[BUF_MAIN] + k], 0);
        }
    }
    tiny_close(&t);
    free(count[0]);
    free(count[1]);
}

static void each_element_is_updated_once_and_by_its_own_rule(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        check_updates(&(Case){ .ranks = 1 + i / 8, .zero = i / 2 % 4, .bf16 = i % 2 == 1 });
    }
}

/* ---- ranks of tp ---- */

enum { TP = 4, TP_RANKS = 8 };

static void build_part(Tiny *t, int rank, const MeshShape *shape, ModelSpec *spec, ParamTable *out)
{
    Mesh mesh = mesh_alone(shape, rank);
    ParamShards shards = shards_of(&t->config, &mesh);
    CHECK_OK(spec_build(&t->config, &t->arena, spec));
    spec_place(spec, &mesh);
    CHECK_OK(params_build(spec, 0, &shards, &t->arena, out));
}

static void check_same_matrices(const ParamTable *a, const ParamTable *b)
{
    CHECK_INT(a->n_buckets, b->n_buckets);
    for (int i = 0; i < a->n_buckets; i++) {
        const ParamBucket *k = &a->bucket[i], *l = &b->bucket[i];
        CHECK_INT(k->n, l->n);
        CHECK(k->shard_group == l->shard_group && k->rule == l->rule);
        if (!shard_group_part(k->shard_group)) continue;
        CHECK_INT(k->own, l->own);
        for (int64_t r = 0; r <= k->ranks; r++) CHECK_INT(bucket_cut(k, r), bucket_cut(l, r));
    }
    for (int i = 0; i < a->n; i++) {
        UpdateRange r = { 0 }, q = { 0 };
        param_split_range(&a->at[i], &r), param_split_range(&b->at[i], &q);
        CHECK_INT(param_elems(&a->at[i]), param_elems(&b->at[i]));
        CHECK(r.ranks == q.ranks && r.copies == q.copies && r.cols_split == q.cols_split);
    }
}

/* Where the rule needs whole matrices, ranks of tp bring them together range by range. So all of them must
 * update their parts of the same ones. */
static void ranks_of_tp_own_parts_of_the_same_matrices(void **state)
{
    (void)state;
    Tiny t = { 0 };
    MeshShape shape;
    ModelSpec spec;
    ParamTable table[TP_RANKS];
    int cut = 0;
    CHECK_OK(tiny_config(&t, TINY("optimizer.kind=muon", "model.vocab=64", "attention.heads=4",
                                  "attention.kind=gqa", "attention.kv_heads=2", "mesh.tp=4",
                                  "model.dense_layers=2", "mesh.zero=1", "train.micro_batch=1")));
    CHECK_OK(train_mesh(&t.config, TP_RANKS, &shape));
    CHECK(shape.matrices);
    for (int r = 0; r < TP_RANKS; r++) {
        build_part(&t, r, &shape, &spec, &table[r]);
        check_same_matrices(&table[r / TP * TP], &table[r]);
    }
    for (int i = 0; i < table[0].n_buckets; i++)
        cut += table[0].bucket[i].cuts != NULL && table[0].bucket[i].shard_group == SHARD_PART;
    CHECK(cut > 0);
    for (int i = 0; i < table[0].n; i++) {
        const Param *p = &table[5].at[i];
        UpdateRange r = { 0 };
        param_split_range(p, &r);
        const bool keys = strstr(p->name, "k_proj") != NULL || strstr(p->name, "v_proj") != NULL;
        CHECK_INT(r.ranks, p->split == SPLIT_NONE ? 1 : TP);
        CHECK_INT(r.copies, keys ? 2 : 1);
        CHECK(r.cols_split == (strstr(p->name, "o_proj") != NULL ||
                               (p->expert < 0 && strstr(p->name, "mlp.down_proj") != NULL)));
    }
    arena_free(&t.arena);
}

/* ---- what a program is told ---- */

/* By ranks, whether others hold the same (replicas, two stages), and stage: which of weights,
 * gradients, reduce, sums, update. */
static void a_program_is_told_what_is_shared(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        bool others;
        const char *says[4];
    } c[] = {
        { 1, false, { "", "", "", "" } },
        { 1, true, { "s", "s", "s", "s" } },
        { 2, false, { "r", "ru", "grsu", "wgrs" } },
        { 2, true, { "rs", "rsu", "grsu", "wgrs" } },
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        for (int stage = 0; stage < 4; stage++) {
            ParamShards shards = { .zero = stage, .dense = c[i].ranks, .expert = c[i].ranks };
            ScheduleShards s = chunk_shards(&shards, c[i].others);
            char text[6];
            (void)snprintf(text, sizeof text, "%s%s%s%s%s", s.weights ? "w" : "",
                           s.gradients ? "g" : "", s.reduce ? "r" : "", s.sums ? "s" : "",
                           s.update ? "u" : "");
            CHECK_TEXT(text, c[i].says[stage]);
        }
    }
    ScheduleShards alone = chunk_shards(&(ParamShards){ .zero = 3 }, false);
    CHECK(!alone.weights && !alone.gradients && !alone.reduce && !alone.sums && !alone.update);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_sharded_has_one_holder_and_what_is_not_has_all),
        TEST(buckets_are_cut_in_equal_parts_and_buffers_hold_what_they_say),
        TEST(each_element_is_updated_once_and_by_its_own_rule),
        TEST(ranks_of_tp_own_parts_of_the_same_matrices),
        TEST(a_program_is_told_what_is_shared),
    };
    return TEST_RUN(tests);
}
