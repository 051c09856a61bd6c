/* trace: one timeline of a run as Chrome/Perfetto JSON (trace event format): complete events "X",
 * one thread a lane. Events collect in a buffer that was made beforehand and are written when the
 * step is over, so tracing allocates nothing while it runs. */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include "base/arena.h"

#include <stdint.h>

enum { TRACE_DEPTHS = 3 };
extern const char *const trace_depth_name[TRACE_DEPTHS]; /* "action", "phase", "op" */
const char *trace_lane_name(char out[32], int lane);

typedef struct TraceEvent {
    const char *name; /* a literal or arena text: kept as a pointer */
    double start_s, duration_s;
    double flops, bytes;
    int64_t step;
    int lane, layer, depth;
} TraceEvent;

typedef struct Trace {
    TraceEvent *events; /* in the arena given to trace_init */
    int64_t used, cap, dropped;
} Trace;

Status trace_init(Trace *t, Arena *a, int64_t cap);
/* Record one event; a full buffer counts it as dropped, and trace_write says so. */
void trace_event(Trace *t, TraceEvent e);
/* All events recorded so far as one JSON file at path (atomic). */
Status trace_write(const Trace *t, const char *path, Arena *scratch);

#endif
