/*
 * bias: y = x + b, the same b for every row, and its gradient, the sum over rows.
 *
 *   backward   db += sum over n of dy[n]            dx = dy
 *
 * y may be x. b is f32 whatever the rows are.
 */
#ifndef KERNELS_NORM_BIAS_H
#define KERNELS_NORM_BIAS_H

#include "engine/base/tensor.h"

typedef struct BiasFwd {
    Tensor x; /* in  (N, O) act */
    Tensor b; /* in  (1, O) f32 */
    Tensor y; /* out (N, O) act; may be x */
} BiasFwd;

typedef struct BiasBwd {
    Tensor dy; /* in  (N, O) act */
    Tensor db; /* add (1, O) f32 */
} BiasBwd;

#define OPS_BIAS
#include "kernels/core/declare.h"
#undef OPS_BIAS

#endif
