/* curve: one quantity over the steps, in at most so many points: each is the mean of the steps that
 * fell into its bucket, so a run of a million steps draws as fast as one of a thousand. */
#ifndef VIZ_CURVE_H
#define VIZ_CURVE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Curve {
    double *x, *y; /* y is NaN where a step of the bucket had no value: drawn as a gap */
    int n, finite; /* points; points with a value */
} Curve;

typedef struct Bucket {
    double x, y; /* sums */
    int32_t n, missing;
} Bucket;

typedef struct Buckets {
    Bucket *at;
    int n;
    int64_t first, width; /* bucket i: steps first + i * width and on */
} Buckets;

/* Buckets for the steps [first, last]; zeroed, in `a`. */
Status buckets_init(Buckets *b, Arena *a, int64_t first, int64_t last, int most);
void buckets_put(Buckets *b, int64_t step, double y); /* steps outside are passed over */
Status buckets_curve(const Buckets *b, Arena *a, Curve *out);

/* The mean of the points around each, 2 % of them to either side: centred, so that it does not lag
 * behind as an exponential average would, and with fewer on both sides near the ends. Gaps stay
 * gaps. Shares x. */
Status curve_smooth(const Curve *c, Arena *a, Curve *out);

#endif
