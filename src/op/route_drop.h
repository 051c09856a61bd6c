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
 *
 * Where R ranks share B sequences of R t tokens each of them gives the tokens of all, those of a
 * rank behind those of the one before. Rank c has of each sequence pieces c and 2 R - 1 - c of 2 R, and
 * drops what is its own. Earlier is what stands earlier in the sequences, whoever has it.
 */
#ifndef OP_ROUTE_DROP_H
#define OP_ROUTE_DROP_H

#include "base/tensor.h"

typedef struct RouteDrop {
    Tensor index;   /* in  (R N, K) i32, no expert twice in a row */
    Tensor target;  /* in  (R N) i32, optional: a token below 0 is padding: it takes no place */
    Tensor weight;  /* in  (R N, K) f32, not negative */
    Tensor own;     /* add (N, K) f32: this rank's weights, or `weight` itself: 0 where dropped */
    Tensor dropped; /* add (1) i32: how many of these */
    int64_t experts, capacity;
    int64_t sequences, ranks, rank; /* B, R, and which of them this is */
} RouteDrop;

#endif
