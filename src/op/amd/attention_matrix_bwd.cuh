/*
 * attention_matrix_bwd: the kernels of backward. The first computes delta = rowsum(do o). The one for dq
 * owns queries and walks keys, the one for dk and dv owns keys and walks the queries of all heads that
 * share them. Both compute the scores, so there are no atomics, and sums have one order.
 *
 * Tiles of rows and their transposes are each other's second buffer: scores read rows, while transposes
 * are written; sums read transposes, while the next rows are written. Both are written from the same
 * registers, which were loaded half a tile before.
 */
#ifndef OP_AMD_ATTENTION_MATRIX_BWD_CUH
#define OP_AMD_ATTENTION_MATRIX_BWD_CUH

#include "op/amd/attention_matrix.cuh"

namespace attention_matrix
{

/* delta of every row of every head, with lse's layout. A lane has eight columns. */
template <int DV>
static __global__
__launch_bounds__(THREADS) void attention_matrix_delta_kernel(const __grid_constant__ Attention a)
{
    constexpr int LANES = DV / 8;
    int64_t row = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    int64_t T = a.q.length, H = a.q.heads;
    if (row >= a.B * H * T) return;
    int column = (int)threadIdx.x % LANES * 8;
    float o[8], d_o[8], sum = 0;
    load_const<true>(a.o.row(row / T / H, row % T, row / T % H) + column, o);
    load_const<true>(a.d_o.row(row / T / H, row % T, row / T % H) + column, d_o);
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf(o[i], d_o[i], sum);
#pragma unroll
    for (int bits = LANES / 2; bits > 0; bits /= 2) sum += lane_get_xor(sum, bits);
    if (column == 0) a.delta[row] = sum;
}

/* lse in units of log2, for e^(s - lse) of rows that see a key. Of others no score counts. */
static __device__ __forceinline__ float lse_log2(float lse)
{
    return lse == -INFINITY ? 0.0f : lse * LOG2_E;
}

/* dq */

template <int DK> constexpr int DQ_KEYS = DK > 64 ? 32 : 64;

template <int DK, int DV> struct QueryGrads {
    static constexpr int N = DQ_KEYS<DK>;
    typedef Across<N, DK> KeyTile;
    typedef Along<N, DV> ValueTile;
    Fixed<DK> q;
    Fixed<DV> d_o;
    Sums dq[DK / SIDE];
    Terms ds[N / SIDE][STEPS];
    float lse, delta;

    __device__ __forceinline__ void begin(const Attention &a, const Queries &x)
    {
        int64_t at = (x.b * a.q.heads + x.h) * a.q.length + x.row;
        lse = lse_log2(a.lse[at]);
        delta = a.delta[at];
        q.load(a.q.row(x.b, x.row, x.h));
        d_o.load(a.d_o.row(x.b, x.row, x.h));
#pragma unroll
        for (int t = 0; t < DK / SIDE; t++) dq[t] = no_sums();
    }

    __device__ __forceinline__ void scores(const char *k, const char *v, const Seen &seen, int j,
                                           bool all, float scale)
    {
        Sums s[N / SIDE], dp[N / SIDE];
        rows_multiply<N, DK>(k, q, s);
        rows_multiply<N, DV>(v, d_o, dp);
#pragma unroll
        for (int t = 0; t < N / SIDE; t++) {
            if (!all) hide_keys(seen, j + t * SIDE, s[t]);
            s[t] = s[t] * scale - lse;
#pragma unroll
            for (int r = 0; r < 16; r++) s[t][r] = fast_exp2(s[t][r]);
            terms_of(s[t] * (dp[t] - delta), ds[t]);
        }
    }

    __device__ __forceinline__ void sums(const char *k_across)
    {
#pragma unroll
        for (int t = 0; t < N / SIDE; t++) columns_add<N, DK>(k_across, t, ds[t], dq);
    }

    __device__ __forceinline__ void end(const Attention &a, const Queries &x)
    {
        if (!x.exists) return;
        const float *before = a.dq_before.at == NULL ? NULL : a.dq_before.row(x.b, x.row, x.h);
        if (a.dq_sum.at != NULL)
            row_store<DK>(dq, a.dq_sum.row(x.b, x.row, x.h), before, a.scale);
        else
            row_store<DK>(dq, a.dq.row(x.b, x.row, x.h), before, a.scale);
    }
};

template <int DK, int DV>
static __global__ __attribute__((amdgpu_flat_work_group_size(THREADS, THREADS),
                                 amdgpu_waves_per_eu(DK > 128 ? 1 : 2))) void
attention_matrix_dq_kernel(const __grid_constant__ Attention a)
{
    typedef QueryGrads<DK, DV> F;
    constexpr int N = F::N;
    __shared__ __align__(128) char k_tile[F::KeyTile::BYTES], k_across[F::KeyTile::BYTES],
        v_tile[F::ValueTile::BYTES];
    typename F::KeyTile k;
    typename F::ValueTile v;
    F f;
    Queries x = queries_of_block(a);
    Keys keys = keys_of_block(a, x, k_across);
    const Bf16 *k_from = a.k.row(x.b, keys.begin, x.g), *v_from = a.v.row(x.b, keys.begin, x.g);
    int64_t k_stride = a.k.stride(), v_stride = a.v.stride();
    float scale = a.scale * LOG2_E;
    int left = keys.end - keys.begin;
    k.load(k_from, k_stride, left);
    v.load(v_from, v_stride, left);
    f.begin(a, x);
    k.store_along(k_tile);
    v.store(v_tile);
    v.load(v_from += N * v_stride, v_stride, left - N);
    for (int j = keys.begin; j < keys.end; j += N) {
        Sight sight = sight_of(x.seen, j, N);
        left -= N;
        __syncthreads();
        k.store(k_across);
        k.load(k_from += N * k_stride, k_stride, left);
        f.scores(k_tile, v_tile, x.seen, j, sight.all, scale);
        __syncthreads();
        k.store_along(k_tile);
        v.store(v_tile);
        v.load(v_from += N * v_stride, v_stride, left - N);
        f.sums(k_across);
    }
    f.end(a, x);
}

/* dk and dv */

/* A tile's queries, in LDS. Those that do not exist see no key. */
struct alignas(128) QueryRows {
    float lse[SIDE], delta[SIDE];
    int first[SIDE], count[SIDE];
};

/* A query of a tile on its way to LDS, in the first 32 threads. */
struct QueryRow {
    Seen seen;
    float lse, delta;

    __device__ __forceinline__ void load(const Attention &a, int64_t b, int64_t h, int64_t first)
    {
        int64_t i = first + threadIdx.x;
        if (threadIdx.x >= SIDE) return;
        seen = { INT_MAX, 0 };
        lse = delta = 0;
        if (i >= a.q.length) return;
        int64_t at = (b * a.q.heads + h) * a.q.length + i;
        seen = keys_seen(a, b, i);
        lse = a.lse[at];
        delta = a.delta[at];
    }

    __device__ __forceinline__ void store(QueryRows &rows) const
    {
        if (threadIdx.x >= SIDE) return;
        rows.lse[threadIdx.x] = lse_log2(lse);
        rows.delta[threadIdx.x] = delta;
        rows.first[threadIdx.x] = seen.first;
        rows.count[threadIdx.x] = seen.count;
    }
};

/* The numbers of the four rows that a lane has in registers r to r + 3. */
template <typename T>
static __device__ __forceinline__ void four_rows(const T *of, int r, T (&v)[4])
{
    typedef typename Words<16>::type Word;
    Word word = *reinterpret_cast<const Word *>(of + sums_row(r) + 4 * lane_half());
    memcpy(v, &word, sizeof v);
}

template <int DK, int DV> struct KeyGrads {
    Fixed<DK> k;
    Fixed<DV> v;
    Sums dk[DK / SIDE], dv[DV / SIDE];
    Terms p[STEPS], ds[STEPS];

    __device__ __forceinline__ void begin(const Attention &a, int64_t b, int64_t g, int64_t key)
    {
        int64_t row = min(key, a.k.length - 1);
        k.load(a.k.row(b, row, g));
        v.load(a.v.row(b, row, g));
#pragma unroll
        for (int t = 0; t < DK / SIDE; t++) dk[t] = no_sums();
#pragma unroll
        for (int t = 0; t < DV / SIDE; t++) dv[t] = no_sums();
    }

    /* One wave on a SIMD has 256 accumulation registers, which is enough for all sums. But the compiler
     * moves some to other registers while scores are computed, unless they are said to be used. */
    __device__ __forceinline__ void sums_stay()
    {
        if constexpr (DK > 64) {
#pragma unroll
            for (int t = 0; t < DK / SIDE; t++) asm volatile("" : "+a"(dk[t]));
#pragma unroll
            for (int t = 0; t < DV / SIDE; t++) asm volatile("" : "+a"(dv[t]));
        }
    }

    static __device__ __forceinline__ void hide(const QueryRows &rows, int key, Sums &s)
    {
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            int first[4], count[4];
            four_rows(rows.first, r, first);
            four_rows(rows.count, r, count);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Seen seen = { first[i], count[i] };
                s[r + i] = seen.key(key) ? s[r + i] : -INFINITY;
            }
        }
    }

    __device__ __forceinline__ void scores(const char *q, const char *d_o, const QueryRows &rows,
                                           int key, bool all, float scale)
    {
        Sums s[1], dp[1], e, lse, delta;
        sums_stay();
        rows_multiply<SIDE, DK>(q, k, s);
        rows_multiply<SIDE, DV>(d_o, v, dp);
        sums_stay();
        if (!all) hide(rows, key, s[0]);
#pragma unroll
        for (int r = 0; r < 16; r += 4) {
            float l[4], d[4];
            four_rows(rows.lse, r, l);
            four_rows(rows.delta, r, d);
#pragma unroll
            for (int i = 0; i < 4; i++) lse[r + i] = l[i], delta[r + i] = d[i];
        }
        e = s[0] * scale - lse;
#pragma unroll
        for (int r = 0; r < 16; r++) e[r] = fast_exp2(e[r]);
        terms_of(e, p);
        terms_of(e * (dp[0] - delta), ds);
    }

    __device__ __forceinline__ void sums(const char *q_across, const char *d_o_across)
    {
        columns_add<SIDE, DV>(d_o_across, 0, p, dv);
        columns_add<SIDE, DK>(q_across, 0, ds, dk);
    }

    __device__ __forceinline__ void end(const Attention &a, int64_t b, int64_t g, int64_t key)
    {
        if (key >= a.k.length) return;
        const Bf16 *dk_before = a.dk_before.at == NULL ? NULL : a.dk_before.row(b, key, g);
        const Bf16 *dv_before = a.dv_before.at == NULL ? NULL : a.dv_before.row(b, key, g);
        row_store<DK>(dk, a.dk.row(b, key, g), dk_before, a.scale);
        row_store<DV>(dv, a.dv.row(b, key, g), dv_before, 1.0f);
    }
};

/* Queries [begin, end) that see any of n keys from j on. */
struct Walk {
    int begin, end;
};

/* Position j is that of key j, unless there are pieces. */
static __device__ __forceinline__ Walk queries_by_masks(const Attention &a, int64_t j, int64_t n)
{
    int64_t last = min(j + n, a.k.length) - 1, end = a.q.length;
    if (a.window > 0) end = min(end, last + a.window);
    if (a.chunk > 0) end = min(end, last - last % a.chunk + a.chunk);
    return { (int)j, (int)end };
}

/* Documents and pieces have no formula, so all queries are looked at. The first words of the tile are
 * written; the caller may write it behind the next barrier. */
static __device__ __forceinline__ Walk queries_of_keys(const Attention &a, int64_t b, int64_t j,
                                                       char *tile)
{
    if (a.doc == NULL && a.pieces.length == 0) return queries_by_masks(a, j, ROWS);
    int *found = reinterpret_cast<int *>(tile);
    int begin = INT_MAX, end = 0, warp = (int)threadIdx.x / WARP;
    for (int64_t i = threadIdx.x; i < a.q.length; i += THREADS) {
        if (!keys_seen(a, b, i).any((int)j, ROWS)) continue;
        begin = min(begin, (int)i);
        end = max(end, (int)i + 1);
    }
    for (int bits = WARP / 2; bits > 0; bits /= 2) {
        begin = min(begin, lane_get_xor(begin, bits));
        end = max(end, lane_get_xor(end, bits));
    }
    if (lane_number() == 0) {
        found[warp] = begin;
        found[WAVES + warp] = end;
    }
    __syncthreads();
    for (int w = 0; w < WAVES; w++) {
        begin = min(begin, found[w]);
        end = max(end, found[WAVES + w]);
    }
    return { uniform(begin), uniform(end) };
}

/* Where a walk over the queries of several heads is. */
struct Place {
    int h, first;

    __device__ __forceinline__ void next(const Walk &w)
    {
        first += SIDE;
        if (first < w.end) return;
        first = w.begin;
        h++;
    }
};

/* The tiles of a step of the walk, on their way to LDS. */
template <int DK, int DV> struct QueryTiles {
    Across<SIDE, DK> q;
    Across<SIDE, DV> d_o;
    QueryRow row;

    __device__ __forceinline__ void load(const Attention &a, int64_t b, const Place &at, bool there)
    {
        int n = there ? (int)min((int64_t)SIDE, a.q.length - at.first) : 0;
        q.load(a.q.row(b, at.first, at.h), a.q.stride(), n);
        d_o.load(a.d_o.row(b, at.first, at.h), a.d_o.stride(), n);
        if (there) row.load(a, b, at.h, at.first);
    }
};

/* The first keys are seen by the most queries, so their blocks come first. */
template <int DK, int DV>
static __global__ __attribute__((amdgpu_flat_work_group_size(THREADS, THREADS),
                                 amdgpu_waves_per_eu(DK > 64 ? 1 : 2))) void
attention_matrix_dkv_kernel(const __grid_constant__ Attention a)
{
    __shared__ __align__(128) char q_tile[SIDE * DK * 2], q_across[SIDE * DK * 2],
        d_o_tile[SIDE * DV * 2], d_o_across[SIDE * DV * 2];
    __shared__ QueryRows rows;
    QueryTiles<DK, DV> tiles;
    KeyGrads<DK, DV> f;
    unsigned G = (unsigned)a.k.heads, heads = (unsigned)a.B * G, head = blockIdx.x % heads;
    int b = (int)(head / G), g = (int)(head % G), j0 = (int)(blockIdx.x / heads) * ROWS;
    int share = a.q.heads / a.k.heads, wave_key = j0 + uniform((int)threadIdx.x / WARP) * SIDE;
    int key = wave_key + lane_line(), end = (g + 1) * share;
    Walk walk = queries_of_keys(a, b, j0, q_across);
    Place at = { walk.begin < walk.end ? g * share : end, walk.begin };
    float scale = a.scale * LOG2_E;
    tiles.load(a, b, at, at.h < end);
    f.begin(a, b, g, key);
    tiles.q.store_along(q_tile);
    tiles.d_o.store_along(d_o_tile);
    tiles.row.store(rows);
    while (at.h < end) {
        __syncthreads();
        tiles.q.store(q_across);
        tiles.d_o.store(d_o_across);
        at.next(walk);
        tiles.load(a, b, at, at.h < end);
        Sight sight =
            sight_of({ rows.first[lane_line()], rows.count[lane_line()] }, wave_key, SIDE);
        f.scores(q_tile, d_o_tile, rows, key, sight.all, scale);
        __syncthreads();
        tiles.q.store_along(q_tile);
        tiles.d_o.store_along(d_o_tile);
        tiles.row.store(rows);
        f.sums(q_across, d_o_across);
    }
    f.end(a, b, g, key);
}

} // namespace attention_matrix

#endif
