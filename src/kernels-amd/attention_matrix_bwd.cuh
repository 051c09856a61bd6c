/*
 * attention_matrix_bwd: the kernels of backward. The first computes delta = rowsum(do o). The one for dq
 * owns queries and walks keys, the one for dk and dv owns keys and walks the queries of all heads that
 * share them. Both compute the scores, so there are no atomics, and sums have one order.
 *
 * Tiles of rows and their transposes are each other's second buffer: scores read rows, while transposes
 * are written; sums read transposes, while the next rows are written. Both are written from the same
 * registers, which were loaded half a tile before.
 */
#ifndef KERNELS_AMD_ATTENTION_MATRIX_BWD_CUH
#define KERNELS_AMD_ATTENTION_MATRIX_BWD_CUH

#include "kernels-amd/attention_matrix.cuh"

namespace attention_matrix
{

/* delta of every row of every head, with lse's layout. A lane has eight columns. */
template <int DV>
static __global__
__launch_bounds__(THREADS) void attention_matrix_delta_kernel(const __grid_constant__ Attention a)
{
    constexpr int LANES = DV / 8;
    int64_t number = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    if (number >= (int64_t)a.B * a.H * a.Tq) return;
    int head = (int)(number / a.Tq), i = (int)(number % a.Tq), b = head / a.H, h = head % a.H;
    int column = (int)threadIdx.x % LANES * 8;
    float o[8], d_o[8], sum = 0;
    load_const<true>(query_row<DV>(a, a.o, b, h, i) + column, o);
    load_const<true>(query_row<DV>(a, a.d_o, b, h, i) + column, d_o);
#pragma unroll
    for (int k = 0; k < 8; k++) sum = fmaf(o[k], d_o[k], sum);
#pragma unroll
    for (int bits = LANES / 2; bits > 0; bits /= 2) sum += lane_get_xor(sum, bits);
    if (column == 0) a.delta[number] = sum;
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
        int64_t number = query_number(a, x.b, x.h, x.row);
        lse = lse_log2(a.lse[number]);
        delta = a.delta[number];
        arrived(lse);
        arrived(delta);
        q.load(query_row<DK>(a, a.q, x.b, x.h, x.row));
        d_o.load(query_row<DV>(a, a.d_o, x.b, x.h, x.row));
        sums_clear<DK>(dq);
    }

    __device__ __forceinline__ void stay()
    {
        if constexpr (DK > 128) sums_stay<DK>(dq);
    }

    __device__ __forceinline__ void scores(const char *k, const char *v, const Seen &seen, int j,
                                           bool all, float scale)
    {
        constexpr int T = N / SIDE, EACH = 16 / (DV / 16);
        Sums s[T], dp[T];
        stay();
#pragma unroll
        for (int t = 0; t < T; t++) {
            rows_multiply<N, DK>(k, t, q, s[t], nothing_beside);
            if (!all) hide_keys(seen, j + t * SIDE, s[t]);
        }
#pragma unroll
        for (int t = 0; t < T; t++) {
            rows_multiply<N, DV>(v, t, d_o, dp[t], [&](int m) {
#pragma unroll
                for (int r = m * EACH; r < (m + 1) * EACH; r += 2) {
                    Pair two = pair_exp2(pair_of(s[t], r) * scale - lse);
                    arrived(two);
                    s[t][r] = two[0];
                    s[t][r + 1] = two[1];
                }
            });
        }
        stay();
#pragma unroll
        for (int t = 0; t < T; t++) terms_of(s[t] * (dp[t] - delta), ds[t]);
    }

    __device__ __forceinline__ void sums(const char *k_across)
    {
#pragma unroll
        for (int t = 0; t < N / SIDE; t++)
            columns_add<N, DK>(k_across, t, ds[t], dq, nothing_beside);
    }

    __device__ __forceinline__ void end(const Attention &a, const Queries &x)
    {
        if (!x.exists) return;
        float factor = a.scale;
        if (a.before != NULL) {
            row_add<DK>(query_row<DK>(a, a.before, x.b, x.h, x.row), dq, factor);
            factor = 1;
        }
        if (a.sum != NULL)
            row_store<DK>(dq, query_row<DK>(a, a.sum, x.b, x.h, x.row), factor);
        else
            row_store<DK>(dq, query_row<DK>(a, a.dq, x.b, x.h, x.row), factor);
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
    Keys keys = keys_of_block<DK, DV>(a, x, k_across);
    float scale = a.scale * LOG2_E;
    k.load(keys.k, keys.begin);
    v.load(keys.v, keys.begin);
    f.begin(a, x);
    k.store_along(k_tile);
    v.store(v_tile);
    v.load(keys.v, keys.begin + N);
    for (int j = keys.begin; j < keys.end; j += N) {
        __syncthreads();
        k.store(k_across);
        k.load(keys.k, j + N);
        f.scores(k_tile, v_tile, x.seen, j, sight_of(x.seen, j, N).all, scale);
        __syncthreads();
        k.store_along(k_tile);
        v.store(v_tile);
        v.load(keys.v, j + 2 * N);
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

/* A query of a tile on its way to LDS. All threads load one, as all waves wait for it, and 32 store it. */
struct QueryRow {
    Seen seen;
    float lse, delta;

    __device__ __forceinline__ void load(const Attention &a, int b, int h, int first)
    {
        int i = first + lane_line(), row = min(i, a.Tq - 1);
        int64_t number = query_number(a, b, h, row);
        lse = a.lse[number];
        delta = a.delta[number];
        seen = keys_seen(a, b, row);
        if (i != row) seen = { INT_MAX, 0 };
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

/* The numbers of the rows that a lane has in its sixteen registers. */
template <typename T> static __device__ __forceinline__ void rows_get(const T *of, T (&v)[16])
{
    typedef typename Words<16>::type Word;
#pragma unroll
    for (int r = 0; r < 16; r += 4) {
        Word word = *reinterpret_cast<const Word *>(of + sums_row(r) + 4 * lane_half());
        memcpy(v + r, &word, sizeof word);
    }
}

template <int DK, int DV> struct KeyGrads {
    Fixed<DK> k;
    Fixed<DV> v;
    Sums dk[DK / SIDE], dv[DV / SIDE], p, dp;

    __device__ __forceinline__ void begin(const Attention &a, int b, int g, int key)
    {
        int row = min(key, a.Tk - 1);
        k.load(key_row<DK>(a, a.k, b, g, row));
        v.load(key_row<DV>(a, a.v, b, g, row));
        sums_clear<DK>(dk);
        sums_clear<DV>(dv);
    }

    __device__ __forceinline__ void stay()
    {
        if constexpr (DK > 64) {
            sums_stay<DK>(dk);
            sums_stay<DV>(dv);
        }
    }

    static __device__ __forceinline__ void hide(const QueryRows &rows, int key, Sums &s)
    {
        int first[16], count[16];
        rows_get(rows.first, first);
        rows_get(rows.count, count);
#pragma unroll
        for (int r = 0; r < 16; r++) {
            Seen seen = { first[r], count[r] };
            s[r] = seen.key(key) ? s[r] : -INFINITY;
        }
    }

    /* p, and dp - delta. */
    __device__ __forceinline__ void scores(const char *q, const char *d_o, const QueryRows &rows,
                                           int key, bool all, float scale)
    {
        constexpr int EACH = 16 / (DV / 16);
        Sums s, product;
        float lse[16], delta[16];
        rows_get(rows.lse, lse);
        rows_get(rows.delta, delta);
        stay();
        rows_multiply<SIDE, DK>(q, 0, k, s, nothing_beside);
        if (!all) hide(rows, key, s);
        rows_multiply<SIDE, DV>(d_o, 0, v, product, [&](int m) {
#pragma unroll
            for (int r = m * EACH; r < (m + 1) * EACH; r += 2) {
                Pair two = pair_exp2(pair_of(s, r) * scale - pair_of(lse, r));
                arrived(two);
                p[r] = two[0];
                p[r + 1] = two[1];
            }
        });
        stay();
#pragma unroll
        for (int r = 0; r < 16; r += 2) {
            Pair two = pair_of(product, r) - pair_of(delta, r);
            dp[r] = two[0];
            dp[r + 1] = two[1];
        }
    }

    __device__ __forceinline__ void sums(const char *q_across, const char *d_o_across)
    {
        constexpr int EACH = 16 / (DV / SIDE);
        Terms terms[STEPS], ds[STEPS];
        terms_of(p, terms);
        columns_add<SIDE, DV>(d_o_across, 0, terms, dv, [&](int n) {
#pragma unroll
            for (int r = n * EACH; r < (n + 1) * EACH; r += 2) {
                Pair two = pair_of(p, r) * pair_of(dp, r);
                ds[r / 8][r / 2 % 4] = terms_pair(two[0], two[1]);
            }
        });
        columns_add<SIDE, DK>(q_across, 0, ds, dk, nothing_beside);
    }

    __device__ __forceinline__ void end(const Attention &a, int b, int g, int key)
    {
        if (key >= a.Tk) return;
        float factor = a.scale;
        if (a.dk_before != NULL) {
            row_add<DK>(key_row<DK>(a, a.dk_before, b, g, key), dk, factor);
            factor = 1;
        }
        row_store<DK>(dk, key_row<DK>(a, a.dk, b, g, key), factor);
        if (a.dv_before != NULL) row_add<DV>(key_row<DV>(a, a.dv_before, b, g, key), dv, 1.0f);
        row_store<DV>(dv, key_row<DV>(a, a.dv, b, g, key), 1.0f);
    }
};

/* Queries [begin, end) that see any of n keys from j on. */
struct Walk {
    int begin, end;
};

/* Pieces have no formula, so all queries are looked at. The first words of the tile are written; the caller
 * may write it behind the next barrier. */
static __device__ __forceinline__ Walk queries_of_keys(const Attention &a, int b, int j, char *tile)
{
    if (a.masks.pieces.length == 0) {
        AttentionSpan span = attention_queries_of(a.tiles, b, j / ROWS);
        return { uniform(span.begin), uniform(span.end) };
    }
    int *found = reinterpret_cast<int *>(tile);
    int begin = INT_MAX, end = 0, warp = (int)threadIdx.x / WARP;
    for (int i = (int)threadIdx.x; i < a.Tq; i += THREADS) {
        if (!keys_seen(a, b, i).any(j, ROWS)) continue;
        begin = min(begin, i);
        end = max(end, i + 1);
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
    return { uniform(min(begin, end)), uniform(end) };
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

    __device__ __forceinline__ void load(const Attention &a, int b, int h, int first)
    {
        q.load({ query_row<DK>(a, a.q, b, h, 0), a.H * DK * 2, a.Tq - 1 }, first);
        d_o.load({ query_row<DV>(a, a.d_o, b, h, 0), a.H * DV * 2, a.Tq - 1 }, first);
        row.load(a, b, h, first);
    }
};

/* Keys that are seen by the most queries come first. */
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
    unsigned heads = (unsigned)(a.B * a.G), head = blockIdx.x % heads;
    int b = (int)head / a.G, g = (int)head % a.G;
    int j0 = uniform(attention_k_tile(a.tiles, b, (int)(blockIdx.x / heads))) * ROWS;
    int share = a.H / a.G, wave_key = j0 + wave_number() * SIDE;
    int key = wave_key + lane_line(), end = (g + 1) * share;
    Walk walk = queries_of_keys(a, b, j0, q_across);
    Place at = { walk.begin < walk.end ? g * share : end, walk.begin };
    float scale = a.scale * LOG2_E;
    tiles.load(a, b, min(at.h, end - 1), at.first);
    f.begin(a, b, g, key);
    tiles.q.store_along(q_tile);
    tiles.d_o.store_along(d_o_tile);
    tiles.row.store(rows);
    while (at.h < end) {
        __syncthreads();
        tiles.q.store(q_across);
        tiles.d_o.store(d_o_across);
        at.next(walk);
        tiles.load(a, b, min(at.h, end - 1), at.first);
        Seen seen = { rows.first[lane_line()], rows.count[lane_line()] };
        f.scores(q_tile, d_o_tile, rows, key, sight_of(seen, wave_key, SIDE).all, scale);
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
