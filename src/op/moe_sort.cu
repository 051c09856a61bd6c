/*
 * moe_sort: a stable counting sort in three launches. Slots are cut into blocks of SLOTS:
 *
 *   1  a block counts its slots by expert                         count[e][block]
 *   2  one block turns counts into places: a sum over the blocks of an expert, then over experts
 *   3  a block places its slots; a row is the place of (expert, block), plus the slots of that
 *      expert in warps before, plus those in front of it in its own warp
 *
 * Every count is an integer and every place is decided by position alone, so rows come out in the
 * order of slots whatever the GPU does first. All of it is a fraction of a percent of the experts'
 * products; what counts is that it is three short launches and nothing waits for the host.
 */
#include "op/kernel.cuh"

#include "op/moe.h"

enum {
    WARP = 32,
    SLOTS = 1024,   /* of a block */
    MOST_WARPS = 8, /* of a block that places */
    COUNT_THREADS = 256,
    SCAN_THREADS = 1024,
    SHARED = 48 * 1024, /* bytes that any GPU gives a block unasked */
};

typedef struct Sort {
    const int32_t *index;
    int32_t *offsets, *row_token, *row_slot, *slot_row;
    float *overflow; /* or NULL */
    int32_t *count;  /* (E, blocks): of the workspace */
    int32_t slots, blocks, experts, k, room;
} Sort;

static int32_t blocks_of(int64_t slots) { return (int32_t)((slots + SLOTS - 1) / SLOTS); }

static __global__ void moe_sort_count_kernel(Sort s)
{
    extern __shared__ int32_t count[]; /* (E) */
    int64_t first = (int64_t)blockIdx.x * SLOTS, n = min((int64_t)SLOTS, s.slots - first);
    for (int32_t e = threadIdx.x; e < s.experts; e += COUNT_THREADS) count[e] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += COUNT_THREADS) {
        int32_t e = s.index[first + i];
        if (e >= 0) atomicAdd(&count[e], 1);
    }
    __syncthreads();
    for (int32_t e = threadIdx.x; e < s.experts; e += COUNT_THREADS) {
        s.count[(int64_t)e * s.blocks + blockIdx.x] = count[e];
    }
}

/* In the lanes of a warp: the sum of v over the lanes up to this one. */
static __device__ __forceinline__ int32_t warp_running_sum(int32_t v)
{
    int lane = (int)threadIdx.x % WARP;
    for (int step = 1; step < WARP; step *= 2) {
        int32_t before = __shfl_up_sync(0xFFFFFFFFu, v, step);
        if (lane >= step) v += before;
    }
    return v;
}

/* By one warp: count[0 .. n) becomes the sum of what stood before each. Returns the total. */
static __device__ int32_t sum_before(int32_t *count, int32_t n)
{
    int32_t total = 0;
    for (int32_t first = 0; first < n; first += WARP) {
        int32_t i = first + (int32_t)threadIdx.x % WARP, v = i < n ? count[i] : 0;
        int32_t running = warp_running_sum(v);
        if (i < n) count[i] = total + running - v;
        total += __shfl_sync(0xFFFFFFFFu, running, WARP - 1);
    }
    return total;
}

/* One block: a warp takes experts, whose totals stand in offsets until the first warp has made
 * offsets of them. */
static __global__ __launch_bounds__(SCAN_THREADS) void moe_sort_scan_kernel(Sort s)
{
    int32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int32_t e = warp; e < s.experts; e += SCAN_THREADS / WARP) {
        int32_t total = sum_before(s.count + (int64_t)e * s.blocks, s.blocks);
        if (lane == 0) s.offsets[e] = total;
    }
    __syncthreads();
    if (warp > 0) return;
    int32_t total = sum_before(s.offsets, s.experts);
    if (lane == 0) s.offsets[s.experts] = min(total, s.room);
    if (total <= s.room) return;
    for (int32_t e = lane; e < s.experts; e += WARP) s.offsets[e] = min(s.offsets[e], s.room);
    if (lane == 0 && s.overflow != NULL) *s.overflow = 1;
}

/* A warp's span of the block is walked 32 slots at a time. Twice: to count, then to place. */
static __global__ void moe_sort_place_kernel(Sort s)
{
    extern __shared__ int32_t next[]; /* (warps, E): the next row of an expert for this warp */
    int32_t warps = blockDim.x / WARP, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t span = SLOTS / warps, first = (int64_t)blockIdx.x * SLOTS + warp * span;
    int64_t end = min(first + span, (int64_t)s.slots);
    int32_t *mine = next + warp * s.experts;
    for (int32_t i = threadIdx.x; i < warps * s.experts; i += blockDim.x) next[i] = 0;
    __syncthreads();
    for (int64_t i = first + lane; i < end; i += WARP) {
        if (s.index[i] >= 0) atomicAdd(&mine[s.index[i]], 1);
    }
    __syncthreads();
    for (int32_t e = threadIdx.x; e < s.experts; e += blockDim.x) {
        int32_t row = s.offsets[e] + s.count[(int64_t)e * s.blocks + blockIdx.x];
        for (int32_t w = 0; w < warps; w++) {
            int32_t n = next[w * s.experts + e];
            next[w * s.experts + e] = row;
            row += n;
        }
    }
    __syncthreads();
    for (int64_t from = first; from < end; from += WARP) {
        int64_t slot = from + lane;
        int32_t e = slot < end ? s.index[slot] : -1, row = -1;
        unsigned present = __ballot_sync(0xFFFFFFFFu, e >= 0);
        if (e >= 0) {
            unsigned same = __match_any_sync(present, e), before = same & ((1u << lane) - 1);
            row = mine[e] + __popc(before);
            if (row >= s.room) row = -1;
            __syncwarp(present); /* all have read mine[e] */
            if (before == 0) mine[e] += __popc(same);
        }
        if (slot < end) s.slot_row[slot] = row;
        if (row >= 0) {
            s.row_token[row] = (int32_t)(slot / s.k);
            s.row_slot[row] = (int32_t)slot;
        }
        __syncwarp();
    }
}

extern "C" size_t moe_sort_cuda_workspace(const struct Exec *, const void *args)
{
    const MoeSort *a = (const MoeSort *)args;
    return (size_t)blocks_of(tensor_elems(&a->index)) * (size_t)tensor_elems(&a->offsets) *
           sizeof(int32_t);
}

extern "C" Status moe_sort_cuda(struct Exec *ex, const void *args)
{
    const MoeSort *a = (const MoeSort *)args;
    Sort s = {};
    s.index = (const int32_t *)a->index.data;
    s.offsets = (int32_t *)a->offsets.data;
    s.row_token = (int32_t *)a->row_token.data;
    s.row_slot = (int32_t *)a->row_slot.data;
    s.slot_row = (int32_t *)a->slot_row.data;
    s.count = (int32_t *)exec_workspace(ex);
    s.slots = (int32_t)tensor_elems(&a->index);
    s.blocks = blocks_of(s.slots);
    s.experts = (int32_t)tensor_elems(&a->offsets) - 1;
    s.k = (int32_t)tensor_cols(&a->index);
    s.overflow = (float *)a->overflow.data;
    s.room = (int32_t)moe_sort_room(a);
    size_t one = (size_t)s.experts * sizeof(int32_t);
    if (one > SHARED) {
        return FAIL(ERR_UNSUPPORTED, "moe_sort: %d experts, a GPU sorts at most %d", s.experts,
                    (int)(SHARED / sizeof(int32_t)));
    }
    unsigned warps = MOST_WARPS;
    while (warps * one > SHARED) warps /= 2;
    if (s.blocks > 0) {
        moe_sort_count_kernel<<<(unsigned)s.blocks, COUNT_THREADS, one, exec_stream(ex)>>>(s);
    }
    moe_sort_scan_kernel<<<1, SCAN_THREADS, 0, exec_stream(ex)>>>(s);
    if (s.blocks > 0) {
        moe_sort_place_kernel<<<(unsigned)s.blocks, warps * WARP, warps * one, exec_stream(ex)>>>(
            s);
    }
    return kernel_status("moe_sort");
}
