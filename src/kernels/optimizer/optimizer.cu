/*
 * optimizer: kernels over flat buffers: the sum of squares, the clip factor, AdamW. square_sum and
 * adamw are bound by memory. A thread takes as many elements at a time as 16 bytes hold of the
 * narrowest buffer that it reads: four, and eight where moments are bf16.
 *
 * square_sum: as on the CPU, blocks of a fixed size are summed in double, then the sums of the
 * blocks. Which thread adds which element is fixed, so bits depend on neither the grid nor
 * alignment. Runs of groups go with the launch, RUNS at a time: blocks of threads behind those of x sum the
 * edges of a run each, and of the second launch block 1 + g adds what is of group g.
 *
 * adamw with copies in blocks of 128 x 128: a block of threads updates such a block of w, and quantises it from
 * registers. 4 bytes an element less are read than by adamw and then quantize: 30 instead of 34 with moments in f32.
 * H200, 369 M weights: 3,842 GB/s, where adamw alone moves 4,194. So it saves 0.3 % of a step, not 1.8 %.
 */
#include "kernels/core/flat.cuh"
#include "kernels/quant/quant_made.cuh"

#include "kernels/optimizer/optimizer.h"

enum {
    THREADS = 256,
    EACH = 4,        /* floats: 16 bytes */
    BLOCK = 1 << 14, /* elements of one partial sum */
    JOIN_THREADS = 1024,
    RUNS = 160, /* 24 bytes each: a launch takes 4 KiB of arguments */
};

/* Runs of one launch. */
struct Runs {
    int n;
    struct Run {
        int64_t first, end;
        int group;
    } at[RUNS];
};

/* square_sum */

static __device__ double thread_squares(const float *x, int64_t i, int64_t end)
{
    double sum = 0;
#pragma unroll 4
    for (i += threadIdx.x; i < end; i += THREADS) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* part: (blocks), then (runs) for their edges. The first block of threads has part `from`. */
static __global__ void square_sum_kernel(const float *x, int64_t n, bool wide, double *part,
                                         unsigned from, unsigned blocks,
                                         const __grid_constant__ Runs runs)
{
    unsigned at = from + blockIdx.x;
    int64_t first = (int64_t)at * BLOCK + threadIdx.x * EACH;
    __shared__ double room[BLOCK_WARPS];
    double sum = 0;
    if (at >= blocks) {
        const Runs::Run &r = runs.at[at - blocks];
        SquareEdges e = square_edges(r.first, r.end, BLOCK);
        sum = thread_squares(x, r.first, e.head_end) + thread_squares(x, e.tail, r.end);
    } else {
#pragma unroll 4
        for (int i = 0; i < BLOCK; i += THREADS * EACH) {
            float v[EACH];
            load_flat(x, first + i, n, wide, v);
#pragma unroll
            for (int k = 0; k < EACH; k++) sum += (double)v[k] * (double)v[k];
        }
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) part[at] = sum;
}

/* A block for the sum, unless it is NULL, and one for each group. The order of the parts is fixed by their number alone. */
static __global__ void square_sum_join_kernel(const double *part, int64_t blocks, float *sum,
                                              float *groups, const __grid_constant__ Runs runs)
{
    __shared__ double room[BLOCK_WARPS];
    double total = 0;
    int group = (int)blockIdx.x - (sum != NULL);
    float *to = group < 0 ? sum : groups + group;
    for (int64_t b = threadIdx.x; group < 0 && b < blocks; b += JOIN_THREADS) total += part[b];
    for (int i = 0; group >= 0 && i < runs.n; i++) {
        const Runs::Run &r = runs.at[i];
        if (r.group != group) continue;
        if (threadIdx.x == 0) total += part[blocks + i];
        SquareEdges e = square_edges(r.first, r.end, BLOCK);
        for (int64_t b = e.first_block + threadIdx.x; b < e.end_block; b += JOIN_THREADS)
            total += part[b];
    }
    total = block_sum(total, room);
    if (threadIdx.x == 0) *to += (float)total;
}

extern "C" size_t square_sum_gpu_workspace(const struct Exec *, const void *args)
{
    const SquareSum *a = (const SquareSum *)args;
    size_t runs = (size_t)a->runs, most = RUNS;
    return (grid_of(tensor_elems(&a->x), BLOCK) + (runs < most ? runs : most)) * sizeof(double);
}

/* Sets the next runs from `from` on; returns the first of the launch after. */
static int64_t take_runs(const SquareSum *a, int64_t from, Runs *out)
{
    out->n = 0;
    for (; from < a->runs && out->n < RUNS; from++) {
        out->at[out->n++] = { a->run[from].first, square_run_end(a, from), a->run[from].group };
    }
    return from;
}

extern "C" Status square_sum_gpu(struct Exec *ex, const void *args)
{
    const SquareSum *a = (const SquareSum *)args;
    int64_t n = tensor_elems(&a->x), next = 0;
    unsigned blocks = grid_of(n, BLOCK), groups = (unsigned)tensor_elems(&a->groups), from = 0;
    double *part = (double *)exec_workspace(ex);
    bool wide = packs_fit<float>({ a->x.data }, {});
    float *sum = (float *)a->sum.data;
    Runs runs;
    if (a->groups.data == NULL) groups = 0;
    do {
        next = take_runs(a, next, &runs);
        square_sum_kernel<<<blocks - from + (unsigned)runs.n, THREADS, 0, exec_stream(ex)>>>(
            (const float *)a->x.data, n, wide, part, from, blocks, runs);
        TRY(kernel_status("square_sum"));
        square_sum_join_kernel<<<groups + (sum != NULL), JOIN_THREADS, 0, exec_stream(ex)>>>(
            part, blocks, sum, (float *)a->groups.data, runs);
        TRY(kernel_status("square_sum"));
        from = blocks; /* the parts of x are there, and in the sum */
        sum = NULL;
    } while (next < a->runs);
    return OK;
}

/* clip_scale: one thread. A NaN has the same bits as on the CPU. */

static __global__ void clip_scale_kernel(const float *sum, float *norm_out, float *clip_out,
                                         const float *overflow, int64_t overflows,
                                         const float *limit, float max_norm)
{
    float norm = isnan(*sum) ? *sum : sqrtf(*sum), clip = 1;
    if (max_norm > 0) clip = fminf(1, max_norm / (norm + 1e-6f));
    *norm_out = norm;
    bool fits = limit == NULL || norm <= *limit;
    for (int64_t i = 0; i < overflows; i++) fits = fits && overflow[i] == 0;
    *clip_out = isfinite(norm) && fits ? clip : __uint_as_float(0x7FC00000u);
}

extern "C" Status clip_scale_gpu(struct Exec *ex, const void *args)
{
    const ClipScale *a = (const ClipScale *)args;
    if (a->scale.data != NULL) return FAIL(ERR_UNSUPPORTED, "clip_scale: no kernel takes a scale");
    clip_scale_kernel<<<1, 1, 0, exec_stream(ex)>>>(
        (const float *)a->sum.data, (float *)a->norm.data, (float *)a->clip.data,
        (const float *)a->overflow.data, a->overflow.data == NULL ? 0 : tensor_elems(&a->overflow),
        (const float *)a->limit.data, a->max_norm);
    return kernel_status("clip_scale");
}

/* adamw */

/* M: the moments' type. */
template <typename M> struct Update {
    float *w;
    M *m, *v;
    const float *g, *clip, *hyper; /* the last two change every step: read here, not at launch */
    Bf16 *w_low;                   /* or NULL */
    int64_t n;
    float beta1, beta2, eps, decay;
    bool wide;
};

/* What all elements have in common. */
struct Rates {
    float clip, keep, rate, c2;
};

/* A thread reads clip and hyper itself: they are the same for all, so they come from the cache. */
template <typename M> static __device__ __forceinline__ Rates rates_of(const Update<M> &a)
{
    return { *a.clip, fmaf(-a.hyper[0], a.decay, 1), a.hyper[0] * a.hyper[1], a.hyper[2] };
}

/* Products and sums are spelled so that a compiler has no choice which to fuse: the kernels below give equal bits. */
template <typename M, int N>
static __device__ __forceinline__ void adamw_pack(const Update<M> &a, const Rates &r, float (&w)[N],
                                                  const float (&g)[N], float (&m)[N], float (&v)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        float d = r.clip * g[k];
        m[k] = fmaf(a.beta1, m[k], (1 - a.beta1) * d);
        v[k] = fmaf(d, (1 - a.beta2) * d, __fmul_rn(a.beta2, v[k]));
        w[k] = __fmul_rn(r.keep, w[k]) - r.rate * m[k] / (sqrtf(v[k] * r.c2) + a.eps);
    }
}

template <typename M> static __global__ void adamw_kernel(Update<M> a)
{
    constexpr int N = PACK<M>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i >= a.n || !isfinite(*a.clip)) return; /* not finite: a skipped step */
    float w[N], g[N], m[N], v[N];
    load_flat(a.w, i, a.n, a.wide, w);
    load_flat(a.g, i, a.n, a.wide, g);
    load_flat(a.m, i, a.n, a.wide, m);
    load_flat(a.v, i, a.n, a.wide, v);
    adamw_pack(a, rates_of(a), w, g, m, v);
    store_flat(a.w, i, a.n, a.wide, w);
    store_flat(a.m, i, a.n, a.wide, m);
    store_flat(a.v, i, a.n, a.wide, v);
    if (a.w_low != NULL) store_flat(a.w_low, i, a.n, a.wide, w);
}

/* A source of numbers for blocks of quant_tile.cuh: the new weights, which loading them makes. */
template <typename M> struct Updated {
    typedef quant::Patch Patch;
    static constexpr bool PACKED = true;
    static constexpr int RESIDENT = quant::WIDE_PATCH;
    Update<M> u;

    /* The block has stored the new weights before it reads any of them again. */
    __device__ __forceinline__ float number(const quant::Job &job, const quant::Strip &s, int r,
                                            int64_t col) const
    {
        return to_f32(Rounded{ u.w[quant::source_row(job, s, r) * job.d + col] });
    }

    /* Of eight neighbours, lanes q and q + 4 each have one half of the packs q and q + 4. So the eight access runs of
     * 128 bytes of f32. With a pack for each lane, two stores would touch each 32-byte sector. */
    enum { HALF = quant::PACK_COLS / 2, APART = 4, ACROSS = APART * quant::PACK_COLS };

    struct Row {
        float w[2][HALF], g[2][HALF];
        M m[2][HALF], v[2][HALF];
    };

    /* Row k, whose first half is at i. live: rows of each half. */
    __device__ __forceinline__ void fetch(int64_t i, int k, const int (&live)[2], Row &row) const
    {
#pragma unroll
        for (int j = 0; j < 2; j++, i += ACROSS) {
            if (k >= live[j]) continue;
            elements_get<false, true>(u.w + i, row.w[j]);
            elements_get<false, true>(u.g + i, row.g[j]);
            elements_get<false, true>(u.m + i, row.m[j]);
            elements_get<false, true>(u.v + i, row.v[j]);
        }
    }

    __device__ __forceinline__ uint2 update(int64_t i, int j, Row &row, const Rates &r) const
    {
        float m[HALF], v[HALF];
#pragma unroll
        for (int k = 0; k < HALF; k++) m[k] = to_f32(row.m[j][k]), v[k] = to_f32(row.v[j][k]);
        adamw_pack(u, r, row.w[j], row.g[j], m, v);
        ::store<true>(u.w + i, row.w[j]);
        ::store<true>(u.m + i, m);
        ::store<true>(u.v + i, v);
        if (u.w_low != NULL) ::store<true>(u.w_low + i, row.w[j]);
        return bf16_word<uint2>(row.w[j]);
    }

    /* The next row is on its way while one is updated. Until all are, they lie in shared memory, where the halves of a
     * pack meet. With a patch in registers there would be none for the next row, and 16 rows unrolled are 166 KB of code. */
    template <typename S>
    __device__ __forceinline__ void load(const quant::Job &job, const quant::Strip &s,
                                         const quant::Place<S> &at, int64_t col, Patch &p) const
    {
        static_assert(S::ACROSS == 2 * APART, "lanes along a row share packs in pairs");
        __shared__ uint2 made[quant::ROWS_EACH][S::THREADS][2];
        const int first = at.row % S::HIGH, rows = min(s.live - first, (int)quant::ROWS_EACH);
        const int side = at.pack / APART % 2, lower = (int)threadIdx.x - side * APART;
        const int64_t column = col + (at.pack - side * APART) * quant::PACK_COLS + side * HALF;
        const int live[] = { column < job.d ? rows : 0, column + ACROSS < job.d ? rows : 0 };
        int64_t i = quant::source_row(job, s, first) * job.d + column;
        const Rates r = rates_of(u);
        Row row, next;
        fetch(i, 0, live, next);
#pragma unroll 2
        for (int k = 0; k < quant::ROWS_EACH; k++, i += job.d) {
            row = next;
            fetch(i + job.d, k + 1, live, next);
#pragma unroll
            for (int j = 0; j < 2; j++)
                made[k][lower + j * APART][side] =
                    k < live[j] ? update(i + j * ACROSS, j, row, r) : make_uint2(0, 0);
        }
        lanes_sync();
#pragma unroll
        for (int k = 0; k < quant::ROWS_EACH; k++) {
            const uint2 *half = made[k][threadIdx.x];
            p.word[k] = make_uint4(half[0].x, half[0].y, half[1].x, half[1].y);
        }
    }
};

enum { SQUARE = quant::Square::THREADS, SQUARES = quant::WIDE_PATCH / SQUARE };

/* A skipped step leaves weights and copies as they are. */
template <typename M>
static __global__ __launch_bounds__(SQUARE, SQUARES) void adamw_copies_kernel(const quant::Job job,
                                                                              const Updated<M> x)
{
    if (!isfinite(*x.u.clip)) return;
    quant::quantize_block<Updated<M>, E4M3, quant::Square, true, true>(job, x);
}

template <typename M> static Update<M> update_of(const Adamw *a)
{
    Update<M> u = {};
    u.w = (float *)a->w.data;
    u.m = (M *)a->m.data;
    u.v = (M *)a->v.data;
    u.g = (const float *)a->g.data;
    u.w_low = (Bf16 *)a->w_low.data;
    u.clip = (const float *)a->clip.data;
    u.hyper = (const float *)a->hyper.data;
    u.n = tensor_elems(&a->w);
    u.beta1 = a->beta1;
    u.beta2 = a->beta2;
    u.eps = a->eps;
    u.decay = a->decay;
    u.wide = packs_fit<float>({ u.w, u.m, u.v, u.g, u.w_low }, {});
    return u;
}

/* Does a block of threads hold all that a scale of the copies covers, in rows of whole packs? */
static bool copies_fit(const Adamw *a)
{
    const Operand *rows = &a->copies.rows, *columns = &a->copies.columns;
    for (const Operand *q : { rows, columns }) {
        if (!quant::given(q) || q->kind != OPERAND_128X128 || q->data.dtype != DTYPE_E4M3)
            return false;
    }
    return a->copies.round == DTYPE_BF16 && tensor_cols(&columns->data) % 16 == 0 &&
           packs_fit<Bf16>({ a->w.data, a->g.data, a->m.data, a->v.data, a->w_low.data,
                             rows->data.data, columns->data.data },
                           { tensor_cols(&rows->data) });
}

extern "C" size_t adamw_gpu_workspace(const struct Exec *ex, const void *args)
{
    const Adamw *a = (const Adamw *)args;
    const Tensor w = adamw_matrices(a);
    return quant_out_gpu_workspace(ex, &a->copies, &w);
}

extern "C" Status adamw_gpu(struct Exec *ex, const void *args)
{
    const Adamw *a = (const Adamw *)args;
    const bool together = quant_out_wanted(&a->copies) && copies_fit(a);
    TRY(launch_typed("adamw", a->m.dtype, [&](auto t) {
        typedef decltype(t) M;
        const Update<M> u = update_of<M>(a);
        if (!together) {
            adamw_kernel<M><<<grid_of(u.n, THREADS * PACK<M>), THREADS, 0, exec_stream(ex)>>>(u);
            return;
        }
        const QuantOut &q = a->copies;
        const quant::Job job = quant::job_for<quant::Square>(quant::job_over(&q.rows.data, q.pow2),
                                                             &q.rows, &q.columns, NULL);
        adamw_copies_kernel<M>
            <<<(unsigned)quant::blocks_of(job), SQUARE, 0, exec_stream(ex)>>>(job, Updated<M>{ u });
    }));
    const Tensor w = adamw_matrices(a);
    return together ? OK : quant_out_gpu(ex, &a->copies, &w, exec_workspace(ex));
}

/* weight_average: bound by memory, like adamw. */

static __global__ void weight_average_kernel(float *e, const float *w, const float *clip,
                                             const float *rate, int64_t n, bool wide)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    if (i >= n || !isfinite(*clip)) return; /* not finite: a skipped step */
    float r = *rate, x[EACH], y[EACH];
    load_flat(e, i, n, wide, x);
    load_flat(w, i, n, wide, y);
#pragma unroll
    for (int k = 0; k < EACH; k++) x[k] = (1 - r) * x[k] + r * y[k];
    store_flat(e, i, n, wide, x);
}

extern "C" Status weight_average_gpu(struct Exec *ex, const void *args)
{
    const WeightAverage *a = (const WeightAverage *)args;
    int64_t n = tensor_elems(&a->e);
    bool wide = packs_fit<float>({ a->e.data, a->w.data }, {});
    weight_average_kernel<<<grid_of(n, THREADS * EACH), THREADS, 0, exec_stream(ex)>>>(
        (float *)a->e.data, (const float *)a->w.data, (const float *)a->clip.data,
        (const float *)a->rate.data, n, wide);
    return kernel_status("weight_average");
}
