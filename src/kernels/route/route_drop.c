/* route_drop: check, cost and CPU version. A thread handles one expert at a time: it lists the
 * expert's entries and finds the key above which they stay (route_drop.h). */
#include "kernels/route/route_drop.h"

#include "kernels/core/index_check.h"
#include "kernels/core/op.h"

#include <omp.h>

/* The `capacity`-th largest key of a list of more than `capacity` entries, found bit by bit. */
static uint64_t capacity_bound(const RouteDrop *a, const int32_t *list, int64_t n)
{
    uint64_t bound = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t next = bound | (uint64_t)1 << bit;
        int64_t reach = 0;
        for (int64_t j = 0; j < n; j++) reach += route_drop_reaches(a, list[j], next);
        if (reach >= a->capacity) bound = next;
    }
    return bound;
}

/* Drops this rank's entries of expert e beyond the capacity; returns how many. */
static int32_t expert_drop(const RouteDrop *a, int64_t e, int32_t *list)
{
    const int32_t *index = a->index.data, *target = a->target.data;
    float *own = a->own.data;
    int64_t K = tensor_cols(&a->index), n = 0, of_rank = tensor_elems(&a->own);
    int32_t dropped = 0;
    for (int64_t i = 0; i < tensor_elems(&a->index); i++) {
        if (index[i] == e && (target == NULL || target[i / K] >= 0)) list[n++] = (int32_t)i;
    }
    if (n <= a->capacity) return 0;
    uint64_t bound = capacity_bound(a, list, n);
    for (int64_t j = 0; j < n; j++) {
        if (list[j] / of_rank != a->rank || route_drop_reaches(a, list[j], bound)) continue;
        own[list[j] % of_rank] = 0;
        dropped++;
    }
    return dropped;
}

/* An expert has at most one entry for each slot of index. */
static size_t list_elems(const RouteDrop *a) { return (size_t)tensor_elems(&a->index); }

Status route_drop_cpu(Exec *ex, const RouteDrop *a)
{
    TRY(index_check("route_drop", "index", &a->index, a->experts));
    int32_t all = 0, *lists = ex->workspace;
#pragma omp parallel for schedule(static) num_threads(ex->threads) reduction(+ : all)
    for (int64_t e = 0; e < a->experts; e++)
        all += expert_drop(a, e, lists + (size_t)omp_get_thread_num() * list_elems(a));
    *(int32_t *)a->dropped.data += all;
    return OK;
}

size_t route_drop_workspace(const Exec *ex, const RouteDrop *a)
{
    return (size_t)ex->threads * list_elems(a) * sizeof(int32_t);
}

Status route_drop_check(const RouteDrop *a)
{
    const char *op = "route_drop";
    int64_t K = tensor_cols(&a->index), N = a->own.dim[0], all = a->ranks * N;
    TRY(op_expect(op, "index", &a->index, all, K, DTYPE_I32));
    if (a->target.data != NULL) TRY(op_expect(op, "target", &a->target, all, -1, DTYPE_I32));
    TRY(op_expect(op, "weight", &a->weight, all, K, DTYPE_F32));
    TRY(op_expect(op, "own", &a->own, N, K, DTYPE_F32));
    TRY(op_expect(op, "dropped", &a->dropped, 1, 1, DTYPE_I32));
    if (all * K > INT32_MAX)
        return FAIL(ERR_ARG, "route_drop: %lld routed rows, at most 2^31 - 1",
                    (long long)(all * K));
    const int64_t tensor = a->tensor > 1 ? a->tensor : 1, pieces = a->ranks > tensor ? 2 : 1;
    if (a->rank < 0 || a->rank >= a->ranks || a->ranks % tensor != 0 || a->sequences < 1 ||
        N % a->sequences != 0 || N / a->sequences * tensor % pieces != 0)
        return FAIL(ERR_ARG,
                    "route_drop: rank %lld of %lld has %lld tokens of %lld sequences, which %lld "
                    "ranks of tensor parallelism share",
                    (long long)a->rank, (long long)a->ranks, (long long)N, (long long)a->sequences,
                    (long long)tensor);
    if (a->capacity >= 1 && a->experts >= 1) return OK;
    return FAIL(ERR_ARG, "route_drop: capacity %lld of %lld experts, at least 1 of 1",
                (long long)a->capacity, (long long)a->experts);
}

/* Comparisons do not count. */
OpCost route_drop_cost(const RouteDrop *a)
{
    return (OpCost){ .bytes = (double)(2 * tensor_bytes(&a->weight) + tensor_bytes(&a->own)) };
}

OP_PORTS(route_drop, IN(RouteDrop, index), IN_OPT(RouteDrop, target), IN(RouteDrop, weight),
         ADD(RouteDrop, own), ADD(RouteDrop, dropped));
