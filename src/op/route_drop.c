/* route_drop: CPU version: a thread an expert. */
#include "op/route_drop.h"

#include "op/index_check.h"
#include "op/op.h"

#include <omp.h>
#include <string.h>

static uint64_t key_of(const float *weight, int32_t i)
{
    uint32_t bits;
    memcpy(&bits, &weight[i], sizeof bits);
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)i);
}

/* The `capacity`-th largest key of more than that many. */
static uint64_t bound_of(const float *weight, const int32_t *list, int64_t n, int64_t capacity)
{
    uint64_t bound = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t next = bound | (uint64_t)1 << bit;
        int64_t reach = 0;
        for (int64_t j = 0; j < n; j++) reach += key_of(weight, list[j]) >= next;
        if (reach >= capacity) bound = next;
    }
    return bound;
}

static int32_t drop_of(const RouteDrop *a, int64_t e, int32_t *list)
{
    const int32_t *index = a->index.data, *target = a->target.data;
    float *weight = a->weight.data;
    int64_t K = tensor_cols(&a->index), n = 0;
    for (int64_t i = 0; i < tensor_elems(&a->index); i++) {
        if (index[i] == e && (target == NULL || target[i / K] >= 0)) list[n++] = (int32_t)i;
    }
    if (n <= a->capacity) return 0;
    uint64_t bound = bound_of(weight, list, n, a->capacity);
    for (int64_t j = 0; j < n; j++) {
        if (key_of(weight, list[j]) < bound) weight[list[j]] = 0;
    }
    return (int32_t)(n - a->capacity);
}

/* No more than this has the same expert, unless a token has it twice. */
static size_t list_elems(const RouteDrop *a) { return (size_t)tensor_elems(&a->index); }

Status route_drop_cpu(Exec *ex, const RouteDrop *a)
{
    TRY(index_check("route_drop", "index", &a->index, a->experts));
    int32_t all = 0, *lists = ex->workspace;
#pragma omp parallel for schedule(static) num_threads(ex->threads) reduction(+ : all)
    for (int64_t e = 0; e < a->experts; e++)
        all += drop_of(a, e, lists + (size_t)omp_get_thread_num() * list_elems(a));
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
    int64_t K = tensor_cols(&a->index), N = K > 0 ? tensor_elems(&a->index) / K : 0;
    TRY(op_expect(op, "index", &a->index, N, K, DTYPE_I32));
    if (a->target.data != NULL) TRY(op_expect(op, "target", &a->target, N, -1, DTYPE_I32));
    TRY(op_expect(op, "weight", &a->weight, N, K, DTYPE_F32));
    TRY(op_expect(op, "dropped", &a->dropped, 1, 1, DTYPE_I32));
    if (N * K > INT32_MAX)
        return FAIL(ERR_ARG, "route_drop: %lld routed rows, at most 2^31 - 1", (long long)(N * K));
    if (a->capacity >= 1 && a->experts >= 1) return OK;
    return FAIL(ERR_ARG, "route_drop: capacity %lld of %lld experts, at least 1 of 1",
                (long long)a->capacity, (long long)a->experts);
}

/* Comparisons do not count. */
OpCost route_drop_cost(const RouteDrop *a)
{
    return (OpCost){ .bytes = 3 * (double)tensor_bytes(&a->weight) };
}

OP_PORTS(route_drop, IN(RouteDrop, index), IN_OPT(RouteDrop, target), ADD(RouteDrop, weight),
         ADD(RouteDrop, dropped));
