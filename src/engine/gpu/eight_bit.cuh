/*
 * eight_bit: hardware conversions of pairs of f32 numbers to 8-bit numbers and back, and maxima of
 * pairs of bf16 numbers. lane.cuh explains what these names are for. GPUs before compute capability 8.9
 * convert by instructions that all GPUs have.
 *
 * Conversions round to nearest even and saturate. A NaN becomes some NaN: who must keep its bits
 * uses kernels/core/dtype.cuh.
 */
#ifndef ENGINE_GPU_EIGHT_BIT_CUH
#define ENGINE_GPU_EIGHT_BIT_CUH

#include "engine/gpu/lane.cuh"

#ifdef __HIP__
#include "kernels-amd/eight_bit_hip.cuh"
#else
#include "engine/gpu/eight_bit_cuda.cuh"
#endif

#endif
