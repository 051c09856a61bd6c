/*
 * scaled: products of 8-bit operands on the CPU. It shows what a GPU computes, and is the reference
 * for it: it is not fast.
 *
 *   c[i][j] = r[i][j] + sum over k of a[i][k] b[j][k] * scale_a * scale_b
 *
 * Both operands lie with k along their rows (kernels/core/operand.h). Where scales change along k, every 128
 * terms (32 of OPERAND_1X32) are summed in f32, multiplied by the scales of that block, and added to an f32 sum. This is
 * the promotion of DeepSeek-V3 (arXiv:2412.19437, section 3.3.2). Else all terms are summed first.
 * Products of two 8-bit numbers are exact in f32.
 *
 * Like gemm it runs on the calling thread alone inside a parallel region, and a row of c does not
 * depend on the other rows.
 */
#ifndef KERNELS_DENSE_SCALED_H
#define KERNELS_DENSE_SCALED_H

#include "kernels/core/operand.h"
#include "kernels/dense/gemm.h"

/* The rows of an operand that a product reads. */
typedef struct ScaledSide {
    const Operand *q;
    int64_t first;        /* the first row of data */
    const int32_t *index; /* row i is index[i] instead of first + i; NULL: there is none */
    int64_t column;       /* of the first k; a multiple of 128 if scales change along k */
    int64_t group;        /* OPERAND_ROW: the column of scales */
} ScaledSide;

typedef struct ScaledArgs {
    int64_t m, n, k;
    ScaledSide a, b;
    GemmResult c;  /* (m, n) f32, bf16 or f16 */
    const void *r; /* added, with c's type and layout; NULL: nothing. May be c itself */
} ScaledArgs;

size_t scaled_workspace(const struct Exec *ex, const ScaledArgs *s);
Status scaled_run(struct Exec *ex, const ScaledArgs *s, void *workspace);

#endif
