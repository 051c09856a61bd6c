/* qk_clip: check, cost and CPU version. */
#include "kernels/optimizer/qk_clip.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

Status qk_clip_check(const QkClip *a)
{
    const QkRows *r = &a->rows;
    int64_t n = tensor_elems(&a->w);
    Dtype low = a->low.dtype == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16;
    if (r->heads < 1 || r->kv_heads < 1 || r->heads % r->kv_heads != 0 || r->width < 1 ||
        r->queries > r->heads * r->width || r->keys > r->kv_heads * r->width || a->cols < 1) {
        return FAIL(ERR_ARG,
                    "qk_clip: %lld and %lld rows of %lld elements are not those of %lld heads of "
                    "%lld rows and of the %lld key heads that they share",
                    (long long)r->queries, (long long)r->keys, (long long)a->cols,
                    (long long)r->heads, (long long)r->width, (long long)r->kv_heads);
    }
    TRY(op_expect("qk_clip", "w", &a->w, n, 1, DTYPE_F32));
    if (a->low.data != NULL) TRY(op_expect("qk_clip", "low", &a->low, n, 1, low));
    TRY(op_expect("qk_clip", "max", &a->max, 1, qk_heads(r), DTYPE_F32));
    return op_expect("qk_clip", "clip", &a->clip, 1, 1, DTYPE_F32);
}

/* As rare as what it looks for. */
OpCost qk_clip_cost(const QkClip *a) { return (OpCost){ .bytes = (double)tensor_bytes(&a->max) }; }

Status qk_clip_cpu(Exec *ex, const QkClip *a)
{
    if (!isfinite(*(const float *)a->clip.data)) return OK; /* a skipped step */
    int64_t n = tensor_elems(&a->w), end = a->first + n;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = a->first / a->cols; row <= (end - 1) / a->cols; row++) {
        float factor = qk_factor(&a->rows, a->max.data, a->above, row);
        int64_t from = row * a->cols, to = from + a->cols;
        if (from < a->first) from = a->first;
        if (to > end) to = end;
        float *w = (float *)a->w.data + from - a->first;
        if (factor == 1) continue;
        for (int64_t i = 0; i < to - from; i++) w[i] *= factor;
        if (a->low.data != NULL) row_store(&a->low, from - a->first, to - from, w);
    }
    return OK;
}

OP_PORTS(qk_clip, ADD(QkClip, w), ADD_OPT(QkClip, low), IN(QkClip, max), IN(QkClip, clip));
