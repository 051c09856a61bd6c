/* route_drop: the kernel that drops tokens above an expert's capacity. A block handles one expert.
 * It lists the expert's entries in any order, because what is dropped does not depend on it
 * (route_drop.h). All blocks read the whole index, a few MB from L2. The block then counts its own
 * entries, some thousand, once for each bit of their keys. */
#include "kernels/core/kernel.cuh"

#include "kernels/route/route_drop.h"

enum { DROP_THREADS = 512 };

/* lists: (experts, R N) in the workspace */
static __global__ __launch_bounds__(DROP_THREADS) void route_drop_kernel(RouteDrop a,
                                                                         int32_t *lists)
{
    __shared__ int64_t room[BLOCK_WARPS];
    __shared__ int found;
    const int32_t *index = (const int32_t *)a.index.data, *target = (const int32_t *)a.target.data;
    int32_t *list = lists + blockIdx.x * a.index.dim[0];
    int64_t K = a.own.dim[1], of_rank = a.own.dim[0] * K, dropped = 0;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.ranks * of_rank; i += DROP_THREADS) {
        if (index[i] != (int32_t)blockIdx.x) continue;
        if (target == NULL || target[i / K] >= 0) list[atomicAdd(&found, 1)] = (int32_t)i;
    }
    __syncthreads();
    int n = found;
    if (n <= a.capacity) return;
    uint64_t bound = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t next = bound | (uint64_t)1 << bit;
        int64_t reach = 0;
        for (int j = (int)threadIdx.x; j < n; j += DROP_THREADS)
            reach += route_drop_reaches(&a, list[j], next);
        if (block_sum(reach, room) >= a.capacity) bound = next;
    }
    for (int j = (int)threadIdx.x; j < n; j += DROP_THREADS) {
        if (list[j] / of_rank != a.rank || route_drop_reaches(&a, list[j], bound)) continue;
        ((float *)a.own.data)[list[j] % of_rank] = 0;
        dropped++;
    }
    dropped = block_sum(dropped, room);
    if (threadIdx.x == 0) atomicAdd((int32_t *)a.dropped.data, (int32_t)dropped);
}

extern "C" size_t route_drop_gpu_workspace(const struct Exec *, const void *args)
{
    const RouteDrop *a = (const RouteDrop *)args;
    int64_t tokens = tensor_elems(&a->index) / tensor_cols(&a->index);
    return (size_t)(a->experts * tokens) * sizeof(int32_t);
}

extern "C" Status route_drop_gpu(struct Exec *ex, const void *args)
{
    const RouteDrop *a = (const RouteDrop *)args;
    int32_t *lists = (int32_t *)exec_workspace(ex);
    route_drop_kernel<<<(unsigned)a->experts, DROP_THREADS, 0, exec_stream(ex)>>>(*a, lists);
    return kernel_status("route_drop");
}
