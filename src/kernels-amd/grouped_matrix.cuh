/*
 * grouped_matrix: the products of grouped.cuh in bf16 (matrix_core.cuh) and 8 bits (matrix_eight.cuh) on
 * AMD's matrix cores.
 *
 * Every row of operands and results must begin at a multiple of 16 bytes, and widths must be
 * multiples of 8 (product_kernels.c checks it). Then a chunk is wholly inside or outside.
 *
 * Results go through LDS to `store`, which wants columns side by side. LDS holds 64 rows: a row of
 * squares from each wave, [64][128] floats. Words of four floats are permuted (result_at), so that
 * neither the writes nor the reads of 16 bytes wait for a bank.
 */
#ifndef KERNELS_AMD_GROUPED_MATRIX_CUH
#define KERNELS_AMD_GROUPED_MATRIX_CUH

#include "kernels-amd/matrix_eight.cuh"

namespace grouped
{

enum { MATRIX_PARTS = matrix::THREADS / HALF }; /* threads on a row of results */

/* The tile of rows with this number, as find_rows. Each wave looks for itself, so its coordinates are in
 * scalar registers, and LDS is not needed. */
static __device__ __forceinline__ bool matrix_find_rows(const Groups &g, int64_t number,
                                                        GroupTile *t)
{
    int lane = (int)threadIdx.x % WARP;
    for (int64_t e0 = 0; e0 < g.experts; e0 += WARP) {
        int64_t e = e0 + lane, begin = 0, end = 0;
        if (e < g.experts) {
            begin = g.first(e);
            end = g.first(e + 1);
        }
        int64_t i = number - (begin / TILE + e);
        int found = lanes_first(lanes_where(i >= 0 && begin + i * TILE < end));
        if (found < 0) continue;
        t->expert = e0 + found;
        begin = g.first(t->expert);
        t->first = begin + (number - (begin / TILE + t->expert)) * TILE;
        t->pooled = g.pooled(t->first);
        t->rows = min((int64_t)TILE, g.first(t->expert + 1) - t->first);
        t->row = 0;
        return true;
    }
    return false;
}

/* The tile of block `number`, as find_tile. */
template <typename P> static __device__ __forceinline__ bool matrix_tile(const P &p, GroupTile *t)
{
    if constexpr (P::SUMS) {
        return find_tile(p, t);
    } else {
        int64_t across = (p.n + TILE - 1) / TILE;
        t->col = blockIdx.x % across * TILE;
        return matrix_find_rows(p.groups, blockIdx.x / across, t) && !tile_mirrors(p, *t);
    }
}

/* Columns that `store` gets at a time: as many as are wholly inside or outside. Rows of f32 sums are
 * whole packs of f32, all others of bf16. */
template <typename P, typename = void> struct ResultColumns {
    static constexpr int N = P::SUMS ? PACK<float> : PACK<Bf16>;
};
template <typename P> struct ResultColumns<P, std::void_t<decltype(P::UNIT)>> {
    static constexpr int N = P::UNIT;
};

/* Where the four columns with number `four` of a row of LDS begin, in floats. N: columns that a thread
 * reads side by side. */
template <int N> static __device__ __forceinline__ int result_at(int row, int four)
{
    constexpr int WORDS = N / 4;
    int part = four / WORDS % MATRIX_PARTS, word = four % WORDS;
    int turned = (four / (WORDS * MATRIX_PARTS) * WORDS + word) * MATRIX_PARTS + part;
    int permuted = (row & 1) << 2 | (row >> 1 & 3);
    return row * TILE + (turned ^ permuted) * 4;
}

/* Writes a row of squares of each wave to LDS. */
template <int N>
static __device__ __forceinline__ void matrix_results(const matrix::Sums &sum, int i, float *room)
{
    int lane = (int)threadIdx.x % WARP, wave = (int)threadIdx.x / WARP;
    int row = wave / 2 * matrix::SQUARE + lane % matrix::SQUARE;
#pragma unroll
    for (int j = 0; j < matrix::SQUARES; j++) {
#pragma unroll
        for (int four = 0; four < 4; four++) {
            int col = wave % 2 * matrix::WAVE_TILE + j * matrix::SQUARE + four * 8 +
                      lane / matrix::SQUARE * 4;
            float4 v = make_float4(sum[i][j][four * 4], sum[i][j][four * 4 + 1],
                                   sum[i][j][four * 4 + 2], sum[i][j][four * 4 + 3]);
            *reinterpret_cast<float4 *>(room + result_at<N>(row, col / 4)) = v;
        }
    }
}

/* Passes what matrix_results wrote to `store`. Neighbouring threads have neighbouring columns. */
template <typename P>
static __device__ __forceinline__ void matrix_store(const P &p, const GroupTile &t,
                                                    const float *room, int square)
{
    constexpr int N = ResultColumns<P>::N;
    int in_room = (int)threadIdx.x / MATRIX_PARTS, part = (int)threadIdx.x % MATRIX_PARTS;
    int64_t i = in_room / matrix::SQUARE * matrix::WAVE_TILE + square * matrix::SQUARE +
                in_room % matrix::SQUARE;
    if (i >= (P::SUMS ? p.m - t.row : t.rows)) return;
    typename P::Row row = p.row(t, i);
    float dot = 0;
    for (int j = part * N; j < TILE; j += MATRIX_PARTS * N) {
        float v[N];
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            const float *at = room + result_at<N>(in_room, (j + k) / 4);
            float4 four = *reinterpret_cast<const float4 *>(at);
            v[k] = four.x;
            v[k + 1] = four.y;
            v[k + 2] = four.z;
            v[k + 3] = four.w;
        }
        dot += p.store(t, i, j, v, p.template extra<N>(t, i, j), row);
    }
    if constexpr (P::DOTS) p.dot(t, i, t.col / TILE * MATRIX_PARTS + part, dot);
}

/* What multiplies the operands of a policy. */
template <typename P, bool EIGHT = sizeof(typename P::A) == 1> struct MatrixProduct {
    typedef typename P::SideA A;
    typedef typename P::SideB B;
    typedef matrix::Multiplier<matrix::Feed<typename P::A, A::ALONG, A::GATHERS>,
                               matrix::Feed<typename P::B, B::ALONG, B::GATHERS>, matrix::Bf16Core>
        Type;
};
template <typename P> struct MatrixProduct<P, true> {
    static_assert(P::SideA::ALONG && P::SideB::ALONG, "8-bit operands lie with k along rows");
    typedef matrix::EightMultiplier<typename P::A, typename P::B, P::SUMS> Type;
};

template <typename P>
static __global__ __launch_bounds__(matrix::THREADS)
    __attribute__((amdgpu_waves_per_eu(2))) void matrix_kernel(const P p)
{
    __shared__ __align__(16) unsigned char room[matrix::ROOM_BYTES];
    static_assert(matrix::ROOM_BYTES >= HALF * TILE * (int)sizeof(float), "results fit");
    GroupTile t;
    if (!matrix_tile(p, &t)) return;
    matrix::Sums sum = {};
    typename MatrixProduct<P>::Type product(p.a(t), p.b(t), p.depth(t), room);
    product.run(sum);
    float *out = reinterpret_cast<float *>(room);
#pragma unroll
    for (int i = 0; i < matrix::SQUARES; i++) {
        __syncthreads(); /* all threads are done with the memory's old contents */
        matrix_results<ResultColumns<P>::N>(sum, i, out);
        __syncthreads();
        matrix_store(p, t, out, i);
    }
}

template <typename P> static Status matrix_launch(struct Exec *ex, const char *op, const P &p)
{
    unsigned blocks = 0;
    TRY(tiles_grid(op, p, &blocks));
    matrix_kernel<P><<<blocks, matrix::THREADS, 0, exec_stream(ex)>>>(p);
    return kernel_status(op);
}

} // namespace grouped

#endif
