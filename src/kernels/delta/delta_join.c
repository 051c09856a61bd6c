/*
 * delta_join: what the state is before each run of this rank, on the CPU, or the gradient of the state behind it. A
 * thread owns a head of a run, and goes through the runs before it (behind it) from the end of the sequence:
 *
 *   S = M S + B        back: dS = M^T dS + C
 *
 * A rank's two runs have 2 R - 1 others before them, whatever its number: all ranks do the same work.
 */
#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/delta/delta_check.h"

#include <omp.h>

/* Floats of a head in a row of span, and of its state. */
static int64_t span_elems(const DeltaDims *d) { return d->key * (d->value + d->key); }
static int64_t state_elems(const DeltaDims *d) { return d->key * d->value; }

Status delta_join_check(const DeltaJoin *a)
{
    const DeltaDims *d = &a->dims;
    const int64_t runs = a->state.dim[0];
    if (a->rank < 0 || a->rank >= a->ranks || runs % 2 != 0)
        return FAIL(ERR_SHAPE, "delta_join: %lld runs on rank %lld of %lld, wanted pairs of runs",
                    (long long)runs, (long long)a->rank, (long long)a->ranks);
    TRY(op_expect("delta_join", "state", &a->state, -1, d->heads * state_elems(d), DTYPE_F32));
    return op_expect("delta_join", "span", &a->span, a->ranks * runs, d->heads * span_elems(d),
                     DTYPE_F32);
}

/* The first of the runs needs no product. */
OpCost delta_join_cost(const DeltaJoin *a)
{
    const DeltaDims *d = &a->dims;
    const double products = (double)(a->state.dim[0] * d->heads * (a->ranks - 1));
    return (OpCost){ .flops = 2 * products * (double)(d->key * d->key * d->value),
                     .bytes = (double)(tensor_bytes(&a->span) + tensor_bytes(&a->state)),
                     .work = WORK_GEMM,
                     .dtype = DTYPE_F32,
                     .size = (double)least(d->key, d->value) };
}

size_t delta_join_workspace(const Exec *ex, const DeltaJoin *a)
{
    return (size_t)(ex->threads * state_elems(&a->dims)) * sizeof(float);
}

/* state = M state + B, or M^T state + C; `old` has room for the state before. */
static void pass_run(const DeltaJoin *a, const float *span, float *state, float *old)
{
    const int64_t key = a->dims.key, value = a->dims.value, width = key + value;
    memcpy(old, state, (size_t)(key * value) * sizeof *old);
    for (int64_t i = 0; i < key; i++) {
        float *to = state + i * value;
        memcpy(to, span + i * width, (size_t)value * sizeof *to);
        for (int64_t k = 0; k < key; k++) {
            const float m = a->back ? span[k * width + value + i] : span[i * width + value + k];
            const float *from = old + k * value;
#pragma omp simd
            for (int64_t j = 0; j < value; j++) to[j] += m * from[j];
        }
    }
}

/* Head h of run `run` of this rank. */
static void join_head(const DeltaJoin *a, int64_t run, int64_t h, float *old)
{
    const DeltaDims *d = &a->dims;
    const int64_t runs = a->state.dim[0], last = 2 * a->ranks - 1, step = a->back ? -1 : 1;
    const int64_t own = run % 2 == 0 ? a->rank : last - a->rank;
    float *state = (float *)a->state.data + (run * d->heads + h) * state_elems(d);
    memset(state, 0, (size_t)state_elems(d) * sizeof *state);
    for (int64_t i = a->back ? last : 0; i != own; i += step) {
        const int64_t second = i >= a->ranks, rank = second ? last - i : i;
        const int64_t row = rank * runs + run / 2 * 2 + second;
        pass_run(a, (const float *)a->span.data + (row * d->heads + h) * span_elems(d), state, old);
    }
}

Status delta_join_cpu(Exec *ex, const DeltaJoin *a)
{
    const int64_t heads = a->dims.heads, n = a->state.dim[0] * heads;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float *old = (float *)ex->workspace + omp_get_thread_num() * state_elems(&a->dims);
        join_head(a, i / heads, i % heads, old);
    }
    return OK;
}

OP_PORTS(delta_join, IN(DeltaJoin, span), OUT(DeltaJoin, state));
