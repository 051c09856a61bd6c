/*
 * scaled_case: 8-bit operands of the kinds that recipes use, and the numbers they stand for. An op of
 * 8-bit operands is held to the plain op on these numbers in f32. Codes are widened and multiplied by
 * their scales here element by element, so a wrong index in an op or in quantize shows.
 */
#ifndef KERNELS_OP_SCALED_CASE_H
#define KERNELS_OP_SCALED_CASE_H

#include "harness/optest.h"
#include "kernels/quant/quant.h"

typedef struct ScaledForm {
    const char *name;
    OperandKind rows, weight, columns;
    Dtype gradient;
    bool pow2;
} ScaledForm;

static const ScaledForm scaled_forms[] = {
    { "tensor", OPERAND_TENSOR, OPERAND_TENSOR, OPERAND_TENSOR, DTYPE_E4M3, false },
    { "row", OPERAND_ROW, OPERAND_ROW, OPERAND_ROW, DTYPE_E5M2, false },
    { "block", OPERAND_1X128, OPERAND_128X128, OPERAND_1X128, DTYPE_E4M3, true },
    { "block, hybrid", OPERAND_1X128, OPERAND_128X128, OPERAND_1X128, DTYPE_E5M2, false },
};

enum { SCALED_FORMS = sizeof scaled_forms / sizeof *scaled_forms };

/* Data and scales begin as NaN: what quantize forgets is seen. */
static inline void scaled_poison(const Operand *q)
{
    memset(q->data.data, 0xFF, tensor_bytes(&q->data));
    memset(q->scale.data, 0xFF, tensor_bytes(&q->scale));
}

/* The rows of x that are in use, as data of their own. */
static inline Operand scaled_rows(OpTest *t, OperandKind kind, Dtype type, bool pow2, Tensor x,
                                  Rows rows)
{
    Operand q;
    int64_t D = tensor_cols(&x), n = rows.bound > 0 ? rows.bound : tensor_elems(&x) / D;
    CHECK_OK(operand_new(&t->arena, kind, type, 2, DIMS(n, D), &q));
    scaled_poison(&q);
    CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q, .rows = rows, .pow2 = pow2 }));
    return q;
}

/* A matrix, or one for each expert, as forward or (transposed) backward to the input reads it. */
static inline Operand scaled_weight(OpTest *t, const ScaledForm *f, Tensor w, bool transposed)
{
    Operand q;
    int64_t dim[3] = { w.dim[0], w.dim[1], tensor_cols(&w) };
    int last = w.rank - 1;
    if (transposed) dim[last - 1] = w.dim[last], dim[last] = w.dim[last - 1];
    CHECK_OK(operand_new(&t->arena, f->weight, DTYPE_E4M3, w.rank, dim, &q));
    scaled_poison(&q);
    q.transposed = transposed;
    Quantize a = { .x.data = w, .pow2 = f->pow2 };
    *(transposed ? &a.transposed : &a.quant) = q;
    CHECK_OK(quantize(&t->ex, a));
    return q;
}

/* The columns of x: of all rows together, or of each group of a's offsets, row_token and rows. */
static inline Operand scaled_columns(OpTest *t, OperandKind kind, Dtype type, Quantize a)
{
    int64_t D = tensor_cols(&a.x.data), n = tensor_elems(&a.x.data) / D;
    if (a.offsets.data == NULL) {
        CHECK_OK(operand_new(&t->arena, kind, type, 2, DIMS(D, n), &a.transposed));
        a.transposed.transposed = true;
    } else {
        CHECK_OK(operand_new_groups(&t->arena, kind, type, D, a.rows.bound,
                                    tensor_elems(&a.offsets) - 1, &a.transposed));
    }
    scaled_poison(&a.transposed);
    CHECK_OK(quantize(&t->ex, a));
    return a.transposed;
}

/* One number of data, (row, column) of matrix m, and its scale's column. */
static inline double scaled_value(const Operand *q, int64_t row, int64_t column, int64_t scale)
{
    const OperandGrid g = operand_grid_of(q);
    int64_t block = row / g.n * g.rows + row % g.n / g.height;
    float code = 0;
    dtype_to_f32(&code, tensor_at(&q->data, row * g.d + column), q->data.dtype, 1);
    return (double)code * optest_get(&q->scale, block * tensor_cols(&q->scale) + scale);
}

/* The numbers of an operand without groups in f32, as the matrix that the plain op takes: where data is
 * transposed, it is turned back. Rows of `live` on are NaN; 0: there are none. */
static inline Tensor scaled_plain(OpTest *t, const Operand *q, int64_t live)
{
    const OperandGrid g = operand_grid_of(q);
    int64_t rows = q->transposed ? g.d : g.n, cols = q->transposed ? g.n : g.d;
    Tensor out = optest_poisoned(t, DTYPE_F32, DIMS(g.matrices * rows, cols));
    for (int64_t i = 0; i < g.matrices * g.n * g.d; i++) {
        int64_t row = i / g.d, column = i % g.d, m = row / g.n;
        int64_t r = q->transposed ? column : row % g.n, c = q->transposed ? row % g.n : column;
        if (live > 0 && r >= live) continue;
        optest_set(&out, (m * rows + r) * cols + c,
                   scaled_value(q, row, column, g.cols == 1 ? 0 : column / g.width));
    }
    if (q->data.rank == 2) return out;
    out.rank = 3, out.dim[0] = g.matrices, out.dim[1] = rows, out.dim[2] = cols;
    return out;
}

/* The numbers of an operand of groups: (R, D), row by row as the routed rows are. */
static inline Tensor scaled_ungrouped(OpTest *t, const Operand *q, const Tensor *offsets,
                                      int64_t live, int64_t R)
{
    int64_t D = q->data.dim[0], E = tensor_elems(offsets) - 1, start = 0;
    Tensor out = optest_poisoned(t, DTYPE_F32, DIMS(R, D));
    for (int64_t e = 0; e < E; e++) {
        int64_t first = (int64_t)optest_get(offsets, e), end = (int64_t)optest_get(offsets, e + 1);
        first = first < live ? first : live, end = end < live ? end : live;
        for (int64_t i = first; i < end; i++) {
            int64_t column = start + i - first;
            int64_t scale = q->kind == OPERAND_ROW     ? e
                            : q->kind == OPERAND_1X128 ? column / OPERAND_BLOCK
                                                       : 0;
            for (int64_t d = 0; d < D; d++)
                optest_set(&out, i * D + d, scaled_value(q, d, column, scale));
        }
        start += (end - first + 127) / 128 * 128;
    }
    return out;
}

#endif
