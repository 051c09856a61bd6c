#include "op/op.h"

#include <math.h>

/* square_sum */

enum {
    BLOCK = 1 << 16, /* elements of one partial sum: fixed, so the bits are too */
    PIECE =
        1 << 13, /* elements updated at a time: small, so that short ranges are shared out too */
};

static Status check_square_sum(const void *args)
{
    const SquareSum *a = args;
    TRY(op_expect("square_sum", "x", &a->x, -1, -1, DTYPE_F32));
    return op_expect("square_sum", "sum", &a->sum, 1, 1, DTYPE_F32);
}

static OpCost cost_square_sum(const void *args)
{
    const SquareSum *a = args;
    return (OpCost){ .flops = 2 * (double)tensor_elems(&a->x),
                     .bytes = (double)tensor_bytes(&a->x) };
}

static size_t square_sum_workspace(const Exec *ex, const void *args)
{
    (void)ex;
    const SquareSum *a = args;
    return (size_t)((tensor_elems(&a->x) + BLOCK - 1) / BLOCK) * sizeof(double);
}

static Status square_sum_cpu(Exec *ex, const void *args)
{
    const SquareSum *a = args;
    const float *x = a->x.data;
    int64_t n = tensor_elems(&a->x), blocks = (n + BLOCK - 1) / BLOCK;
    double *part = ex->workspace, total = 0;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t end = (b + 1) * BLOCK < n ? (b + 1) * BLOCK : n;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = b * BLOCK; i < end; i++) sum += (double)x[i] * (double)x[i];
        part[b] = sum;
    }
    for (int64_t b = 0; b < blocks; b++) total += part[b];
    *(float *)a->sum.data += (float)total;
    return OK;
}

static const OpPort ports_square_sum[] = {
    PORT(SquareSum, x, PORT_IN),
    PORT(SquareSum, sum, PORT_ADD),
    PORTS_END,
};

#ifdef HAVE_CUDA
Status square_sum_cuda(Exec *ex, const void *args);
size_t square_sum_cuda_workspace(const Exec *ex, const void *args);
Status clip_scale_cuda(Exec *ex, const void *args);
Status adamw_cuda(Exec *ex, const void *args);
#endif

extern const OpDesc square_sum_desc;
const OpDesc square_sum_desc = {
    .name = "square_sum",
    .args_bytes = sizeof(SquareSum),
    .ports = ports_square_sum,
    .check = check_square_sum,
    .cost = cost_square_sum,
    .workspace = square_sum_workspace,
    .cpu = square_sum_cpu,
    .cuda = CUDA_OP(square_sum_cuda),
    .cuda_workspace = CUDA_OP(square_sum_cuda_workspace),
};

/* clip_scale */

static Status check_clip_scale(const void *args)
{
    const ClipScale *a = args;
    TRY(op_expect("clip_scale", "sum", &a->sum, 1, 1, DTYPE_F32));
    TRY(op_expect("clip_scale", "norm", &a->norm, 1, 1, DTYPE_F32));
    return op_expect("clip_scale", "clip", &a->clip, 1, 1, DTYPE_F32);
}

static OpCost cost_clip_scale(const void *args)
{
    (void)args;
    return (OpCost){ .flops = 4, .bytes = 12 };
}

static Status clip_scale_cpu(Exec *ex, const void *args)
{
    (void)ex;
    const ClipScale *a = args;
    float norm = sqrtf(*(const float *)a->sum.data), clip = 1;
    if (a->max_norm > 0) clip = fminf(1, a->max_norm / (norm + 1e-6f));
    *(float *)a->norm.data = norm;
    *(float *)a->clip.data = isfinite(norm) ? clip : NAN;
    return OK;
}

static const OpPort ports_clip_scale[] = {
    PORT(ClipScale, sum, PORT_IN),
    PORT(ClipScale, norm, PORT_OUT),
    PORT(ClipScale, clip, PORT_OUT),
    PORTS_END,
};

extern const OpDesc clip_scale_desc;
const OpDesc clip_scale_desc = {
    .name = "clip_scale",
    .args_bytes = sizeof(ClipScale),
    .ports = ports_clip_scale,
    .check = check_clip_scale,
    .cost = cost_clip_scale,
    .cpu = clip_scale_cpu,
    .cuda = CUDA_OP(clip_scale_cuda),
};

/* adamw */

static Status check_adamw(const void *args)
{
    const Adamw *a = args;
    int64_t n = tensor_elems(&a->w);
    TRY(op_expect("adamw", "g", &a->g, n, 1, DTYPE_F32));
    TRY(op_expect("adamw", "m", &a->m, n, 1, DTYPE_F32));
    TRY(op_expect("adamw", "v", &a->v, n, 1, DTYPE_F32));
    if (a->w_low.data != NULL) TRY(op_expect("adamw", "w_low", &a->w_low, n, 1, DTYPE_BF16));
    TRY(op_expect("adamw", "clip", &a->clip, 1, 1, DTYPE_F32));
    TRY(op_expect("adamw", "hyper", &a->hyper, 3, 1, DTYPE_F32));
    return op_expect("adamw", "w", &a->w, n, 1, DTYPE_F32);
}

static OpCost cost_adamw(const void *args)
{
    const Adamw *a = args;
    double n = (double)tensor_elems(&a->w);
    double low = a->w_low.data != NULL ? 2 * n : 0;
    return (OpCost){ .flops = 15 * n, .bytes = 7 * 4 * n + low };
}

static void adamw_piece(const Adamw *a, int64_t first, int64_t n)
{
    const float *hyper = a->hyper.data, clip = *(const float *)a->clip.data;
    const float lr = hyper[0], c1 = hyper[1], c2 = hyper[2];
    const float keep = 1 - lr * a->decay, rate = lr * c1;
    const float b1 = a->beta1, b2 = a->beta2, eps = a->eps;
    float *w = (float *)a->w.data + first;
    const float *g = (const float *)a->g.data + first;
    float *m = (float *)a->m.data + first, *v = (float *)a->v.data + first;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = clip * g[i];
        m[i] = b1 * m[i] + (1 - b1) * d;
        v[i] = b2 * v[i] + (1 - b2) * d * d;
        w[i] = keep * w[i] - rate * m[i] / (sqrtf(v[i] * c2) + eps);
    }
    if (a->w_low.data != NULL) {
        dtype_from_f32(tensor_at(&a->w_low, first), a->w_low.dtype, w, n);
    }
}

static Status adamw_cpu(Exec *ex, const void *args)
{
    const Adamw *a = args;
    if (!isfinite(*(const float *)a->clip.data)) return OK; /* the step is void */
    int64_t n = tensor_elems(&a->w);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        adamw_piece(a, first, n - first < PIECE ? n - first : PIECE);
    }
    return OK;
}

static const OpPort ports_adamw[] = {
    PORT(Adamw, w, PORT_ADD),         PORT(Adamw, g, PORT_IN),
    PORT(Adamw, m, PORT_ADD),         PORT(Adamw, v, PORT_ADD),
    PORT(Adamw, w_low, PORT_OUT_OPT), PORT(Adamw, clip, PORT_IN),
    PORT(Adamw, hyper, PORT_IN),      PORTS_END,
};

extern const OpDesc adamw_desc;
const OpDesc adamw_desc = {
    .name = "adamw",
    .args_bytes = sizeof(Adamw),
    .ports = ports_adamw,
    .check = check_adamw,
    .cost = cost_adamw,
    .cpu = adamw_cpu,
    .cuda = CUDA_OP(adamw_cuda),
};
