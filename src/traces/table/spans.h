/* spans: sets of times, as sorted intervals that do not touch each other. Times are microseconds.
 * What the times mean is not known here. */
#ifndef TRACES_TABLE_SPANS_H
#define TRACES_TABLE_SPANS_H

#include "engine/base/arena.h"

/* The times from start to end. */
typedef struct Span {
    double start, end;
} Span;

/* n spans. They are sorted and apart only after spans_merge. */
typedef struct Spans {
    Span *at;
    int64_t n;
} Spans;

/* Sorts s->at by start and merges what overlaps or touches, in place. */
void spans_merge(Spans *s);
/* *out = a without b, in `arena`. Both must be merged. */
Status spans_subtract(const Spans *a, const Spans *b, Arena *arena, Spans *out);
/* The length of the union of n events. Event i begins at start[event[i]] and lasts dur[event[i]].
 * Leaves nothing in `a`. */
Status spans_busy(const double *start, const double *dur, const uint32_t *event, int64_t n,
                  Arena *a, double *out);
double spans_length(const Spans *s); /* added from first to last */

#endif
