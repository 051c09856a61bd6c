/*
 * attention_sink: kernels of sinks. Forward is bound by memory: threads that share a row move 16 bytes at a time. In
 * backward a block sums a part of the tokens for all heads. A second kernel adds the parts in order, without atomics.
 */
#include "kernels/core/pack.cuh"

extern "C" {
#include "kernels/attention/attention.h"
}

static const int THREADS = 256, WARPS = THREADS / WARP, PARTS = 512;

/* Rows (B, T, H) of `width` columns; lse is (B, H, T). */
template <typename T> struct SinkRows {
    T *o;
    const T *d_o;
    float *lse;
    const float *sinks;
    int64_t rows, tokens; /* B T H; T */
    int H, width, lanes;  /* lanes: threads that share a row in forward, a power of 2 */
};

template <typename T>
static __device__ __forceinline__ int64_t lse_of(const SinkRows<T> &x, int64_t token, int h)
{
    return (token / x.tokens * x.H + h) * x.tokens + token % x.tokens;
}

template <typename T, bool WIDE>
static __global__
__launch_bounds__(THREADS) void sink_fwd_kernel(const __grid_constant__ SinkRows<T> x)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int lane = (int)threadIdx.x & (x.lanes - 1);
    int64_t row = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / x.lanes, lse = 0;
    AttentionMerge m = {};
    if (row < x.rows) {
        lse = lse_of(x, row / x.H, (int)(row % x.H));
        m = attention_merge(x.lse[lse], x.sinks[row % x.H]);
    }
    lanes_sync(); /* all have read the lse that lane 0 replaces */
    if (row >= x.rows) return;
    if (lane == 0) x.lse[lse] = m.lse;
    for (int d = lane * P; d < x.width; d += x.lanes * P) {
        float v[P];
        load<WIDE>(x.o + row * x.width + d, v);
#pragma unroll
        for (int k = 0; k < P; k++) v[k] *= m.before;
        store<WIDE>(x.o + row * x.width + d, v);
    }
}

/* part (gridDim.x, H). One warp handles a row; each head's partial sum has one writer. */
template <typename T>
static __global__
__launch_bounds__(THREADS) void sink_bwd_kernel(const __grid_constant__ SinkRows<T> x, float *part)
{
    for (int h = (int)threadIdx.x / WARP; h < x.H; h += WARPS) {
        float all = 0;
        for (int64_t token = blockIdx.x; token * x.H < x.rows; token += gridDim.x) {
            int64_t at = (token * x.H + h) * x.width;
            float sum = 0;
            for (int d = (int)threadIdx.x % WARP; d < x.width; d += WARP)
                sum += to_f32(x.o[at + d]) * to_f32(x.d_o[at + d]);
            all += expf(x.sinks[h] - x.lse[lse_of(x, token, h)]) * warp_sum(sum);
        }
        if (threadIdx.x % WARP == 0) part[(int64_t)blockIdx.x * x.H + h] = all;
    }
}

/* One warp handles a head. */
static __global__ void sink_sum_kernel(const float *part, float *dsinks, int parts, int H)
{
    float sum = 0;
    for (int i = (int)threadIdx.x; i < parts; i += WARP) sum += part[(int64_t)i * H + blockIdx.x];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) dsinks[blockIdx.x] -= sum;
}

template <typename T> static SinkRows<T> rows_of(const Tensor *o, const Tensor *lse)
{
    SinkRows<T> x = {};
    x.o = (T *)o->data;
    x.lse = (float *)lse->data;
    x.rows = o->dim[0] * o->dim[1] * o->dim[2];
    x.tokens = o->dim[1];
    x.H = (int)o->dim[2];
    x.width = (int)o->dim[3];
    return x;
}

/* As many threads share a row as it has packs, rounded up to a power of two, so that lane
 * arithmetic needs no division. */
template <typename T, bool WIDE> static void fwd_launch(struct Exec *ex, SinkRows<T> x)
{
    int packs = x.width / (WIDE ? PACK<T> : 1);
    for (x.lanes = 1; x.lanes < packs && x.lanes < WARP;) x.lanes *= 2;
    unsigned blocks = grid_of(x.rows * x.lanes, THREADS);
    sink_fwd_kernel<T, WIDE><<<blocks, THREADS, 0, exec_stream(ex)>>>(x);
}

template <typename T> static Status forward(struct Exec *ex, const AttentionSinkFwd *a)
{
    SinkRows<T> x = rows_of<T>(&a->o, &a->lse);
    x.sinks = (const float *)a->sinks.data;
    if (x.rows == 0) return OK;
    if (packs_fit<T>({ a->o.data }, { a->o.dim[3] }))
        fwd_launch<T, true>(ex, x);
    else
        fwd_launch<T, false>(ex, x);
    return kernel_status("attention_sink_fwd");
}

/* The number of parts depends on the call alone, never on the GPU, so sums have the same bits on every GPU. */
static int parts_of(const AttentionSinkBwd *a)
{
    int64_t tokens = a->o.dim[0] * a->o.dim[1];
    return tokens < PARTS ? (int)tokens : PARTS;
}

template <typename T> static Status backward(struct Exec *ex, const AttentionSinkBwd *a)
{
    SinkRows<T> x = rows_of<T>(&a->o, &a->lse);
    float *part = (float *)exec_workspace(ex);
    x.sinks = (const float *)a->sinks.data;
    x.d_o = (const T *)a->d_o.data;
    if (x.rows == 0) return OK;
    sink_bwd_kernel<T><<<(unsigned)parts_of(a), THREADS, 0, exec_stream(ex)>>>(x, part);
    sink_sum_kernel<<<(unsigned)x.H, WARP, 0, exec_stream(ex)>>>(part, (float *)a->dsinks.data,
                                                                 parts_of(a), x.H);
    return kernel_status("attention_sink_bwd");
}

extern "C" Status attention_sink_fwd_gpu(struct Exec *ex, const void *args)
{
    const AttentionSinkFwd *a = (const AttentionSinkFwd *)args;
    return a->o.dtype == DTYPE_F32 ? forward<float>(ex, a) : forward<Bf16>(ex, a);
}

extern "C" size_t attention_sink_bwd_gpu_workspace(const struct Exec *, const void *args)
{
    const AttentionSinkBwd *a = (const AttentionSinkBwd *)args;
    return (size_t)parts_of(a) * (size_t)a->o.dim[2] * sizeof(float);
}

extern "C" Status attention_sink_bwd_gpu(struct Exec *ex, const void *args)
{
    const AttentionSinkBwd *a = (const AttentionSinkBwd *)args;
    return a->o.dtype == DTYPE_F32 ? backward<float>(ex, a) : backward<Bf16>(ex, a);
}
