/* scale: check, cost and CPU version of both directions. A row is worked on in pieces, so that
 * widened bf16 stays in the L1 cache. */
#include "kernels/quant/scale.h"

#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum { PIECE = 1024 }; /* columns that a thread works on at a time */

/* s_n of scale.h. */
static float factor_of(const Tensor *w, int64_t row, bool sigmoid)
{
    float v = ((const float *)w->data)[row];
    return sigmoid ? 1 / (1 + exp_f32(-v)) : v;
}

/* Forward. */

Status scale_fwd_check(const ScaleFwd *a)
{
    int64_t n = a->x.dim[0], d = tensor_row_elems(&a->x);
    TRY(op_expect_act("scale_fwd", "x", &a->x, n, d));
    TRY(op_expect("scale_fwd", "w", &a->w, n, 1, DTYPE_F32));
    return op_expect("scale_fwd", "y", &a->y, n, d, a->x.dtype);
}

OpCost scale_fwd_cost(const ScaleFwd *a)
{
    return (OpCost){ .flops = (double)tensor_elems(&a->x),
                     .bytes = op_port_bytes(OP_SCALE_FWD, a) };
}

Status scale_fwd_cpu(Exec *ex, const ScaleFwd *a)
{
    int64_t rows = a->x.dim[0], d = tensor_row_elems(&a->x);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float factor = factor_of(&a->w, row, a->sigmoid), x_buffer[PIECE], y_buffer[PIECE];
        for (int64_t col = 0; col < d; col += PIECE) {
            int64_t n = least(d - col, PIECE), at = row * d + col;
            const float *x = row_load(&a->x, at, n, x_buffer);
            float *y = row_open(&a->y, at, y_buffer);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
            row_store(&a->y, at, n, y);
        }
    }
    return OK;
}

OP_PORTS(scale_fwd, IN(ScaleFwd, x), IN(ScaleFwd, w), OUT(ScaleFwd, y));

/* Backward. */

Status scale_bwd_check(const ScaleBwd *a)
{
    int64_t n = a->x.dim[0], d = tensor_row_elems(&a->x);
    TRY(op_expect_act("scale_bwd", "x", &a->x, n, d));
    TRY(op_expect("scale_bwd", "dy", &a->dy, n, d, a->x.dtype));
    TRY(op_expect("scale_bwd", "w", &a->w, n, 1, DTYPE_F32));
    if (a->r.data != NULL) TRY(op_expect("scale_bwd", "r", &a->r, n, d, a->x.dtype));
    TRY(op_expect("scale_bwd", "dx", &a->dx, n, d, a->x.dtype));
    return op_expect("scale_bwd", "dw", &a->dw, n, 1, DTYPE_F32);
}

/* A product for dx, a product and a sum for dw, and a sum for r. */
OpCost scale_bwd_cost(const ScaleBwd *a)
{
    int adds = a->r.data == NULL ? 3 : 4;
    return (OpCost){ .flops = adds * (double)tensor_elems(&a->x),
                     .bytes = op_port_bytes(OP_SCALE_BWD, a) };
}

/* dx of a piece of a row; returns the sum of dy x over it. */
static float scale_backward_piece(const ScaleBwd *a, int64_t at, int64_t n, float factor)
{
    float x_buffer[PIECE], dy_buffer[PIECE], r_buffer[PIECE], dx_buffer[PIECE], sum = 0;
    const float *x = row_load(&a->x, at, n, x_buffer), *dy = row_load(&a->dy, at, n, dy_buffer);
    const float *r = a->r.data == NULL ? NULL : row_load(&a->r, at, n, r_buffer);
    float *dx = row_open(&a->dx, at, dx_buffer);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += dy[i] * x[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = factor * dy[i] + (r == NULL ? 0 : r[i]);
    row_store(&a->dx, at, n, dx);
    return sum;
}

/* One thread has a whole row, so dw needs no sum over threads. */
Status scale_bwd_cpu(Exec *ex, const ScaleBwd *a)
{
    int64_t rows = a->x.dim[0], d = tensor_row_elems(&a->x);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float factor = factor_of(&a->w, row, a->sigmoid), sum = 0;
        for (int64_t col = 0; col < d; col += PIECE)
            sum += scale_backward_piece(a, row * d + col, least(d - col, PIECE), factor);
        ((float *)a->dw.data)[row] = a->sigmoid ? factor * (1 - factor) * sum : sum;
    }
    return OK;
}

OP_PORTS(scale_bwd, IN(ScaleBwd, dy), IN(ScaleBwd, x), IN(ScaleBwd, w), IN_OPT(ScaleBwd, r),
         OUT(ScaleBwd, dx), OUT(ScaleBwd, dw));
