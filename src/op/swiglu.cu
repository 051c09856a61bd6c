/* Memory-bound: gu is read once and y written once. Threads of a block lie along a row first, then
 * over rows. A thread reads its packs of both halves before it writes any, so dgu may be gu. */
#include "op/pack.cuh"

#include "op/swiglu.h"

template <typename T, bool WIDE>
static __global__ void swiglu_fwd_kernel(const T *gu, T *y, int64_t n, int64_t f)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    for (int64_t i = (int64_t)threadIdx.x * P; i < f; i += (int64_t)blockDim.x * P) {
        float g[P], u[P];
        load_const<WIDE>(gu + row * 2 * f + i, g);
        load_const<WIDE>(gu + row * 2 * f + f + i, u);
#pragma unroll
        for (int k = 0; k < P; k++) u[k] *= g[k] / (1 + expf(-g[k]));
        store<WIDE>(y + row * f + i, u);
    }
}

/* y = g s u, s = 1 / (1 + e^-g):   dg = dy u s (1 + g (1 - s)),   du = dy g s */
template <typename T, bool WIDE>
static __global__ void swiglu_bwd_kernel(const T *dy, const T *gu, T *dgu, int64_t n, int64_t f)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    for (int64_t i = (int64_t)threadIdx.x * P; i < f; i += (int64_t)blockDim.x * P) {
        int64_t at_g = row * 2 * f + i, at_u = at_g + f;
        float d[P], g[P], u[P];
        load_const<WIDE>(dy + row * f + i, d);
        load<WIDE>(gu + at_g, g);
        load<WIDE>(gu + at_u, u);
#pragma unroll
        for (int k = 0; k < P; k++) {
            float s = 1 / (1 + expf(-g[k])), dg = d[k] * u[k] * s * (1 + g[k] * (1 - s));
            u[k] = d[k] * g[k] * s;
            g[k] = dg;
        }
        store<WIDE>(dgu + at_g, g);
        store<WIDE>(dgu + at_u, u);
    }
}

template <typename T, bool WIDE> static void forward_launch(struct Exec *ex, const SwigluFwd *a)
{
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    dim3 block = row_block(f / (WIDE ? PACK<T> : 1));
    swiglu_fwd_kernel<T, WIDE><<<grid_of(n, block.y), block, 0, exec_stream(ex)>>>(
        (const T *)a->gu.data, (T *)a->y.data, n, f);
}

template <typename T> static Status forward(struct Exec *ex, const SwigluFwd *a)
{
    if (packs_fit<T>({ a->gu.data, a->y.data }, { tensor_row_elems(&a->gu) / 2 }))
        forward_launch<T, true>(ex, a);
    else
        forward_launch<T, false>(ex, a);
    return kernel_status("swiglu_fwd");
}

extern "C" Status swiglu_fwd_cuda(struct Exec *ex, const void *args)
{
    const SwigluFwd *a = (const SwigluFwd *)args;
    return a->gu.dtype == DTYPE_F32 ? forward<float>(ex, a) : forward<Bf16>(ex, a);
}

template <typename T, bool WIDE> static void backward_launch(struct Exec *ex, const SwigluBwd *a)
{
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    dim3 block = row_block(f / (WIDE ? PACK<T> : 1));
    swiglu_bwd_kernel<T, WIDE><<<grid_of(n, block.y), block, 0, exec_stream(ex)>>>(
        (const T *)a->dy.data, (const T *)a->gu.data, (T *)a->dgu.data, n, f);
}

template <typename T> static Status backward(struct Exec *ex, const SwigluBwd *a)
{
    if (packs_fit<T>({ a->dy.data, a->gu.data, a->dgu.data }, { tensor_row_elems(&a->gu) / 2 }))
        backward_launch<T, true>(ex, a);
    else
        backward_launch<T, false>(ex, a);
    return kernel_status("swiglu_bwd");
}

extern "C" Status swiglu_bwd_cuda(struct Exec *ex, const void *args)
{
    const SwigluBwd *a = (const SwigluBwd *)args;
    return a->gu.dtype == DTYPE_F32 ? backward<float>(ex, a) : backward<Bf16>(ex, a);
}
