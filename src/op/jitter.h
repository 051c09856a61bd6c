/*
 * jitter: a router's logits times random numbers, so that near choices vary while a model trains
 * (Switch Transformers, arXiv:2101.03961, which multiplies the router's input).
 *
 *   x[n][e] *= 1 + size (2 u - 1),   u in [0, 1) by Philox4x32-10 (base/rng.h)
 *
 * u is a function of the seed, the layer, the step, the token's place in the whole batch (its
 * sequence's number and its position) and the expert: the same on any mesh, and the same in backward,
 * which takes the same op on the gradient.
 */
#ifndef OP_JITTER_H
#define OP_JITTER_H

#include "base/tensor.h"

typedef struct Jitter {
    Tensor x;        /* add (N, E) f32: logits, or their gradient */
    Tensor sequence; /* in  (B) i32: number in the batch of all ranks */
    Tensor pos;      /* in  (N) i32: place in the sequence, below `positions` */
    Tensor step;     /* in  (1) i32 */
    int64_t positions, layer;
    uint64_t seed;
    float size; /* above 0, at most 1 */
} Jitter;

/* The stream of a layer's numbers; a step is added to it. */
uint64_t jitter_stream(const Jitter *a);

#define OPS_JITTER
#include "op/declare.h"
#undef OPS_JITTER

#endif
