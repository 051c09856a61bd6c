/* lane_cuda: the names of lane.cuh for CUDA. A warp has 32 lanes. */
#ifndef ENGINE_GPU_LANE_CUDA_CUH
#define ENGINE_GPU_LANE_CUDA_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <stdint.h>

static constexpr int WARP = 32;
typedef uint32_t LaneMask;
static constexpr LaneMask ALL_LANES = ~(LaneMask)0;

typedef cudaStream_t LaunchStream;

/* Exchanges between the lanes of a warp. All lanes must call them, or those in the mask. */

/* The value of lane `from`. */
template <typename T> static __device__ __forceinline__ T lane_get(T v, int from)
{
    return __shfl_sync(ALL_LANES, v, from);
}

/* The value of the lane whose number differs in the bits of `bits`. */
template <typename T> static __device__ __forceinline__ T lane_get_xor(T v, int bits)
{
    return __shfl_xor_sync(ALL_LANES, v, bits);
}

/* The value of the lane `distance` lower; the lowest lanes get their own. */
template <typename T> static __device__ __forceinline__ T lane_get_lower(T v, int distance)
{
    return __shfl_up_sync(ALL_LANES, v, (unsigned)distance);
}

/* The lanes for which the condition holds, as a mask; lanes_any: is there one? All lanes must call
 * them. */
static __device__ __forceinline__ LaneMask lanes_where(bool condition)
{
    return __ballot_sync(ALL_LANES, condition);
}

static __device__ __forceinline__ bool lanes_any(bool condition)
{
    return __any_sync(ALL_LANES, condition);
}

/* The lanes of `among` that have the same value as this one. All lanes of `among` must call it. */
static __device__ __forceinline__ LaneMask lanes_equal(LaneMask among, int32_t v)
{
    return __match_any_sync(among, v);
}

static __device__ __forceinline__ uint32_t lanes_max(uint32_t v)
{
    return __reduce_max_sync(ALL_LANES, v);
}

/* A barrier of the lanes. What they wrote to memory before, all of them can read after. */
static __device__ __forceinline__ void lanes_sync() { __syncwarp(); }
static __device__ __forceinline__ void lanes_sync(LaneMask among) { __syncwarp(among); }

static __device__ __forceinline__ int lanes_count(LaneMask m) { return __popc(m); }

/* The lowest lane in the mask; -1: none. */
static __device__ __forceinline__ int lanes_first(LaneMask m) { return __ffs((int)m) - 1; }

/* Memory order */

/* The compiler moves no memory access across it. */
static __device__ __forceinline__ void compiler_fence() { asm volatile("" ::: "memory"); }

/* Other threads see this thread's earlier writes before its later ones. device_fence: threads of this
 * device. system_fence: also those of other GPUs and the host. */
static __device__ __forceinline__ void device_fence() { __threadfence(); }
static __device__ __forceinline__ void system_fence() { __threadfence_system(); }

/* Stores a flag that other GPUs read. A thread that reads it with load_acquire also sees everything
 * that was written before it. */
static __device__ __forceinline__ void store_release(uint32_t *at, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *at)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

/* A barrier for `threads` threads of the block, in whole warps that use the same `number`, 1 to 15. A
 * device without such barriers waits for the whole block. So all threads of a block must call it
 * equally often. */
static __device__ __forceinline__ void row_barrier(unsigned number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Time */

/* The device's clock. */
static __device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

static __device__ __forceinline__ void pause_ns(unsigned ns) { __nanosleep(ns); }

/* Loads with cache hints. read_const: memory that no kernel writes meanwhile. read_once: data that is
 * used once. read_shared_cache: data of another block; bypasses the L1 cache, which is not coherent. */
template <typename T> static __device__ __forceinline__ T read_const(const T *at)
{
    return __ldg(at);
}

template <typename T> static __device__ __forceinline__ T read_once(const T *at)
{
    return __ldcs(at);
}

template <typename T> static __device__ __forceinline__ T read_shared_cache(const T *at)
{
    return __ldcg(at);
}

/* Stores a vector with one instruction; the compiler would split an assignment into several stores. */
template <typename T> static __device__ __forceinline__ void write_whole(T *at, const T &v)
{
    __stwb(at, v);
}

/* Copies to shared memory. COPIES_ASYNC: they run while the thread goes on. */

static constexpr bool COPIES_ASYNC = true;

static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Copies 16 bytes to shared memory. If not `inside`, writes zeros and does not read `from`. */
static __device__ __forceinline__ void copy_chunk(uint32_t to, const void *from, bool inside)
{
    int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}

/* Closes a group: all copies of this thread since the last one. copies_wait counts groups. */
static __device__ __forceinline__ void copies_close()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most LEFT of the closed groups of copies are unfinished. */
template <int LEFT> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Arithmetic in one instruction, with a relative error of about 2^-21. Subnormals count as 0. */

static __device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float fast_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Minimum and maximum that keep a NaN. fminf and fmaxf would replace a NaN by the other number;
 * comparisons need more registers (36 more bytes of spills in swiglu's gradient on Hopper). */
static __device__ __forceinline__ float min_or_nan(float x, float limit)
{
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(limit));
    return y;
}

static __device__ __forceinline__ float max_or_nan(float x, float limit)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(limit));
    return y;
}

/* Types of numbers */

typedef __nv_bfloat16 Bf16;
typedef __nv_bfloat162 Bf16Pair;

static __device__ __forceinline__ float bf16_widen(Bf16 v) { return __bfloat162float(v); }
static __device__ __forceinline__ Bf16 bf16_narrow(float v) { return __float2bfloat16_rn(v); }

/* Rounds two values in one instruction, to the same bits as from_f32. */
static __device__ __forceinline__ Bf16Pair pair_from_f32(float low, float high)
{
    return __floats2bfloat162_rn(low, high);
}

#endif
