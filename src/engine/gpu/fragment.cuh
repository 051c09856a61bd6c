/*
 * fragment: one warp's part of the product of two bf16 tiles in shared memory, on matrix units.
 * attention.cu is built from it; products of whole matrices are in nv/ of src/kernels. fragment_cuda.cuh says
 * what it computes.
 */
#ifndef ENGINE_GPU_FRAGMENT_CUH
#define ENGINE_GPU_FRAGMENT_CUH

#include "engine/gpu/lane.cuh"

/* Rows and columns of the result; k must be a multiple of FRAGMENT. */
static constexpr int FRAGMENT = 16, STRIP = 32;

#ifdef __HIP__
#include "kernels-amd/fragment_hip.cuh"
#else
#include "engine/gpu/fragment_cuda.cuh"
#endif

#endif
