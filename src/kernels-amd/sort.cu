/*
 * sort: gpu_sort for AMD, a stable radix sort by digits of 4 bits, from the lowest on. A pass counts the
 * digits of each tile of keys, turns the counts into the place where a tile's keys of a digit begin,
 * and moves the pairs there in their order. Tiles are independent, so no result depends on timing.
 */
#include "engine/gpu/lane.cuh"

extern "C" {
#include "engine/gpu/gpu.h"
}

enum {
    BITS = 4,
    DIGITS = 1 << BITS,
    THREADS = 256,
    ROUNDS = 8,
    TILE = THREADS * ROUNDS, /* keys of a block */
    WARPS = THREADS / WARP
};

struct Pass {
    const uint32_t *key;
    const int32_t *value;
    uint32_t *key_out;
    int32_t *value_out;
    uint32_t *count; /* (DIGITS, tiles) */
    int64_t n;
    int shift;
    unsigned tiles;

    __device__ __forceinline__ int digit(int64_t i) const
    {
        return (int)(key[i] >> shift & (DIGITS - 1));
    }
};

static __global__ __launch_bounds__(THREADS) void sort_count_kernel(const Pass p)
{
    __shared__ unsigned count[DIGITS];
    int64_t first = (int64_t)blockIdx.x * TILE, end = min(first + TILE, p.n);
    if (threadIdx.x < DIGITS) count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) atomicAdd(&count[p.digit(i)], 1u);
    __syncthreads();
    if (threadIdx.x < DIGITS) p.count[threadIdx.x * p.tiles + blockIdx.x] = count[threadIdx.x];
}

/* Exclusive sums of all counts, by one block: a thread adds up a run of them. */
static __global__ __launch_bounds__(THREADS) void sort_scan_kernel(const Pass p)
{
    __shared__ uint32_t before[THREADS];
    int64_t n = (int64_t)DIGITS * p.tiles, run = (n + THREADS - 1) / THREADS;
    int64_t first = threadIdx.x * run, end = min(first + run, n);
    uint32_t sum = 0;
    for (int64_t i = first; i < end; i++) sum += p.count[i];
    before[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int t = 0; t < (int)threadIdx.x; t++) sum += before[t];
    for (int64_t i = first; i < end; i++) {
        uint32_t here = p.count[i];
        p.count[i] = sum;
        sum += here;
    }
}

/* The lanes whose keys have the same digit, of those that have a key. */
static __device__ __forceinline__ LaneMask lanes_alike(int digit, bool there)
{
    LaneMask alike = lanes_where(there);
#pragma unroll
    for (int b = 0; b < BITS; b++) {
        LaneMask set = lanes_where(digit >> b & 1);
        alike &= digit >> b & 1 ? set : ~set;
    }
    return alike;
}

/* A round moves THREADS neighbouring keys. Each goes behind those of its digit in earlier rounds, in
 * lower warps and in lower lanes. */
static __global__ __launch_bounds__(THREADS) void sort_move_kernel(const Pass p)
{
    __shared__ uint32_t next[DIGITS], found[WARPS][DIGITS];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    if (threadIdx.x < DIGITS) next[threadIdx.x] = p.count[threadIdx.x * p.tiles + blockIdx.x];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t i = (int64_t)blockIdx.x * TILE + round * THREADS + threadIdx.x;
        bool there = i < p.n;
        int digit = there ? p.digit(i) : 0;
        LaneMask alike = lanes_alike(digit, there);
        if (threadIdx.x < WARPS * DIGITS) found[threadIdx.x / DIGITS][threadIdx.x % DIGITS] = 0;
        __syncthreads();
        if (there && lanes_first(alike) == lane) found[warp][digit] = (uint32_t)lanes_count(alike);
        __syncthreads();
        if (there) {
            uint32_t to = next[digit] + (uint32_t)lanes_count(alike & lanes_below(lane));
            for (int w = 0; w < warp; w++) to += found[w][digit];
            p.key_out[to] = p.key[i];
            p.value_out[to] = p.value[i];
        }
        __syncthreads();
        if (threadIdx.x < DIGITS) {
            for (int w = 0; w < WARPS; w++) next[threadIdx.x] += found[w][threadIdx.x];
        }
        __syncthreads();
    }
}

static unsigned tiles_of(int64_t n) { return (unsigned)((n + TILE - 1) / TILE); }

/* A second place for the pairs, and the counts. */
extern "C" size_t gpu_sort_bytes(int64_t n)
{
    return (size_t)n * (sizeof(uint32_t) + sizeof(int32_t)) +
           (size_t)tiles_of(n) * DIGITS * sizeof(uint32_t);
}

/* The last pass writes to [1], so passes alternate between it and the workspace from the end on. */
extern "C" Status gpu_sort(const GpuSort *x, void *room, size_t room_bytes, GpuStream s)
{
    int passes = x->bits <= BITS ? 1 : (x->bits + BITS - 1) / BITS;
    uint32_t *key = (uint32_t *)room;
    int32_t *value = (int32_t *)(key + x->n);
    Pass p = { x->key[0], x->value[0], NULL,          NULL, (uint32_t *)(value + x->n),
               x->n,      0,           tiles_of(x->n) };
    if (room_bytes < gpu_sort_bytes(x->n))
        return FAIL(ERR_ARG, "sort: %zu bytes of workspace, it takes %zu", room_bytes,
                    gpu_sort_bytes(x->n));
    if (x->n == 0) return OK;
    for (int left = passes - 1; left >= 0; left--, p.shift += BITS) {
        p.key_out = left % 2 == 0 ? x->key[1] : key;
        p.value_out = left % 2 == 0 ? x->value[1] : value;
        sort_count_kernel<<<p.tiles, THREADS, 0, (LaunchStream)s>>>(p);
        sort_scan_kernel<<<1, THREADS, 0, (LaunchStream)s>>>(p);
        sort_move_kernel<<<p.tiles, THREADS, 0, (LaunchStream)s>>>(p);
        p.key = p.key_out;
        p.value = p.value_out;
    }
    return gpu_launch_status("sort");
}
