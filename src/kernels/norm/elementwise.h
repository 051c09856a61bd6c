/* elementwise: y += x (add) and y = x in another type (cast). Shapes may differ if the number of
 * elements is the same. Scaling by a factor per row is kernels/quant/scale.h. */
#ifndef KERNELS_NORM_ELEMENTWISE_H
#define KERNELS_NORM_ELEMENTWISE_H

#include "engine/base/tensor.h"

#include <stdbool.h>

typedef struct Add {
    Tensor x; /* in  (n...) act */
    Tensor y; /* add, like x; f32 or bf16 on its own */
} Add;

typedef struct Cast {
    Tensor x; /* in  (n...) any floating type */
    Tensor y; /* out, same count, any floating type: round to nearest even */
} Cast;

/* Both ops as one: y = x, or y += x. */
typedef struct Elementwise {
    const char *op;
    const Tensor *x, *y;
    bool adds;
} Elementwise;

#define OPS_ELEMENTWISE
#include "kernels/core/declare.h"
#undef OPS_ELEMENTWISE

#endif
