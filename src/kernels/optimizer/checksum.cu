/* checksum: the kernels. A thread adds elements in strides of the grid, a block adds its threads, and blocks add with
 * an atomic on integers, which has one result in any order. Memory-bound: about ten integer instructions an element. */
#include "kernels/core/kernel.cuh"

extern "C" {
#include "kernels/optimizer/checksum.h"
}

enum { THREADS = 256, EACH = 16, BLOCKS_MOST = 1 << 14 };

/* T: an unsigned integer of the elements' size. */
template <typename T>
static __global__ void checksum_kernel(const T *__restrict__ x, int64_t n, unsigned *sum,
                                       const float *on)
{
    __shared__ unsigned room[BLOCK_WARPS];
    unsigned mine = 0;
    if (on != NULL && *on < 1) return;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, step = (int64_t)gridDim.x * THREADS;
#pragma unroll 4
    for (; i < n; i += step) mine += checksum_mix((uint32_t)x[i], i);
    mine = block_sum(mine, room);
    if (threadIdx.x == 0) atomicAdd(sum, mine);
}

template <typename T> static void launch(struct Exec *ex, const Checksum *a)
{
    int64_t n = tensor_elems(&a->x);
    unsigned blocks = grid_of(n, THREADS * EACH);
    if (blocks > BLOCKS_MOST) blocks = BLOCKS_MOST;
    checksum_kernel<T><<<blocks, THREADS, 0, exec_stream(ex)>>>(
        (const T *)a->x.data, n, (unsigned *)a->sum.data, (const float *)a->on.data);
}

extern "C" Status checksum_gpu(struct Exec *ex, const void *args)
{
    const Checksum *a = (const Checksum *)args;
    size_t bytes = dtype_bytes(a->x.dtype);
    if (bytes == 4) launch<uint32_t>(ex, a);
    if (bytes == 2) launch<uint16_t>(ex, a);
    if (bytes == 1) launch<uint8_t>(ex, a);
    return kernel_status("checksum");
}

static __global__ void checksum_compare_kernel(const int *a, const int *b, int64_t n,
                                               const float *on, float *differs)
{
    if (*on < 2) return;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        if (a[i] != b[i]) *differs = 1;
}

extern "C" Status checksum_compare_gpu(struct Exec *ex, const void *args)
{
    const ChecksumCompare *a = (const ChecksumCompare *)args;
    checksum_compare_kernel<<<1, THREADS, 0, exec_stream(ex)>>>(
        (const int *)a->a.data, (const int *)a->b.data, tensor_elems(&a->a),
        (const float *)a->on.data, (float *)a->differs.data);
    return kernel_status("checksum_compare");
}
