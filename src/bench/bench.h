/* bench: how fast ops and training steps are on this machine, beside its own measured roof
 * (train/peak.h). Token ids are uniform, weights initialised as in training, times medians. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "config/config.h"
#include "train/peak.h"
#include "train/train.h"

/* A model, its engine and random batches: what both benches run. */
typedef struct BenchModel {
    const Config *config;
    Comm *world; /* NULL: alone */
    Mesh mesh;
    Engine engine;
    Batch batch;
    Arena arena;
    EnginePlan plan, again;
    GpuPlan gpu; /* { 0 } on the CPU */
    int64_t step;
    StepResult result; /* of the last step */
} BenchModel;

/* world NULL: on one rank. */
Status bench_open(BenchModel *m, const Config *c, Comm *world);
void bench_close(BenchModel *m); /* safe on { 0 } */
/* One step on new random tokens. */
Status bench_run_step(BenchModel *m, double *seconds);

/* The GPU's name, or how many threads. */
Status bench_machine(const Config *c, char out[CUDA_NAME_MAX]);

void bench_sort(double *v, int64_t n); /* rising: for medians and percentiles */

/* The table of ops, a row for every shape. On the CPU every op that a training step of the model
 * runs, then those that it does not. On a GPU of a model with one layer of each kind, since an op
 * does not know how many there are; MoE ops once with all experts alike and once with a few that
 * get most of the tokens. */
Status bench_ops(const Config *c, int64_t steps, Arena *a, Text *out);
/* Tokens a second, spread of step times, memory; of all ranks together, told by rank 0. timeline:
 * the folder into which one step more is recorded, action by action (train/recording.h); NULL:
 * none. */
Status bench_step(const Config *c, Comm *world, int64_t steps, const char *timeline, Text *out);
/* The model in its plainest form with micro-batches of 1, 2, 4 ... up to the configured one, then
 * one feature more a row: tokens a second, memory, launches and waits a step. Settings are made in
 * `a`. */
Status bench_ladder(const Config *config, int64_t steps, Arena *a, Text *out);

#endif
