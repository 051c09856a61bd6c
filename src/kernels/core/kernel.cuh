/*
 * kernel: what GPU files share: the launch's stream and workspace, sums over a block, grids.
 *
 * A .cu holds kernels and launchers. A launcher unpacks the argument struct, picks a grid, launches
 * on exec_stream and returns kernel_status. It does no arithmetic, allocates nothing and does not
 * wait. Every kernel accepts any shape, guards its tail and computes offsets in 64 bits. Sums have
 * one order for any grid, so there are no atomics on floating point. Instructions that C++ cannot
 * express are in engine/gpu/lane.cuh, functions of the runtime in engine/gpu/gpu.h.
 */
#ifndef KERNELS_CORE_KERNEL_CUH
#define KERNELS_CORE_KERNEL_CUH

#include "engine/gpu/lane.cuh"

/* Headers of this program are C, so C++ files include them inside extern "C". */
extern "C" {
#include "engine/base/tensor.h"
#include "engine/comm/mesh.h"
#include "kernels/core/gpu_exec.h"
}

static inline LaunchStream exec_stream(struct Exec *ex)
{
    return (LaunchStream)exec_gpu_stream(ex);
}

/* After a launch: OK, or ERR_DEVICE with the op's name and the driver's sentence. */
static inline Status kernel_status(const char *op) { return gpu_launch_status(op); }

/* Call before a launch with more shared memory than a kernel gets by default (48 KB). */
template <typename K> static inline Status kernel_shared(const char *op, K *kernel, size_t bytes)
{
    return gpu_kernel_shared((const void *)kernel, bytes, op);
}

/* Number of blocks for n items, `per` items a block; at least 1. A grid's x may have 2^31 - 1 blocks. */
static inline unsigned grid_of(int64_t n, int64_t per)
{
    return n <= 0 ? 1u : (unsigned)((n + per - 1) / per);
}

template <typename T, typename F>
static __device__ __forceinline__ T block_fold(T v, T *room, T none, F warp_fold)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int warps = ((int)blockDim.x + WARP - 1) / WARP;
    v = warp_fold(v);
    if (lane == 0) room[warp] = v;
    __syncthreads();
    v = warp_fold(lane < warps ? room[lane] : none);
    __syncthreads();
    return v;
}

/* Sum over a block, the same in all threads; `room` is shared memory for BLOCK_WARPS such numbers
 * and may be used again after the call. */
template <typename T> static __device__ __forceinline__ T block_sum(T v, T *room)
{
    return block_fold(v, room, (T)0, [](T x) { return warp_sum(x); });
}

static __device__ __forceinline__ float block_max(float v, float *room)
{
    return block_fold(v, room, -INFINITY, [](float x) { return warp_max(x); });
}

#endif
