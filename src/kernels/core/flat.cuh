/* flat: reads and writes buffers without rows, whose end need not lie on a pack. */
#ifndef KERNELS_CORE_FLAT_CUH
#define KERNELS_CORE_FLAT_CUH

#include "kernels/core/pack.cuh"

/* N elements of a flat buffer from i on, 0 after its end. wide: packs fit. */
template <typename T, int N>
static __device__ __forceinline__ void load_flat(const T *x, int64_t i, int64_t n, bool wide,
                                                 float (&v)[N])
{
    if (wide && i + N <= n) {
        load<true>(x + i, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = i + k < n ? to_f32(x[i + k]) : 0.0f;
}

template <typename T, int N>
static __device__ __forceinline__ void store_flat(T *x, int64_t i, int64_t n, bool wide,
                                                  const float (&v)[N])
{
    if (wide && i + N <= n) {
        store<true>(x + i, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (i + k < n) x[i + k] = from_f32<T>(v[k]);
    }
}

#endif
