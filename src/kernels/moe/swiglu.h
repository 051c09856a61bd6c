/*
 * swiglu: y = silu(g) * u for the pre-activation gu = [g | u] of one row (2F columns).
 * Shazeer, "GLU Variants Improve Transformer", 2020 (arXiv:2002.05202); silu(g) = g / (1 + e^-g).
 *
 *   backward, s = 1 / (1 + e^-g):   dg = dy * u * s * (1 + g * (1 - s)),   du = dy * g * s
 *
 * The clamped form (gpt-oss, arXiv:2508.10925) has a limit L above 0 and the slope a = 1.702:
 *
 *   g' = min(g, L),  u' = max(-L, min(u, L)),  s = 1 / (1 + e^(-a g')):   y = (u' + 1) * g' * s
 *   backward:   dg = dy * (u' + 1) * s * (1 + a * g' * (1 - s)) if g <= L, else 0
 *               du = dy * g' * s if |u| <= L, else 0
 */
#ifndef KERNELS_MOE_SWIGLU_H
#define KERNELS_MOE_SWIGLU_H

#include "kernels/quant/quant.h"

typedef struct SwigluFwd {
    Tensor gu;      /* in  (N, 2F) act */
    Tensor y;       /* out (N, F)  act; optional with `quant` */
    float limit;    /* of the clamped form; 0: the plain form */
    QuantOut quant; /* of y */
} SwigluFwd;

typedef struct SwigluBwd {
    Tensor dy;      /* in  (N, F)  act */
    Tensor gu;      /* in  (N, 2F) act */
    Tensor dgu;     /* out (N, 2F) act; may be gu itself; optional with `quant` */
    float limit;    /* as in forward */
    QuantOut quant; /* of dgu */
} SwigluBwd;

#define OPS_SWIGLU
#include "kernels/core/declare.h"
#undef OPS_SWIGLU

#endif
