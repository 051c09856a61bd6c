/*
 * attention_matrix: what the kernels of attention on AMD's matrix cores share. A wave owns 32 rows
 * (queries, or keys for dk and dv), a block 128 of one head. The other side is walked in tiles.
 *
 * All products are computed transposed, so that a lane has one owned row: with it, the row's maximum,
 * sum, lse and delta are numbers of a lane. The results are then operands of the next product as they
 * lie (attention_tile.cuh), and neither scores nor probabilities are ever in LDS.
 *
 *   forward    S' = k q',  P' = e^(S' - max),  o' += v' P'
 *   dq         S' = k q',  dP' = v do',  dS' = P' (dP' - delta),  dq' += k' dS'
 *   dk, dv     S = q k',  dP = do v',  dS = P (dP - delta),  dv' += do' P,  dk' += q' dS
 *
 * The owned rows are operands B in registers, the walked tiles operands A in LDS. A tile whose rows are
 * also summed over (v in forward, k, q and do in backward) is there transposed.
 *
 * It never ran on a GPU. From the instructions for gfx942 by clang 19, per turn of the inner loop, with
 * 32 cycles for a matrix instruction and 4 for another vector instruction:
 *
 *   heads        share of matrix cycles      waves on a SIMD
 *                forward   dq     dk, dv     forward   dq   dk, dv
 *   64, 64         63 %   69 %     63 %         3       2      2
 *   128, 128       76 %   79 %     72 %         2       2      1
 *   192, 128       77 %   79 %     75 %         2       1      1
 *
 * LDS reads take half of the matrix cycles, and no access waits for another. With heads of 64, the
 * exponentials (16 cycles each) make vector instructions the bound.
 *
 * Waves that skip tiles which none of their rows sees cost more in backward than they save: the compiler
 * then copies sums from one path of the loop to the other. Exponentials stand between the products that do
 * not need them, by hand: the compiler moves them behind. A tile's loads without conditions let
 * s_waitcnt count them, so that k is not waited for together with v.
 */
#ifndef KERNELS_AMD_ATTENTION_MATRIX_CUH
#define KERNELS_AMD_ATTENTION_MATRIX_CUH

#include "engine/gpu/fast_math.cuh"
#include "kernels-amd/attention_tile.cuh"
#include "kernels/core/pack.cuh"

#include "kernels/attention/attention_tiles.cuh"

#include <float.h>
#include <limits.h>

namespace attention_matrix
{

static constexpr float LOG2_E = 1.44269504088896341f, LN_2 = 0.693147180559945309f;

/* Which keys a query sees. */
struct Masks {
    const int32_t *doc; /* NULL: every row sees the first key */
    AttentionPieces pieces;
    int64_t window, chunk;
};

/* The argument of all kernels. Tensors are (B, Tq, H, d) and (B, Tk, G, d). The result of forward and dq
 * may be in f32, and then it is `sum`; `before` is what it is added to, or continued from. */
struct Attention {
    const Bf16 *q, *k, *v, *d_o, *dk_before, *dv_before;
    Bf16 *o, *dq, *dk, *dv;
    float *sum;
    const float *before, *lse_before;
    float *lse, *delta; /* (B, H, Tq) */
    Masks masks;
    AttentionTiles
        tiles; /* with arrays if masks hide keys of a whole call: blocks then follow its lists */
    int B, H, G, Tq, Tk;
    float scale;
};

/* Row i of a head, of a tensor over queries or over keys; D: the width of heads. */
template <int D, typename T>
static __device__ __forceinline__ T *query_row(const Attention &a, T *of, int b, int h, int i)
{
    return of + (((int64_t)b * a.Tq + i) * a.H + h) * D;
}

template <int D, typename T>
static __device__ __forceinline__ T *key_row(const Attention &a, T *of, int b, int g, int j)
{
    return of + (((int64_t)b * a.Tk + j) * a.G + g) * D;
}

/* A number of each query, with lse's layout. */
static __device__ __forceinline__ int64_t query_number(const Attention &a, int b, int h, int i)
{
    return ((int64_t)b * a.H + h) * a.Tq + i;
}

/* The keys that a query sees. */
struct Seen {
    int first, count;

    __device__ __forceinline__ bool key(int j) const
    {
        return (unsigned)(j - first) < (unsigned)count;
    }

    /* Any or all of n keys from j on. */
    __device__ __forceinline__ bool any(int j, int n) const
    {
        return first < j + n && first + count > j && count > 0;
    }
    __device__ __forceinline__ bool all(int j, int n) const
    {
        return first <= j && first + count >= j + n;
    }
};

static __device__ __forceinline__ Seen keys_seen(const Attention &a, int b, int i)
{
    const Masks &m = a.masks;
    int64_t stands = attention_position(&m.pieces, a.Tq, a.Tk, i);
    int64_t doc = m.doc != NULL ? m.doc[(int64_t)b * a.Tq + i] : 0;
    int64_t from = attention_first_seen(m.window, m.chunk, doc, stands);
    int first = (int)attention_keys_before(&m.pieces, a.Tk, from);
    int end = (int)attention_keys_before(&m.pieces, a.Tk, stands + 1);
    return { first, max(end - first, 0) };
}

/* The same in all lanes, which the compiler cannot know. */
static __device__ __forceinline__ int uniform(int v) { return __builtin_amdgcn_readfirstlane(v); }
static_assert(ROWS == ATTENTION_TILE, "a block owns a tile of the lists");

static __device__ __forceinline__ int wave_number() { return uniform((int)threadIdx.x / WARP); }

/* Queries of a block and of this lane. A lane whose query does not exist repeats the last one, and
 * stores nothing. */
struct Queries {
    int b, h, g, first, row;
    bool exists;
    Seen seen;
};

/* Blocks that see the most keys come first, so that the last blocks to end are short ones. */
static __device__ __forceinline__ Queries queries_of_block(const Attention &a)
{
    unsigned heads = (unsigned)(a.B * a.H), head = blockIdx.x % heads;
    Queries x;
    x.b = (int)head / a.H;
    x.h = (int)head % a.H;
    x.g = x.h / (a.H / a.G);
    x.first = uniform(attention_q_tile(a.tiles, x.b, (int)(blockIdx.x / heads))) * ROWS;
    int row = x.first + wave_number() * SIDE + lane_line();
    x.exists = row < a.Tq;
    x.row = min(row, a.Tq - 1);
    x.seen = keys_seen(a, x.b, x.row);
    return x;
}

/* The keys [begin, end) that the block's queries see, and where their rows are. No query sees further than
 * those after it. */
struct Keys {
    int begin, end;
    Rows k, v;
};

/* Without a list. Writes to a tile, which the caller may write behind the next barrier. */
static __device__ __forceinline__ AttentionSpan span_of_keys(const Attention &a, const Queries &x,
                                                             char *tile)
{
    int *first = reinterpret_cast<int *>(tile);
    Seen last = keys_seen(a, x.b, min(x.first + ROWS, a.Tq) - 1);
    int begin = x.seen.first;
    for (int bits = WARP / 2; bits > 0; bits /= 2) begin = min(begin, lane_get_xor(begin, bits));
    if (lane_number() == 0) first[threadIdx.x / WARP] = begin;
    __syncthreads();
    for (int w = 0; w < WAVES; w++) begin = min(begin, first[w]);
    return { begin, last.first + last.count };
}

template <int DK, int DV>
static __device__ __forceinline__ Keys keys_of_block(const Attention &a, const Queries &x,
                                                     char *tile)
{
    AttentionSpan span = a.tiles.first != NULL ? attention_keys_of(a.tiles, x.b, x.first / ROWS)
                                               : span_of_keys(a, x, tile);
    Keys keys;
    keys.begin = uniform(span.begin);
    keys.end = uniform(span.end);
    int row = max(keys.end, 1) - 1;
    keys.k = { key_row<DK>(a, a.k, x.b, x.g, 0), a.G * DK * 2, row };
    keys.v = { key_row<DV>(a, a.v, x.b, x.g, 0), a.G * DV * 2, row };
    return keys;
}

/* The same value, of which the compiler knows nothing. A condition that is asked twice in a loop would
 * otherwise become two loops, with copies of all sums from one to the other. */
static __device__ __forceinline__ bool asked_again(bool condition)
{
    int v = uniform(condition);
    asm volatile("" : "+s"(v));
    return v != 0;
}

/* What this wave's queries see of n keys from j on. */
struct Sight {
    bool any, all;
};

static __device__ __forceinline__ Sight sight_of(const Seen &s, int j, int n)
{
    return { lanes_any(s.any(j, n)), !lanes_any(!s.all(j, n)) };
}

/* Operands A are read one step ahead of the products that use them. The compiler alone reads all of a tile
 * at once, for which it has too few registers. */
static __device__ __forceinline__ void keep_order() { __builtin_amdgcn_sched_barrier(0); }

/* One wave on a SIMD has 256 accumulation registers, which is enough for all sums. But clang 19 moves some
 * to other registers while scores are computed, unless they are said to be used. clang 22 chooses well. */
#if __clang_major__ < 22
template <int D> static __device__ __forceinline__ void sums_stay(Sums (&sum)[D / SIDE])
{
#pragma unroll
    for (int t = 0; t < D / SIDE; t++) asm volatile("" : "+a"(sum[t]));
}
#else
template <int D> static __device__ __forceinline__ void sums_stay(Sums (&)[D / SIDE]) {}
#endif

/* S' of 32 of a tile's N keys, the t-th, or dP'. beside(m) is other work of step m of D / 16: vector
 * instructions run while the matrix core multiplies. */
template <int N, int D, typename F>
static __device__ __forceinline__ void rows_multiply(const char *tile, int t, const Fixed<D> &fixed,
                                                     Sums &s, F beside)
{
    constexpr int M = D / 16;
    Terms a[2] = { Along<N, D>::get(tile, t, 0) };
    s = no_sums();
#pragma unroll
    for (int m = 0; m < M; m++) {
        keep_order();
        if (m + 1 < M) a[(m + 1) % 2] = Along<N, D>::get(tile, t, m + 1);
        s = multiply_add(a[m % 2], fixed.step[m], s);
        beside(m);
    }
    keep_order();
}

static __device__ __forceinline__ void nothing_beside(int) {}

/* sum (D x 32) += tile' p, where p has the terms of 32 of the tile's N rows. beside(n) is other work of
 * step n of D / 32. */
template <int N, int D, typename F>
static __device__ __forceinline__ void
columns_add(const char *tile, int group, const Terms (&p)[STEPS], Sums (&sum)[D / SIDE], F beside)
{
    constexpr int T = D / SIDE, ALL = T * STEPS, PAIR = 2;
    Terms a[2][PAIR];
#pragma unroll
    for (int i = 0; i < PAIR; i++) a[0][i] = Across<N, D>::get(tile, i, group * STEPS);
#pragma unroll
    for (int n = 0; n < ALL; n += PAIR) {
        keep_order();
        int next = n + PAIR;
#pragma unroll
        for (int i = 0; i < PAIR && next < ALL; i++)
            a[next / PAIR % 2][i] =
                Across<N, D>::get(tile, (next + i) % T, group * STEPS + (next + i) / T);
#pragma unroll
        for (int i = 0; i < PAIR; i++)
            sum[(n + i) % T] = multiply_add(a[n / PAIR % 2][i], p[(n + i) / T], sum[(n + i) % T]);
        beside(n / PAIR);
    }
    keep_order();
}

/* Scores of keys that the query does not see become -infinity. The lane has scores of the keys from
 * j on. */
static __device__ __forceinline__ void hide_keys(const Seen &seen, int j, Sums &s)
{
    int base = j + 4 * lane_half() - seen.first;
#pragma unroll
    for (int r = 0; r < 16; r++)
        s[r] = (unsigned)(base + sums_row(r)) < (unsigned)seen.count ? s[r] : -INFINITY;
}

/* The columns of a row that a lane has in registers r to r + 3 of part t. */
static __device__ __forceinline__ int columns_at(int t, int r)
{
    return t * SIDE + sums_row(r) + 4 * lane_half();
}

template <int D> static __device__ __forceinline__ void sums_clear(Sums (&sum)[D / SIDE])
{
#pragma unroll
    for (int t = 0; t < D / SIDE; t++) sum[t] = no_sums();
}

/* sums = factor * sums + row, of D numbers. */
template <int D, typename T>
static __device__ __forceinline__ void row_add(const T *row, Sums (&sum)[D / SIDE], float factor)
{
#pragma unroll
    for (int t = 0; t < D / SIDE; t++) {
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            float v[4];
            load_const<true>(row + columns_at(t, r), v);
#pragma unroll
            for (int i = 0; i < 4; i++) sum[t][r + i] = fmaf(sum[t][r + i], factor, v[i]);
        }
    }
}

template <int D, typename T>
static __device__ __forceinline__ void row_store(const Sums (&sum)[D / SIDE], T *row, float factor)
{
#pragma unroll
    for (int t = 0; t < D / SIDE; t++) {
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) v[i] = sum[t][r + i] * factor;
            store<true>(row + columns_at(t, r), v);
        }
    }
}

} // namespace attention_matrix

#endif
