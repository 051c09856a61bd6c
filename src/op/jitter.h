/*
 * jitter: multiplies a router's logits by random numbers near 1, so that close choices vary during
 * training (Switch Transformers, arXiv:2101.03961, which multiplies the router's input instead).
 *
 *   x[n][e] *= 1 + size (2 u - 1),   u in [0, 1) by Philox4x32-10 (base/rng.h)
 *
 * u depends on the seed, the layer, the step, the token (its sequence's number in the global batch
 * and its position) and the expert. So it is the same on any mesh. Backward runs the same op on the
 * gradient and gets the same factors.
 */
#ifndef OP_JITTER_H
#define OP_JITTER_H

#include "base/tensor.h"

typedef struct Jitter {
    Tensor x;        /* add (N, E) f32: logits, or their gradient */
    Tensor sequence; /* in  (B) i32: number in the batch of all ranks */
    Tensor pos;      /* in  (N) i32: position in the sequence, below `positions` */
    Tensor step;     /* in  (1) i32 */
    int64_t positions, layer;
    uint64_t seed;
    float size; /* above 0, at most 1 */
} Jitter;

/* The Philox stream of a layer's numbers at step 0; the step is added to it. */
uint64_t jitter_stream(const Jitter *a);

#define OPS_JITTER
#include "op/declare.h"
#undef OPS_JITTER

#endif
