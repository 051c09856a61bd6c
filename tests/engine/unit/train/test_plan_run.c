/* What a run's parts are told of its configuration and of a rank's place: which sequences it reads,
 * how much of them it computes. */
#include "harness/place.h"

#include "bench/bench.h"
#include "corpus/shard/shard.h"
#include "engine/config/config.h"
#include "engine/train/train.h"

#include <unistd.h>

enum { T = 16, BATCH = 24, VOCAB = 4000 };

typedef struct DataPlace {
    char folder[64];
    Arena arena;
    Config config;
} DataPlace;

static int place_open(void **state)
{
    static DataPlace place;
    DataPlace *p = *state = &place;
    ShardWriter w = { 0 };
    char prefix[FILE_PATH_MAX], sources[2 * FILE_PATH_MAX];
    *p = (DataPlace){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(prefix, p->folder, "web"));
    CHECK_OK(shard_create(&w, prefix, VOCAB, 0, &p->arena));
    for (int32_t id = 0; id < VOCAB; id++) {
        CHECK_OK(shard_append(&w, &id, 1));
        if (id % 37 == 0 || id + 1 == VOCAB) CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
    shard_writer_close(&w);
    snprintf(sources, sizeof sources, "data.sources=[{name: web, path: %s, weight: 2.5}]", prefix);
    const char *const set[] = { sources,           "data.sequence=16",    "train.batch=24",
                                "run.seed=77",     "train.micro_batch=1", "data.validation=0.125",
                                "model.vocab=4000" };
    CHECK_OK(config_default(&p->config, &p->arena));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        CHECK_OK(config_override(&p->config, &p->arena, set[i]));
    return 0;
}

static int place_close(void **state)
{
    DataPlace *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

/* The ids of the second batch, behind each other, of a rank or (NULL) of a lone one. */
static int64_t read_ids(DataPlace *p, const Mesh *m, int32_t ids[BATCH * T], int64_t *first)
{
    LoaderConfig c;
    Loader *l = NULL;
    const Batch *b = NULL;
    ArenaMark mark = arena_mark(&p->arena);
    CHECK_OK(train_loader_config(&p->config, m, NULL, &p->arena, &c));
    CHECK_OK(loader_open(&c, &p->arena, &l));
    for (int i = 0; i < 2; i++) CHECK_OK(loader_next(l, &b));
    int64_t n = b->domain.dim[0];
    CHECK(n <= BATCH);
    CHECK_INT(b->targets, BATCH * T);
    memcpy(ids, b->id.data, (size_t)(n * T) * sizeof *ids);
    loader_close(l);
    arena_release(&p->arena, mark);
    *first = c.first;
    return n;
}

/* Every sequence of the step is read by one data-parallel rank, in their order; ranks that share
 * sequences, or other layers of them, read the same. */
static void ranks_read_disjoint_parts_that_cover_the_batch(void **state)
{
    DataPlace *p = *state;
    static const struct {
        int ranks, pp, cp, shard, data;
    } c[] = { { 2, 1, 1, 0, 2 }, { 8, 1, 1, 2, 8 },  { 4, 2, 1, 0, 2 },
              { 8, 2, 2, 0, 2 }, { 12, 1, 2, 3, 6 }, { 2, 2, 1, 0, 1 } };
    static int32_t all[BATCH * T], own[BATCH * T];
    int64_t first = 0;
    CHECK_INT(read_ids(p, NULL, all, &first), BATCH);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        MeshShape shape;
        int readers[BATCH] = { 0 };
        p->config.mesh_pp = c[i].pp, p->config.mesh_cp = c[i].cp, p->config.mesh_shard = c[i].shard;
        CHECK_OK(train_mesh(&p->config, c[i].ranks, &shape));
        for (int rank = 0; rank < c[i].ranks; rank++) {
            Mesh m = mesh_alone(&shape, rank);
            int64_t n = read_ids(p, &m, own, &first);
            CHECK_INT(n, BATCH / c[i].data);
            CHECK(memcmp(own, all + first * T, (size_t)(n * T) * sizeof *own) == 0);
            for (int64_t s = first; s < first + n; s++) readers[s]++;
        }
        for (int s = 0; s < BATCH; s++) CHECK_INT(readers[s], c[i].ranks / c[i].data);
    }
}

static void the_loader_is_told_what_the_configuration_says(void **state)
{
    DataPlace *p = *state;
    static const int32_t bytes[VOCAB];
    LoaderConfig c;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        p->config.data_shuffle = shuffle == 1;
        CHECK_OK(train_loader_config(&p->config, NULL, bytes, &p->arena, &c));
        CHECK(c.shuffle == (shuffle == 1));
    }
    CHECK_INT(c.n_sources, 1);
    CHECK_TEXT(c.sources[0].name, "web");
    CHECK_NEAR(c.sources[0].weight, 2.5, 0);
    CHECK_INT(c.sequence, T);
    CHECK_INT(c.batch, BATCH);
    CHECK_INT(c.own, BATCH);
    CHECK_INT(c.vocab, VOCAB);
    CHECK_INT(c.seed, 77);
    CHECK_NEAR(c.validation, 0.125, 0);
    CHECK(c.token_bytes == bytes);
}

/* 8 ranks in 2 stages of 2 shards with 2 ranks a sequence: rank 6 is stage 1, shard 1. */
static void a_rank_computes_its_part_of_a_step(void **state)
{
    DataPlace *p = *state;
    MeshShape shape;
    p->config.mesh_pp = 2, p->config.mesh_cp = 2, p->config.train_micro_batch = 3;
    p->config.run_threads = 5;
    CHECK_OK(train_mesh(&p->config, 8, &shape));
    Mesh m = mesh_alone(&shape, 6);
    EngineShape s = train_shape(&p->config, &m), lone = train_shape(&p->config, NULL);
    CHECK_INT(s.batch, BATCH / 2);
    CHECK_INT(s.micro_batch, 3);
    CHECK_INT(s.sequence, T / 2);
    CHECK_INT(s.positions, T);
    CHECK_INT(s.pp_rank, 1);
    CHECK_INT(s.domains, 1);
    CHECK_INT(s.threads, 5);
    CHECK(s.mesh == &m && lone.mesh == NULL);
    CHECK_INT(lone.batch, BATCH);
    p->config.train_micro_batch = 5;
    CHECK_FAILS(train_mesh(&p->config, 8, &shape), ERR_ARG, "train.batch 24 does not divide");
}

typedef struct Found {
    Config config;
    int64_t of[3]; /* by rank */
} Found;

static Status find_hosts(void *state, Comm *world)
{
    Found *f = state;
    Config own = f->config;
    Arena a = { 0 };
    TRY(arena_init(&a, "hosts", MEM_HOST, 1 << 16));
    Status s = train_find_hosts(&own, world, &a);
    f->of[world->rank] = own.mesh_ranks_per_host;
    arena_free(&a);
    return s;
}

/* Threads share one host. What is set, or not asked for, stays. */
static void hosts_are_looked_for_where_the_exchange_asks(void **state)
{
    DataPlace *p = *state;
    static const struct {
        int exchange, set, want;
    } c[] = { { EXCHANGE_HIER, 0, 3 },
              { EXCHANGE_AUTO, 0, 3 },
              { EXCHANGE_HIER, 1, 1 },
              { EXCHANGE_ALLTOALL, 0, 0 } };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        Found f = { .config = p->config };
        int failed = -1;
        f.config.mesh_ep = 3, f.config.moe_exchange = c[i].exchange;
        f.config.mesh_ranks_per_host = c[i].set;
        CHECK_OK(comm_threads(3, 10, find_hosts, &f, &failed));
        for (int r = 0; r < 3; r++) CHECK_INT(f.of[r], c[i].want);
    }
}

/* 12 ranks of which 4 have each set of experts, 2 on each host. */
static void only_a_kind_that_relays_parts_experts_by_host(void **state)
{
    DataPlace *p = *state;
    MeshShape shape;
    p->config.mesh_ep = 4, p->config.mesh_ranks_per_host = 2, p->config.train_micro_batch = 1;
    p->config.moe_experts = 8;
    CHECK_OK(train_mesh(&p->config, 12, &shape));
    CHECK_INT(shape.inside, 0);
    p->config.moe_exchange = EXCHANGE_HIER;
    CHECK_OK(train_mesh(&p->config, 12, &shape));
    CHECK_INT(shape.inside, 2);
    p->config.mesh_ranks_per_host = 5;
    CHECK_FAILS(train_mesh(&p->config, 12, &shape), ERR_ARG,
                "mesh.ranks_per_host 5 does not divide the 12 ranks");
    p->config.mesh_ranks_per_host = 6;
    CHECK_FAILS(train_mesh(&p->config, 12, &shape), ERR_ARG, "6 ranks on each host");
    p->config.moe_exchange = EXCHANGE_AUTO; /* takes another kind */
    CHECK_OK(train_mesh(&p->config, 12, &shape));
    CHECK_INT(shape.inside, 0);
}

/* GFLOP a token as TorchTitan's function gives them for these models (docs of its v0.2.1 on), and
 * one by hand. */
static void torchtitan_counts_a_token_as_torchtitan_does(void **state)
{
    (void)state;
    static const struct {
        const char *model, *sequence;
        double gflop;
    } row[] = {
        { "deepseek-v2-lite", "data.sequence=4096", 18.106 },
        { "deepseek-v2-lite", "data.sequence=8192", 21.503 },
        { "deepseek-v2", "data.sequence=4096", 185.5 },
        { "deepseek-v3", "data.sequence=4096", 281.2 },
        { "qwen3-30b-a3b", "data.sequence=8192", 37.579 },
        { "mixtral-8x7b", "data.sequence=4096", 82.9 },
    };
    static const char *const tiny[] = {
        "model.vocab=100",      "model.hidden=32",        "model.layers=2",
        "model.dense_layers=1", "model.ffn=48",           "moe.experts=4",
        "moe.top_k=2",          "moe.shared=1",           "moe.ffn=16",
        "data.sequence=8",      "attention.kind=\"gqa\"", "attention.heads=4",
        "attention.kv_heads=2", "attention.head_dim=8",   "mesh.ep=2",
    };
    Arena a = { 0 };
    Config c;
    double flops = 0;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CHECK_OK(config_load(&c, &a, row[i].model, &row[i].sequence, 1));
        CHECK_OK(bench_torchtitan_flops(&c, &flops));
        CHECK_NEAR(flops / 1e9 / row[i].gflop, 1, 5e-4);
    }
    CHECK_OK(config_default(&c, &a));
    for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++)
        CHECK_OK(config_override(&c, &a, tiny[i]));
    /* Attention: q and o 32 x 32, k and v 16 x 32, a norm. Experts: 2 of 4 and a shared one. */
    int64_t attention = 2 * 32 * 32 + 2 * 16 * 32 + 32, dense = 3 * 48 * 32 + 32;
    int64_t experts = 3 * 3 * 16 * 32 + 4 * 32 + 32, head = 100 * 32 + 32;
    int64_t met = 2 * attention + dense + experts + head;
    CHECK_OK(bench_torchtitan_flops(&c, &flops));
    CHECK_NEAR(flops, 6.0 * (double)(met + 2 * 4 * 16 * 8), 0);
    arena_free(&a);
}

/* What recompute adds, and the products of Muon's update. */
static void mfu_counts_neither_recompute_nor_the_update_s_products(void **state)
{
    (void)state;
    static const char *const also[][2] = { { "optimizer.kind=adamw", "recompute.layers=[]" },
                                           { "optimizer.kind=muon", "recompute.layers=[]" },
                                           { "optimizer.kind=muon", "recompute.layers=[0,1]" } };
    double flops[3], all[3];
    for (int i = 0; i < 3; i++) {
        Arena a = { 0 };
        Config c;
        EnginePlan plan = { 0 };
        CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
        CHECK_OK(config_load(&c, &a, "quickstart", also[i], 2));
        EngineShape shape = train_shape(&c, NULL);
        CHECK_OK(engine_plan(&c, ENGINE_TRAIN, &shape, &plan));
        CHECK_OK(train_model_flops(&c, &shape, &plan, &flops[i]));
        all[i] = plan.step.flops;
        arena_free(&a);
    }
    CHECK(all[1] > 1.01 * all[0] && all[2] > 1.01 * all[1]);
    CHECK_NEAR(flops[0], all[0], 0);
    CHECK_NEAR(flops[1], flops[0], 0);
    CHECK_NEAR(flops[2], flops[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(ranks_read_disjoint_parts_that_cover_the_batch),
        PLACE_TEST(the_loader_is_told_what_the_configuration_says),
        PLACE_TEST(a_rank_computes_its_part_of_a_step),
        PLACE_TEST(hosts_are_looked_for_where_the_exchange_asks),
        PLACE_TEST(only_a_kind_that_relays_parts_experts_by_host),
        TEST(mfu_counts_neither_recompute_nor_the_update_s_products),
        TEST(torchtitan_counts_a_token_as_torchtitan_does),
    };
    return TEST_RUN(tests);
}
