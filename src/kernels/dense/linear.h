/*
 * linear: y = x W^T (+ r), its input gradient and its weight gradient. These are three ops, because a schedule may run
 * the weight gradient later than the input gradient (zero bubble). Grouped products of experts are in moe.h.
 *
 *   forward   y  = x W^T + r         r optional, may be y itself (residual, accumulation)
 *   backward  dx = dy W + r          r optional, may be dx itself
 *             dW += dy^T x           f32
 *
 * Types: each of x, w, y is f32, bf16 or f16 on its own; sums are f32. If x and w have one type, nothing is converted.
 * In a mixed call (the router: bf16 rows, f32 weights) a CPU widens the other side to f32 in the workspace. A GPU
 * splits the f32 side into three bf16 parts, which together hold all its bits.
 *
 * Or both operands are 8-bit, with scales (kernels/core/operand.h). Then each lies as the sum needs it:
 *
 *   forward          x (N, I)               w (O, I)
 *   backward, input  dy (N, O)              w transposed (I, O)
 *   backward, weight dy transposed (O, N)   x transposed (I, N)
 *
 * W may be a window of w: `w_cols` of its columns from `w_col` on, all plain and of one type; 0: all of w.
 */
#ifndef KERNELS_DENSE_LINEAR_H
#define KERNELS_DENSE_LINEAR_H

#include "kernels/core/operand.h"

typedef struct LinearFwd {
    Operand x; /* in  (N, I) */
    Operand w; /* in  (O, I) */
    Tensor r;  /* in  (N, O), optional, y's type */
    Tensor y;  /* out (N, O) */
    int64_t w_col, w_cols;
} LinearFwd;

typedef struct LinearBwdInput {
    Operand dy; /* in  (N, O) */
    Operand w;  /* in  (O, I) */
    Tensor r;   /* in  (N, I), optional, dx's type */
    Tensor dx;  /* out (N, I) */
    int64_t w_col, w_cols;
} LinearBwdInput;

typedef struct LinearBwdWeight {
    Operand dy; /* in  (N, O) */
    Operand x;  /* in  (N, I) */
    Tensor dw;  /* add (O, I) f32, optional: nothing else is made */
    int64_t w_col, w_cols;
} LinearBwdWeight;

#define OPS_LINEAR
#include "kernels/core/declare.h"
#undef OPS_LINEAR

#endif
