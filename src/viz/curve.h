/* curve: one quantity over the steps, in at most so many points: each is the mean of the steps that
 * fell into its bucket, so a run of a million steps draws as fast as one of a thousand. */
#ifndef VIZ_CURVE_H
#define VIZ_CURVE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Curve {
    double *x, *y; /* y is NaN, drawn as a gap, if a step of the bucket had no value */
    int n, finite; /* points; points with a value */
    /* While it is gathered bucket i has the steps first + i * width and on, and x and y its sums. */
    int64_t first, width;
    int32_t *steps, *missing; /* by bucket */
} Curve;

/* A curve of at most `most` points over the steps [first, last], in `a`. */
Status curve_init(Curve *c, Arena *a, int64_t first, int64_t last, int most);
void curve_put(Curve *c, int64_t step, double y); /* ignores steps outside the range */
void curve_finish(Curve *c);                      /* sums become means */

/* The mean of the points around each, 2 % of them to either side: centred, so that it does not lag
 * behind as an exponential average would, and with fewer on both sides near the ends. Gaps stay
 * gaps. Shares x. */
Status curve_smooth(const Curve *c, Arena *a, Curve *out);

#endif
