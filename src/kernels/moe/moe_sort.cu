/*
 * moe_sort: kernels that sort slots (token, k) by expert. It is a stable counting sort in two
 * launches; slots are cut into at most BLOCKS blocks:
 *
 *   1  A block counts its slots by expert: count[block][e].
 *   2  A block sums the counts of all blocks, and those of earlier blocks, which say where its rows of an
 *      expert begin. Then it places its slots. A slot's row is this begin, plus the slots of the same
 *      expert in earlier warps, plus those before it in its own warp.
 *
 * The first launch records where this call's rows of a pool begin; the second moves the pool's top.
 * So no block of the second launch reads what another one writes.
 *
 * Each block reads all counts: 64 KiB for 65536 slots over 256 experts. That is faster than a third
 * launch, and the bound on blocks keeps it so for more slots.
 *
 * All counts are integers, and only positions decide rows. So rows are in the order of slots, for any timing of blocks.
 * The sort takes a fraction of a percent of the time of the experts' products.
 */
#include "kernels/core/kernel.cuh"

#include "kernels/moe/moe.h"

enum {
    THREADS = 1024,
    BLOCKS = 128,            /* at most; one a multiprocessor */
    SHARED = 48 * 1024 - 16, /* bytes that any GPU gives a block unasked, but for one number */
};

static_assert(THREADS % WARP == 0,
              "a block is whole warps, so a cut into blocks is one into their steps");

typedef struct Sort {
    const int32_t *index;
    int32_t *offsets, *row_token, *row_slot, *slot_row;
    float *overflow;      /* or NULL */
    int32_t *top, *begin; /* of a pool: MoeSort.top and first; or NULL */
    int32_t *count;       /* (blocks, E): of the workspace */
    int32_t slots, experts, k, room, pool;
    int32_t blocks, each; /* slots of a block: a multiple of THREADS, so of its warps' steps */
} Sort;

static void sort_cut(int64_t slots, Sort *s)
{
    int64_t steps = (slots + THREADS - 1) / THREADS, each = (steps + BLOCKS - 1) / BLOCKS;
    s->slots = (int32_t)slots;
    s->each = (int32_t)(each * THREADS);
    s->blocks = each == 0 ? 0 : (int32_t)((steps + each - 1) / each);
}

static __global__ __launch_bounds__(THREADS) void moe_sort_count_kernel(Sort s)
{
    extern __shared__ int32_t count[]; /* (E) */
    int64_t first = (int64_t)blockIdx.x * s.each, end = min(first + s.each, (int64_t)s.slots);
    if (s.top != NULL && blockIdx.x == 0 && threadIdx.x == 0) *s.begin = *s.top;
    for (int32_t e = threadIdx.x; e < s.experts; e += THREADS) count[e] = 0;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
        int32_t e = s.index[i];
        if (e >= 0) atomicAdd(&count[e], 1);
    }
    __syncthreads();
    for (int32_t e = threadIdx.x; e < s.experts; e += THREADS) {
        s.count[(int64_t)blockIdx.x * s.experts + e] = count[e];
    }
}

/* One warp calls it: turns count[0 .. n) into its exclusive prefix sum; a lane has neighbouring
 * entries. Returns the total. */
static __device__ int32_t sum_before(int32_t *count, int32_t n)
{
    int32_t lane = (int32_t)threadIdx.x % WARP, each = (n + WARP - 1) / WARP, sum = 0;
    int32_t first = min(lane * each, n), end = min(first + each, n);
    for (int32_t i = first; i < end; i++) sum += count[i];
    int32_t running = sum;
    for (int step = 1; step < WARP; step *= 2) {
        int32_t before = lane_get_lower(running, step);
        if (lane >= step) running += before;
    }
    int32_t at = running - sum;
    for (int32_t i = first; i < end; i++) {
        int32_t v = count[i];
        count[i] = at;
        at += v;
    }
    return lane_get(running, WARP - 1);
}

/* total[e] = slots of expert e, before[e] = those in earlier blocks. If there are more threads than
 * experts, the threads are split into parts, and part p takes every parts-th block. */
static __device__ void sum_blocks(const Sort &s, int32_t *total, int32_t *before)
{
    int32_t parts = max(1, THREADS / s.experts), span = THREADS / parts;
    int32_t part = (int32_t)threadIdx.x / span;
    for (int32_t e = threadIdx.x; e < s.experts; e += THREADS) total[e] = before[e] = 0;
    __syncthreads();
    for (int32_t e = (int32_t)threadIdx.x % span; part < parts && e < s.experts; e += span) {
        int32_t all = 0, mine = 0;
#pragma unroll 8
        for (int32_t b = part; b < s.blocks; b += parts) {
            int32_t n = s.count[(int64_t)b * s.experts + e];
            all += n;
            mine += b < (int32_t)blockIdx.x ? n : 0;
        }
        atomicAdd(&total[e], all);
        atomicAdd(&before[e], mine);
    }
    __syncthreads();
}

/* The first block writes what all blocks have computed. `start`: the first row of each expert. */
static __device__ void write_offsets(const Sort &s, const int32_t *start, int32_t total)
{
    for (int32_t e = threadIdx.x; e < s.experts; e += blockDim.x)
        s.offsets[e] = min(start[e], s.room);
    if (threadIdx.x > 0) return;
    s.offsets[s.experts] = min(total, s.room);
    if (total > s.room && s.overflow != NULL) *s.overflow = 1;
    if (s.top != NULL) *s.top = *s.begin + min(total, s.room);
}

/* Places the warp's slots [first, end), WARP at a time, in order. next: the warp's next row of each expert. */
static __device__ void place(const Sort &s, int32_t *next, int64_t first, int64_t end)
{
    int32_t lane = threadIdx.x % WARP;
    for (int64_t from = first; from < end; from += WARP) {
        int64_t slot = from + lane;
        int32_t e = slot < end ? s.index[slot] : -1, row = -1;
        LaneMask present = lanes_where(e >= 0);
        if (e >= 0) {
            LaneMask same = lanes_equal(present, e), before = same & lanes_below(lane);
            row = next[e] + lanes_count(before);
            if (row >= s.room) row = -1;
            lanes_sync(present); /* all have read next[e] */
            if (before == 0) next[e] += lanes_count(same);
        }
        if (slot < end) s.slot_row[slot] = row;
        if (row >= 0) {
            s.row_token[row] = (int32_t)(slot / s.k);
            s.row_slot[row] = (int32_t)slot;
        }
        lanes_sync();
    }
}

/* All warps of the block sum counts; the first `warps` of them place slots, as shared memory has
 * room for their counters. */
static __global__ __launch_bounds__(THREADS, 1) void moe_sort_place_kernel(Sort s, int32_t warps)
{
    extern __shared__ int32_t start[]; /* (E) rows of experts, (E) before, (warps, E) next rows */
    __shared__ int32_t total;
    int32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int32_t *before = start + s.experts, *next = before + s.experts;
    int64_t first = (int64_t)blockIdx.x * s.each + (int64_t)warp * (s.each / warps);
    int64_t end = warp < warps ? min(first + s.each / warps, (int64_t)s.slots) : first;
    if (s.top != NULL) s.room = min(s.room, s.pool - *s.begin);
    for (int32_t i = threadIdx.x; i < warps * s.experts; i += THREADS) next[i] = 0;
    sum_blocks(s, start, before);
    for (int64_t i = first + lane; i < end; i += WARP) {
        if (s.index[i] >= 0) atomicAdd(&next[warp * s.experts + s.index[i]], 1);
    }
    if (warp == 0) {
        int32_t all = sum_before(start, s.experts);
        if (lane == 0) total = all;
    }
    __syncthreads();
    if (blockIdx.x == 0) write_offsets(s, start, total);
    for (int32_t e = threadIdx.x; e < s.experts; e += THREADS) {
        int32_t row = start[e] + before[e];
        for (int32_t w = 0; w < warps; w++) {
            int32_t n = next[w * s.experts + e];
            next[w * s.experts + e] = row;
            row += n;
        }
    }
    __syncthreads();
    if (warp < warps) place(s, next + warp * s.experts, first, end);
}

extern "C" size_t moe_sort_gpu_workspace(const struct Exec *, const void *args)
{
    const MoeSort *a = (const MoeSort *)args;
    Sort s = {};
    sort_cut(tensor_elems(&a->index), &s);
    return (size_t)(s.blocks + (s.blocks == 0)) * (size_t)tensor_elems(&a->offsets) *
           sizeof(int32_t);
}

extern "C" Status moe_sort_gpu(struct Exec *ex, const void *args)
{
    const MoeSort *a = (const MoeSort *)args;
    Sort s = {};
    s.index = (const int32_t *)a->index.data;
    s.offsets = (int32_t *)a->offsets.data;
    s.row_token = (int32_t *)a->row_token.data;
    s.row_slot = (int32_t *)a->row_slot.data;
    s.slot_row = (int32_t *)a->slot_row.data;
    s.count = (int32_t *)exec_workspace(ex);
    s.experts = (int32_t)tensor_elems(&a->offsets) - 1;
    s.k = (int32_t)tensor_cols(&a->index);
    s.overflow = (float *)a->overflow.data;
    s.top = (int32_t *)a->top.data;
    s.begin = (int32_t *)a->first.data;
    s.pool = (int32_t)a->pool;
    s.room = (int32_t)moe_sort_room(a);
    sort_cut(tensor_elems(&a->index), &s);
    size_t one = (size_t)s.experts * sizeof(int32_t);
    if (3 * one > SHARED) {
        return FAIL(ERR_UNSUPPORTED, "moe_sort: %d experts, a GPU sorts at most %d", s.experts,
                    (int)(SHARED / 3 / sizeof(int32_t)));
    }
    int32_t warps = THREADS / WARP;
    while ((size_t)(2 + warps) * one > SHARED) warps /= 2;
    unsigned blocks = (unsigned)s.blocks, least = blocks == 0 ? 1 : blocks;
    if (blocks > 0 || s.top != NULL)
        moe_sort_count_kernel<<<least, THREADS, one, exec_stream(ex)>>>(s);
    size_t bytes = (size_t)(2 + warps) * one;
    moe_sort_place_kernel<<<least, THREADS, bytes, exec_stream(ex)>>>(s, warps);
    return kernel_status("moe_sort");
}
