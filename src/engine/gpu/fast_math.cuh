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

/* For results of type T: in f32 with the exact functions. 0 and 1 far away, where e^-x is infinite and 0. */
template <typename T> static __device__ __forceinline__ float sigmoid_for(float x)
{
    return sizeof(T) == sizeof(float) ? 1 / (1 + expf(-x)) : sigmoid_fast(x);
}

#endif
