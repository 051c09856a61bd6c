/* eight_bit_cuda: the names of eight_bit.cuh for CUDA. */
#ifndef ENGINE_GPU_EIGHT_BIT_CUDA_CUH
#define ENGINE_GPU_EIGHT_BIT_CUDA_CUH

#include "engine/gpu/lane.cuh"

#include <cuda_fp8.h>

/* Two bytes; `low` is the first in memory. */
static __device__ __forceinline__ uint32_t pair_to_e4m3(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

static __device__ __forceinline__ uint32_t pair_to_e5m2(float low, float high)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E5M2);
}

/* The two numbers of two bytes, x is the first in memory; higher bytes of `codes` do not matter. */
static __device__ __forceinline__ float2 pair_from_e4m3(uint32_t codes)
{
    return __half22float2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)codes, __NV_E4M3));
}

static __device__ __forceinline__ float2 pair_from_e5m2(uint32_t codes)
{
    return __half22float2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)codes, __NV_E5M2));
}

/* The larger of two numbers, for both of a pair. A NaN loses. */
static __device__ __forceinline__ uint32_t pair_number_most(uint32_t a, uint32_t b)
{
    Bf16Pair x, y, most;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    most = __hmax2(x, y);
    memcpy(&a, &most, sizeof a);
    return a;
}

/* The larger of two magnitudes. A NaN wins. */
static __device__ __forceinline__ uint32_t pair_most(uint32_t a, uint32_t b)
{
    Bf16Pair x, y, most;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    most = __hmax2_nan(__habs2(x), __habs2(y));
    memcpy(&a, &most, sizeof a);
    return a;
}

/* The compiler no longer knows what v holds, so it computes anew what it needs of it. */
static __device__ __forceinline__ void value_forget(uint32_t &v) { asm volatile("" : "+r"(v)); }

#endif
