/* optimizer: check, cost and CPU version of the squared norm, the clip factor and AdamW. Which
 * parameters follow which rule is in engine/model/optimizer.c. */
#include "kernels/optimizer/optimizer.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

/* square_sum */

enum {
    BLOCK = 1 << 16, /* elements of one partial sum: a constant, so bits do not depend on threads */
    PIECE = 1 << 8,  /* elements updated at a time: few, so that widened moments stay in L1 */
};

Status square_sum_check(const SquareSum *a)
{
    TRY(op_expect("square_sum", "x", &a->x, -1, -1, DTYPE_F32));
    if (a->groups.data != NULL)
        TRY(op_expect("square_sum", "groups", &a->groups, -1, 1, DTYPE_F32));
    return op_expect("square_sum", "sum", &a->sum, 1, 1, DTYPE_F32);
}

OpCost square_sum_cost(const SquareSum *a)
{
    return (OpCost){ .flops = 2 * (double)tensor_elems(&a->x),
                     .bytes = (double)tensor_bytes(&a->x) };
}

size_t square_sum_workspace(const Exec *ex, const SquareSum *a)
{
    (void)ex;
    return (size_t)((tensor_elems(&a->x) + BLOCK - 1) / BLOCK + a->runs) * sizeof(double);
}

static double squares(const float *x, int64_t first, int64_t end)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < end; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Runs of a group are added in order. */
static void add_groups(const Exec *ex, const SquareSum *a, const double *part, double *of_run)
{
    const float *x = a->x.data;
    float *group = a->groups.data;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < a->runs; i++) {
        const int64_t first = a->run[i].first, end = square_run_end(a, i);
        const SquareEdges e = square_edges(first, end, BLOCK);
        of_run[i] = squares(x, first, e.head_end) + squares(x, e.tail, end);
        for (int64_t b = e.first_block; b < e.end_block; b++) of_run[i] += part[b];
    }
    for (int64_t g = 0; g < tensor_elems(&a->groups); g++) {
        double sum = 0;
        for (int64_t i = 0; i < a->runs; i++) sum += a->run[i].group == g ? of_run[i] : 0;
        group[g] += (float)sum;
    }
}

Status square_sum_cpu(Exec *ex, const SquareSum *a)
{
    const float *x = a->x.data;
    int64_t n = tensor_elems(&a->x), blocks = (n + BLOCK - 1) / BLOCK;
    double *part = ex->workspace, total = 0;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        int64_t end = (b + 1) * BLOCK < n ? (b + 1) * BLOCK : n;
        part[b] = squares(x, b * BLOCK, end);
    }
    for (int64_t b = 0; b < blocks; b++) total += part[b];
    *(float *)a->sum.data += (float)total;
    if (a->groups.data != NULL) add_groups(ex, a, part, part + blocks);
    return OK;
}

OP_PORTS(square_sum, IN(SquareSum, x), ADD(SquareSum, sum), ADD_OPT(SquareSum, groups));

/* clip_scale */

Status clip_scale_check(const ClipScale *a)
{
    TRY(op_expect("clip_scale", "sum", &a->sum, 1, 1, DTYPE_F32));
    TRY(op_expect("clip_scale", "norm", &a->norm, 1, 1, DTYPE_F32));
    TRY(op_expect("clip_scale", "clip", &a->clip, 1, 1, DTYPE_F32));
    if (a->scale.data != NULL) TRY(op_expect("clip_scale", "scale", &a->scale, 1, 1, DTYPE_F32));
    if (a->limit.data != NULL) TRY(op_expect("clip_scale", "limit", &a->limit, 1, 1, DTYPE_F32));
    if (a->overflow.data == NULL) return OK;
    return op_expect("clip_scale", "overflow", &a->overflow, -1, -1, DTYPE_F32);
}

OpCost clip_scale_cost(const ClipScale *a)
{
    (void)a;
    return (OpCost){ .flops = 4, .bytes = 12 };
}

Status clip_scale_cpu(Exec *ex, const ClipScale *a)
{
    (void)ex;
    const float scale = a->scale.data != NULL ? *(const float *)a->scale.data : 1;
    float norm = sqrtf(*(const float *)a->sum.data) / scale, clip = 1;
    if (a->max_norm > 0) clip = fminf(1, a->max_norm / (norm + 1e-6f));
    *(float *)a->norm.data = norm;
    bool fits = a->limit.data == NULL || norm <= *(const float *)a->limit.data;
    const float *overflow = a->overflow.data;
    for (int64_t i = 0; overflow != NULL && i < tensor_elems(&a->overflow); i++)
        fits &= overflow[i] == 0;
    *(float *)a->clip.data = isfinite(norm) && fits ? clip / scale : NAN;
    return OK;
}

/* clip is declared as partly written, so that the guard ignores it: NaN there means a skipped step. */
OP_PORTS(clip_scale, IN(ClipScale, sum), OUT(ClipScale, norm), OUT_PART(ClipScale, clip),
         IN_OPT(ClipScale, overflow), IN_OPT(ClipScale, scale), IN_OPT(ClipScale, limit));

/* adamw */

Status adamw_check(const Adamw *a)
{
    int64_t n = tensor_elems(&a->w);
    TRY(op_expect("adamw", "g", &a->g, n, 1, DTYPE_F32));
    TRY(op_expect_act("adamw", "m", &a->m, n, 1));
    TRY(op_expect("adamw", "v", &a->v, n, 1, a->m.dtype));
    Dtype low = a->w_low.dtype == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16;
    if (a->w_low.data != NULL) TRY(op_expect("adamw", "w_low", &a->w_low, n, 1, low));
    TRY(op_expect("adamw", "clip", &a->clip, 1, 1, DTYPE_F32));
    TRY(op_expect("adamw", "hyper", &a->hyper, 3, 1, DTYPE_F32));
    TRY(op_expect("adamw", "w", &a->w, n, 1, DTYPE_F32));
    if (!quant_out_wanted(&a->copies)) return OK;
    if (tensor_elems(&a->copies.rows.data) != n)
        return FAIL(ERR_SHAPE, "adamw: copies.rows has %lld numbers, w has %lld",
                    (long long)tensor_elems(&a->copies.rows.data), (long long)n);
    const Quantize q = quant_out_call(&a->copies, adamw_matrices(a));
    return quantize_check(&q);
}

Tensor adamw_matrices(const Adamw *a)
{
    Tensor w = a->copies.rows.data;
    w.data = a->w.data;
    w.dtype = a->w.dtype;
    return w;
}

OpCost adamw_cost(const Adamw *a)
{
    double n = (double)tensor_elems(&a->w);
    double low = a->w_low.data != NULL ? 2 * n : 0, moment = (double)dtype_bytes(a->m.dtype);
    OpCost cost = { .flops = 15 * n, .bytes = (3 * 4 + 4 * moment) * n + low };
    if (!quant_out_wanted(&a->copies)) return cost;
    const Quantize q = quant_out_call(&a->copies, adamw_matrices(a));
    const OpCost made = quantize_cost(&q);
    cost.flops += made.flops;
    cost.bytes += made.bytes;
    if (a->copies.rows.kind == OPERAND_128X128) cost.bytes -= 4 * n; /* it has the new w at hand */
    return cost;
}

size_t adamw_workspace(const Exec *ex, const Adamw *a)
{
    const Tensor w = adamw_matrices(a);
    return quant_out_workspace(ex, &a->copies, &w);
}

/* Formulas in optimizer.h; hyper = lr, 1 / c1, 1 / c2, where c = 1 - beta^t. */
static void adamw_piece(const Adamw *a, int64_t first, int64_t n)
{
    const float *hyper = a->hyper.data, clip = *(const float *)a->clip.data;
    const float lr = hyper[0], c1 = hyper[1], c2 = hyper[2];
    const float keep = 1 - lr * a->decay, rate = lr * c1;
    const float b1 = a->beta1, b2 = a->beta2, eps = a->eps;
    float *w = (float *)a->w.data + first;
    const float *g = (const float *)a->g.data + first;
    float m_room[PIECE], v_room[PIECE];
    float *m = row_open(&a->m, first, m_room), *v = row_open(&a->v, first, v_room);
    (void)row_load(&a->m, first, n, m);
    (void)row_load(&a->v, first, n, v);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = clip * g[i];
        m[i] = b1 * m[i] + (1 - b1) * d;
        v[i] = b2 * v[i] + (1 - b2) * d * d;
        w[i] = keep * w[i] - rate * m[i] / (sqrtf(v[i] * c2) + eps);
    }
    row_store(&a->m, first, n, m);
    row_store(&a->v, first, n, v);
    if (a->w_low.data != NULL) row_store(&a->w_low, first, n, w);
}

Status adamw_cpu(Exec *ex, const Adamw *a)
{
    if (!isfinite(*(const float *)a->clip.data)) return OK; /* a skipped step */
    int64_t n = tensor_elems(&a->w);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        adamw_piece(a, first, n - first < PIECE ? n - first : PIECE);
    }
    const Tensor w = adamw_matrices(a);
    return quant_out_cpu(ex, &a->copies, &w, ex->workspace);
}

OP_PORTS(adamw, ADD(Adamw, w), IN(Adamw, g), ADD(Adamw, m), ADD(Adamw, v), OUT_OPT(Adamw, w_low),
         OUT_OPERAND_OPT(Adamw, copies.rows), OUT_OPERAND_OPT(Adamw, copies.columns),
         IN(Adamw, clip), IN(Adamw, hyper));

/* weight_average */

Status weight_average_check(const WeightAverage *a)
{
    TRY(op_expect("weight_average", "w", &a->w, tensor_elems(&a->e), 1, DTYPE_F32));
    TRY(op_expect("weight_average", "clip", &a->clip, 1, 1, DTYPE_F32));
    TRY(op_expect("weight_average", "rate", &a->rate, 1, 1, DTYPE_F32));
    return op_expect("weight_average", "e", &a->e, -1, 1, DTYPE_F32);
}

OpCost weight_average_cost(const WeightAverage *a)
{
    double n = (double)tensor_elems(&a->e);
    return (OpCost){ .flops = 3 * n, .bytes = 3 * 4 * n };
}

Status weight_average_cpu(Exec *ex, const WeightAverage *a)
{
    if (!isfinite(*(const float *)a->clip.data)) return OK; /* nothing to average */
    const float *w = a->w.data, rate = *(const float *)a->rate.data;
    float *e = a->e.data;
    int64_t n = tensor_elems(&a->e);
#pragma omp parallel for simd num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) e[i] = (1 - rate) * e[i] + rate * w[i];
    return OK;
}

OP_PORTS(weight_average, ADD(WeightAverage, e), IN(WeightAverage, w), IN(WeightAverage, clip),
         IN(WeightAverage, rate));
