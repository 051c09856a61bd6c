/*
 * moe_combine: kernels of the weighted sum and of the bias update. Combine is bound by memory: K
 * rows of a token are read once each and y is written once. A thread has a pack of y: it learns the
 * rows of up to SLOTS slots at a time, fetches its pack of all of them, of shared and of residual,
 * and then adds them up in that order, so y may be the residual. Threads of a block lie along a row
 * first, then over tokens.
 *
 * The bias update is one block: it sees domains x experts integers once a step.
 */
#include "op/rows.cuh"

#include "op/moe.h"

enum { SLOTS = 8 }; /* 128 bytes on their way for each thread, and 32 more */

/* y_n = sum over k of weight[n][k] * out[slot_row[n][k]] + shared_n + residual_n */

template <typename T> struct Combine {
    const T *out;
    const int32_t *slot_row;    /* or NULL: row n for token n */
    const float *weight;        /* or NULL: 1 */
    const T *shared, *residual; /* or NULL */
    T *y;
    int64_t n, k, d;
};

template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void combine_add(const Packed<T, WIDE> &row, float weight,
                                                   float (&sum)[P])
{
    float v[P];
    widen(row, v);
#pragma unroll
    for (int i = 0; i < P; i++) sum[i] += weight * v[i];
}

/* Adds up to SLOTS slots of a token from slot `first` on, before slot `end`; what is no row adds
 * 0 * 0. Without slot_row the one slot has row 0 of what `out` then begins with. */
template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void combine_slots(const Combine<T> &a, const T *out,
                                                     int64_t first, int64_t end, float (&sum)[P])
{
    Packed<T, WIDE> v[SLOTS];
    float weight[SLOTS];
    int32_t row[SLOTS];
#pragma unroll
    for (int k = 0; k < SLOTS; k++) {
        row[k] = -1;
        if (first + k < end) row[k] = a.slot_row == NULL ? 0 : __ldg(a.slot_row + first + k);
    }
#pragma unroll
    for (int k = 0; k < SLOTS; k++) {
        weight[k] = 0;
        clear(v[k]);
        if (row[k] < 0) continue;
        weight[k] = a.weight == NULL ? 1 : __ldg(a.weight + first + k);
        fetch_once(v[k], out + row[k] * a.d);
    }
#pragma unroll
    for (int k = 0; k < SLOTS; k++) combine_add(v[k], weight[k], sum);
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS, 3) void moe_combine_kernel(Combine<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    row_groups<1, P>(a.n, a.d, [&](int64_t col, int64_t n, int64_t) {
        Packed<T, WIDE> shared, residual;
        float sum[P] = {};
        if (a.shared != NULL) fetch_once(shared, a.shared + n * a.d + col);
        if (a.residual != NULL) fetch_once(residual, a.residual + n * a.d + col);
        const T *out = a.out + (a.slot_row == NULL ? n * a.d : 0) + col;
        for (int64_t k = n * a.k; k < (n + 1) * a.k; k += SLOTS) {
            combine_slots<T, WIDE>(a, out, k, (n + 1) * a.k, sum);
        }
        if (a.shared != NULL) combine_add(shared, 1, sum);
        if (a.residual != NULL) combine_add(residual, 1, sum);
        store<WIDE>(a.y + n * a.d + col, sum);
    });
}

extern "C" Status moe_combine_cuda(struct Exec *ex, const void *args)
{
    const MoeCombine *a = (const MoeCombine *)args;
    int64_t d = tensor_cols(&a->y), n = tensor_elems(&a->y) / d, k = moe_combine_slots(a);
    const void *shared = a->shared.data, *residual = a->residual.data;
    if (n == 0) return OK;
    return launch_packed(
        ex, "moe_combine", a->y.dtype, { a->out.data, shared, residual, a->y.data }, { d },
        [&](auto t, auto wide) {
            typedef decltype(t) T;
            Combine<T> c = {};
            c.out = (const T *)a->out.data;
            c.slot_row = (const int32_t *)a->slot_row.data;
            c.weight = (const float *)a->weight.data;
            c.y = (T *)a->y.data;
            c.shared = (const T *)shared;
            c.residual = (const T *)residual;
            c.n = n;
            c.k = k;
            c.d = d;
            RowGrid g = row_grid(n, d / (wide ? PACK<T> : 1), 1);
            moe_combine_kernel<T, wide><<<g.grid, g.block, 0, exec_stream(ex)>>>(c);
        });
}

/* bias_e += rate * sign(mean(n) - n_e) */

enum { BIAS_THREADS = 512 };

static __global__
__launch_bounds__(BIAS_THREADS) void moe_bias_update_kernel(const int32_t *load, const float *gate,
                                                            float *bias, int64_t domains,
                                                            int64_t experts, float rate)
{
    __shared__ int64_t room[32];
    int64_t mine = 0;
    for (int64_t i = threadIdx.x; i < domains * experts; i += BIAS_THREADS) mine += load[i];
    int64_t total = block_sum(mine, room);
    if (!isfinite(*gate)) return;
    for (int64_t e = threadIdx.x; e < experts; e += BIAS_THREADS) {
        int64_t n = 0;
        for (int64_t d = 0; d < domains; d++) n += load[d * experts + e];
        int64_t under = total - n * experts; /* experts times the mean less n: 0 is exact */
        bias[e] += rate * (float)((under > 0) - (under < 0));
    }
}

extern "C" Status moe_bias_update_cuda(struct Exec *ex, const void *args)
{
    const MoeBiasUpdate *a = (const MoeBiasUpdate *)args;
    int64_t experts = tensor_elems(&a->bias);
    moe_bias_update_kernel<<<1, BIAS_THREADS, 0, exec_stream(ex)>>>(
        (const int32_t *)a->load.data, (const float *)a->gate.data, (float *)a->bias.data,
        tensor_elems(&a->load) / experts, experts, a->rate);
    return kernel_status("moe_bias_update");
}
