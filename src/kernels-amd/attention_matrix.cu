/*
 * attention_matrix: attention in bf16 on AMD's matrix cores (candidate "matrix"), for widths 64 and 64,
 * 128 and 128, 192 and 128. attention_matrix.cuh says how it is computed, attention_matrix_bwd.cuh has
 * the kernels of backward.
 */
#include "kernels-amd/attention_matrix_bwd.cuh"

namespace attention_matrix
{

/* forward */

/* Keys of a tile: k and v of a tile take 16 to 32 KB, so two blocks fit into a processor's 64 KB. */
template <int DK> constexpr int FWD_KEYS = DK > 128 ? 32 : 64;

/* A new maximum rescales all sums. So probabilities are computed with the one in use, until those of a
 * tile in a lane sum up to more than this. bf16 and f32 have room for that without loss. */
static constexpr float SUM_MOST = 1024;

/* The running maximum of a query in units of log2, and two parts of the sum. Both halves of a wave have
 * such parts of the same queries. */
struct Running {
    float max;
    Pair sum;
};

template <int N> static __device__ __forceinline__ float largest(const Sums (&s)[N])
{
    float most = -INFINITY;
#pragma unroll
    for (int t = 0; t < N; t++) {
#pragma unroll
        for (int r = 0; r < 16; r++) most = fmaxf(most, s[t][r]);
    }
    return most;
}

/* Raises the maximum where `sum`, of this tile, is too large in either half. A row's bits depend on no
 * other row: one that keeps its maximum has factor 1. */
template <int DV>
static __device__ void raise_max(Running &run, float sum, float most, Sums (&o)[DV / SIDE])
{
    most = fmaxf(most, lane_get_xor(most, SIDE));
    bool raise = fmaxf(sum, lane_get_xor(sum, SIDE)) > SUM_MOST;
    float next = raise ? fmaxf(most, run.max) : run.max;
    float factor = fast_exp2(run.max - next);
    run.max = next;
    run.sum *= factor;
#pragma unroll
    for (int t = 0; t < DV / SIDE; t++) o[t] *= factor;
}

/* Turns n scores of a lane, from r on, into the terms e^(score - max), and adds them to *sum. */
static __device__ __forceinline__ void probabilities(const Sums &s, int r, int n, float scale,
                                                     float max, Terms (&p)[STEPS], Pair &sum)
{
#pragma unroll
    for (int end = r + n; r < end; r += 2) {
        Pair two = pair_exp2(pair_of(s, r) * scale - max);
        uint32_t terms = terms_pair(two[0], two[1]);
        sum += two;
        arrived(terms);
        arrived(sum);
        p[r / 8][r / 2 % 4] = terms;
    }
}

template <int DK, int DV> struct Forward {
    static constexpr int N = FWD_KEYS<DK>;
    typedef Along<N, DK> KeyTile;
    typedef Across<N, DV> ValueTile;
    Fixed<DK> q;
    Sums o[DV / SIDE];
    Terms p[N / SIDE][STEPS];
    Running run;

    __device__ __forceinline__ void begin(const Attention &a, const Queries &x)
    {
        float lse = -INFINITY;
        if (a.lse_before != NULL) lse = a.lse_before[query_number(a, x.b, x.h, x.row)];
        bool given = lse > -INFINITY;
        run.max = given ? lse * LOG2_E : -FLT_MAX;
        run.sum = { given && lane_half() == 0 ? 1.0f : 0.0f, 0 };
        q.load(query_row<DK>(a, a.q, x.b, x.h, x.row));
        sums_clear<DV>(o);
        if (a.before != NULL) row_add<DV>(query_row<DV>(a, a.before, x.b, x.h, x.row), o, 1.0f);
    }

    __device__ __forceinline__ void scores(const char *k, const Seen &seen, int j, bool all,
                                           float scale)
    {
        constexpr int T = N / SIDE, EACH = (16 * 16 / DK + 1) / 2 * 2;
        Sums s[T];
        Pair sum = {};
#pragma unroll
        for (int t = 0; t < T; t++) {
            rows_multiply<N, DK>(k, t, q, s[t], [&](int m) {
                int n = min(EACH, 16 - m * EACH);
                if (t > 0 && n > 0)
                    probabilities(s[t - 1], m * EACH, n, scale, run.max, p[t - 1], sum);
            });
            if (!all) hide_keys(seen, j + t * SIDE, s[t]);
        }
        probabilities(s[T - 1], 0, 16, scale, run.max, p[T - 1], sum);
        if (lanes_any(sum[0] + sum[1] > SUM_MOST)) {
            raise_max<DV>(run, sum[0] + sum[1], largest(s) * scale, o);
            sum = {};
#pragma unroll
            for (int t = 0; t < T; t++) probabilities(s[t], 0, 16, scale, run.max, p[t], sum);
        }
        run.sum += sum;
    }

    __device__ __forceinline__ void values(const char *v)
    {
#pragma unroll
        for (int t = 0; t < N / SIDE; t++) columns_add<N, DV>(v, t, p[t], o, nothing_beside);
    }

    __device__ __forceinline__ void end(const Attention &a, const Queries &x)
    {
        float sum = run.sum[0] + run.sum[1];
        sum += lane_get_xor(sum, SIDE);
        float factor = sum > 0 ? 1 / sum : 0.0f; /* no key at all: 0 */
        if (!x.exists) return;
        if (lane_half() == 0)
            a.lse[query_number(a, x.b, x.h, x.row)] =
                sum > 0 ? run.max * LN_2 + logf(sum) : -INFINITY;
        if (a.sum != NULL)
            row_store<DV>(o, query_row<DV>(a, a.sum, x.b, x.h, x.row), factor);
        else
            row_store<DV>(o, query_row<DV>(a, a.o, x.b, x.h, x.row), factor);
    }
};

/* k and v are each other's second buffer: while one is read, the other is written from registers, into
 * which it was loaded a whole tile before. */
template <int DK, int DV>
static __global__
    __attribute__((amdgpu_flat_work_group_size(THREADS, THREADS), amdgpu_waves_per_eu(2))) void
    attention_matrix_fwd_kernel(const __grid_constant__ Attention a)
{
    typedef Forward<DK, DV> F;
    constexpr int N = F::N;
    __shared__ __align__(128) char k_tile[F::KeyTile::BYTES], v_tile[F::ValueTile::BYTES];
    typename F::KeyTile k;
    typename F::ValueTile v;
    F f;
    Queries x = queries_of_block(a);
    Keys keys = keys_of_block<DK, DV>(a, x, v_tile);
    float scale = a.scale * LOG2_E;
    k.load(keys.k, keys.begin);
    v.load(keys.v, keys.begin);
    f.begin(a, x);
    k.store(k_tile);
    k.load(keys.k, keys.begin + N);
    for (int j = keys.begin; j < keys.end; j += N) {
        Sight sight = sight_of(x.seen, j, N);
        __syncthreads();
        v.store(v_tile);
        v.load(keys.v, j + N);
        if (sight.any) f.scores(k_tile, x.seen, j, sight.all, scale);
        __syncthreads();
        k.store(k_tile);
        k.load(keys.k, j + 2 * N);
        if (asked_again(sight.any)) f.values(v_tile);
    }
    f.end(a, x);
}

/* launch */

template <typename T> static T *if_type(const Tensor *t, Dtype type)
{
    return t->dtype == type ? (T *)t->data : NULL;
}

/* The arguments that both directions have. */
template <typename Args> static Attention attention_of(const Args *f)
{
    Attention a = {};
    a.q = (const Bf16 *)f->q.data;
    a.k = (const Bf16 *)f->k.data;
    a.v = (const Bf16 *)f->v.data;
    a.o = if_type<Bf16>(&f->o, DTYPE_BF16);
    a.masks = { (const int32_t *)f->doc.data, f->pieces, f->window, f->chunk };
    a.lse = (float *)f->lse.data;
    a.B = (int)f->q.dim[0];
    a.H = (int)f->q.dim[2];
    a.G = (int)f->k.dim[2];
    a.Tq = (int)f->q.dim[1];
    a.Tk = (int)f->k.dim[1];
    a.scale = f->scale;
    return a;
}

/* The tiles of a call. Where a whole sequence has documents, a window or chunks, `at` holds their lists; blocks of keys
 * of mesh.cp find their bounds themselves. Returns the bytes of the lists. */
static size_t set_tiles(const AttentionFwd *f, char *at, AttentionTiles *t, AttentionRect *whole)
{
    *whole = { 0, f->q.dim[1], 0, f->k.dim[1], true };
    *t = attention_tiles_of(whole, f->q.dim[1], f->k.dim[1]);
    if (f->pieces.length > 0 || !attention_tiles_listed(f)) return 0;
    attention_tiles_place(t, f->q.dim[0], at);
    return attention_tiles_bytes(t, f->q.dim[0]);
}

static size_t delta_bytes(const AttentionBwd *b)
{
    return arena_rounded((size_t)tensor_elems(&b->lse) * sizeof(float));
}

static int64_t blocks_of(int64_t rows, int64_t heads) { return (rows + ROWS - 1) / ROWS * heads; }

/* Calls run with the widths of heads as constants. */
template <typename F> static Status by_widths(int64_t dk, int64_t dv, F run)
{
    typedef std::integral_constant<int, 64> W64;
    typedef std::integral_constant<int, 128> W128;
    typedef std::integral_constant<int, 192> W192;
    if (dk == 64 && dv == 64) return run(W64(), W64());
    if (dk == 128 && dv == 128) return run(W128(), W128());
    if (dk == 192 && dv == 128) return run(W192(), W128());
    return FAIL(ERR_UNSUPPORTED, "heads are %lld and %lld wide, which the kernel is not made for",
                (long long)dk, (long long)dv);
}

/* Rows are read 16 bytes at a time, and those of all heads are shorter than 2^24 bytes (Rows). */
static Status check_rows(const Attention &a)
{
    const int most = (1 << 23) / 192; /* heads */
    if (!packs_fit<Bf16>({ a.q, a.k, a.v, a.d_o, a.dk_before, a.dv_before, a.before }, {}) ||
        !packs_fit<Bf16>({ a.o, a.dq, a.dk, a.dv, a.sum }, {}))
        return FAIL(ERR_UNSUPPORTED, "rows do not lie at multiples of 16 bytes");
    if (a.H <= most) return OK;
    return FAIL(ERR_UNSUPPORTED, "%d heads, %d is the most", a.H, most);
}

static Status forward(struct Exec *ex, const AttentionFwd *f)
{
    Attention a = attention_of(f);
    a.sum = if_type<float>(&f->o, DTYPE_F32);
    a.before = (const float *)f->o_before.data;
    a.lse_before = (const float *)f->lse_before.data;
    TRY(check_rows(a));
    AttentionRect whole;
    int64_t blocks = blocks_of(a.Tq, (int64_t)a.B * a.H);
    if (blocks == 0) return OK;
    if (set_tiles(f, (char *)exec_workspace(ex), &a.tiles, &whole) > 0)
        TRY(attention_tiles_make(ex, f, &whole, &a.tiles, false));
    return by_widths(f->q.dim[3], f->v.dim[3], [&](auto dk, auto dv) {
        attention_matrix_fwd_kernel<dk(), dv()>
            <<<(unsigned)blocks, THREADS, 0, exec_stream(ex)>>>(a);
        return kernel_status("attention_fwd");
    });
}

static Status backward(struct Exec *ex, const AttentionBwd *f)
{
    Attention a = attention_of(f);
    a.d_o = (const Bf16 *)f->d_o.data;
    a.dq = if_type<Bf16>(&f->dq, DTYPE_BF16);
    a.sum = if_type<float>(&f->dq, DTYPE_F32);
    a.dk = (Bf16 *)f->dk.data;
    a.dv = (Bf16 *)f->dv.data;
    a.before = (const float *)f->dq_before.data;
    a.dk_before = (const Bf16 *)f->dk_before.data;
    a.dv_before = (const Bf16 *)f->dv_before.data;
    a.delta = (float *)exec_workspace(ex);
    TRY(check_rows(a));
    int64_t heads = (int64_t)a.B * a.H, queries = blocks_of(a.Tq, heads);
    int64_t keys = blocks_of(a.Tk, (int64_t)a.B * a.G);
    const AttentionFwd seen = attention_seen_in(f);
    AttentionRect whole;
    if (queries == 0) return OK;
    if (set_tiles(&seen, (char *)a.delta + delta_bytes(f), &a.tiles, &whole) > 0)
        TRY(attention_tiles_make(ex, &seen, &whole, &a.tiles, true));
    return by_widths(f->q.dim[3], f->v.dim[3], [&](auto dk, auto dv) {
        unsigned rows = grid_of(heads * a.Tq, THREADS / (dv() / 8));
        LaunchStream stream = exec_stream(ex);
        attention_matrix_delta_kernel<dv()><<<rows, THREADS, 0, stream>>>(a);
        TRY(kernel_status("attention_bwd"));
        attention_matrix_dq_kernel<dk(), dv()><<<(unsigned)queries, THREADS, 0, stream>>>(a);
        TRY(kernel_status("attention_bwd"));
        attention_matrix_dkv_kernel<dk(), dv()><<<(unsigned)keys, THREADS, 0, stream>>>(a);
        return kernel_status("attention_bwd");
    });
}

} // namespace attention_matrix

extern "C" Status attention_matrix_fwd(struct Exec *ex, const void *args)
{
    return attention_matrix::forward(ex, (const AttentionFwd *)args);
}

/* The workspace holds the lists of tiles, in backward behind delta. */
extern "C" size_t attention_matrix_fwd_workspace(const void *args)
{
    AttentionTiles tiles;
    AttentionRect whole;
    return attention_matrix::set_tiles((const AttentionFwd *)args, NULL, &tiles, &whole);
}

extern "C" Status attention_matrix_bwd(struct Exec *ex, const void *args)
{
    return attention_matrix::backward(ex, (const AttentionBwd *)args);
}

extern "C" size_t attention_matrix_bwd_workspace(const void *args)
{
    const AttentionBwd *b = (const AttentionBwd *)args;
    const AttentionFwd seen = attention_seen_in(b);
    AttentionTiles tiles;
    AttentionRect whole;
    return attention_matrix::delta_bytes(b) +
           attention_matrix::set_tiles(&seen, NULL, &tiles, &whole);
}
