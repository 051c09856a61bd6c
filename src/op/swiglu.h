/*
 * swiglu: y = silu(g) * u for the pre-activation gu = [g | u] of one row (2F columns).
 * Shazeer, "GLU Variants Improve Transformer", 2020 (arXiv:2002.05202); silu(g) = g / (1 + e^-g).
 *
 *   backward, s = 1 / (1 + e^-g):   dg = dy * u * s * (1 + g * (1 - s)),   du = dy * g * s
 */
#ifndef OP_SWIGLU_H
#define OP_SWIGLU_H

#include "base/tensor.h"

typedef struct SwigluFwd {
    Tensor gu; /* in  (N, 2F) act */
    Tensor y;  /* out (N, F)  act */
} SwigluFwd;

typedef struct SwigluBwd {
    Tensor dy;  /* in  (N, F)  act */
    Tensor gu;  /* in  (N, 2F) act */
    Tensor dgu; /* out (N, 2F) act; may be gu itself */
} SwigluBwd;

#endif
