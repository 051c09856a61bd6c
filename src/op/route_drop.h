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
 * Where R ranks share B sequences each gives the tokens of all, rank by rank, and drops its own. Of
 * each sequence rank c has pieces c and 2 R - 1 - c of 2 R; earlier is what stands earlier there.
 */
#ifndef OP_ROUTE_DROP_H
#define OP_ROUTE_DROP_H

#include "base/tensor.h"

#include <string.h>

#ifdef __CUDACC__
#define ROUTE_SHARED static inline __host__ __device__
#else
#define ROUTE_SHARED static inline
#endif

typedef struct RouteDrop {
    Tensor index;   /* in  (R N, K) i32, no expert twice in a row */
    Tensor target;  /* in  (R N) i32, optional: a token below 0 is padding: it takes no place */
    Tensor weight;  /* in  (R N, K) f32, not negative */
    Tensor own;     /* add (N, K) f32: this rank's, or `weight` itself: 0 where it is dropped */
    Tensor dropped; /* add (1) i32: how many of these */
    int64_t experts, capacity;
    int64_t sequences, ranks, rank; /* B, R, and which of them this is */
} RouteDrop;

/* Is the number of an entry `bound` or more? Its place counts between equal weights alone. */
ROUTE_SHARED bool route_drop_reaches(const RouteDrop *a, int64_t i, uint64_t bound)
{
    uint32_t bits, high = (uint32_t)(bound >> 32), N = (uint32_t)a->own.dim[0];
    memcpy(&bits, (const float *)a->weight.data + i, sizeof bits);
    if (bits != high) return bits > high;
    uint32_t token = (uint32_t)(i / a->own.dim[1]), t = N / (uint32_t)a->sequences, at = token % t;
    uint32_t ranks = (uint32_t)a->ranks, rank = token / N;
    uint32_t before = (at < t / 2 ? rank : 2 * ranks - 2 - rank) * (t / 2); /* others' */
    return UINT32_MAX - (token % N / t * t * ranks + before + at) >= (uint32_t)bound;
}

#define OPS_ROUTE_DROP
#include "op/declare.h"
#undef OPS_ROUTE_DROP

#endif
