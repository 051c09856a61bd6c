/* gpu_kernels: the few kernels of the GPU layer itself: a pause, a time stamp, a search for values that
 * are not finite, a test of memory. They are the same for all vendors. The kernels of ops are in src/kernels. */
#include "engine/gpu/lane.cuh"

extern "C" {
#include "engine/gpu/gpu_memory.h"
}

enum { THREADS = 256, EACH = 16 }; /* threads of a block; elements per thread */

/* One thread, so the rest of the GPU stays free. It sleeps between looks at the clock. */
static __global__ void delay_kernel(uint64_t ns)
{
    for (uint64_t start = now_ns(); now_ns() - start < ns;) pause_ns(1000);
}

extern "C" Status gpu_delay(GpuStream s, double seconds)
{
    delay_kernel<<<1, 1, 0, (LaunchStream)s>>>((uint64_t)(seconds * 1e9));
    return gpu_launch_status("delay");
}

/* The store goes to pinned host memory, which the host reads after a wait for the stream. */
static __global__ void stamp_kernel(uint64_t *at) { *at = now_ns(); }

extern "C" Status gpu_stamp(GpuStream s, uint64_t *at)
{
    stamp_kernel<<<1, 1, 0, (LaunchStream)s>>>(at);
    return gpu_launch_status("stamp");
}

/* The grid strides over the tensor. Nearly always no thread finds anything, so the atomic costs
 * nothing. A minimum of indexes does not depend on the order of threads. */
template <typename T>
static __global__ void find_bad_kernel(const T *t, int64_t n, unsigned long long *first)
{
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
        if (!isfinite(to_f32(t[i]))) atomicMin(first, (unsigned long long)i);
    }
}

template <typename T> static void find_bad(LaunchStream s, const Tensor *t, uint64_t *first)
{
    int64_t n = tensor_elems(t), blocks = (n + THREADS * EACH - 1) / (THREADS * EACH);
    find_bad_kernel<<<(unsigned)blocks, THREADS, 0, s>>>((const T *)t->data, n,
                                                         (unsigned long long *)first);
}

/* 0xFF in all bytes is GPU_NONE_BAD, which every index is below. */
extern "C" Status gpu_find_bad(GpuStream s, const Tensor *t, uint64_t *first)
{
    TRY(gpu_fill(first, 0xFF, sizeof *first, s));
    if (t->dtype == DTYPE_F32)
        find_bad<float>((LaunchStream)s, t, first);
    else
        find_bad<Bf16>((LaunchStream)s, t, first);
    return gpu_launch_status("search for values that are not finite");
}

/* Mixes the bits of a word's number (the finalizer of MurmurHash3), so that words of one row, one column or
 * one address line differ. Word and inverse are written under two seeds that are each other's complement. */
static __device__ __forceinline__ uint32_t pattern_of(int64_t i, uint32_t seed)
{
    uint32_t x = (uint32_t)i ^ (uint32_t)((uint64_t)i >> 32) * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16 ^ seed;
}

static __global__ void fill_pattern_kernel(uint32_t *word, int64_t n, uint32_t seed)
{
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride)
        word[i] = pattern_of(i, seed);
}

static __global__ void count_wrong_kernel(const uint32_t *word, int64_t n, uint32_t seed,
                                          unsigned long long *wrong)
{
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
        if (word[i] != pattern_of(i, seed)) atomicAdd(wrong, 1ull);
    }
}

/* As many blocks as keep all multiprocessors busy; each strides over the memory. */
static unsigned blocks_of(int64_t n)
{
    int64_t blocks = (n + THREADS * EACH - 1) / (THREADS * EACH), most = 1 << 16;
    return (unsigned)(blocks < most ? blocks : most);
}

extern "C" Status gpu_fill_pattern(GpuStream s, uint32_t *word, int64_t n, uint32_t seed)
{
    fill_pattern_kernel<<<blocks_of(n), THREADS, 0, (LaunchStream)s>>>(word, n, seed);
    return gpu_launch_status("fill memory with a pattern");
}

extern "C" Status gpu_count_wrong(GpuStream s, const uint32_t *word, int64_t n, uint32_t seed,
                                  uint64_t *wrong)
{
    TRY(gpu_fill(wrong, 0, sizeof *wrong, s));
    count_wrong_kernel<<<blocks_of(n), THREADS, 0, (LaunchStream)s>>>(word, n, seed,
                                                                      (unsigned long long *)wrong);
    return gpu_launch_status("compare memory with a pattern");
}
