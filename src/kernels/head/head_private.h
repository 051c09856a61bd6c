/* head_private: the matrix products of head_loss, the sizes of its chunks and what ranks share of
 * them, for both backends and for the table that names the kernels of an op (tools/why/op_kernels.c). */
#ifndef KERNELS_HEAD_HEAD_PRIVATE_H
#define KERNELS_HEAD_HEAD_PRIVATE_H

#include "engine/comm/comm.h"
#include "kernels/dense/scaled.h"
#include "kernels/head/head.h"
#include "kernels/quant/quant.h"

/* The 8-bit operands of a chunk, which its products read if w has scales; else nothing is wanted. */
typedef struct HeadCopies {
    QuantOut x, dlogits;
} HeadCopies;

/* a, b: the 8-bit operands; without data: the product is g. */
typedef struct HeadProduct {
    GemmArgs g;
    Operand a, b;
} HeadProduct;

/* The three products of head_loss for tokens [first, first + n). Logits are rows of V elements of
 * x's type; their gradient replaces them. */
typedef struct HeadProducts {
    HeadProduct logits, dx, dw;
} HeadProducts;

/* With a split vocabulary: numbers for each of the n rows of a chunk (head.h has the maths). */
typedef struct HeadShare {
    float *own;   /* m_r */
    float *most;  /* m_r, then m */
    float *sum;   /* s_r, then s */
    float *known; /* t_r, then t; directly behind `sum`, so that one all-reduce adds both */
} HeadShare;

#ifdef __cplusplus
extern "C" {
#endif

HeadProducts head_products(const HeadLoss *a, void *logits, const HeadCopies *c, int64_t first,
                           int64_t n);
static inline bool head_is_scaled(const HeadProduct *p) { return p->a.data.data != NULL; }
ScaledArgs head_scaled(const HeadProduct *p);

/* Bytes of the workspace. product, copy: what a product and quantising take; most: the least of that. */
typedef size_t HeadSpace(const struct Exec *ex, const HeadProduct *p);
size_t head_space(const struct Exec *ex, const HeadLoss *a, HeadSpace *product,
                  size_t (*copy)(const struct Exec *, const QuantOut *, const Tensor *),
                  size_t most);

/* Of n tokens, from `at` on. *at becomes the end. Memory is not touched. */
HeadCopies head_copies(const HeadLoss *a, int64_t n, char **at);
size_t head_copies_bytes(const HeadLoss *a); /* of a chunk; behind the share */
/* Rows [first, first + n) of x; logits of n tokens. */
Tensor head_rows(const HeadLoss *a, int64_t first, int64_t n);
Tensor head_logits(const HeadLoss *a, void *at, int64_t n);
int64_t head_chunk_rows(const HeadLoss *a);
size_t head_logits_bytes(const HeadLoss *a); /* of a chunk */

static inline int64_t head_ranks(const HeadLoss *a) { return a->ranks > 1 ? a->ranks : 1; }
/* The share lies behind the logits; 0 bytes if the vocabulary is not split. */
size_t head_share_bytes(const HeadLoss *a);
HeadShare head_share(const HeadLoss *a, void *logits, int64_t n);
/* at = op over the ranks' at, n numbers, in either memory. ERR_ARG if the mesh does not fit. */
Status head_reduce(struct Exec *ex, const HeadLoss *a, float *at, int64_t n, ReduceOp op);

#ifdef __cplusplus
}
#endif

#endif
