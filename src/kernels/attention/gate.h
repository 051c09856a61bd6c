/*
 * gate: a gate on attention's output, head by head (gated attention, Qiu et al., arXiv:2505.06708, as Qwen3-Next has it).
 * The projection of queries makes it: behind the d columns of a head's query lie the d of its gate g.
 *
 *   y = o sigmoid(g)        backward: do = dy sigmoid(g), the same op,   dg = do o (1 - sigmoid(g))
 */
#ifndef KERNELS_ATTENTION_GATE_H
#define KERNELS_ATTENTION_GATE_H

#include "engine/base/tensor.h"

typedef struct GateFwd {
    Tensor x; /* in  (N, W) act: begins with query and gate of each head */
    Tensor o; /* in  (N, H*d) act: o, or dy */
    Tensor y; /* out (N, H*d) act: y, or do; may be o */
    int64_t heads;
} GateFwd;

typedef struct GateBwd {
    Tensor x;      /* in  (N, W) act, as in forward */
    Tensor o, d_o; /* in  (N, H*d) act */
    Tensor dx;     /* out (N, W) act: only gates are written */
    int64_t heads;
} GateBwd;

/* Both ops: gates of x, with `in` and backward also o, make `out`: y, or gates of dx. */
typedef struct Gate {
    const char *op;
    const Tensor *x, *in, *o, *out; /* o NULL: forward */
    int64_t heads;
} Gate;

#define OPS_GATE
#include "kernels/core/declare.h"
#undef OPS_GATE

#endif
