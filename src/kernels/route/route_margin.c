/* route_margin: check, cost and CPU version of the counting of margins. Threads share the counters:
 * sums of integers do not depend on who adds first. The update of the bias is in moe_combine.c. */
#include "kernels/route/route_margin.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/index_check.h"
#include "kernels/core/op.h"

#include <omp.h>

static void count(const RouteMargins *a, int64_t e, float margin, bool chosen)
{
    int32_t *bin = (int32_t *)a->margins.data + e * MARGIN_BINS + margin_bin(margin, chosen);
#pragma omp atomic
    (*bin)++;
}

/* c takes p + bias, with -infinity where an expert is chosen: so its largest is the (K+1)-th. */
static void count_token(const RouteMargins *a, int64_t n, float *p, float *c)
{
    int64_t E = tensor_cols(&a->logits), K = tensor_cols(&a->index);
    const int32_t *index = (const int32_t *)a->index.data + n * K;
    const float *bias = a->bias.data;
    route_scores(a->score, (const float *)a->logits.data + n * E, E, p);
    for (int64_t e = 0; e < E; e++) c[e] = p[e] += bias[e];
    for (int64_t k = 0; k < K; k++) c[index[k]] = -INFINITY;
    float last = p[index[K - 1]], next = max_f32(c, E);
    for (int64_t e = 0; e < E; e++) {
        if (c[e] != -INFINITY) count(a, e, last - p[e], false);
    }
    for (int64_t k = 0; k < K; k++) count(a, index[k], next - p[index[k]], true);
}

Status route_margins_cpu(Exec *ex, const RouteMargins *a)
{
    int64_t E = tensor_cols(&a->logits), N = tensor_elems(&a->logits) / E;
    const int32_t *target = a->target.data;
    float *rows = ex->workspace;
    TRY(index_check("route_margins", "index", &a->index, E));
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t n = 0; n < N; n++) {
        float *p = rows + 2 * E * omp_get_thread_num();
        if (target == NULL || target[n] >= 0) count_token(a, n, p, p + E);
    }
    return OK;
}

/* Two rows of E a thread. */
size_t route_margins_workspace(const Exec *ex, const RouteMargins *a)
{
    return (size_t)(2 * tensor_cols(&a->logits) * ex->threads) * sizeof(float);
}

Status route_margins_check(const RouteMargins *a)
{
    const char *op = "route_margins";
    int64_t E = tensor_cols(&a->logits), K = tensor_cols(&a->index);
    TRY(op_expect(op, "logits", &a->logits, -1, E, DTYPE_F32));
    if (K < 1 || K >= E)
        return FAIL(ERR_ARG, "route_margins: top_k is %lld, outside 1 .. %lld of %lld experts",
                    (long long)K, (long long)(E - 1), (long long)E);
    int64_t N = tensor_elems(&a->logits) / E;
    TRY(op_expect(op, "bias", &a->bias, 1, E, DTYPE_F32));
    TRY(op_expect(op, "index", &a->index, N, K, DTYPE_I32));
    if (a->target.data != NULL) TRY(op_expect(op, "target", &a->target, N, -1, DTYPE_I32));
    return op_expect(op, "margins", &a->margins, E, MARGIN_BINS, DTYPE_I32);
}

/* FLOPs for each logit: its score (route_fwd_cost), a sum and a difference. A counter is read and written for each. */
OpCost route_margins_cost(const RouteMargins *a)
{
    double elems = (double)tensor_elems(&a->logits);
    return (OpCost){ .flops = 5 * elems,
                     .bytes = (double)(tensor_bytes(&a->logits) + tensor_bytes(&a->index)) +
                              2 * elems * (double)sizeof(int32_t) };
}

OP_PORTS(route_margins, IN(RouteMargins, logits), IN(RouteMargins, bias), IN(RouteMargins, index),
         IN_OPT(RouteMargins, target), ADD(RouteMargins, margins));
