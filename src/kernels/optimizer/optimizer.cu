/*
 * optimizer: kernels over flat buffers: the sum of squares, the clip factor, AdamW. square_sum and
 * adamw are bound by memory. A thread takes as many elements at a time as 16 bytes hold of the
 * narrowest buffer that it reads: four, and eight where moments are bf16.
 *
 * square_sum: as on the CPU, blocks of a fixed size are summed in double, then the sums of the
 * blocks. Which thread adds which element is fixed, so bits depend on neither the grid nor
 * alignment. Runs of groups go with the launch, RUNS at a time: blocks of threads behind those of x sum the
 * edges of a run each, and of the second launch block 1 + g adds what is of group g.
 */
#include "kernels/core/flat.cuh"

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

/* A thread reads clip and hyper itself: they are the same for all, so they come from the cache. */
template <typename M> static __global__ void adamw_kernel(Update<M> a)
{
    constexpr int N = PACK<M>;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    float clip = *a.clip;
    if (i >= a.n || !isfinite(clip)) return; /* not finite: a skipped step */
    float keep = 1 - a.hyper[0] * a.decay, rate = a.hyper[0] * a.hyper[1], c2 = a.hyper[2];
    float w[N], g[N], m[N], v[N];
    load_flat(a.w, i, a.n, a.wide, w);
    load_flat(a.g, i, a.n, a.wide, g);
    load_flat(a.m, i, a.n, a.wide, m);
    load_flat(a.v, i, a.n, a.wide, v);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float d = clip * g[k];
        m[k] = a.beta1 * m[k] + (1 - a.beta1) * d;
        v[k] = a.beta2 * v[k] + (1 - a.beta2) * d * d;
        w[k] = keep * w[k] - rate * m[k] / (sqrtf(v[k] * c2) + a.eps);
    }
    store_flat(a.w, i, a.n, a.wide, w);
    store_flat(a.m, i, a.n, a.wide, m);
    store_flat(a.v, i, a.n, a.wide, v);
    if (a.w_low != NULL) store_flat(a.w_low, i, a.n, a.wide, w);
}

template <typename M> static void adamw_launch(const Adamw *a, LaunchStream stream)
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
    adamw_kernel<M><<<grid_of(u.n, THREADS * PACK<M>), THREADS, 0, stream>>>(u);
}

extern "C" Status adamw_gpu(struct Exec *ex, const void *args)
{
    const Adamw *a = (const Adamw *)args;
    return launch_typed("adamw", a->m.dtype,
                        [&](auto t) { adamw_launch<decltype(t)>(a, exec_stream(ex)); });
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
