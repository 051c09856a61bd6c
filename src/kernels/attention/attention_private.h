/* attention_private: the sizes of a call of attention, for its checks, its costs and its CPU implementations. */
#ifndef KERNELS_ATTENTION_ATTENTION_PRIVATE_H
#define KERNELS_ATTENTION_ATTENTION_PRIVATE_H

#include "engine/base/order.h"
#include "kernels/attention/attention.h"
#include "kernels/dense/gemm_tile.h"

/* The sizes of a call, for both directions. Tensors are contiguous: rows of q are H * dk elements
 * apart, rows of k G * dk, rows of v G * dv. */
typedef struct Shape {
    int64_t B, H, G, Tq, Tk, dk, dv;
    Dtype act;
    Word word; /* of q, k and v; set where they are multiplied */
    float scale;
    const int32_t *doc; /* (B, Tq) or NULL */
    AttentionPieces pieces;
    int64_t window, chunk;
} Shape;

Shape attention_fwd_shape(const AttentionFwd *a);
Shape attention_bwd_shape(const AttentionBwd *a);
/* Checks q, k, v and doc of a call, its scale, and the sizes *s that were read from them. */
Status attention_check_shape(const char *op, const AttentionFwd *a, const Shape *s);

#endif
