/*
 * moe_combine: kernels of the weighted sum and of the bias update. Combine is bound by memory: K
 * rows of a token are read once each and y is written once. Threads of a block lie along a row
 * first, then over tokens. A thread reads its packs of all rows before it writes its pack of y, so
 * y may be the residual.
 *
 * The bias update is one block: it sees domains x experts integers once a step.
 */
#include "op/pack.cuh"

#include "op/moe.h"

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
static __device__ __forceinline__ void combine_add(const T *row, float weight, float (&sum)[P])
{
    float v[P];
    load<WIDE>(row, v);
#pragma unroll
    for (int i = 0; i < P; i++) sum[i] += weight * v[i];
}

template <typename T, bool WIDE> static __global__ void moe_combine_kernel(Combine<T> a)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int64_t n = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (n >= a.n) return;
    for (int64_t d = (int64_t)threadIdx.x * P; d < a.d; d += (int64_t)blockDim.x * P) {
        float sum[P] = {};
#pragma unroll 4
        for (int64_t k = n * a.k; k < (n + 1) * a.k; k++) {
            int64_t row = a.slot_row == NULL ? n : a.slot_row[k];
            float weight = a.weight == NULL ? 1.0f : a.weight[k];
            if (row >= 0) combine_add<T, WIDE>(a.out + row * a.d + d, weight, sum);
        }
        if (a.shared != NULL) combine_add<T, WIDE>(a.shared + n * a.d + d, 1, sum);
        if (a.residual != NULL) combine_add<T, WIDE>(a.residual + n * a.d + d, 1, sum);
        store<WIDE>(a.y + n * a.d + d, sum);
    }
}

extern "C" Status moe_combine_cuda(struct Exec *ex, const void *args)
{
    const MoeCombine *a = (const MoeCombine *)args;
    int64_t d = tensor_cols(&a->y), n = tensor_elems(&a->y) / d, k = moe_combine_slots(a);
    const void *shared = a->shared.data, *residual = a->residual.data;
    if (n == 0) return OK;
    return launch_packed("moe_combine", a->y.dtype, { a->out.data, shared, residual, a->y.data },
                         { d }, [&](auto t, auto wide) {
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
                             dim3 block = row_block(d / (wide ? PACK<T> : 1));
                             moe_combine_kernel<T, wide>
                                 <<<grid_of(n, block.y), block, 0, exec_stream(ex)>>>(c);
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
