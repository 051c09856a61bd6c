/* A bench of several ranks, each a thread of its own; the text is what rank 0 says. */
#ifndef TESTS_HARNESS_BENCH_RANKS_H
#define TESTS_HARNESS_BENCH_RANKS_H

#include "harness/test.h"

#include "engine/base/text.h"
#include "engine/comm/comm.h"
#include "engine/config/config.h"

typedef Status BenchOnRank(const Config *config, Comm *world, const void *options, Text *out);

typedef struct BenchRanks {
    Arena arena;
    Config config; /* of one CPU thread a rank; the caller may override */
    Text out;
    BenchOnRank *bench;
    const void *options;
} BenchRanks;

/* The caller frees r->arena. */
static inline void bench_ranks_open(BenchRanks *r)
{
    *r = (BenchRanks){ 0 };
    CHECK_OK(arena_init(&r->arena, "test", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(config_default(&r->config, &r->arena));
    CHECK_OK(config_override(&r->config, &r->arena, "run.device=cpu"));
    CHECK_OK(config_override(&r->config, &r->arena, "run.threads=1"));
    CHECK_OK(text_init(&r->out, &r->arena));
}

static inline Status bench_ranks_one(void *state, Comm *world)
{
    BenchRanks *r = state;
    Arena a = { 0 };
    Text out;
    TRY(arena_init(&a, "test", MEM_HOST, (size_t)1 << 26));
    Status s = text_init(&out, &a);
    if (s == OK) s = r->bench(&r->config, world, r->options, &out);
    if (s == OK && world->rank == 0) s = text_append(&r->out, out.data, out.used);
    arena_free(&a);
    return s;
}

static inline Status bench_ranks_run(BenchRanks *r, int ranks, BenchOnRank *bench,
                                     const void *options)
{
    int failed = -1;
    r->bench = bench;
    r->options = options;
    return comm_threads(ranks, 30, bench_ranks_one, r, &failed);
}

#endif
