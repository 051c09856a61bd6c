/*
 * attention: our own kernels, for all shapes and types and for any GPU (candidate "plain"). All
 * tiles of a block are in shared memory, and so are the sums over tiles. Products read and write
 * shared memory (tile_product): in bf16 on tensor cores (16 x 16 x 16 fragments), in f32 by
 * multiply-adds. All other code is the same for both types. Tiles are padded with zeros to
 * multiples of 32 columns and 16 rows, so products have no tails. Hidden scores have probability 0.
 *
 * forward   A block owns queries of one head. It walks the keys from the first that any of its rows sees
 *           to the last that its last row sees, with a running maximum for each row. A call over a later
 *           block of keys starts as if each row had seen one key with score lse and value o.
 * backward  The first kernel computes delta = rowsum(do * o). One for dq walks keys as forward does. One
 *           for dk and dv owns keys of one key/value head and walks the queries of all heads that share
 *           it. Both compute the scores, so there are no atomics, and sums have one order.
 *
 * As on the CPU, probabilities and ds are rounded to bf16 for the product that follows. Shared
 * memory is the bound: an operand fragment is used twice at most.
 */
#include "kernels/core/pack.cuh"

#include "engine/gpu/fragment.cuh"

extern "C" {
#include "kernels/attention/attention.h"
}

#include <limits.h>

static const int THREADS = 256, WARPS = THREADS / WARP;
static_assert(THREADS % WARP == 0 && THREADS % STRIP == 0,
              "pieces of a product have whole groups of threads");
static const int BLOCK_MAX = 64; /* queries or keys */

/* A (B, length, heads, d) tensor. */
template <typename T> struct Side {
    T *at;
    int64_t length;
    int heads, d;
    bool wide; /* rows are whole packs of 16 bytes */
};

/* A tile in a block's shared memory: its first byte, and the elements from row to row. A row of
 * bf16 has 16 bytes more than a multiple of 64, a row of f32 one float more than a multiple of 128
 * bytes. So neighbouring rows begin in different banks. */
struct Tile {
    int at, ld;
};

/* Where the tiles of a block lie in its shared memory. Which of them exist depends on the kernel (space_of). */
struct Space {
    Tile q, d_o, k, v, scores, grads, p, ds, sum, sum2;
    int rows, total; /* in bytes: the offset of RowCapacity; the size of all */
};

/* The argument of all four kernels. It is passed as __grid_constant__, so threads read it from
 * constant memory and keep no copy. */
template <typename T> struct Attention {
    Side<T> q, k, v, o, d_o, dq, dk, dv, dk_before, dv_before;
    Side<float> o_sum, dq_sum; /* o and dq where they are f32 and T is not */
    Side<float> o_before, dq_before;
    const int32_t *doc; /* NULL: every row sees the first key */
    float *lse, *delta; /* (B, H, Tq) */
    const float *lse_before;
    AttentionPieces pieces;
    int64_t window, chunk, B;
    float scale;
    int nq, nk; /* queries and keys of a tile */
    Space at;
};

static __host__ __device__ __forceinline__ int padded(int d)
{
    return (d + STRIP - 1) / STRIP * STRIP;
}

/* products */

/* C (m, n) f32 = or += A (m, k) B (k, n); m and k multiples of 16, n of 32. */
template <typename T> struct TileProduct {
    const T *a, *b;
    float *c;
    int lda, ldb, ldc, m, n, k;
};

/* A_T: A is stored as (k, m); B_T: B is stored as (n, k). A warp computes pieces of FRAGMENT x STRIP. */
template <bool A_T, bool B_T, bool ADD>
static __device__ __forceinline__ void tile_product(const TileProduct<Bf16> &p)
{
    int across = p.n / STRIP;
    for (int piece = (int)threadIdx.x / WARP; piece < p.m / FRAGMENT * across; piece += WARPS) {
        int i = piece / across * FRAGMENT, j = piece % across * STRIP;
        fragment_product<A_T, B_T, ADD>(A_T ? p.a + i : p.a + i * p.lda, p.lda,
                                        B_T ? p.b + j * p.ldb : p.b + j, p.ldb, p.c + i * p.ldc + j,
                                        p.ldc, p.k);
    }
}

/* STRIP threads compute a piece of ROWS x STRIP, one column each. All of them read the same
 * elements of A, and neighbouring threads read neighbouring columns of B. */
template <bool A_T, bool B_T, bool ADD>
static __device__ __forceinline__ void tile_product(const TileProduct<float> &p)
{
    enum { ROWS = 4 };
    int across = p.n / STRIP, column = (int)threadIdx.x % STRIP;
    for (int piece = (int)threadIdx.x / STRIP; piece < p.m / ROWS * across;
         piece += THREADS / STRIP) {
        int i = piece / across * ROWS, j = piece % across * STRIP + column;
        float sum[ROWS] = {};
#pragma unroll 4
        for (int l = 0; l < p.k; l++) {
            float b = B_T ? p.b[j * p.ldb + l] : p.b[l * p.ldb + j];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float a = A_T ? p.a[l * p.lda + i + r] : p.a[(i + r) * p.lda + l];
                sum[r] = fmaf(a, b, sum[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float *to = p.c + (i + r) * p.ldc + j;
            *to = ADD ? *to + sum[r] : sum[r];
        }
    }
}

/* tiles */

/* What a block keeps for each of its query rows: the first and last key that the row sees, and the
 * running maximum and sum (forward) or lse and delta (backward). */
struct RowCapacity {
    int first[BLOCK_MAX], last[BLOCK_MAX];
    float max[BLOCK_MAX], sum[BLOCK_MAX], lse[BLOCK_MAX], delta[BLOCK_MAX];
};

/* Dynamic shared memory: its size depends on the widths of heads, and may be above 48 KB. */
static __device__ __forceinline__ char *shared_memory(void)
{
    extern __shared__ __align__(128) char shared[];
    return shared;
}

template <typename T> static __device__ __forceinline__ T *elements(Tile t)
{
    return reinterpret_cast<T *>(shared_memory() + t.at);
}

static __device__ __forceinline__ RowCapacity *row_room(const Space &s)
{
    return reinterpret_cast<RowCapacity *>(shared_memory() + s.rows);
}

/* c (m, n) = or += a (m, k) b (k, n) */
template <typename T, bool A_T, bool B_T, bool ADD>
static __device__ __forceinline__ void tiles_multiply(Tile a, Tile b, Tile c, int m, int n, int k)
{
    TileProduct<T> p = { elements<T>(a), elements<T>(b), elements<float>(c), a.ld, b.ld, c.ld };
    p.m = m;
    p.n = n;
    p.k = k;
    tile_product<A_T, B_T, ADD>(p);
}

template <typename T>
static __device__ __forceinline__ T *head_row(const Side<T> &s, int64_t b, int64_t row,
                                              int64_t head)
{
    return s.at + ((b * s.length + row) * s.heads + head) * s.d;
}

/* Loads rows [first, first + n) of a head into a tile of `rows` rows; zeros after them and after column d. */
template <typename T>
static __device__ __forceinline__ void tile_load(Tile tile, const Side<T> &s, int64_t b,
                                                 int64_t first, int64_t head, int n, int rows)
{
    const T *from = head_row(s, b, first, head);
    T *to = elements<T>(tile);
    int64_t stride = (int64_t)s.heads * s.d;
    if constexpr (sizeof(T) == 2) {
        if (s.wide) {
            constexpr int P = PACK<T>;
            int packs = padded(s.d) / P;
            for (int e = (int)threadIdx.x; e < rows * packs; e += THREADS) {
                int r = e / packs, d = e % packs * P;
                uint4 v = make_uint4(0, 0, 0, 0);
                if (r < n && d < s.d)
                    v = read_const(reinterpret_cast<const uint4 *>(from + r * stride + d));
                *reinterpret_cast<uint4 *>(to + r * tile.ld + d) = v;
            }
            return;
        }
    }
    int width = padded(s.d);
    for (int e = (int)threadIdx.x; e < rows * width; e += THREADS) {
        int r = e / width, d = e % width;
        to[r * tile.ld + d] =
            r < n && d < s.d ? read_const(from + r * stride + d) : from_f32<T>(0.0f);
    }
}

/* Stores the first n rows of a tile of sums, each times factor[r] (NULL: 1), to rows of a head. */
template <typename T>
static __device__ __forceinline__ void tile_store(Tile tile, const Side<T> &s, int64_t b,
                                                  int64_t first, int64_t head, int n,
                                                  const float *factor)
{
    const float *from = elements<float>(tile);
    T *to = head_row(s, b, first, head);
    int64_t stride = (int64_t)s.heads * s.d;
    for (int e = (int)threadIdx.x; e < n * s.d; e += THREADS) {
        int r = e / s.d, d = e % s.d;
        float v = from[r * tile.ld + d];
        to[r * stride + d] = from_f32<T>(factor == NULL ? v : v * factor[r]);
    }
}

/* Initialises a tile of `rows` rows of sums: the first n from rows [row, row + n) of a head if s
 * has data, all others with zeros. */
template <typename T>
static __device__ __forceinline__ void tile_begin(Tile tile, int rows, const Side<T> &s, int64_t b,
                                                  int64_t row, int64_t head, int n)
{
    int ld = tile.ld;
    float *to = elements<float>(tile);
    bool given = s.at != NULL;
    const T *from = given ? head_row(s, b, row, head) : NULL;
    int64_t stride = (int64_t)s.heads * s.d;
    for (int e = (int)threadIdx.x; e < rows * ld; e += THREADS) {
        int r = e / ld, d = e % ld;
        to[e] = given && r < n && d < s.d ? to_f32(from[r * stride + d]) : 0.0f;
    }
}

/* A tile of queries of one head. Rows from n on do not exist and see no key. */
struct Queries {
    int64_t b, h, first;
    int n;
};

/* Blocks that see the most keys come first, so that the last blocks to end are short ones. */
template <typename T>
static __device__ __forceinline__ Queries queries_of_block(const Attention<T> &a)
{
    int64_t heads = a.B * a.q.heads, tiles = (a.q.length + a.nq - 1) / a.nq;
    int64_t head = (int64_t)blockIdx.x % heads, i = tiles - 1 - (int64_t)blockIdx.x / heads;
    Queries x;
    x.b = head / a.q.heads;
    x.h = head % a.q.heads;
    x.first = i * a.nq;
    x.n = (int)min((int64_t)a.nq, a.q.length - x.first);
    return x;
}

/* Backward's rows have lse and delta as well. */
template <typename T, bool BACKWARD>
static __device__ __forceinline__ void rows_load(const Attention<T> &a, const Queries &x,
                                                 RowCapacity *room)
{
    for (int r = (int)threadIdx.x; r < a.nq; r += THREADS) {
        int64_t i = x.first + r, at = (x.b * a.q.heads + x.h) * a.q.length + i;
        bool exists = r < x.n;
        int64_t stands = attention_position(&a.pieces, a.q.length, a.k.length, i);
        int64_t doc = exists && a.doc != NULL ? a.doc[x.b * a.q.length + i] : 0;
        int64_t seen = attention_first_seen(a.window, a.chunk, doc, stands);
        int64_t first = attention_keys_before(&a.pieces, a.k.length, seen);
        int64_t end = attention_keys_before(&a.pieces, a.k.length, stands + 1);
        room->first[r] = exists ? (int)first : INT_MAX;
        room->last[r] = exists ? (int)end - 1 : -1;
        if (BACKWARD) room->lse[r] = exists ? a.lse[at] : 0.0f;
        if (BACKWARD) room->delta[r] = exists ? a.delta[at] : 0.0f;
    }
}

static __device__ __forceinline__ bool sees(const RowCapacity *room, int r, int64_t key)
{
    return key >= room->first[r] && key <= room->last[r];
}

/* The first key that any row sees. */
static __device__ __forceinline__ int64_t first_key(const RowCapacity *room, int nq)
{
    int first = INT_MAX;
    for (int r = 0; r < nq; r++) first = min(first, room->first[r]);
    return first;
}

/* Stores rows of o or dq: to `sum` if the output is f32, else to `to`, in T. */
template <typename T>
static __device__ __forceinline__ void rows_store(Tile from, const Side<T> &to,
                                                  const Side<float> &sum, const Queries &x,
                                                  const float *factor)
{
    if (sum.at != NULL)
        tile_store(from, sum, x.b, x.first, x.h, x.n, factor);
    else
        tile_store(from, to, x.b, x.first, x.h, x.n, factor);
}

/* to (nq, nk) = x y^T, for a tile x of queries and a tile y of keys: scores or dp. */
template <typename T>
static __device__ __forceinline__ void rows_by_keys(const Attention<T> &a, Tile x, Tile y, int d,
                                                    Tile to)
{
    tiles_multiply<T, false, true, false>(x, y, to, a.nq, a.nk, padded(d));
}

/* forward */

/* Turns the scores of a row into e^(score - max), in T, and updates the running maximum. Earlier
 * sums are rescaled to a new maximum. One warp handles a row. */
template <typename T>
static __device__ __forceinline__ void softmax_row(const Attention<T> &a, RowCapacity *room, int r,
                                                   int64_t j0)
{
    int lane = (int)threadIdx.x % WARP;
    const float *scores = elements<float>(a.at.scores) + r * a.at.scores.ld;
    T *p = elements<T>(a.at.p) + r * a.at.p.ld;
    float *o = elements<float>(a.at.sum) + r * a.at.sum.ld;
    float most = -INFINITY, before = room->max[r], part = 0;
    for (int j = lane; j < a.nk; j += WARP)
        if (sees(room, r, j0 + j)) most = fmaxf(most, scores[j]);
    most = fmaxf(warp_max(most) * a.scale, before);
    for (int j = lane; j < a.nk; j += WARP) {
        float e = sees(room, r, j0 + j) ? expf(scores[j] * a.scale - most) : 0.0f;
        p[j] = from_f32<T>(e);
        part += e;
    }
    part = warp_sum(part);
    lanes_sync(); /* all have read the maximum that lane 0 replaces */
    if (most == before) {
        if (lane == 0) room->sum[r] += part;
        return;
    }
    float factor = expf(before - most);
    for (int d = lane; d < padded(a.v.d); d += WARP) o[d] *= factor;
    if (lane == 0) {
        room->max[r] = most;
        room->sum[r] = room->sum[r] * factor + part;
    }
}

template <typename T>
static __device__ __forceinline__ void fwd_keys(const Attention<T> &a, const Queries &x,
                                                RowCapacity *room, int64_t j0, int n)
{
    int64_t g = x.h * a.k.heads / a.q.heads;
    /* k and v share the same memory: v is loaded when the scores are done */
    tile_load(a.at.k, a.k, x.b, j0, g, n, a.nk);
    __syncthreads();
    rows_by_keys(a, a.at.q, a.at.k, a.q.d, a.at.scores);
    __syncthreads();
    tile_load(a.at.v, a.v, x.b, j0, g, n, a.nk);
    for (int r = (int)threadIdx.x / WARP; r < a.nq; r += WARPS) softmax_row(a, room, r, j0);
    __syncthreads();
    tiles_multiply<T, false, false, true>(a.at.p, a.at.v, a.at.sum, a.nq, padded(a.v.d), a.nk);
    __syncthreads();
}

template <typename T>
static __global__
__launch_bounds__(THREADS, 2) void attention_fwd_kernel(const __grid_constant__ Attention<T> a)
{
    RowCapacity *room = row_room(a.at);
    Queries x = queries_of_block(a);
    int64_t rows = (x.b * a.q.heads + x.h) * a.q.length + x.first;
    rows_load<T, false>(a, x, room);
    for (int r = (int)threadIdx.x; r < a.nq; r += THREADS) {
        float lse = a.lse_before != NULL && r < x.n ? a.lse_before[rows + r] : -INFINITY;
        room->max[r] = lse;
        room->sum[r] = lse > -INFINITY ? 1.0f : 0.0f;
    }
    tile_begin(a.at.sum, a.nq, a.o_before, x.b, x.first, x.h, x.n);
    tile_load(a.at.q, a.q, x.b, x.first, x.h, x.n, a.nq);
    __syncthreads();
    int64_t end = room->last[x.n - 1] + 1; /* no row before it sees further */
    for (int64_t j0 = first_key(room, x.n); j0 < end; j0 += a.nk)
        fwd_keys(a, x, room, j0, (int)min((int64_t)a.nk, end - j0));
    for (int r = (int)threadIdx.x; r < x.n; r += THREADS) {
        a.lse[rows + r] = room->max[r] + logf(room->sum[r]);
        room->sum[r] = room->sum[r] > 0 ? 1 / room->sum[r] : 0.0f; /* no key at all: 0 */
    }
    __syncthreads();
    rows_store(a.at.sum, a.o, a.o_sum, x, room->sum);
}

/* The largest logit of a block's queries (kernels/attention/attention.h). In most steps a block looks at their lse and ends.
 * max may have grown since: then the block computes in vain. The maximum over blocks is one of integers:
 * numbers above 0 have the order of their bits, and a maximum is the same in any order. */
template <typename T>
static __global__
__launch_bounds__(THREADS, 2) void attention_max_kernel(const __grid_constant__ Attention<T> a,
                                                        float *max, float above)
{
    RowCapacity *room = row_room(a.at);
    Queries x = queries_of_block(a);
    const float *lse = a.lse + (x.b * a.q.heads + x.h) * a.q.length + x.first;
    float limit = fmaxf(above, *(const volatile float *)&max[x.h]) * (1 - LSE_SLACK);
    float most = (int)threadIdx.x < x.n && lse[threadIdx.x] > limit ? 1.0f : 0.0f;
    if (block_max(most, room->max) == 0) return;
    rows_load<T, false>(a, x, room);
    tile_load(a.at.q, a.q, x.b, x.first, x.h, x.n, a.nq);
    __syncthreads();
    int64_t g = x.h * a.k.heads / a.q.heads, end = room->last[x.n - 1] + 1;
    most = -INFINITY;
    for (int64_t j0 = first_key(room, x.n); j0 < end; j0 += a.nk) {
        tile_load(a.at.k, a.k, x.b, j0, g, (int)min((int64_t)a.nk, end - j0), a.nk);
        __syncthreads();
        rows_by_keys(a, a.at.q, a.at.k, a.q.d, a.at.scores);
        __syncthreads();
        for (int e = (int)threadIdx.x; e < x.n * a.nk; e += THREADS) {
            int r = e / a.nk, j = e % a.nk;
            float score = elements<float>(a.at.scores)[r * a.at.scores.ld + j];
            if (sees(room, r, j0 + j)) most = fmaxf(most, score);
        }
    }
    most = block_max(most, room->max) * a.scale;
    if (threadIdx.x == 0 && most > above) atomicMax((unsigned *)max + x.h, __float_as_uint(most));
}

/* backward */

/* delta of every row of every head, with lse's layout. One warp handles a row. */
template <typename T>
static __global__
__launch_bounds__(THREADS, 2) void attention_delta_kernel(const __grid_constant__ Attention<T> a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int64_t rows = a.q.length, H = a.q.heads;
    if (row >= a.B * H * rows) return;
    const T *o = head_row(a.o, row / rows / H, row % rows, row / rows % H);
    const T *d_o = head_row(a.d_o, row / rows / H, row % rows, row / rows % H);
    float sum = 0;
    for (int d = (int)threadIdx.x % WARP; d < a.o.d; d += WARP)
        sum += to_f32(o[d]) * to_f32(d_o[d]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) a.delta[row] = sum;
}

/* p = exp(scale * q k^T - lse) and ds = scale * p * (dp - delta) of a tile, in T. */
template <typename T, bool KEEP_P>
static __device__ __forceinline__ void bwd_scores(const Attention<T> &a, const RowCapacity *room,
                                                  int64_t j0)
{
    const float *scores = elements<float>(a.at.scores), *dp = elements<float>(a.at.grads);
    for (int e = (int)threadIdx.x; e < a.nq * a.nk; e += THREADS) {
        int r = e / a.nk, j = e % a.nk, at = r * a.at.scores.ld + j;
        bool seen = sees(room, r, j0 + j);
        float p = seen ? expf(scores[at] * a.scale - room->lse[r]) : 0.0f;
        float ds = seen ? a.scale * p * (dp[at] - room->delta[r]) : 0.0f;
        if (KEEP_P) elements<T>(a.at.p)[r * a.at.p.ld + j] = from_f32<T>(p);
        elements<T>(a.at.ds)[r * a.at.ds.ld + j] = from_f32<T>(ds);
    }
}

/* Computes p and ds of the loaded tiles, with a barrier before and after. */
template <typename T, bool KEEP_P>
static __device__ __forceinline__ void bwd_tile(const Attention<T> &a, const RowCapacity *room,
                                                int64_t j0)
{
    __syncthreads();
    rows_by_keys(a, a.at.q, a.at.k, a.q.d, a.at.scores);
    rows_by_keys(a, a.at.d_o, a.at.v, a.v.d, a.at.grads);
    __syncthreads();
    bwd_scores<T, KEEP_P>(a, room, j0);
    __syncthreads();
}

template <typename T>
static __global__
__launch_bounds__(THREADS, 2) void attention_dq_kernel(const __grid_constant__ Attention<T> a)
{
    RowCapacity *room = row_room(a.at);
    Queries x = queries_of_block(a);
    int64_t g = x.h * a.k.heads / a.q.heads;
    rows_load<T, true>(a, x, room);
    tile_begin(a.at.sum, a.nq, a.dq_before, x.b, x.first, x.h, x.n);
    tile_load(a.at.q, a.q, x.b, x.first, x.h, x.n, a.nq);
    tile_load(a.at.d_o, a.d_o, x.b, x.first, x.h, x.n, a.nq);
    __syncthreads();
    int64_t end = room->last[x.n - 1] + 1;
    for (int64_t j0 = first_key(room, x.n); j0 < end; j0 += a.nk) {
        int n = (int)min((int64_t)a.nk, end - j0);
        tile_load(a.at.k, a.k, x.b, j0, g, n, a.nk);
        tile_load(a.at.v, a.v, x.b, j0, g, n, a.nk);
        bwd_tile<T, false>(a, room, j0);
        tiles_multiply<T, false, false, true>(a.at.ds, a.at.k, a.at.sum, a.nq, padded(a.q.d), a.nk);
        __syncthreads();
    }
    rows_store(a.at.sum, a.dq, a.dq_sum, x, NULL);
}

/* Adds the terms of one tile of queries to dk and dv of keys [j0, j0 + n). */
template <typename T>
static __device__ __forceinline__ void dkv_queries(const Attention<T> &a, const Queries &x,
                                                   RowCapacity *room, int64_t j0, int n)
{
    rows_load<T, true>(a, x, room);
    int r = (int)threadIdx.x;
    /* Each thread reads the row that it wrote itself, so no barrier is needed before. A tile whose
     * rows see none of the keys is skipped. */
    bool any = r < x.n && room->first[r] < j0 + n && room->last[r] >= j0;
    if (!__syncthreads_or(any)) return;
    tile_load(a.at.q, a.q, x.b, x.first, x.h, x.n, a.nq);
    tile_load(a.at.d_o, a.d_o, x.b, x.first, x.h, x.n, a.nq);
    bwd_tile<T, true>(a, room, j0);
    tiles_multiply<T, true, false, true>(a.at.p, a.at.d_o, a.at.sum2, a.nk, padded(a.v.d), a.nq);
    tiles_multiply<T, true, false, true>(a.at.ds, a.at.q, a.at.sum, a.nk, padded(a.q.d), a.nq);
    __syncthreads();
}

/* The end of the queries that can see key j, whose position is j. With pieces positions differ, and
 * all queries are tried. */
template <typename T>
static __device__ __forceinline__ int64_t queries_end(const Attention<T> &a, int64_t j)
{
    int64_t end = a.q.length;
    if (a.pieces.length > 0) return end;
    if (a.window > 0) end = min(end, j + a.window);
    return a.chunk > 0 ? min(end, j - j % a.chunk + a.chunk) : end;
}

/* The first keys are seen by the most queries, so their blocks come first. */
template <typename T>
static __global__
__launch_bounds__(THREADS, 2) void attention_dkv_kernel(const __grid_constant__ Attention<T> a)
{
    RowCapacity *room = row_room(a.at);
    int64_t heads = a.B * a.k.heads, head = (int64_t)blockIdx.x % heads;
    int64_t b = head / a.k.heads, g = head % a.k.heads, j0 = (int64_t)blockIdx.x / heads * a.nk;
    int n = (int)min((int64_t)a.nk, a.k.length - j0), share = a.q.heads / a.k.heads;
    tile_begin(a.at.sum, a.nk, a.dk_before, b, j0, g, n);
    tile_begin(a.at.sum2, a.nk, a.dv_before, b, j0, g, n);
    tile_load(a.at.k, a.k, b, j0, g, n, a.nk);
    tile_load(a.at.v, a.v, b, j0, g, n, a.nk);
    int64_t end = queries_end(a, j0 + n - 1);
    Queries x;
    x.b = b;
    for (x.h = g * share; x.h < (g + 1) * share; x.h++) {
        for (x.first = a.pieces.length > 0 ? 0 : j0; x.first < end; x.first += a.nq) {
            x.n = (int)min((int64_t)a.nq, a.q.length - x.first);
            dkv_queries(a, x, room, j0, n);
        }
    }
    __syncthreads();
    tile_store(a.at.sum, a.dk, b, j0, g, n, NULL);
    tile_store(a.at.sum2, a.dv, b, j0, g, n, NULL);
}

/* launch */

/* Reserves a tile in the block's shared memory, at a multiple of 128 bytes. */
static Tile tile_reserve(Space *s, int rows, int ld, size_t each)
{
    int at = s->total;
    s->total += (int)(((size_t)rows * (size_t)ld * each + 127) / 128 * 128);
    return { at, ld };
}

typedef enum Kernel { FORWARD, DQ, DKV } Kernel;

template <typename T> static Space space_of(const Attention<T> &a, Kernel kernel)
{
    const int pad = sizeof(T) == 2 ? 8 : 1, ld_p = a.nk + pad, ld_scores = a.nk + 4;
    int dk = padded(a.q.d), dv = padded(a.v.d), owned = kernel == DKV ? a.nk : a.nq;
    Space s = {};
    s.q = tile_reserve(&s, a.nq, dk + pad, sizeof(T));
    if (kernel == FORWARD) {
        Tile room = tile_reserve(&s, a.nk, max(dk, dv) + pad, sizeof(T));
        s.k = { room.at, dk + pad };
        s.v = { room.at, dv + pad };
    } else {
        s.k = tile_reserve(&s, a.nk, dk + pad, sizeof(T));
        s.v = tile_reserve(&s, a.nk, dv + pad, sizeof(T));
        s.d_o = tile_reserve(&s, a.nq, dv + pad, sizeof(T));
        s.grads = tile_reserve(&s, a.nq, ld_scores, sizeof(float));
        s.ds = tile_reserve(&s, a.nq, ld_p, sizeof(T));
    }
    s.scores = tile_reserve(&s, a.nq, ld_scores, sizeof(float));
    if (kernel != DQ) s.p = tile_reserve(&s, a.nq, ld_p, sizeof(T));
    s.sum = tile_reserve(&s, owned, (kernel == FORWARD ? dv : dk) + 4, sizeof(float));
    if (kernel == DKV) s.sum2 = tile_reserve(&s, owned, dv + 4, sizeof(float));
    s.rows = tile_reserve(&s, 1, 1, sizeof(RowCapacity)).at;
    return s;
}

/* Chooses the largest tiles with which two blocks fit into a multiprocessor, or, if there are none,
 * the largest that fit at all. */
template <typename T> static Status tiles_choose(Attention<T> *a, Kernel kernel)
{
    static const int sizes[][2] = { { 64, 64 }, { 64, 32 }, { 32, 32 }, { 16, 32 } };
    const int most = gpu_limit(GPU_BLOCK_SHARED_BYTES);
    bool found = false;
    for (const auto &size : sizes) {
        Attention<T> x = *a;
        x.nq = size[0];
        x.nk = size[1];
        x.at = space_of(x, kernel);
        if (x.at.total > most || (found && x.at.total > (most - 1024) / 2)) continue;
        bool two = x.at.total <= (most - 1024) / 2;
        if (!found || two) *a = x;
        found = true;
        if (two) return OK;
    }
    if (found) return OK;
    return FAIL(ERR_UNSUPPORTED,
                "attention: heads of width %d and %d take more than the %d bytes of shared memory "
                "that this GPU gives a block",
                a->q.d, a->v.d, most);
}

template <typename T> static Side<T> side_of(const Tensor *t)
{
    if (t->data == NULL) return {};
    Side<T> s = { (T *)t->data, t->dim[1], (int)t->dim[2], (int)t->dim[3], false };
    s.wide = packs_fit<T>({ t->data }, { t->dim[3] });
    return s;
}

template <typename T>
static Status launch(struct Exec *ex, void (*kernel)(const Attention<T>), const Attention<T> &a,
                     int64_t blocks)
{
    if (blocks == 0) return OK;
    TRY(kernel_shared("attention", kernel, (size_t)a.at.total));
    kernel<<<(unsigned)blocks, THREADS, (size_t)a.at.total, exec_stream(ex)>>>(a);
    return kernel_status("attention");
}

template <typename T> static int64_t query_blocks(const Attention<T> &a)
{
    return (a.q.length + a.nq - 1) / a.nq * a.B * a.q.heads;
}

/* The arguments that both directions have. */
template <typename T, typename Args> static Attention<T> attention_of(const Args *f)
{
    Attention<T> a = {};
    a.q = side_of<T>(&f->q);
    a.k = side_of<T>(&f->k);
    a.v = side_of<T>(&f->v);
    a.o = side_of<T>(&f->o);
    a.pieces = f->pieces;
    a.window = f->window;
    a.chunk = f->chunk;
    a.doc = (const int32_t *)f->doc.data;
    a.lse = (float *)f->lse.data;
    a.B = f->q.dim[0];
    a.scale = f->scale;
    return a;
}

template <typename T> static Status forward(struct Exec *ex, const AttentionFwd *f)
{
    Attention<T> a = attention_of<T>(f);
    a.o_before = side_of<float>(&f->o_before);
    a.lse_before = (const float *)f->lse_before.data;
    if (f->o.dtype == DTYPE_F32) a.o_sum = side_of<float>(&f->o);
    TRY(tiles_choose(&a, FORWARD));
    return launch(ex, attention_fwd_kernel<T>, a, query_blocks(a));
}

template <typename T> static Status largest(struct Exec *ex, const AttentionMax *m)
{
    AttentionFwd f = m->of;
    f.v = f.o = f.k; /* values are not read */
    Attention<T> a = attention_of<T>(&f);
    TRY(tiles_choose(&a, FORWARD));
    int64_t blocks = query_blocks(a);
    if (blocks == 0) return OK;
    TRY(kernel_shared("attention_max", attention_max_kernel<T>, (size_t)a.at.total));
    attention_max_kernel<T><<<(unsigned)blocks, THREADS, (size_t)a.at.total, exec_stream(ex)>>>(
        a, (float *)m->max.data, m->above);
    return kernel_status("attention_max");
}

template <typename T> static Status backward(struct Exec *ex, const AttentionBwd *f)
{
    Attention<T> a = attention_of<T>(f);
    a.d_o = side_of<T>(&f->d_o);
    a.dq = side_of<T>(&f->dq);
    a.dk = side_of<T>(&f->dk);
    a.dv = side_of<T>(&f->dv);
    a.dk_before = side_of<T>(&f->dk_before);
    a.dv_before = side_of<T>(&f->dv_before);
    a.dq_before = side_of<float>(&f->dq_before);
    if (f->dq.dtype == DTYPE_F32) a.dq_sum = side_of<float>(&f->dq);
    a.delta = (float *)exec_workspace(ex);
    int64_t rows = a.B * a.q.heads * a.q.length;
    if (rows == 0) return OK;
    attention_delta_kernel<T><<<grid_of(rows, WARPS), THREADS, 0, exec_stream(ex)>>>(a);
    TRY(kernel_status("attention_bwd"));
    TRY(tiles_choose(&a, DQ));
    TRY(launch(ex, attention_dq_kernel<T>, a, query_blocks(a)));
    TRY(tiles_choose(&a, DKV));
    return launch(ex, attention_dkv_kernel<T>, a, (a.k.length + a.nk - 1) / a.nk * a.B * a.k.heads);
}

extern "C" Status attention_plain_fwd(struct Exec *ex, const void *args)
{
    const AttentionFwd *a = (const AttentionFwd *)args;
    return a->q.dtype == DTYPE_F32 ? forward<float>(ex, a) : forward<Bf16>(ex, a);
}

extern "C" size_t attention_plain_fwd_workspace(const void *) { return 0; }

/* The workspace holds delta. */
extern "C" size_t attention_plain_bwd_workspace(const void *args)
{
    return (size_t)tensor_elems(&((const AttentionBwd *)args)->lse) * sizeof(float);
}

extern "C" Status attention_plain_bwd(struct Exec *ex, const void *args)
{
    const AttentionBwd *a = (const AttentionBwd *)args;
    return a->q.dtype == DTYPE_F32 ? backward<float>(ex, a) : backward<Bf16>(ex, a);
}

extern "C" Status attention_max_gpu(struct Exec *ex, const void *args)
{
    const AttentionMax *a = (const AttentionMax *)args;
    return a->of.q.dtype == DTYPE_F32 ? largest<float>(ex, a) : largest<Bf16>(ex, a);
}
