/*
 * kernel: what CUDA files share: the launch's stream and workspace, types, warp and block sums.
 *
 * A .cu holds kernels and launchers. A launcher unpacks the argument struct, picks a grid, launches
 * on exec_stream and returns kernel_status: no arithmetic, no allocation, no wait. Every kernel
 * takes any shape, guards its tail and computes offsets in 64 bits. Sums have one order, whatever
 * the grid: no atomics on floating point.
 */
#ifndef OP_KERNEL_CUH
#define OP_KERNEL_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <stdint.h>

/* Headers of this program are C: who includes one here or in a .cu says so. */
extern "C" {
#include "base/tensor.h"
#include "comm/mesh.h"

struct Exec;
/* The stream and the workspace of the Exec that an op runs on. */
cudaStream_t exec_stream(struct Exec *ex);
void *exec_workspace(struct Exec *ex);
/* A counter on the device, one a lane: 0 before and after each kernel. Blocks count themselves off
 * with atomicInc, which wraps to 0 at the last of them. */
unsigned *exec_ticket(struct Exec *ex);
/* op/op.h */
void exec_note_once(struct Exec *ex, const char *op, const char *what);
int device_attribute(cudaDeviceAttr which); /* of the current GPU; 0: it cannot be told */

/* OK, or ERR_DEVICE with the op's name and the driver's sentence. */
Status cuda_status(cudaError_t e, const char *what);
}

/* After a launch: the error of the launch itself. */
static inline Status kernel_status(const char *op) { return cuda_status(cudaGetLastError(), op); }

/* Blocks for n items, `per` a block. A grid's x may have 2^31 - 1 blocks. */
static inline unsigned grid_of(int64_t n, int64_t per)
{
    return n <= 0 ? 1u : (unsigned)((n + per - 1) / per);
}

typedef __nv_bfloat16 Bf16;

template <typename T> static __device__ __forceinline__ float to_f32(T v);
template <> __device__ __forceinline__ float to_f32<float>(float v) { return v; }
template <> __device__ __forceinline__ float to_f32<Bf16>(Bf16 v) { return __bfloat162float(v); }

template <typename T> static __device__ __forceinline__ T from_f32(float v);
template <> __device__ __forceinline__ float from_f32<float>(float v) { return v; }
template <> __device__ __forceinline__ Bf16 from_f32<Bf16>(float v)
{
    return __float2bfloat16_rn(v);
}

template <typename T> static __device__ __forceinline__ T warp_sum(T v)
{
    for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, lane);
    return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
    for (int lane = 16; lane > 0; lane /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, lane));
    return v;
}

template <typename T, typename F>
static __device__ __forceinline__ T block_fold(T v, T *room, T none, F warp_fold)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int warps = ((int)blockDim.x + 31) / 32;
    v = warp_fold(v);
    if (lane == 0) room[warp] = v;
    __syncthreads();
    v = warp_fold(lane < warps ? room[lane] : none);
    __syncthreads();
    return v;
}

/* Sum over a block of up to 1024 threads, the same in all of them; `room` is shared memory for 32
 * such numbers and may be used again after the call. */
template <typename T> static __device__ __forceinline__ T block_sum(T v, T *room)
{
    return block_fold(v, room, (T)0, [](T x) { return warp_sum(x); });
}

static __device__ __forceinline__ float block_max(float v, float *room)
{
    return block_fold(v, room, -INFINITY, [](float x) { return warp_max(x); });
}

/* The device's clock. */
static __device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* 16 bytes to shared memory, zeros unless `inside`; `from` is then not read. */
static __device__ __forceinline__ void copy_chunk(uint32_t to, const void *from, bool inside)
{
    int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void copies_close()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `left` of the groups of copies closed so far are unfinished. */
template <int LEFT> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
