/* stats: a trace.json read back, and its events summed by name. */
#ifndef TRACE_STATS_H
#define TRACE_STATS_H

#include "trace/trace.h"

typedef struct TraceTotal {
    const char *name;
    int depth;
    int64_t calls;
    double seconds, flops, bytes;
} TraceTotal;

/* Events and their names live in `a`; times count from the first event. Events that are not
 * complete ("X") are passed over. A file that is not a trace is ERR_FORMAT. */
Status trace_read(const char *path, Arena *a, Trace *out);

/* One total for each name at each depth: by depth, the longest first. */
Status trace_totals(const Trace *t, Arena *a, TraceTotal **out, int *out_n);

#endif
