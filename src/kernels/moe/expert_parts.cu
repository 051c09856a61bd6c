/* expert_parts: a thread makes an entry. Both are a few bytes a token, so nothing is packed. */
#include "kernels/core/kernel.cuh"

extern "C" {
#include "kernels/moe/expert_parts.h"
}

enum { THREADS = 256 };

static __global__ void expert_parts_fwd_kernel(ExpertPartsFwd a, int64_t n, int64_t parts)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, at = i / parts;
    if (i >= n) return;
    int64_t e = ((const int32_t *)a.index.data)[at];
    ((int32_t *)a.part_index.data)[i] =
        (int32_t)((e / a.here * parts + i % parts) * a.here + e % a.here);
    ((float *)a.part_weight.data)[i] = ((const float *)a.weight.data)[at];
}

extern "C" Status expert_parts_fwd_gpu(struct Exec *ex, const void *args)
{
    const ExpertPartsFwd *a = (const ExpertPartsFwd *)args;
    int64_t n = tensor_elems(&a->part_index);
    if (n == 0) return OK;
    expert_parts_fwd_kernel<<<grid_of(n, THREADS), THREADS, 0, exec_stream(ex)>>>(
        *a, n, n / tensor_elems(&a->index));
    return kernel_status("expert_parts_fwd");
}

static __global__ void expert_parts_bwd_kernel(const float *part, float *dweight, int64_t n,
                                               int64_t parts)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    float sum = part[i * parts];
    for (int64_t p = 1; p < parts; p++) sum += part[i * parts + p];
    dweight[i] = sum;
}

extern "C" Status expert_parts_bwd_gpu(struct Exec *ex, const void *args)
{
    const ExpertPartsBwd *a = (const ExpertPartsBwd *)args;
    int64_t n = tensor_elems(&a->dweight);
    if (n == 0) return OK;
    expert_parts_bwd_kernel<<<grid_of(n, THREADS), THREADS, 0, exec_stream(ex)>>>(
        (const float *)a->part_dweight.data, (float *)a->dweight.data, n,
        tensor_elems(&a->part_dweight) / n);
    return kernel_status("expert_parts_bwd");
}
