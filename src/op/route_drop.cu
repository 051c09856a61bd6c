/* route_drop: a block an expert. It lists its entries in whatever order they come: what is dropped
 * does not depend on it (route_drop.h). All blocks read the whole index, a few MB out of L2; an
 * expert's own entries, some thousand, are then counted once a bit of their keys. */
#include "op/kernel.cuh"

#include "op/route_drop.h"

enum { DROP_THREADS = 512 };

typedef struct DropArgs {
    const int32_t *index, *target; /* the second may be NULL */
    const float *weight;
    float *own;
    int32_t *dropped, *list;                     /* list: (experts, room) in the workspace */
    int64_t entries, room, capacity, first, end; /* entries [first, end) are this rank's own */
    uint32_t K, ranks, tokens, length;           /* of a rank, and of a sequence there */
} DropArgs;

/* Where an entry's token stands in the sequences (route_drop.h); on one rank the entry itself, which
 * has the same order. */
static __device__ __forceinline__ uint32_t place_of(const DropArgs &a, uint32_t i)
{
    if (a.ranks == 1) return i;
    uint32_t token = i / a.K, at = token % a.length, half = a.length / 2;
    uint32_t piece = at < half ? token / a.tokens : 2 * a.ranks - 1 - token / a.tokens;
    return (token % a.tokens / a.length * 2 * a.ranks + piece) * half + at % half;
}

static __device__ __forceinline__ uint64_t key_of(const DropArgs &a, int32_t i)
{
    return (uint64_t)__float_as_uint(a.weight[i]) << 32 | (UINT32_MAX - place_of(a, (uint32_t)i));
}

static __global__ __launch_bounds__(DROP_THREADS) void route_drop_kernel(DropArgs a)
{
    __shared__ int64_t room[32];
    __shared__ int found;
    int32_t *list = a.list + blockIdx.x * a.room;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.entries; i += DROP_THREADS) {
        if (a.index[i] != (int32_t)blockIdx.x) continue;
        if (a.target == NULL || a.target[i / a.K] >= 0) list[atomicAdd(&found, 1)] = (int32_t)i;
    }
    __syncthreads();
    int n = found;
    if (n <= a.capacity) return;
    uint64_t bound = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t next = bound | (uint64_t)1 << bit;
        int64_t reach = 0;
        for (int j = (int)threadIdx.x; j < n; j += DROP_THREADS)
            reach += key_of(a, list[j]) >= next;
        if (block_sum(reach, room) >= a.capacity) bound = next;
    }
    int64_t dropped = 0;
    for (int j = (int)threadIdx.x; j < n; j += DROP_THREADS) {
        int32_t i = list[j];
        if (i < a.first || i >= a.end || key_of(a, i) >= bound) continue;
        a.own[i - a.first] = 0;
        dropped++;
    }
    dropped = block_sum(dropped, room);
    if (threadIdx.x == 0) atomicAdd(a.dropped, (int32_t)dropped);
}

extern "C" size_t route_drop_cuda_workspace(const struct Exec *, const void *args)
{
    const RouteDrop *a = (const RouteDrop *)args;
    int64_t tokens = tensor_elems(&a->index) / tensor_cols(&a->index);
    return (size_t)(a->experts * tokens) * sizeof(int32_t);
}

extern "C" Status route_drop_cuda(struct Exec *ex, const void *args)
{
    const RouteDrop *a = (const RouteDrop *)args;
    DropArgs d = {};
    d.index = (const int32_t *)a->index.data;
    d.target = (const int32_t *)a->target.data;
    d.weight = (const float *)a->weight.data;
    d.own = (float *)a->own.data;
    d.dropped = (int32_t *)a->dropped.data;
    d.list = (int32_t *)exec_workspace(ex);
    d.entries = tensor_elems(&a->index);
    d.K = (uint32_t)tensor_cols(&a->index);
    d.room = d.entries / d.K;
    d.capacity = a->capacity;
    d.first = a->rank * tensor_elems(&a->own);
    d.end = d.first + tensor_elems(&a->own);
    d.ranks = (uint32_t)a->ranks;
    d.tokens = (uint32_t)a->own.dim[0];
    d.length = d.tokens / (uint32_t)a->sequences;
    route_drop_kernel<<<(unsigned)a->experts, DROP_THREADS, 0, exec_stream(ex)>>>(d);
    return kernel_status("route_drop");
}
