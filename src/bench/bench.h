/*
 * bench: how fast ops and training steps are on this machine, beside its own measured roof.
 *
 * Data are random: token ids uniform over the vocabulary, weights initialised as in training, so
 * routing is what an untrained router makes of them. Times are medians; the roof is the best matrix
 * product (1024^3) and the best copy of 256 MiB that this process measures itself.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "config/config.h"
#include "train/engine.h"

typedef struct BenchRoof {
    double flops; /* FLOP/s of a matrix product in the compute type */
    double bytes; /* bytes read and written a second by a copy */
} BenchRoof;

/* A model, its engine and random batches: what both benches run. */
typedef struct BenchModel {
    const Config *config;
    Engine engine;
    Batch batch;
    Arena arena;
    EnginePlan plan;
    int64_t step;
} BenchModel;

Status bench_open(BenchModel *m, const Config *c);
void bench_close(BenchModel *m); /* safe on { 0 } */
/* One step on new random tokens. */
Status bench_run_step(BenchModel *m, double *seconds);

Status bench_roof(const Config *c, BenchRoof *out);

/* The table of ops: every op that a training step of the model runs, then those that it does not.
 */
Status bench_ops(const Config *c, int64_t steps, Text *out);
/* Tokens a second, spread of step times, memory. */
Status bench_step(const Config *c, int64_t steps, Text *out);

#endif
