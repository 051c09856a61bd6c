/* curve: one quantity over the steps, in a limited number of points. Each point is the mean of the
 * steps in its bucket, so a run of a million steps draws as fast as one of a thousand.
 *
 * Use: curve_init, curve_put for each step in any order, then curve_finish once. All arrays lie in
 * the arena of curve_init. */
#ifndef PAGES_CURVE_H
#define PAGES_CURVE_H

#include "engine/base/arena.h"

#include <stdint.h>

typedef struct Curve {
    double *x, *y;  /* y is NaN, drawn as a gap, if a step of the bucket had no value */
    int n, finite;  /* points; points with a value */
    int32_t *steps; /* of each point */
    /* Before curve_finish: bucket i has `width` steps from first + i * width on, and x and y are
     * sums. */
    int64_t first, width;
    int32_t *missing; /* by bucket */
} Curve;

/* A curve of at most `most` points over the steps [first, last], in `a`. */
Status curve_init(Curve *c, Arena *a, int64_t first, int64_t last, int most);
void curve_put(Curve *c, int64_t step, double y); /* ignores steps outside the range */
void curve_finish(Curve *c);                      /* sums become means */

/* Replaces each value by the mean of the points around it, 2 % of all points to either side. The
 * window is centred, so it does not lag as an exponential average would; near the ends it is
 * narrower on both sides. Gaps stay gaps. *out shares x with c. */
Status curve_smooth(const Curve *c, Arena *a, Curve *out);

#endif
