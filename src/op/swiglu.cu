/* swiglu: bound by memory: gu is read once and y written once. Threads of a block lie along a row
 * first, then over rows. A thread reads its packs of both halves before it writes any, so dgu may
 * be gu. */
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

extern "C" Status swiglu_fwd_cuda(struct Exec *ex, const void *args)
{
    const SwigluFwd *a = (const SwigluFwd *)args;
    const void *gu = a->gu.data;
    void *y = a->y.data;
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    return launch_packed("swiglu_fwd", a->gu.dtype, { gu, y }, { f }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        dim3 block = row_block(f / (wide ? PACK<T> : 1));
        swiglu_fwd_kernel<T, wide>
            <<<grid_of(n, block.y), block, 0, exec_stream(ex)>>>((const T *)gu, (T *)y, n, f);
    });
}

extern "C" Status swiglu_bwd_cuda(struct Exec *ex, const void *args)
{
    const SwigluBwd *a = (const SwigluBwd *)args;
    const void *dy = a->dy.data, *gu = a->gu.data;
    void *dgu = a->dgu.data;
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    return launch_packed("swiglu_bwd", a->gu.dtype, { dy, gu, dgu }, { f }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        dim3 block = row_block(f / (wide ? PACK<T> : 1));
        swiglu_bwd_kernel<T, wide><<<grid_of(n, block.y), block, 0, exec_stream(ex)>>>(
            (const T *)dy, (const T *)gu, (T *)dgu, n, f);
    });
}
