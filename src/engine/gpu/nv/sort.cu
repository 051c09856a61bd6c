/* sort: gpu_sort for CUDA, by CUB. */
#include <cub/device/device_radix_sort.cuh>
#include <cuda_runtime.h>

extern "C" {
#include "engine/gpu/gpu.h"
}

/* If `room` is NULL, CUB only sets *bytes to the workspace that it needs. Otherwise it sorts. */
static cudaError_t sort_call(const GpuSort *x, void *room, size_t *bytes, cudaStream_t s)
{
    return cub::DeviceRadixSort::SortPairs(room, *bytes, x->key[0], x->key[1], x->value[0],
                                           x->value[1], x->n, 0, x->bits, s);
}

/* For keys of all 32 bits, which need the most. CUB only reads the sizes here, so pointers may be
 * NULL. */
extern "C" size_t gpu_sort_bytes(int64_t n)
{
    size_t bytes = 0;
    GpuSort x = { {}, {}, n, 8 * (int)sizeof(uint32_t) };
    (void)sort_call(&x, NULL, &bytes, NULL);
    return bytes;
}

extern "C" Status gpu_sort(const GpuSort *x, void *room, size_t room_bytes, GpuStream s)
{
    return gpu_status(sort_call(x, room, &room_bytes, (cudaStream_t)s), "sort");
}
