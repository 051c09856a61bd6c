/*
 * rmsnorm: y = x * rstd * w,  rstd = (mean(x^2) + eps)^-1/2, row by row.
 *
 * LayerNorm without the mean: Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019
 * (arXiv:1910.07467). rstd (N floats) is kept because the backward pass needs it.
 *
 * x may be a window of a wider tensor, columns [x_col, x_col + H*D) of (N, W), because one projection makes the latents
 * of MLA side by side. A row of the window may have H heads of D columns, each normalised on its own (queries and keys
 * of Qwen3, arXiv:2505.09388); rstd then has H columns. Without w all weights are 1 (Llama 4).
 *
 *   backward, with g = dy * w:   dx = dres + rstd * (g - x * rstd^2 * mean(g * x))
 *                                dw += sum over rows and heads of dy * x * rstd
 * dres is the gradient that reaches x through the residual branch; dx may be dres itself.
 */
#ifndef KERNELS_NORM_RMSNORM_H
#define KERNELS_NORM_RMSNORM_H

#include "kernels/quant/quant.h"

typedef struct RmsnormFwd {
    Tensor x;       /* in  (N, W) act */
    Tensor w;       /* in  (1, D) f32, optional */
    Tensor y;       /* out (N, H*D) act; optional with `quant` */
    Tensor rstd;    /* out (N, H) f32 */
    int64_t x_col;  /* first column of the window */
    int64_t x_step; /* columns from a head to the next; 0: D. Without `quant` */
    float eps;
    QuantOut quant; /* of y */
} RmsnormFwd;

typedef struct RmsnormBwd {
    Tensor dy;             /* in  (N, H*D) act */
    Tensor x;              /* in  (N, W) act, as in forward */
    Tensor w;              /* in  (1, D) f32, as in forward */
    Tensor rstd;           /* in  (N, H) f32 */
    Tensor dres;           /* in  (N, H*D) act, optional; only where W = H*D */
    Tensor dx;             /* out (N, W) act: only the window's columns are written */
    Tensor dw;             /* add (1, D) f32, optional */
    int64_t x_col, x_step; /* of the window, in x and dx */
} RmsnormBwd;

#define OPS_RMSNORM
#include "kernels/core/declare.h"
#undef OPS_RMSNORM

#endif
