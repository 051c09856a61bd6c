/* spans: sets of time as sorted intervals that do not touch. */
#ifndef ANALYZE_SPANS_H
#define ANALYZE_SPANS_H

#include "base/arena.h"

typedef struct Span {
    double start, end;
} Span;

typedef struct Spans {
    Span *at;
    int64_t n;
} Spans;

/* Sorts s->at by start and merges what overlaps or touches, in place. */
void spans_merge(Spans *s);
/* Both arguments merged. a without b, in `arena`. */
Status spans_subtract(const Spans *a, const Spans *b, Arena *arena, Spans *out);
/* The union of n events that begin at start[event[i]] and last dur[...]. */
Status spans_busy(const double *start, const double *dur, const uint32_t *event, int64_t n,
                  Arena *a, double *out);
double spans_length(const Spans *s); /* the sum, added from first to last */

#endif
