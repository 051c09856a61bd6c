/*
 * lane: hardware operations for which C++ has no words: the width of a warp, exchanges between its
 * lanes, fences, cache hints, asynchronous copies, fast arithmetic, bf16. Matrix units are in
 * fragment.cuh and the nv/ of kernels.
 *
 * Kernels outside nv/ use only these names, so they also compile for a GPU whose warp has 64 lanes.
 * Such kernels keep three rules, which tools/check_layers enforces:
 *
 *   - the width of a warp is WARP, and a set of lanes is a LaneMask, never a literal;
 *   - shared arrays with one element per warp of a block have BLOCK_WARPS elements;
 *   - work that is split into 32 parts for another reason has its own constant.
 *
 * A wider warp adds its lanes in another order. So bits may differ between vendors, but not between
 * two GPUs of one vendor.
 *
 * Each vendor's file defines the same names with its instructions: lane_cuda.cuh, which says what each
 * name means, and lane_hip.cuh. Two of them may do less there: copy_chunk may copy synchronously, and
 * row_barrier may wait for the whole block.
 */
#ifndef ENGINE_GPU_LANE_CUH
#define ENGINE_GPU_LANE_CUH

static constexpr int BLOCK_THREADS_MAX = 1024; /* of any kernel */

#ifdef __HIP__
#include "kernels-amd/lane_hip.cuh"
#else
#include "engine/gpu/lane_cuda.cuh"
#endif

static constexpr int BLOCK_WARPS = BLOCK_THREADS_MAX / WARP; /* of the largest block */

static_assert(sizeof(LaneMask) * 8 == WARP, "a mask has a bit a lane");
static_assert(BLOCK_WARPS <= WARP, "one warp adds up what the warps of a block found");

/* The lanes with a lower number: with lanes_count it gives a lane its place among those in a
 * mask. */
static __device__ __forceinline__ LaneMask lanes_below(int lane)
{
    return ((LaneMask)1 << lane) - 1;
}

/* Butterfly over log2(WARP) steps. All lanes get the same bits, because both lanes of a pair add
 * the same two numbers. */
template <typename T> static __device__ __forceinline__ T warp_sum(T v)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2) v += lane_get_xor(v, bits);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2) v = fmaxf(v, lane_get_xor(v, bits));
    return v;
}

template <typename T> static __device__ __forceinline__ float to_f32(T v);
template <> __device__ __forceinline__ float to_f32<float>(float v) { return v; }
template <> __device__ __forceinline__ float to_f32<Bf16>(Bf16 v) { return bf16_widen(v); }

template <typename T> static __device__ __forceinline__ T from_f32(float v);
template <> __device__ __forceinline__ float from_f32<float>(float v) { return v; }
template <> __device__ __forceinline__ Bf16 from_f32<Bf16>(float v) { return bf16_narrow(v); }

#endif
