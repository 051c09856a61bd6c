/*
 * attention_mma: the kernels for attention in bf16 by mma.sync, for sm_80 and later: for GPUs without wgmma, and for
 * heads that attention_hopper.cuh does not take. A block of threads owns 64 or 128 rows of a head, a warp 16 or 32 of
 * them, and walks tiles of the other side. Forward is FlashAttention-2's (arXiv:2307.08691). Backward are the two
 * kernels of attention_hopper_bwd.cuh, so each sum has one owner and one order.
 *
 *     fwd   owns queries, walks keys:    s = q k^T, p, o += p v
 *     dq    owns queries, walks keys:    s = q k^T, dp = do v^T, ds, dq += ds k
 *     dkv   owns keys, walks queries:    s^T = k q^T, dv += p^T do, dp^T = v do^T, ds^T, dk += ds^T q
 *
 * Scores leave a product as operands of the next one. Heads are compiled for widths of 64, 128, 192 and 256; columns
 * that a head lacks are zeros in shared memory. A block takes at most 96 KiB, which all such GPUs have.
 */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_MMA_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_MMA_CUH

#include "kernels/attention/nv/attention_parts.cuh"
#include "kernels/core/nv/mma.cuh"

#include "engine/gpu/fast_math.cuh"

namespace flash_mma
{

using flash::Results;
enum { HALF = ATTENTION_HALF, TEAM = 4 * WARP, PIECE = 8 /* elements of 16 bytes */ };

/* The rectangle's rows of a (B, tensor_rows, heads, width) tensor. */
typedef struct Side {
    const Bf16 *at; /* at the first row */
    int rows, heads, width;
    int64_t tensor_rows;
} Side;

typedef struct Args {
    Side q, k, v, d_o;
    Results o, dq, dk, dv;
    AttentionTiles tiles;
    float *lse,
        *delta; /* forward: lse (B, H, rows of the rectangle); backward: of attention_delta_kernel */
    int H, share; /* share: heads that share keys */
    unsigned sequences;
    float factor, scale; /* factor: scale log2 e */
} Args;

/* ---- shared memory ---- */

/* Piece c of row i stands at c ^ i % 8, so that the eight rows that ldmatrix reads lie in different banks. */
template <int D> static __device__ __forceinline__ uint32_t place(int row, int piece)
{
    return (uint32_t)(row * D * 2 + ((piece ^ (row & 7)) << 4));
}

/* The piece 2 k further on in the same row; `at` is the place of its first or second piece. */
static __device__ __forceinline__ uint32_t further(uint32_t at, int k)
{
    return (at ^ (uint32_t)(2 * k % 8 << 4)) + (uint32_t)(k / 4 * 128);
}

/* N rows of a head, from `row` on. Rows and columns that do not exist are zeros. */
template <int N, int D, int THREADS>
static __device__ __forceinline__ void load_rows(uint32_t to, const Side &s, int b, int head,
                                                 int row)
{
    constexpr int PIECES = D / PIECE;
    int64_t stride = (int64_t)s.heads * s.width;
    const Bf16 *from = s.at + (b * s.tensor_rows + row) * stride + (int64_t)head * s.width;
#pragma unroll
    for (int i = 0; i < N * PIECES / THREADS; i++) {
        int at = i * THREADS + (int)threadIdx.x, r = at / PIECES, piece = at % PIECES;
        bool inside = row + r < s.rows && piece * PIECE < s.width;
        copy_chunk(to + place<D>(r, piece), inside ? from + r * stride + piece * PIECE : s.at,
                   inside);
    }
}

/* The same rows of two tensors, those of DB columns behind those of DA. */
template <int N, int DA, int DB, int THREADS>
static __device__ __forceinline__ void load_two(uint32_t to, const Side &a, const Side &b,
                                                int sequence, int head, int row)
{
    load_rows<N, DA, THREADS>(to, a, sequence, head, row);
    load_rows<N, DB, THREADS>(to + N * DA * 2, b, sequence, head, row);
}

/* ---- products ---- */

template <int M, int C> static __device__ __forceinline__ void clear(float (&c)[M][C][4])
{
#pragma unroll
    for (int i = 0; i < M * C * 4; i++) c[i / (4 * C)][i / 4 % C][i % 4] = 0;
}

/* c (M x 16 rows, N columns) = rows of `own` times N rows of `other`, over D columns. */
template <int M, int N, int D>
static __device__ __forceinline__ void multiply_rows(float (&c)[M][N / 8][4], uint32_t own,
                                                     uint32_t other)
{
    int lane = (int)threadIdx.x % WARP;
    own += place<D>(lane % 16, lane / 16);
    other += place<D>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    clear(c);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[M][4], x[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            mma::squares_load<false>(further(own, k) + m * 16 * D * 2, a[m][0], a[m][1], a[m][2],
                                     a[m][3]);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            mma::squares_load<false>(further(other, k) + n * 16 * D * 2, x[0], x[1], x[2], x[3]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma::multiply_add(c[m][2 * n], a[m], x[0], x[1]);
                mma::multiply_add(c[m][2 * n + 1], a[m], x[2], x[3]);
            }
        }
    }
}

/* Scores as operands: of 16 columns at a time. */
template <int M, int N>
static __device__ __forceinline__ void pack(const float (&c)[M][N / 8][4],
                                            uint32_t (&p)[M][N / 16][4])
{
#pragma unroll
    for (int i = 0; i < M * N / 4; i++) {
        int m = i / (N / 4), k = i / 4 % (N / 16), r = i % 4;
        __nv_bfloat162 two = __floats2bfloat162_rn(c[m][2 * k + r / 2][r % 2 * 2],
                                                   c[m][2 * k + r / 2][r % 2 * 2 + 1]);
        memcpy(&p[m][k][r], &two, sizeof two);
    }
}

/* sum (M x 16 rows, C columns) += p times columns of N rows of D columns, from `column`, a multiple of 64, on. */
template <int M, int N, int D, int C>
static __device__ __forceinline__ void
add_columns(float (&sum)[M][C / 8][4], const uint32_t (&p)[M][N / 16][4], uint32_t tile, int column)
{
    int lane = (int)threadIdx.x % WARP;
    tile += place<D>(lane % 16, lane / 16) + (uint32_t)column * 2;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
#pragma unroll
        for (int n = 0; n < C / 16; n++) {
            uint32_t x[4];
            mma::squares_load<true>(further(tile, n) + k * 16 * D * 2, x[0], x[1], x[2], x[3]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma::multiply_add(sum[m][2 * n], p[m][k], x[0], x[1]);
                mma::multiply_add(sum[m][2 * n + 1], p[m][k], x[2], x[3]);
            }
        }
    }
}

/* ---- jobs ---- */

/* A block's rows of a head, from `row` on, and what it walks of the other side. */
typedef struct Job {
    int b, head, row, begin, end;
} Job;

/* Part of a tile of a head. The part with more work comes first, and all heads of it before the next. */
template <int PARTS> struct Part {
    int b, head, number, part;

    __device__ __forceinline__ Part(int heads, unsigned sequences)
    {
        unsigned x = blockIdx.x / (unsigned)heads, all = x / sequences;
        head = (int)(blockIdx.x % (unsigned)heads);
        b = (int)(x % sequences);
        number = (int)(all / PARTS);
        part = (int)(all % PARTS);
    }
};

/* ROWS queries and the keys that they see. */
template <int ROWS> static __device__ __forceinline__ Job queries_job(const Args &a)
{
    constexpr int PARTS = ATTENTION_TILE / ROWS;
    const AttentionTiles &t = a.tiles;
    Part<PARTS> p(a.H, a.sequences);
    int tile = attention_q_tile(t, p.b, p.number);
    AttentionSpan span = attention_keys_of(t, p.b, tile);
    Job j = { p.b, p.head, tile * ATTENTION_TILE + (PARTS - 1 - p.part) * ROWS, span.begin,
              span.end };
    j.end = min(j.end, attention_last_key(t, min(j.row + ROWS, t.Tq) - 1) + 1);
    if (PARTS > 1) j.begin = max(j.begin, attention_half_first(t, j.b, j.row));
    return j;
}

/* HALF keys and the queries that see them. */
static __device__ __forceinline__ Job keys_job(const Args &a)
{
    Part<2> p(a.k.heads, a.sequences);
    int tile = attention_k_tile(a.tiles, p.b, p.number);
    AttentionSpan span = attention_queries_of(a.tiles, p.b, tile);
    return { p.b, p.head, tile * ATTENTION_TILE + p.part * HALF, span.begin, span.end };
}

/* A thread has rows own_row() and own_row() + 8 of each 16, and of 8 columns own_column() and the next. */
static __device__ __forceinline__ int own_row() { return (int)threadIdx.x % WARP / 4; }
static __device__ __forceinline__ int own_column() { return (int)threadIdx.x % 4 * 2; }
/* A warp's first row of the block's, M x 16 each. */
template <int M> static __device__ __forceinline__ int warp_row()
{
    return (int)threadIdx.x % TEAM / WARP * M * 16;
}

/* What the M x 2 queries of a thread see. All of the warp's see keys from hidden_before to hidden_from. */
template <int M> struct Seen {
    int first[M][2], last[M][2], hidden_before = 0, hidden_from = INT32_MAX;

    __device__ __forceinline__ Seen(const AttentionTiles &t, int b, int query)
    {
#pragma unroll
        for (int i = 0; i < 2 * M; i++) {
            int row = query + i / 2 * 16 + i % 2 * 8, &to = last[i / 2][i % 2];
            to = attention_last_key(t, row);
            first[i / 2][i % 2] = to < 0 ? 0 : attention_tile_first(t, b, row);
            hidden_before = max(hidden_before, first[i / 2][i % 2]);
            hidden_from = min(hidden_from, to + 1);
        }
        hidden_before = __reduce_max_sync(ALL_LANES, hidden_before);
        hidden_from = __reduce_min_sync(ALL_LANES, hidden_from);
    }
    template <int N> __device__ __forceinline__ void hide(int key, float (&s)[M][N / 8][4]) const
    {
        if (key >= hidden_before && key + N <= hidden_from) return;
#pragma unroll
        for (int i = 0; i < M * N / 2; i++) {
            int m = i / (N / 2), n = i / 4 % (N / 8), r = i % 4;
            int at = key + n * 8 + own_column() + r % 2;
            if (at < first[m][r / 2] || at > last[m][r / 2]) s[m][n][r] = -INFINITY;
        }
    }
};

/* Writes C columns from `column` on of a warp's M x 16 rows, which are the rectangle's from `row` on, through its own
 * rows of D columns in shared memory. by: factors of rows. */
template <int M, int D, int C>
static __device__ __forceinline__ void
store_rows(const Results &r, const Job &j, int row, int end, unsigned char *room, int column,
           const float (&c)[M][C / 8][4], const float (&by)[M][2])
{
    int lane = (int)threadIdx.x % WARP;
    int64_t stride = (int64_t)r.heads * r.width;
    Bf16 *to = r.at + (((int64_t)j.b * r.rows + row) * r.heads + j.head) * r.width;
#pragma unroll
    for (int i = 0; i < M * C / 4; i++) {
        int m = i / (C / 4), n = i / 2 % (C / 8), half = i % 2;
        const float *two = c[m][n] + 2 * half;
        uint32_t at = place<D>(m * 16 + own_row() + 8 * half, column / PIECE + n);
        *(__nv_bfloat162 *)(room + at + own_column() * 2) =
            __floats2bfloat162_rn(two[0] * by[m][half], two[1] * by[m][half]);
    }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < M * 16 * C / PIECE; i += WARP) {
        int at = i / (C / PIECE), piece = column / PIECE + i % (C / PIECE);
        if (row + at < end && piece * PIECE < r.width)
            *(uint4 *)(to + at * stride + piece * PIECE) = *(uint4 *)(room + place<D>(at, piece));
    }
}

/* Steps through tiles with two in flight, or one: load(i, stage) starts copies, work(i, stage) has them. */
template <int STAGES, typename L, typename W>
static __device__ __forceinline__ void walk(int n, L load, W work)
{
    if (n > 0) load(0, 0);
    copies_close();
    for (int i = 0; i < n; i++) {
        if (STAGES == 2) {
            if (i + 1 < n) load(i + 1, (i + 1) % 2);
            copies_close();
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        work(i, i % STAGES);
        __syncthreads();
        if (STAGES == 1 && i + 1 < n) load(i + 1, 0);
        if (STAGES == 1) copies_close();
    }
    copies_wait<0>();
    __syncthreads(); /* own rows are there, and results may take their place */
}

/* ---- forward ---- */

template <int DK, int DV> struct Fwd {
    static constexpr int M = DV <= 128 ? 2 : 1, ROWS = 64 * M, N = 32;
    static constexpr int Q = ROWS * DK * 2, K = N * DK * 2, STAGE = N * (DK + DV) * 2;
    static constexpr int BYTES = Q + 2 * STAGE;
};

/* Turns scores into probabilities times e^max; kept: what the results so far are multiplied by. */
template <int M, int N> struct Softmax {
    float max[M][2], sum[M][2], kept[M][2];

    __device__ __forceinline__ void step(float factor, float (&s)[M][N / 8][4])
    {
#pragma unroll
        for (int i = 0; i < 2 * M; i++) {
            int m = i / 2, r = i % 2;
            float most = -INFINITY, add = 0;
#pragma unroll
            for (int n = 0; n < N / 8; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
            most = fmaxf(most, lane_get_xor(most, 1));
            most = fmaxf(max[m][r], fmaxf(most, lane_get_xor(most, 2)) * factor);
            float down = most == -INFINITY ? 0 : -most; /* a row that has seen no key */
            kept[m][r] = fast_exp2(max[m][r] + down);
            max[m][r] = most;
#pragma unroll
            for (int n = 0; n < N / 4; n++) {
                float &x = s[m][n / 2][2 * r + n % 2];
                x = fast_exp2(fmaf(x, factor, down));
                add += x;
            }
            sum[m][r] = sum[m][r] * kept[m][r] + add;
        }
    }
};

template <int DK, int DV>
static __device__ __forceinline__ void fwd_run(const Args &a, unsigned char *memory)
{
    typedef Fwd<DK, DV> R;
    constexpr int M = R::M, N = R::N;
    Job j = queries_job<R::ROWS>(a);
    if (j.row >= a.tiles.Tq) return;
    uint32_t room = shared_address(memory), own = room + warp_row<M>() * DK * 2;
    int begin = j.begin / N * N, group = j.head / a.share;
    Seen<M> seen(a.tiles, j.b, j.row + warp_row<M>() + own_row());
    Softmax<M, N> x;
    float o[M][DV / 8][4], inverse[M][2];
    clear(o);
#pragma unroll
    for (int i = 0; i < 2 * M; i++) x.max[i / 2][i % 2] = -INFINITY, x.sum[i / 2][i % 2] = 0;
    load_rows<R::ROWS, DK, TEAM>(room, a.q, j.b, j.head, j.row);
    walk<2>(
        max(j.end - begin + N - 1, 0) / N,
        [&](int i, int stage) {
            load_two<N, DK, DV, TEAM>(room + R::Q + stage * R::STAGE, a.k, a.v, j.b, group,
                                      begin + i * N);
        },
        [&](int i, int stage) {
            uint32_t tile = room + R::Q + stage * R::STAGE, p[M][N / 16][4];
            float s[M][N / 8][4];
            multiply_rows<M, N, DK>(s, own, tile);
            seen.template hide<N>(begin + i * N, s);
            x.step(a.factor, s);
            pack<M, N>(s, p);
#pragma unroll
            for (int k = 0; k < M * DV / 2; k++)
                o[k / (DV / 2)][k / 4 % (DV / 8)][k % 4] *= x.kept[k / (DV / 2)][k % 4 / 2];
            add_columns<M, N, DV, DV>(o, p, tile + R::K, 0);
        });
    int row = j.row + warp_row<M>();
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int m = i / 2, r = i % 2, query = row + m * 16 + own_row() + 8 * r;
        float sum = x.sum[m][r];
        sum += lane_get_xor(sum, 1);
        sum += lane_get_xor(sum, 2);
        inverse[m][r] = sum == 0 ? 0 : 1 / sum;
        if (own_column() == 0 && query < a.tiles.Tq)
            a.lse[(int64_t)(j.b * a.H + j.head) * a.tiles.Tq + query] =
                x.max[m][r] * flash::ln_2 + logf(sum);
    }
    store_rows<M, DK, DV>(a.o, j, row, a.tiles.Tq, memory + warp_row<M>() * DK * 2, 0, o, inverse);
}

template <int DK, int DV>
static __global__
__launch_bounds__(TEAM) void attention_mma_fwd_kernel(const __grid_constant__ Args a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    fwd_run<DK, DV>(a, memory);
}

/* ---- backward ---- */

/* Both kernels keep 64 rows of two tensors and walk 32 of the two others. SPLIT: how many warps share rows of dk and
 * dv, each with its own columns, as registers bear. */
template <int DK, int DV> struct Bwd {
    static constexpr int N = 32, STAGES = DK == 256 ? 1 : 2, SPLIT = DK == 256 ? 2 : 1;
    static constexpr int FIRST = HALF * DK * 2, OWN = HALF * (DK + DV) * 2;
    static constexpr int SECOND = N * DK * 2, STAGE = N * (DK + DV) * 2;
    static constexpr int BYTES = OWN + STAGES * STAGE;
};

template <int DK, int DV>
static __device__ __forceinline__ void dq_run(const Args &a, unsigned char *memory)
{
    typedef Bwd<DK, DV> R;
    constexpr int N = R::N;
    Job j = queries_job<HALF>(a);
    if (j.row >= a.tiles.Tq) return;
    uint32_t room = shared_address(memory), own = room + warp_row<1>() * DK * 2;
    uint32_t own_do = room + R::FIRST + warp_row<1>() * DV * 2;
    int begin = j.begin / N * N, group = j.head / a.share, row = j.row + warp_row<1>();
    int64_t at = (int64_t)(j.b * a.H + j.head) * a.tiles.rows + row + own_row();
    float lse[2] = { a.lse[at], a.lse[at + 8] }, delta[2] = { a.delta[at], a.delta[at + 8] };
    const float by[1][2] = { { a.scale, a.scale } };
    Seen<1> seen(a.tiles, j.b, row + own_row());
    float dq[1][DK / 8][4];
    clear(dq);
    load_two<HALF, DK, DV, TEAM>(room, a.q, a.d_o, j.b, j.head, j.row);
    walk<R::STAGES>(
        max(j.end - begin + N - 1, 0) / N,
        [&](int i, int stage) {
            load_two<N, DK, DV, TEAM>(room + R::OWN + stage * R::STAGE, a.k, a.v, j.b, group,
                                      begin + i * N);
        },
        [&](int i, int stage) {
            uint32_t tile = room + R::OWN + stage * R::STAGE, ds[1][N / 16][4];
            float s[1][N / 8][4], dp[1][N / 8][4];
            multiply_rows<1, N, DK>(s, own, tile);
            seen.template hide<N>(begin + i * N, s);
            multiply_rows<1, N, DV>(dp, own_do, tile + R::SECOND);
#pragma unroll
            for (int k = 0; k < N / 2; k++) {
                float &x = s[0][k / 4][k % 4];
                x = fast_exp2(fmaf(x, a.factor, -lse[k % 4 / 2])) *
                    (dp[0][k / 4][k % 4] - delta[k % 4 / 2]);
            }
            pack<1, N>(s, ds);
            add_columns<1, N, DK, DK>(dq, ds, tile, 0);
        });
    store_rows<1, DK, DK>(a.dq, j, row, a.tiles.Tq, memory + warp_row<1>() * DK * 2, 0, dq, by);
}

/* Hides scores of keys that queries do not see; columns are the N queries from `query` on, rows keys. */
template <int N>
static __device__ __forceinline__ void hide_columns(const AttentionTiles &t, const Job &j,
                                                    int query, float (&s)[1][N / 8][4])
{
    bool hides = attention_last_key(t, query) < j.row + HALF - 1 || query + N > t.Tq;
    if (t.first != NULL)
        hides = hides || t.firsts[(int64_t)j.b * (t.rows / HALF) + query / HALF].end > j.row;
    if (!hides) return;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        int at = query + i / 2 * 8 + own_column() + i % 2, last = attention_last_key(t, at);
        int first = last < 0 ? 0 : attention_tile_first(t, j.b, at);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int key = j.row + warp_row<1>() + own_row() + 8 * r;
            if (key < first || key > last) s[0][i / 2][2 * r + i % 2] = -INFINITY;
        }
    }
}

template <int DK, int DV>
static __device__ __forceinline__ void dkv_run(const Args &a, unsigned char *memory)
{
    typedef Bwd<DK, DV> R;
    constexpr int N = R::N, THREADS = TEAM * R::SPLIT, CK = DK / R::SPLIT, CV = DV / R::SPLIT;
    Job j = keys_job(a);
    if (j.row >= a.tiles.Tk) return;
    uint32_t room = shared_address(memory), own = room + warp_row<1>() * DK * 2;
    uint32_t own_v = room + R::FIRST + warp_row<1>() * DV * 2;
    int begin = j.begin / N * N, tiles = max(j.end - begin + N - 1, 0) / N;
    int split = (int)threadIdx.x / TEAM;
    float dk[1][CK / 8][4], dv[1][CV / 8][4];
    clear(dk);
    clear(dv);
    load_two<HALF, DK, DV, THREADS>(room, a.k, a.v, j.b, j.head, j.row);
    walk<R::STAGES>(
        tiles * a.share,
        [&](int i, int stage) {
            int head = j.head * a.share + i / tiles, query = begin + i % tiles * N;
            load_two<N, DK, DV, THREADS>(room + R::OWN + stage * R::STAGE, a.q, a.d_o, j.b, head,
                                         query);
        },
        [&](int i, int stage) {
            uint32_t tile = room + R::OWN + stage * R::STAGE, p[1][N / 16][4];
            int head = j.head * a.share + i / tiles, query = begin + i % tiles * N;
            int64_t at = (int64_t)(j.b * a.H + head) * a.tiles.rows + query + own_column();
            float s[1][N / 8][4], dp[1][N / 8][4];
            multiply_rows<1, N, DK>(s, own, tile);
            hide_columns<N>(a.tiles, j, query, s);
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float2 lse = *(const float2 *)(a.lse + at + 8 * n);
#pragma unroll
                for (int r = 0; r < 4; r++)
                    s[0][n][r] = fast_exp2(fmaf(s[0][n][r], a.factor, r % 2 ? -lse.y : -lse.x));
            }
            pack<1, N>(s, p);
            add_columns<1, N, DV, CV>(dv, p, tile + R::SECOND, split * CV);
            multiply_rows<1, N, DV>(dp, own_v, tile + R::SECOND);
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float2 delta = *(const float2 *)(a.delta + at + 8 * n);
#pragma unroll
                for (int r = 0; r < 4; r++) s[0][n][r] *= dp[0][n][r] - (r % 2 ? delta.y : delta.x);
            }
            pack<1, N>(s, p);
            add_columns<1, N, DK, CK>(dk, p, tile, split * CK);
        });
    const float one[1][2] = { { 1, 1 } }, by[1][2] = { { a.scale, a.scale } };
    int row = j.row + warp_row<1>();
    store_rows<1, DK, CK>(a.dk, j, row, a.tiles.Tk, memory + warp_row<1>() * DK * 2, split * CK, dk,
                          by);
    store_rows<1, DV, CV>(a.dv, j, row, a.tiles.Tk, memory + R::FIRST + warp_row<1>() * DV * 2,
                          split * CV, dv, one);
}

template <int DK, int DV>
static __global__
__launch_bounds__(TEAM) void attention_mma_dq_kernel(const __grid_constant__ Args a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    dq_run<DK, DV>(a, memory);
}

template <int DK, int DV>
static __global__ __launch_bounds__(TEAM *Bwd<DK, DV>::SPLIT) void attention_mma_dkv_kernel(
    const __grid_constant__ Args a)
{
    extern __shared__ __align__(128) unsigned char memory[];
    dkv_run<DK, DV>(a, memory);
}

} // namespace flash_mma

#endif
