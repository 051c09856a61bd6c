/* bench trace: how fast a trace is read and reported, and the memory it takes. */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include "base/text.h"

typedef struct BenchTrace {
    int64_t steps; /* medians are over so many */
    bool json;
} BenchTrace;

/* A table: the text alone (read, or inflated), the reader on one thread and on two, then the whole of
 * `trace report --format csv` with its parts: seconds, MB/s of text, and the process' peak memory up
 * to there. */
Status bench_trace(const char *path, const BenchTrace *o, Arena *a, Text *out);

#endif
