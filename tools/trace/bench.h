/* trace: how fast a trace is read and reported, and the memory that takes. The reader itself is
 * analyze/'s. */
#ifndef TRACE_BENCH_H
#define TRACE_BENCH_H

#include "engine/base/text.h"

typedef struct BenchTrace {
    int64_t steps; /* runs of each part; medians are printed */
    bool json;
} BenchTrace;

/* Prints a table with seconds, MB/s of text, and the peak memory of the process so far. Its rows:
 * the text alone (read, or inflated), the reader on one thread and on two, and the whole of `trace
 * report --format csv`. ERR_PARTIAL: the trace ends early. */
Status bench_trace(const char *path, const BenchTrace *o, Arena *a, Text *out);

#endif
