/* delta_norm: the gated norm of each head on the CPU. A thread owns blocks of rows; each block has its own sum of dw. */
#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/delta/delta_check.h"

enum { ROW_BLOCK = 64 }; /* tokens that have their own sum of dw: a constant, for constant bits */

static Status norm_check(const char *op, const DeltaNormFwd *a, const char *y)
{
    const DeltaDims *d = &a->dims;
    TRY(delta_check_x(op, &a->x, d));
    TRY(op_expect(op, "o", &a->o, a->x.dim[0], d->heads * d->value, a->x.dtype));
    TRY(op_expect(op, y, &a->y, a->x.dim[0], d->heads * d->value, a->x.dtype));
    return op_expect(op, "w", &a->w, 1, d->value, DTYPE_F32);
}

static float inverse_length(const float *o, int64_t n, float eps)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += o[i] * o[i];
    return 1 / sqrtf(sum / (float)n + eps);
}

/* The first element of z in x, of head i % H of a row. */
static int64_t z_at(const DeltaDims *d, int64_t i)
{
    return i / d->heads * delta_x_cols(d) + delta_z_at(d, i % d->heads);
}

/* Forward. */

Status delta_norm_fwd_check(const DeltaNormFwd *a) { return norm_check("delta_norm_fwd", a, "y"); }

/* o and z are read, y is written. */
OpCost delta_norm_fwd_cost(const DeltaNormFwd *a)
{
    return (OpCost){ .flops = 9 * (double)tensor_elems(&a->o),
                     .bytes = (double)(3 * tensor_bytes(&a->o) + tensor_bytes(&a->w)) };
}

static void norm_forward(const DeltaNormFwd *a, int64_t i)
{
    float o_buffer[DELTA_WIDTH_MAX], z_buffer[DELTA_WIDTH_MAX];
    const int64_t n = a->dims.value;
    const float *o = row_load(&a->o, i * n, n, o_buffer);
    const float *z = row_load(&a->x, z_at(&a->dims, i), n, z_buffer), *w = a->w.data;
    const float rstd = inverse_length(o, n, a->eps);
    float *y = row_open(&a->y, i * n, o_buffer);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) y[j] = o[j] * rstd * w[j] * z[j] / (1 + exp_f32(-z[j]));
    row_store(&a->y, i * n, n, y);
}

Status delta_norm_fwd_cpu(Exec *ex, const DeltaNormFwd *a)
{
    const int64_t heads = a->x.dim[0] * a->dims.heads;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < heads; i++) norm_forward(a, i);
    return OK;
}

OP_PORTS(delta_norm_fwd, IN(DeltaNormFwd, o), IN(DeltaNormFwd, x), IN(DeltaNormFwd, w),
         OUT(DeltaNormFwd, y));

/* Backward. */

Status delta_norm_bwd_check(const DeltaNormBwd *a)
{
    const char *op = "delta_norm_bwd";
    TRY(norm_check(op, &a->of, "dy"));
    TRY(op_expect(op, "d_o", &a->d_o, a->of.x.dim[0], tensor_cols(&a->of.o), a->of.x.dtype));
    return delta_check_dx(op, &a->of.x, &a->dx, &a->of.w, &a->dw);
}

/* dy, o and z are read, d_o and dz are written. */
OpCost delta_norm_bwd_cost(const DeltaNormBwd *a)
{
    return (OpCost){ .flops = 24 * (double)tensor_elems(&a->of.o),
                     .bytes = (double)(5 * tensor_bytes(&a->of.o) + 3 * tensor_bytes(&a->of.w)) };
}

static int64_t row_blocks(const DeltaNormBwd *a)
{
    return (a->of.x.dim[0] + ROW_BLOCK - 1) / ROW_BLOCK;
}

size_t delta_norm_bwd_workspace(const Exec *ex, const DeltaNormBwd *a)
{
    (void)ex;
    return (size_t)(row_blocks(a) * a->of.dims.value) * sizeof(float);
}

/* With n = o rstd and s = silu(z):  dw += dy n s,  dz = dy n w silu'(z),  g = dy w s, do = rstd (g - n mean(g n)) */
static void norm_backward(const DeltaNormBwd *a, int64_t i, float *dw)
{
    float o_buffer[DELTA_WIDTH_MAX], z_buffer[DELTA_WIDTH_MAX], dy_buffer[DELTA_WIDTH_MAX];
    float g[DELTA_WIDTH_MAX], dz[DELTA_WIDTH_MAX], mean = 0;
    const int64_t n = a->of.dims.value, at = i * n;
    const float *o = row_load(&a->of.o, at, n, o_buffer),
                *dy = row_load(&a->of.y, at, n, dy_buffer);
    const float *z = row_load(&a->of.x, z_at(&a->of.dims, i), n, z_buffer), *w = a->of.w.data;
    const float rstd = inverse_length(o, n, a->of.eps);
#pragma omp simd reduction(+ : mean)
    for (int64_t j = 0; j < n; j++) {
        const float sigmoid = 1 / (1 + exp_f32(-z[j])), unit = o[j] * rstd;
        dw[j] += dy[j] * unit * z[j] * sigmoid;
        dz[j] = dy[j] * unit * w[j] * sigmoid * (1 + z[j] * (1 - sigmoid));
        g[j] = dy[j] * w[j] * z[j] * sigmoid;
        mean += g[j] * unit;
    }
    mean /= (float)n;
    for (int64_t j = 0; j < n; j++) g[j] = rstd * (g[j] - o[j] * rstd * mean);
    dtype_from_f32(tensor_at(&a->d_o, at), a->d_o.dtype, g, n);
    dtype_from_f32(tensor_at(&a->dx, z_at(&a->of.dims, i)), a->dx.dtype, dz, n);
}

Status delta_norm_bwd_cpu(Exec *ex, const DeltaNormBwd *a)
{
    const int64_t heads = a->of.dims.heads, value = a->of.dims.value, blocks = row_blocks(a);
    float *part = ex->workspace, *dw = a->dw.data;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t end = least((block + 1) * ROW_BLOCK, a->of.x.dim[0]) * heads;
        float *own = part + block * value;
        memset(own, 0, (size_t)value * sizeof *own);
        for (int64_t i = block * ROW_BLOCK * heads; i < end; i++) norm_backward(a, i, own);
    }
    for (int64_t block = 0; dw != NULL && block < blocks; block++)
        for (int64_t j = 0; j < value; j++) dw[j] += part[block * value + j];
    return OK;
}

OP_PORTS(delta_norm_bwd, { "dy", offsetof(DeltaNormBwd, of.y), PORT_IN }, IN(DeltaNormBwd, of.o),
         IN(DeltaNormBwd, of.x), IN(DeltaNormBwd, of.w), OUT(DeltaNormBwd, d_o),
         OUT_PART(DeltaNormBwd, dx), ADD_OPT(DeltaNormBwd, dw));
