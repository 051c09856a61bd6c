/* gpu_kernels: the few kernels of the GPU layer itself: a pause, a time stamp, a search for values that
 * are not finite. They are the same for all vendors. The kernels of ops are in op/. */
#include "gpu/lane.cuh"

extern "C" {
#include "gpu/gpu.h"
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
