/* contention: how much longer ops take beside communication. */
#ifndef CONTENTION_CONTENTION_H
#define CONTENTION_CONTENTION_H

#include "engine/comm/comm.h"
#include "engine/config/config.h"

typedef struct BenchContention {
    int64_t shrink; /* divides bytes and sizes */
    bool json;
} BenchContention;

/* Times products, attention and an op that memory bounds, alone and beside communication that runs or
 * waits: one line, or one JSON object, for each. The times are rank 0's. `plan calibrate` reads the
 * lines of a GPU. ERR_ARG: fewer than two ranks. */
Status bench_contention(const Config *c, Comm *world, const BenchContention *options, Text *out);

#endif
