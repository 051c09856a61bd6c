/*
 * cpu_math: functions with the same bits on the device as on the CPU, for choices that must not
 * depend on where they are made (route.cu). They are slower than the device's own functions.
 */
#ifndef KERNELS_CORE_CPU_MATH_CUH
#define KERNELS_CORE_CPU_MATH_CUH

#include "engine/gpu/lane.cuh"

/* exp_f32 of kernels/core/cpu_math.h, step by step, with the multiply-adds that a CPU fuses. */
static __device__ __forceinline__ float exp_like_cpu(float x)
{
    x = -104.0f > x ? -104.0f : x;
    x = 89.0f < x ? 89.0f : x;
    const float shift = 12582912.0f;
    float shifted = __fmaf_rn(x, 1.44269504088896341f, shift);
    float n = __fsub_rn(shifted, shift);
    float r = __fmaf_rn(-n, 0.693359375f, x);
    r = __fmaf_rn(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = __fmaf_rn(p, r, 1.3981999507e-3f);
    p = __fmaf_rn(p, r, 8.3334519073e-3f);
    p = __fmaf_rn(p, r, 4.1665795894e-2f);
    p = __fmaf_rn(p, r, 1.6666665459e-1f);
    p = __fmaf_rn(p, r, 5.0000001201e-1f);
    p = __fadd_rn(__fmaf_rn(__fmul_rn(p, r), r, r), 1.0f);
    int32_t e = (int32_t)(__float_as_uint(shifted) - 0x4B400000u), half = e >> 1;
    float first = __uint_as_float((uint32_t)(half + 127) << 23);
    float second = __uint_as_float((uint32_t)(e - half + 127) << 23);
    return __fmul_rn(__fmul_rn(p, first), second);
}

/* 1 / x, correctly rounded, for x from 1 to 2^126: one Newton step from the chip's estimate. */
static __device__ __forceinline__ float reciprocal(float x)
{
    float r = fast_reciprocal(x);
    return __fmaf_rn(r, __fmaf_rn(-x, r, 1.0f), r);
}

#endif
