/* runner: what the benches share: the device that calls run on, memory for one row, one timing loop,
 * and the experts of random tokens. It knows neither ops nor models, and prints nothing. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "backend/backend.h"
#include "config/config.h"

enum { BENCH_RUNS_MAX = 20 };

typedef struct BenchRunner {
    const Config *config;
    Exec ex;
    Arena tables;         /* on the host */
    Arena block, scratch; /* the device's memory, of one row: tensors, and scratch of ops */
    Event mark[2 * BENCH_RUNS_MAX];
} BenchRunner;

Status bench_runner_open(BenchRunner *r, const Config *c);
void bench_runner_close(BenchRunner *r); /* safe on { 0 } */
Status bench_runner_take(BenchRunner *r, size_t block_bytes, size_t scratch_bytes);
void bench_runner_give(BenchRunner *r); /* safe without memory */

/* The i-th call of a loop. */
typedef Status BenchCall(void *state, int64_t i);

/* The median time of `runs` calls after `warm_up` others. On a GPU they follow each other without a
 * gap, each between two marks in the stream, which stands still until the host is far ahead. Ranks
 * begin together (`ranks`; NULL: one rank); on the host they meet before each call. */
typedef struct BenchLoop {
    BenchCall *call;
    void *state;
    int warm_up, runs;
    Comm *ranks;
} BenchLoop;

Status bench_runner_time(BenchRunner *r, const BenchLoop *loop, double *seconds);

void bench_sort(double *v, int64_t n); /* rising: for medians and percentiles */

/* The GPU's name, or how many threads. */
Status bench_machine(const Config *c, char out[GPU_NAME_MAX]);

/* ---- experts of random tokens ---- */

typedef enum BenchRouting {
    BENCH_EVEN,      /* as many tokens for each expert, tokens in no order */
    BENCH_IN_TURN,   /* the same, one expert after the other */
    BENCH_UNIFORM,   /* each token for itself, all experts alike */
    BENCH_DIRICHLET, /* with probabilities drawn from Dirichlet(1) */
    BENCH_ZIPF       /* expert e with probability ~ 1 / (e + 1) */
} BenchRouting;

/* `k` different experts for each of n tokens: (n, k), in `a`. */
Status bench_experts(BenchRouting how, uint64_t stream, int64_t n, int64_t k, int64_t experts,
                     Arena *a, int32_t **out);

#endif
