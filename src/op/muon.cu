/*
 * muon: the update of matrices on a GPU. Products, which take nearly all of the time, run as dense
 * candidates (product_kernels.c), for several matrices at a time; what lies between them is bound by
 * memory.
 *
 * Matrices go through the workspace in groups (muon_group), so that many experts need no more of it
 * than a few. Sums of squares are added in double, by blocks of a fixed size. So the bits
 * of a matrix depend neither on its group nor on the grid.
 */
#include "op/pack.cuh"

#include "op/muon.h"

extern "C" {
#include "op/product.h"
}

enum {
    THREADS = 256,
    BLOCK = 1 << 13, /* elements of one partial sum */
};

/* A group of matrices at work. y, next: (count, rows, cols); p, q: (count, side, side). */
typedef struct Group {
    MuonShape s;
    int64_t n, blocks; /* elements of a matrix, and its partial sums */
    void *y, *next, *p, *q, *product;
    double *part;
    float *by; /* 1 / (|u| + eps), of each matrix */
    size_t bytes;
} Group;

static Group group_at(const Muon *a, void *workspace)
{
    Group k = {};
    size_t at = 0, size = dtype_bytes(a->products);
    k.s = muon_shape(&a->w);
    k.s.count = muon_group(&k.s, a->products);
    k.n = k.s.rows * k.s.cols;
    k.blocks = (k.n + BLOCK - 1) / BLOCK;
    size_t square = (size_t)(k.s.count * k.s.side * k.s.side) * size;
    k.y = muon_take(workspace, &at, (size_t)(k.s.count * k.n) * size);
    k.next = muon_take(workspace, &at, (size_t)(k.s.count * k.n) * size);
    k.p = muon_take(workspace, &at, square);
    k.q = muon_take(workspace, &at, square);
    k.part = (double *)muon_take(workspace, &at, (size_t)(k.s.count * k.blocks) * sizeof(double));
    k.by = (float *)muon_take(workspace, &at, (size_t)k.s.count * sizeof(float));
    k.product = muon_take(workspace, &at, DENSE_WORKSPACE);
    k.bytes = at;
    return k;
}

extern "C" size_t muon_gpu_workspace(const struct Exec *, const void *args)
{
    return group_at((const Muon *)args, NULL).bytes;
}

/* What a group's kernels read and write, from its first matrix on. M: the type of m. */
template <typename M> struct Update {
    float *w;
    const float *g, *clip, *lr;
    M *m;
    Bf16 *w_low; /* or NULL */
    int64_t n;   /* of one matrix */
    float momentum, decay, scale;
    bool nesterov;
};

template <typename M>
static __device__ __forceinline__ float momentum_of(const Update<M> &a, float clip, int64_t i)
{
    float m = to_f32(a.m[i]);
    return a.nesterov ? clip * a.g[i] + a.momentum * m : m;
}

/* Block (x, y): part x of matrix y. */
template <typename M> static __global__ void momentum_kernel(Update<M> a, double *part)
{
    __shared__ double room[BLOCK_WARPS];
    int64_t first = (int64_t)blockIdx.x * BLOCK, at = (int64_t)blockIdx.y * a.n;
    float clip = *a.clip;
    double sum = 0;
    if (!isfinite(clip)) return; /* a skipped step */
    for (int64_t i = first + threadIdx.x; i < a.n && i < first + BLOCK; i += THREADS) {
        a.m[at + i] = from_f32<M>(a.momentum * to_f32(a.m[at + i]) + clip * a.g[at + i]);
        float u = momentum_of(a, clip, at + i);
        sum += (double)u * (double)u;
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) part[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

static __global__ void norm_kernel(const double *part, int64_t blocks, float *by)
{
    __shared__ double room[BLOCK_WARPS];
    double sum = 0;
    for (int64_t b = threadIdx.x; b < blocks; b += THREADS) sum += part[blockIdx.x * blocks + b];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) by[blockIdx.x] = 1 / (sqrtf((float)sum) + MUON_EPS);
}

template <typename M, typename Y>
static __global__ void begin_kernel(Update<M> a, const float *by, Y *y)
{
    int64_t first = (int64_t)blockIdx.x * BLOCK, at = (int64_t)blockIdx.y * a.n;
    float clip = *a.clip, size = by[blockIdx.y];
    for (int64_t i = first + threadIdx.x; i < a.n && i < first + BLOCK; i += THREADS)
        y[at + i] = from_f32<Y>(momentum_of(a, clip, at + i) * size);
}

/* q = linear p + square q */
template <typename Y>
static __global__ void combine_kernel(const Y *p, Y *q, int64_t n, MuonFactors f)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) q[i] = from_f32<Y>(f.linear * to_f32(p[i]) + f.square * to_f32(q[i]));
}

/* n: of all matrices of the group. */
template <typename M, typename Y>
static __global__ void apply_kernel(Update<M> a, const Y *y, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n || !isfinite(*a.clip)) return;
    float lr = *a.lr, keep = 1 - lr * a.decay, rate = lr * a.scale;
    float w = keep * a.w[i] - rate * to_f32(y[i]);
    a.w[i] = w;
    if (a.w_low != NULL) a.w_low[i] = from_f32<Bf16>(w);
}

/* P = Y Y^T, Q = P P, next = Y + Q Y; for tall matrices P = Y^T Y and next = Y + Y Q. */
static Status products(struct Exec *ex, const Group *k, Dtype type, int step)
{
    const int64_t side = k->s.side, cols = k->s.cols;
    const bool tall = k->s.rows > cols;
    const GemmOperand y = { k->y, type, cols, false }, y_turned = { k->y, type, cols, true };
    const GemmOperand p = { k->p, type, side, false }, q = { k->q, type, side, false };
    const GemmArgs gram = { side,
                            side,
                            tall ? k->s.rows : cols,
                            tall ? y_turned : y,
                            tall ? y : y_turned,
                            { k->p, type, side },
                            0 };
    const GemmArgs square = { side, side, side, p, p, { k->q, type, side }, 0 };
    const GemmArgs use = {
        k->s.rows, cols, side, tall ? y : q, tall ? q : y, { k->next, type, cols }, 1
    };
    const int64_t n = k->s.count * side * side;
    const MuonFactors f = muon_factors(step);
    TRY(dense_run_each(ex, &gram, NULL, k->s.count, k->product));
    TRY(dense_run_each(ex, &square, NULL, k->s.count, k->product));
    TRY(launch_typed("muon", type, [&](auto t) {
        typedef decltype(t) Y;
        combine_kernel<Y><<<grid_of(n, THREADS), THREADS, 0, exec_stream(ex)>>>((const Y *)k->p,
                                                                                (Y *)k->q, n, f);
    }));
    return dense_run_each(ex, &use, k->y, k->s.count, k->product);
}

template <typename M> static Update<M> update_of(const Muon *a, int64_t at)
{
    return { (float *)a->w.data + at,
             (const float *)a->g.data + at,
             (const float *)a->clip.data,
             (const float *)a->hyper.data,
             (M *)a->m.data + at,
             a->w_low.data == NULL ? NULL : (Bf16 *)a->w_low.data + at,
             muon_shape(&a->w).rows * tensor_cols(&a->w),
             a->momentum,
             a->decay,
             (float)((double)a->scale * muon_size(a->steps)),
             a->nesterov };
}

/* The matrices of a group, which begin at element `at`. */
template <typename M, typename Y>
static Status group_run(struct Exec *ex, const Muon *a, Group k, int64_t at)
{
    const Update<M> u = update_of<M>(a, at);
    const dim3 parts((unsigned)k.blocks, (unsigned)k.s.count);
    const int64_t n = k.s.count * k.n;
    momentum_kernel<M><<<parts, THREADS, 0, exec_stream(ex)>>>(u, k.part);
    norm_kernel<<<(unsigned)k.s.count, THREADS, 0, exec_stream(ex)>>>(k.part, k.blocks, k.by);
    begin_kernel<M, Y><<<parts, THREADS, 0, exec_stream(ex)>>>(u, k.by, (Y *)k.y);
    TRY(kernel_status("muon"));
    for (int step = 0; step < a->steps; step++) {
        TRY(products(ex, &k, a->products, step));
        void *y = k.y;
        k.y = k.next;
        k.next = y;
    }
    apply_kernel<M, Y><<<grid_of(n, THREADS), THREADS, 0, exec_stream(ex)>>>(u, (const Y *)k.y, n);
    return kernel_status("muon");
}

template <typename M> static Status groups_run(struct Exec *ex, const Muon *a)
{
    Group k = group_at(a, exec_workspace(ex));
    const int64_t all = muon_shape(&a->w).count, most = k.s.count;
    const auto run = a->products == DTYPE_BF16 ? group_run<M, Bf16> : group_run<M, float>;
    for (int64_t first = 0; first < all; first += most) {
        k.s.count = all - first < most ? all - first : most;
        TRY(run(ex, a, k, first * k.n));
    }
    return OK;
}

extern "C" Status muon_gpu(struct Exec *ex, const void *args)
{
    const Muon *a = (const Muon *)args;
    return a->m.dtype == DTYPE_BF16 ? groups_run<Bf16>(ex, a) : groups_run<float>(ex, a);
}
