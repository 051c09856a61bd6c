/*
 * route_drop: a capacity for experts (GShard, arXiv:2006.16668; Switch, arXiv:2101.03961). Of the
 * tokens that chose an expert those with the `capacity` largest weights keep it, of equal weights
 * the earlier tokens; the others' weight becomes 0, so that the expert adds nothing to them and they
 * nothing to its gradient. Weights are not divided by their sum again. A dropped token keeps its row
 * of the expert, and route_bwd (RouteBwd.weight) gives its weight no gradient.
 *
 * A weight and its place make one number, larger for larger weights and earlier tokens. No two are
 * the same, so the capacity-th largest, found bit by bit, parts what stays from what goes, in
 * whatever order it is looked at.
 */
#ifndef OP_ROUTE_DROP_H
#define OP_ROUTE_DROP_H

#include "base/tensor.h"

typedef struct RouteDrop {
    Tensor index;   /* in  (N, K) i32, no expert twice in a row */
    Tensor target;  /* in  (N) i32, optional: a token below 0 is padding: it takes no place */
    Tensor weight;  /* add (N, K) f32, not negative: 0 where it is dropped */
    Tensor dropped; /* add (1) i32: how many */
    int64_t experts, capacity;
} RouteDrop;

#endif
