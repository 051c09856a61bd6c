/*
 * grouped_mma: the products of grouped.cuh in bf16 on tensor cores, for sm_80 and later: mma.sync
 * m16n8k16 with f32 sums. On Hopper grouped_hopper.cuh is faster.
 *
 * A block has four warps, 2 x 2, each with 64 x 64 of the tile. For 16 terms a warp reads 4 KB of shared memory and
 * does 64 K multiply-adds. That is half of what a multiprocessor can read in that time; with 64 x 32 for a warp it
 * would be all of it. Two blocks share a multiprocessor, so one multiplies while the other starts or ends. Operands are
 * copied by cp.async, STAGES - 1 steps of STEP terms ahead.
 *
 * In shared memory 16-byte chunks are permuted by row, so that the 8 rows that ldmatrix reads at a
 * time lie in different banks:
 *
 *   ALONG      (128, 32): a row of 64 bytes; chunk c of row i stands at c ^ (i / 2 % 4)
 *   otherwise  (32, 128): a row of 256 bytes; chunk c of row i stands at c ^ (i % 8)
 *
 * Every row of operands and results must begin at a multiple of 16 bytes, and widths must be multiples of 8
 * (product_kernels.c checks it). Then a chunk is wholly inside or outside; chunks outside are zeros.
 */
#ifndef KERNELS_MOE_NV_GROUPED_MMA_CUH
#define KERNELS_MOE_NV_GROUPED_MMA_CUH

#include "kernels/core/nv/mma.cuh"
#include "kernels/moe/grouped.cuh"

namespace grouped
{

enum {
    MMA_THREADS = 128,
    STEP = 32, /* terms of a stage */
    STAGES = 4,
    CHUNK = 8,                       /* elements of 16 bytes */
    OPERAND_BYTES = TILE * STEP * 2, /* of a stage */
    STAGE_BYTES = 2 * OPERAND_BYTES,
    MMA_SHARED = STAGES * STAGE_BYTES,
    FILLS = TILE * STEP / CHUNK / MMA_THREADS, /* chunks of an operand that a thread brings */
};

/* The offset of chunk c of row i of an operand, in bytes. */
template <bool ALONG> static __device__ __forceinline__ uint32_t chunk_at(int i, int c)
{
    return ALONG ? (uint32_t)(i * 64 + ((c ^ (i >> 1 & 3)) << 4))
                 : (uint32_t)(i * 256 + ((c ^ (i & 7)) << 4));
}

/* The part of an operand that a thread copies: one column of chunks in FILLS rows of memory. */
template <typename T, bool ALONG> struct Feed;

/* ALONG: rows of memory are rows of the tile and stay; k moves along them. */
template <typename T> struct Feed<T, true> {
    static_assert(sizeof(T) * CHUNK == 16, "chunks hold elements of two bytes");
    static constexpr int ACROSS = STEP / CHUNK, DOWN = MMA_THREADS / ACROSS;
    const T *at[FILLS], *somewhere;
    int64_t left; /* terms from this thread's chunk of the next step to the end */
    bool have[FILLS];

    __device__ __forceinline__ void open(const View<T> &v)
    {
        int chunk = (int)threadIdx.x % ACROSS;
        left = v.cols - chunk * CHUNK;
        somewhere = v.data;
#pragma unroll
        for (int q = 0; q < FILLS; q++) {
            int64_t row = v.row((int)threadIdx.x / ACROSS + q * DOWN);
            have[q] = row >= 0;
            at[q] = v.data + max(row, (int64_t)0) * v.ld + chunk * CHUNK;
        }
    }

    __device__ __forceinline__ void step(uint32_t room)
    {
        int chunk = (int)threadIdx.x % ACROSS;
#pragma unroll
        for (int q = 0; q < FILLS; q++) {
            bool inside = have[q] && left > 0;
            int row = (int)threadIdx.x / ACROSS + q * DOWN;
            copy_chunk(room + chunk_at<true>(row, chunk), inside ? at[q] : somewhere, inside);
            at[q] += STEP;
        }
        left -= STEP;
    }
};

/* Not ALONG: rows of memory are terms, and k moves down. Row numbers are looked up one step ahead,
 * so that no copy waits for an index. */
template <typename T> struct Feed<T, false> {
    static_assert(sizeof(T) * CHUNK == 16, "chunks hold elements of two bytes");
    static constexpr int ACROSS = TILE / CHUNK, DOWN = MMA_THREADS / ACROSS;
    View<T> v;
    int64_t k;
    int32_t row[FILLS]; /* of the next step */

    __device__ __forceinline__ void look_up()
    {
#pragma unroll
        for (int q = 0; q < FILLS; q++) {
            row[q] = (int32_t)v.row(k + (int)threadIdx.x / ACROSS + q * DOWN);
        }
    }

    __device__ __forceinline__ void open(const View<T> &view)
    {
        v = view;
        k = 0;
        look_up();
    }

    __device__ __forceinline__ void step(uint32_t room)
    {
        int chunk = (int)threadIdx.x % ACROSS;
#pragma unroll
        for (int q = 0; q < FILLS; q++) {
            bool inside = row[q] >= 0 && chunk * CHUNK < v.cols;
            const T *from = inside ? v.data + row[q] * v.ld + chunk * CHUNK : v.data;
            copy_chunk(room + chunk_at<false>((int)threadIdx.x / ACROSS + q * DOWN, chunk), from,
                       inside);
        }
        k += STEP;
        look_up();
    }
};

/*
 * 16 rows from `first` on x 16 terms from `term` on, as four squares in the order
 *
 *   (rows 0-7, terms 0-7)  (rows 8-15, terms 0-7)  (rows 0-7, terms 8-15)  (rows 8-15, terms 8-15)
 *
 * which is the order of A's registers. B's two halves of 8 columns are squares 0, 2 and 1, 3. If memory runs along the
 * rows of the tile and not along k, squares are read as (terms, rows) and transposed.
 */
template <bool ALONG>
static __device__ __forceinline__ void fragment_load(uint32_t room, int first, int term,
                                                     uint32_t (&f)[4])
{
    int lane = (int)threadIdx.x % 32;
    int down = ALONG ? first + lane % 16 : term + lane % 8 + lane / 16 * 8;
    int chunk = ALONG ? term / CHUNK + lane / 16 : first / CHUNK + lane / 8 % 2;
    mma::squares_load<!ALONG>(room + chunk_at<ALONG>(down, chunk), f[0], f[1], f[2], f[3]);
}

/* A warp's 64 x 64 as 4 x 8 pieces of 16 x 8. */
typedef float MmaSums[4][8][4];

/* One stage: a warp's rows of A times its columns of B. */
template <bool A_ALONG, bool B_ALONG>
static __device__ __forceinline__ void mma_step(uint32_t room, MmaSums &sum)
{
    int warp = (int)threadIdx.x / 32, row = warp / 2 * HALF, col = warp % 2 * HALF;
#pragma unroll
    for (int term = 0; term < STEP; term += 16) {
        uint32_t a[4][4], b[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            fragment_load<A_ALONG>(room, row + i * 16, term, a[i]);
            fragment_load<B_ALONG>(room + OPERAND_BYTES, col + i * 16, term, b[i]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                mma::multiply_add(sum[i][j], a[i], b[j / 2][j % 2], b[j / 2][j % 2 + 2]);
            }
        }
    }
}

/* All terms of the tile. */
template <typename P>
static __device__ __forceinline__ void mma_sum(const P &p, const GroupTile &t, uint32_t room,
                                               MmaSums &sum)
{
    Feed<typename P::A, P::SideA::ALONG> a;
    Feed<typename P::B, P::SideB::ALONG> b;
    a.open(p.a(t));
    b.open(p.b(t));
    int steps = (int)((p.depth(t) + STEP - 1) / STEP);
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            a.step(room + s * STAGE_BYTES);
            b.step(room + s * STAGE_BYTES + OPERAND_BYTES);
        }
        copies_close(); /* closes empty groups, too: stage s is always group s */
    }
    for (int s = 0; s < steps; s++) {
        copies_wait<STAGES - 2>();
        __syncthreads(); /* stage s is there for all threads, and all are done with stage s - 1 */
        if (s + STAGES - 1 < steps) {
            uint32_t next = room + (s + STAGES - 1) % STAGES * STAGE_BYTES;
            a.step(next);
            b.step(next + OPERAND_BYTES);
        }
        copies_close();
        mma_step<P::SideA::ALONG, P::SideB::ALONG>(room + s % STAGES * STAGE_BYTES, sum);
    }
}

/* Writes the sums of the warps that have this half of the rows to shared memory. In a piece of 16 x
 * 8, lane l has columns 2 (l % 4) and the next, in rows l / 4 and l / 4 + 8. */
static __device__ __forceinline__ void mma_results(const MmaSums &sum, int half, float *room)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (warp / 2 != half) return;
    float *at = room + lane / 4 * PITCH + warp % 2 * HALF + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float *to = at + i * 16 * PITCH + j * 8;
            *reinterpret_cast<float2 *>(to) = make_float2(sum[i][j][0], sum[i][j][1]);
            *reinterpret_cast<float2 *>(to + 8 * PITCH) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
    }
}

template <typename P> static __global__ __launch_bounds__(MMA_THREADS, 2) void mma_kernel(const P p)
{
    extern __shared__ __align__(128) unsigned char room[];
    static_assert(MMA_SHARED >= HALF * PITCH * (int)sizeof(float), "half a tile of results fits");
    GroupTile t;
    if (!find_tile(p, &t)) return;
    MmaSums sum = {};
    mma_sum(p, t, shared_address(room), sum);
    float *out = reinterpret_cast<float *>(room);
    copies_wait<0>();
    for (int half = 0; half < 2; half++) {
        __syncthreads(); /* all threads are done with the memory's old contents */
        mma_results(sum, half, out);
        __syncthreads();
        results_store<P, MMA_THREADS>(p, t, out, half);
    }
}

} // namespace grouped

#endif
