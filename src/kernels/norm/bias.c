/*
 * bias: check, cost and CPU versions. The gradient is summed in blocks of rows, so that an f32 sum
 * over many rows stays accurate. Each thread owns a range of columns: no partial sums are joined,
 * and bits do not depend on the number of threads.
 */
#include "kernels/norm/bias.h"

#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum {
    PIECE = 256,    /* columns a thread takes at a time */
    ROW_BLOCK = 64, /* rows that are added up before they join the rest */
};

/* Forward. */

Status bias_fwd_check(const BiasFwd *a)
{
    int64_t n = a->x.dim[0], d = tensor_row_elems(&a->x);
    TRY(op_expect_act("bias_fwd", "x", &a->x, n, d));
    TRY(op_expect("bias_fwd", "b", &a->b, 1, d, DTYPE_F32));
    return op_expect("bias_fwd", "y", &a->y, n, d, a->x.dtype);
}

OpCost bias_fwd_cost(const BiasFwd *a)
{
    return (OpCost){ .flops = (double)tensor_elems(&a->x),
                     .bytes = (double)(2 * tensor_bytes(&a->x) + tensor_bytes(&a->b)) };
}

static void add_row(const BiasFwd *a, int64_t row, int64_t d)
{
    float x_buffer[PIECE], y_buffer[PIECE];
    for (int64_t col = 0; col < d; col += PIECE) {
        int64_t n = least(d - col, PIECE), at = row * d + col;
        const float *x = row_load(&a->x, at, n, x_buffer), *b = (const float *)a->b.data + col;
        float *y = row_open(&a->y, at, y_buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] + b[i];
        row_store(&a->y, at, n, y);
    }
}

Status bias_fwd_cpu(Exec *ex, const BiasFwd *a)
{
    int64_t rows = a->x.dim[0], d = tensor_row_elems(&a->x);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) add_row(a, row, d);
    return OK;
}

OP_PORTS(bias_fwd, IN(BiasFwd, x), IN(BiasFwd, b), OUT(BiasFwd, y));

/* Backward. */

Status bias_bwd_check(const BiasBwd *a)
{
    TRY(op_expect_act("bias_bwd", "dy", &a->dy, a->dy.dim[0], -1));
    return op_expect("bias_bwd", "db", &a->db, 1, tensor_row_elems(&a->dy), DTYPE_F32);
}

OpCost bias_bwd_cost(const BiasBwd *a)
{
    return (OpCost){ .flops = (double)tensor_elems(&a->dy),
                     .bytes = (double)(tensor_bytes(&a->dy) + 2 * tensor_bytes(&a->db)) };
}

static void add_columns(const BiasBwd *a, int64_t col, int64_t n)
{
    int64_t rows = a->dy.dim[0], d = tensor_row_elems(&a->dy);
    float *db = (float *)a->db.data + col, buffer[PIECE], block[PIECE], sum[PIECE] = { 0 };
    for (int64_t first = 0; first < rows; first += ROW_BLOCK) {
        int64_t end = first + ROW_BLOCK < rows ? first + ROW_BLOCK : rows;
        memset(block, 0, sizeof block);
        for (int64_t row = first; row < end; row++) {
            const float *dy = row_load(&a->dy, row * d + col, n, buffer);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) block[i] += dy[i];
        }
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sum[i] += block[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) db[i] += sum[i];
}

Status bias_bwd_cpu(Exec *ex, const BiasBwd *a)
{
    int64_t d = tensor_row_elems(&a->dy);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t col = 0; col < d; col += PIECE) add_columns(a, col, least(d - col, PIECE));
    return OK;
}

OP_PORTS(bias_bwd, IN(BiasBwd, dy), ADD_OPT(BiasBwd, db));
