/*
 * scale: multiplies each row by its own number, or by the sigmoid of it. Used for the gate of a shared expert
 * (Qwen2-MoE, arXiv:2407.10671), and for an expert's input times the routing weight (Llama 4).
 *
 *   y[n] = s_n x[n]                          s_n = w[n], or 1 / (1 + e^-w[n]) if `sigmoid`
 *   backward, s'_n = 1, or s_n (1 - s_n):    dx[n] = s_n dy[n] + r[n],   dw[n] = s'_n <dy[n], x[n]>
 */
#ifndef KERNELS_QUANT_SCALE_H
#define KERNELS_QUANT_SCALE_H

#include "engine/base/tensor.h"

#include <stdbool.h>

typedef struct ScaleFwd {
    Tensor x; /* in  (N, D) act */
    Tensor w; /* in  (N, 1) f32 */
    Tensor y; /* out (N, D) act; may be x */
    bool sigmoid;
} ScaleFwd;

typedef struct ScaleBwd {
    Tensor dy; /* in  (N, D) act */
    Tensor x;  /* in  (N, D) act */
    Tensor w;  /* in  (N, 1) f32 */
    Tensor r;  /* in  (N, D) act, optional */
    Tensor dx; /* out (N, D) act; may be dy, or r */
    Tensor dw; /* out (N, 1) f32 */
    bool sigmoid;
} ScaleBwd;

#define OPS_SCALE
#include "kernels/core/declare.h"
#undef OPS_SCALE

#endif
