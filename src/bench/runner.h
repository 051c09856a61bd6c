/* runner: what benches and four programs beside (tools/comm, contention, doctor, shapes) share:
 * the device, memory for one row, one timing loop, and the experts of random tokens. It knows neither
 * ops nor models, and prints nothing. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "engine/backend/backend.h"
#include "engine/config/config.h"

enum { BENCH_RUNS_MAX = 20 };

/* One rank's device with memory for one row at a time. */
typedef struct BenchRunner {
    const Config *config;
    Exec ex;
    Arena tables;         /* host memory that lives as long as the runner */
    Arena block, scratch; /* device memory of one row: its tensors, and the scratch of ops */
    Event mark[2 * BENCH_RUNS_MAX];
} BenchRunner;

/* Opens the device of the configuration. Memory for tensors is taken row by row. */
Status bench_runner_open(BenchRunner *r, const Config *c);
void bench_runner_close(BenchRunner *r); /* safe on { 0 } */
Status bench_runner_alloc(BenchRunner *r, size_t block_bytes, size_t scratch_bytes);
void bench_runner_release(BenchRunner *r); /* safe without memory */
/* Makes an Exec that runs nothing and only counts what ops need of `scratch`, a counting arena. */
Status bench_runner_counter(BenchRunner *r, Arena *scratch, Exec *out);

/* The i-th call of a loop. */
typedef Status BenchCall(void *state, int64_t i);

/* The median time of `runs` calls after `warm_up` others. On a GPU calls follow each other without
 * a gap, each between two events in the stream, which is delayed until the host is far ahead. Ranks
 * start the loop together (`ranks`; NULL: one rank); on the host a barrier comes before each
 * call. */
typedef struct BenchLoop {
    BenchCall *call;
    void *state;
    int warm_up, runs;
    Comm *ranks;
} BenchLoop;

Status bench_runner_time(BenchRunner *r, const BenchLoop *loop, double *seconds);

/* The GPU's name, or the number of threads. */
Status bench_machine(const Config *c, char out[GPU_NAME_MAX]);

/* ---- experts of random tokens ---- */

typedef enum BenchRouting {
    BENCH_EVEN,      /* the same number of tokens for each expert, tokens in random order */
    BENCH_IN_TURN,   /* the same number, experts one after the other */
    BENCH_UNIFORM,   /* each token draws independently, all experts equally likely */
    BENCH_DIRICHLET, /* with probabilities drawn from Dirichlet(1) */
    BENCH_ZIPF       /* expert e with probability ~ 1 / (e + 1) */
} BenchRouting;

/* `k` different experts for each of n tokens: (n, k), in `a`. */
Status bench_experts(BenchRouting how, uint64_t stream, int64_t n, int64_t k, int64_t experts,
                     Arena *a, int32_t **out);

#endif
