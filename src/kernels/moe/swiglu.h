/*
 * swiglu: y = silu(g) * u for the pre-activation gu = [g | u] of one row (2F columns).
 * Shazeer, "GLU Variants Improve Transformer", 2020 (arXiv:2002.05202); silu(g) = g / (1 + e^-g).
 *
 *   backward, s = 1 / (1 + e^-g):   dg = dy * u * s * (1 + g * (1 - s)),   du = dy * g * s
 *
 * Other gated activations have other numbers (glu.h).
 */
#ifndef KERNELS_MOE_SWIGLU_H
#define KERNELS_MOE_SWIGLU_H

#include "kernels/moe/glu.h"
#include "kernels/quant/quant.h"

typedef struct SwigluFwd {
    Tensor gu; /* in  (N, 2F) act */
    Tensor y;  /* out (N, F)  act; optional with `quant` */
    Glu glu;
    QuantOut quant; /* of y */
} SwigluFwd;

typedef struct SwigluBwd {
    Tensor dy;      /* in  (N, F)  act */
    Tensor gu;      /* in  (N, 2F) act */
    Tensor dgu;     /* out (N, 2F) act; may be gu itself; optional with `quant` */
    Glu glu;        /* as in forward */
    QuantOut quant; /* of dgu */
} SwigluBwd;

#define OPS_SWIGLU
#include "kernels/core/declare.h"
#undef OPS_SWIGLU

#endif
