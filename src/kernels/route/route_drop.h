/*
 * route_drop: a capacity for experts (GShard, arXiv:2006.16668; Switch, arXiv:2101.03961). Of the
 * tokens that chose an expert, those with the `capacity` largest weights keep it; of equal weights,
 * the earlier tokens. The weight of the others becomes 0. So the expert adds nothing to them, and
 * they add nothing to its gradient. Weights are not normalised again. A dropped token keeps its row
 * of the expert, and route_bwd (RouteBwd.weight) gives its weight no gradient.
 *
 * The bits of a weight and the token's position form one 64-bit key, larger for larger weights and
 * for earlier tokens. No two keys are equal. So the capacity-th largest key, found bit by bit,
 * separates kept from dropped tokens, and the order of the search does not matter.
 *
 * If R ranks share B sequences, each rank has the tokens of all, rank by rank, and drops its own. They are C context
 * ranks of `tensor` ranks each. Context rank c holds pieces c and 2 C - 1 - c of the 2 C pieces of each sequence, of
 * which its tensor ranks have equal runs. "Earlier" means the position in the sequence.
 */
#ifndef KERNELS_ROUTE_ROUTE_DROP_H
#define KERNELS_ROUTE_ROUTE_DROP_H

#include "engine/base/tensor.h"

#include <string.h>

#if defined(__CUDACC__) || defined(__HIP__)
#define ROUTE_SHARED static inline __host__ __device__
#else
#define ROUTE_SHARED static inline
#endif

typedef struct RouteDrop {
    Tensor index;   /* in  (R N, K) i32, no expert twice in a row */
    Tensor target;  /* in  (R N) i32, optional: below 0 the token is padding and uses no capacity */
    Tensor weight;  /* in  (R N, K) f32, not negative */
    Tensor own;     /* add (N, K) f32: this rank's weights, may be `weight`: set to 0 if dropped */
    Tensor dropped; /* add (1) i32: the number of own weights set to 0 */
    int64_t experts, capacity;
    int64_t sequences, ranks, rank; /* B, R, and which of them this is */
    int64_t tensor;                 /* 0 is 1 */
} RouteDrop;

/* Is the key of entry i at least `bound`? The high half of a key is the bits of the weight, the low
 * half falls with the token's position in the batch. */
ROUTE_SHARED bool route_drop_reaches(const RouteDrop *a, int64_t i, uint64_t bound)
{
    uint32_t bits, high = (uint32_t)(bound >> 32), N = (uint32_t)a->own.dim[0];
    memcpy(&bits, (const float *)a->weight.data + i, sizeof bits);
    if (bits != high) return bits > high;
    uint32_t token = (uint32_t)(i / a->own.dim[1]), t = N / (uint32_t)a->sequences, at = token % t;
    uint32_t ranks = (uint32_t)a->ranks, tensor = a->tensor > 1 ? (uint32_t)a->tensor : 1;
    uint32_t context = token / N / tensor, own = t * tensor; /* own: tokens of a context rank */
    at += token / N % tensor * t;
    uint32_t others = at < own / 2 ? context : 2 * (ranks / tensor) - 2 - context;
    return UINT32_MAX - (token % N / t * t * ranks + others * (own / 2) + at) >= (uint32_t)bound;
}

#define OPS_ROUTE_DROP
#include "kernels/core/declare.h"
#undef OPS_ROUTE_DROP

#endif
