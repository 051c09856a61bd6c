/* head_private: the matrix products of head_loss and the sizes of its chunks, for both backends and
 * for the table that names the kernels of an op (op_kernels.c). */
#ifndef OP_HEAD_PRIVATE_H
#define OP_HEAD_PRIVATE_H

#include "op/gemm.h"
#include "op/head.h"

/* The three products of head_loss for tokens [first, first + n). Logits are rows of V elements of
 * x's type; their gradient replaces them. */
typedef struct HeadProducts {
    GemmArgs logits, dx, dw;
} HeadProducts;

#ifdef __cplusplus
extern "C" {
#endif

HeadProducts head_products(const HeadLoss *a, void *logits, int64_t first, int64_t n);
int64_t head_chunk_rows(const HeadLoss *a);
size_t head_logits_bytes(const HeadLoss *a); /* of a chunk */

#ifdef __cplusplus
}
#endif

#endif
