/*
 * attention_matrix: attention in bf16 on AMD's matrix cores (candidate "matrix"), for widths 64 and 64,
 * 128 and 128, 192 and 128. attention_matrix.cuh says how it is computed, attention_matrix_bwd.cuh has
 * the kernels of backward.
 */
#include "op/amd/attention_matrix_bwd.cuh"

namespace attention_matrix
{

/* forward */

/* Keys of a tile: k and v of a tile take 16 to 32 KB, so two blocks fit into a processor's 64 KB. */
template <int DK> constexpr int FWD_KEYS = DK > 128 ? 32 : 64;

/* A new maximum rescales all sums. So the one in use may be exceeded by 2^SLACK. bf16 and f32 have
 * room for that without loss. */
static constexpr float SLACK = 8;

/* The running maximum of a query in units of log2, and this lane's part of the sum. */
struct Running {
    float max, sum;
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

/* Raises the maxima that were exceeded. A row's bits depend on no other row: one that keeps its maximum
 * has factor 1. */
template <int DV> static __device__ void raise_max(Running &run, float most, Sums (&o)[DV / SIDE])
{
    most = fmaxf(most, lane_get_xor(most, SIDE));
    float next = most > run.max + SLACK ? most : run.max;
    float factor = fast_exp2(run.max - next);
    run.max = next;
    run.sum *= factor;
#pragma unroll
    for (int t = 0; t < DV / SIDE; t++) o[t] *= factor;
}

/* Turns scores into the terms e^(score - max). */
template <int N>
static __device__ __forceinline__ void probabilities(const Sums (&s)[N], float scale, Running &run,
                                                     Terms (&p)[N][STEPS])
{
    Sums part = no_sums();
#pragma unroll
    for (int t = 0; t < N; t++) {
        Sums e = s[t] * scale - run.max;
#pragma unroll
        for (int r = 0; r < 16; r++) e[r] = fast_exp2(e[r]);
        part += e;
        terms_of(e, p[t]);
    }
    float sum = 0;
#pragma unroll
    for (int r = 0; r < 16; r++) sum += part[r];
    run.sum += sum;
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
        int64_t at = (x.b * a.q.heads + x.h) * a.q.length + x.row;
        float lse = a.lse_before == NULL ? -INFINITY : a.lse_before[at];
        bool given = lse > -INFINITY;
        run.max = given ? lse * LOG2_E : -FLT_MAX;
        run.sum = given && lane_half() == 0 ? 1.0f : 0.0f;
        q.load(a.q.row(x.b, x.row, x.h));
        sums_begin<DV>(a.o_before.at == NULL ? NULL : a.o_before.row(x.b, x.row, x.h), o);
    }

    __device__ __forceinline__ void scores(const char *k, const Seen &seen, int j, bool all,
                                           float scale)
    {
        Sums s[N / SIDE];
        rows_multiply<N, DK>(k, q, s);
        if (!all) {
#pragma unroll
            for (int t = 0; t < N / SIDE; t++) hide_keys(seen, j + t * SIDE, s[t]);
        }
        float most = largest(s) * scale;
        if (lanes_any(most > run.max + SLACK)) raise_max<DV>(run, most, o);
        probabilities(s, scale, run, p);
    }

    __device__ __forceinline__ void values(const char *v)
    {
#pragma unroll
        for (int t = 0; t < N / SIDE; t++) columns_add<N, DV>(v, t, p[t], o);
    }

    __device__ __forceinline__ void end(const Attention &a, const Queries &x)
    {
        float sum = run.sum + lane_get_xor(run.sum, SIDE);
        float factor = sum > 0 ? 1 / sum : 0.0f; /* no key at all: 0 */
        if (!x.exists) return;
        int64_t at = (x.b * a.q.heads + x.h) * a.q.length + x.row;
        if (lane_half() == 0) a.lse[at] = sum > 0 ? run.max * LN_2 + logf(sum) : -INFINITY;
        const float *none = NULL;
        if (a.o_sum.at != NULL)
            row_store<DV>(o, a.o_sum.row(x.b, x.row, x.h), none, factor);
        else
            row_store<DV>(o, a.o.row(x.b, x.row, x.h), none, factor);
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
    Keys keys = keys_of_block(a, x, v_tile);
    const Bf16 *k_from = a.k.row(x.b, keys.begin, x.g), *v_from = a.v.row(x.b, keys.begin, x.g);
    int64_t k_stride = a.k.stride(), v_stride = a.v.stride();
    float scale = a.scale * LOG2_E;
    int left = keys.end - keys.begin;
    k.load(k_from, k_stride, left);
    v.load(v_from, v_stride, left);
    f.begin(a, x);
    k.store(k_tile);
    k.load(k_from += N * k_stride, k_stride, left - N);
    for (int j = keys.begin; j < keys.end; j += N, left -= N) {
        Sight sight = sight_of(x.seen, j, N);
        __syncthreads();
        v.store(v_tile);
        v.load(v_from += N * v_stride, v_stride, left - N);
        if (sight.any) f.scores(k_tile, x.seen, j, sight.all, scale);
        __syncthreads();
        k.store(k_tile);
        k.load(k_from += N * k_stride, k_stride, left - 2 * N);
        if (asked_again(sight.any)) f.values(v_tile);
    }
    f.end(a, x);
}

/* launch */

template <typename T> static Side<T> side_of(const Tensor *t)
{
    if (t->data == NULL) return {};
    return { (T *)t->data, t->dim[1], (int)t->dim[2], (int)t->dim[3] };
}

/* The arguments that both directions have. */
template <typename Args> static Attention attention_of(const Args *f)
{
    Attention a = {};
    a.q = side_of<const Bf16>(&f->q);
    a.k = side_of<const Bf16>(&f->k);
    a.v = side_of<const Bf16>(&f->v);
    a.pieces = f->pieces;
    a.window = f->window;
    a.chunk = f->chunk;
    a.doc = (const int32_t *)f->doc.data;
    a.lse = (float *)f->lse.data;
    a.B = (int)f->q.dim[0];
    a.scale = f->scale;
    return a;
}

static int64_t blocks_of(int64_t rows, int64_t heads) { return (rows + ROWS - 1) / ROWS * heads; }

/* Calls run with the widths of heads as constants. */
template <typename F> static Status by_widths(const Attention &a, F run)
{
    typedef std::integral_constant<int, 64> W64;
    typedef std::integral_constant<int, 128> W128;
    typedef std::integral_constant<int, 192> W192;
    int dk = a.q.d, dv = a.v.d;
    if (dk == 64 && dv == 64) return run(W64(), W64());
    if (dk == 128 && dv == 128) return run(W128(), W128());
    if (dk == 192 && dv == 128) return run(W192(), W128());
    return FAIL(ERR_UNSUPPORTED, "heads are %d and %d wide, which the kernel is not made for", dk,
                dv);
}

/* Lanes add offsets of 32 bits to a tile's address, and 64 rows are the most. */
static Status check_rows(const Attention &a)
{
    const int most = 1 << 24; /* elements */
    if (!packs_fit<Bf16>({ a.q.at, a.k.at, a.v.at, a.d_o.at }, {}))
        return FAIL(ERR_UNSUPPORTED, "rows do not lie at multiples of 16 bytes");
    if (a.q.heads <= most / a.q.d && a.k.heads <= most / a.k.d) return OK;
    return FAIL(ERR_UNSUPPORTED, "rows of %d heads are too long", max(a.q.heads, a.k.heads));
}

static Status forward(struct Exec *ex, const AttentionFwd *f)
{
    Attention a = attention_of(f);
    a.o_before = side_of<const float>(&f->o_before);
    a.lse_before = (const float *)f->lse_before.data;
    if (f->o.dtype == DTYPE_F32)
        a.o_sum = side_of<float>(&f->o);
    else
        a.o = side_of<Bf16>(&f->o);
    TRY(check_rows(a));
    int64_t blocks = blocks_of(a.q.length, (int64_t)a.B * a.q.heads);
    if (blocks == 0) return OK;
    return by_widths(a, [&](auto dk, auto dv) {
        attention_matrix_fwd_kernel<dk(), dv()>
            <<<(unsigned)blocks, THREADS, 0, exec_stream(ex)>>>(a);
        return kernel_status("attention");
    });
}

static Status backward(struct Exec *ex, const AttentionBwd *f)
{
    Attention a = attention_of(f);
    a.o = side_of<Bf16>(&f->o);
    a.d_o = side_of<const Bf16>(&f->d_o);
    a.dk = side_of<Bf16>(&f->dk);
    a.dv = side_of<Bf16>(&f->dv);
    a.dk_before = side_of<const Bf16>(&f->dk_before);
    a.dv_before = side_of<const Bf16>(&f->dv_before);
    a.dq_before = side_of<const float>(&f->dq_before);
    if (f->dq.dtype == DTYPE_F32)
        a.dq_sum = side_of<float>(&f->dq);
    else
        a.dq = side_of<Bf16>(&f->dq);
    a.delta = (float *)exec_workspace(ex);
    TRY(check_rows(a));
    int64_t queries = blocks_of(a.q.length, (int64_t)a.B * a.q.heads);
    int64_t keys = blocks_of(a.k.length, (int64_t)a.B * a.k.heads);
    if (queries == 0) return OK;
    return by_widths(a, [&](auto dk, auto dv) {
        unsigned rows = grid_of((int64_t)a.B * a.q.heads * a.q.length, THREADS / (dv() / 8));
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

extern "C" size_t attention_matrix_fwd_workspace(const void *) { return 0; }

extern "C" Status attention_matrix_bwd(struct Exec *ex, const void *args)
{
    return attention_matrix::backward(ex, (const AttentionBwd *)args);
}

/* The workspace holds delta. */
extern "C" size_t attention_matrix_bwd_workspace(const void *args)
{
    return (size_t)tensor_elems(&((const AttentionBwd *)args)->lse) * sizeof(float);
}
