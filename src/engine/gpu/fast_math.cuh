/* fast_math: the chip's own functions in f32, for results that are rounded to 16 bits or fewer.
 * Subnormal results are 0. Errors are in the last two of 24 bits. */
#ifndef ENGINE_GPU_FAST_MATH_CUH
#define ENGINE_GPU_FAST_MATH_CUH

#include "engine/gpu/lane.cuh"

/* 1 / (1 + e^-x). The compiler's __expf and __fdividef have the same bits here, but spend more
 * instructions on subnormal numbers than on others. */
static __device__ __forceinline__ float sigmoid_fast(float x)
{
    return fast_reciprocal(1.0f + fast_exp2(-x * 1.4426950408889634f));
}

#endif
