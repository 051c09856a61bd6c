/*
 * muon: the update of matrices on a GPU. Products, which take nearly all of the time, run as dense
 * candidates (product_kernels.c), for several matrices at a time; what lies between them is bound by
 * memory.
 *
 * Matrices go through the workspace in groups (muon_group), so that many experts need no more of it
 * than a few. Sums of squares are added in double, by blocks of a fixed size. So the bits
 * of a matrix depend neither on its group nor on the grid.
 */
#include "op/flat.cuh"

#include "op/muon.h"

extern "C" {
#include "op/muon_square.h"
#include "op/product.h"
}

enum {
    THREADS = 256,
    EACH = 4,        /* elements that a thread takes at a time */
    BLOCK = 1 << 13, /* of one partial sum, and of a block */
};

/* A group of matrices at work. y, next: (count, rows, cols); p, q: (count, side, side). */
typedef struct Group {
    MuonShape s;
    int64_t n, blocks; /* elements of a matrix, and its partial sums */
    void *y, *next, *p, *q, *product;
    double *part;
    float *by;    /* 1 / (|u| + eps), of each matrix */
    int32_t *row; /* the first row of each p in all of them, and their end */
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
    k.row = (int32_t *)muon_take(workspace, &at, (size_t)(k.s.count + 1) * sizeof(int32_t));
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
    bool nesterov, wide; /* wide: packs fit */
};

/* Block (x, y): part x of matrix y. y = u: its products take out its size (Group.by). */
template <typename M, typename Y>
static __global__ void momentum_kernel(Update<M> a, double *part, Y *y)
{
    __shared__ double room[BLOCK_WARPS];
    int64_t first = (int64_t)blockIdx.x * BLOCK + threadIdx.x * EACH,
            at = (int64_t)blockIdx.y * a.n;
    float clip = *a.clip;
    double sum = 0;
    if (!isfinite(clip)) return; /* a skipped step */
#pragma unroll 2
    for (int i = 0; i < BLOCK; i += THREADS * EACH) {
        float g[EACH], m[EACH], u[EACH];
        load_flat(a.g + at, first + i, a.n, a.wide, g);
        load_flat(a.m + at, first + i, a.n, a.wide, m);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            m[k] = to_f32(from_f32<M>(a.momentum * m[k] + clip * g[k]));
            u[k] = a.nesterov ? clip * g[k] + a.momentum * m[k] : m[k];
            sum += (double)u[k] * (double)u[k];
        }
        store_flat(a.m + at, first + i, a.n, a.wide, m);
        store_flat(y + at, first + i, a.n, a.wide, u);
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) part[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

/* side: rows of a matrix p. */
static __global__ void norm_kernel(const double *part, int64_t blocks, float *by, int32_t *row,
                                   int64_t side)
{
    __shared__ double room[BLOCK_WARPS];
    double sum = 0;
    for (int64_t b = threadIdx.x; b < blocks; b += THREADS) sum += part[blockIdx.x * blocks + b];
    sum = block_sum(sum, room);
    if (threadIdx.x > 0) return;
    by[blockIdx.x] = 1 / (sqrtf((float)sum) + MUON_EPS);
    row[blockIdx.x + 1] = (int32_t)((blockIdx.x + 1) * side);
    if (blockIdx.x == 0) row[0] = 0;
}

/* Blocks as in momentum_kernel. */
template <typename M, typename Y>
static __global__ void apply_kernel(Update<M> a, const float *by, const Y *y)
{
    int64_t first = (int64_t)blockIdx.x * BLOCK + threadIdx.x * EACH,
            at = (int64_t)blockIdx.y * a.n;
    float lr = *a.lr, keep = 1 - lr * a.decay, rate = lr * a.scale * by[blockIdx.y];
    if (!isfinite(*a.clip)) return;
#pragma unroll 2
    for (int i = 0; i < BLOCK; i += THREADS * EACH) {
        float w[EACH], x[EACH];
        load_flat(a.w + at, first + i, a.n, a.wide, w);
        load_flat(y + at, first + i, a.n, a.wide, x);
#pragma unroll
        for (int k = 0; k < EACH; k++) w[k] = keep * w[k] - rate * x[k];
        store_flat(a.w + at, first + i, a.n, a.wide, w);
        if (a.w_low != NULL) store_flat(a.w_low + at, first + i, a.n, a.wide, w);
    }
}

/* P = by^2 Y Y^T, Q = linear P + square P P, next = Y + Q Y; for tall matrices P = by^2 Y^T Y and next = Y + Y Q. */
static Status products(struct Exec *ex, const Group *k, Dtype type, int step)
{
    const int64_t side = k->s.side, rows = k->s.rows, cols = k->s.cols, count = k->s.count;
    const bool tall = rows > cols;
    const MuonFactors f = muon_factors(step);
    const Tensor offsets = { k->row, DTYPE_I32, 1, { count + 1 } };
    const Operand y = operand_plain({ k->y, type, 3, { count, rows, cols } });
    const Operand p = operand_plain({ k->p, type, 3, { count, side, side } });
    const MuonSquare gram = { y, NULL, k->p, offsets, k->by, side, 1, 0, tall };
    const MuonSquare square = { p, k->p, k->q, offsets, NULL, side, f.square, f.linear, false };
    const GemmOperand left = { k->y, type, cols, false }, right = { k->q, type, side, false };
    const GemmArgs use = {
        rows, cols, side, tall ? left : right, tall ? right : left, { k->next, type, cols }, 1
    };
    TRY(muon_square_gpu(ex, &gram));
    TRY(muon_square_gpu(ex, &square));
    return dense_run_each(ex, &use, k->y, count, k->product);
}

template <typename M> static Update<M> update_of(const Muon *a, int64_t at)
{
    const int64_t n = muon_shape(&a->w).rows * tensor_cols(&a->w);
    return { (float *)a->w.data + at,
             (const float *)a->g.data + at,
             (const float *)a->clip.data,
             (const float *)a->hyper.data,
             (M *)a->m.data + at,
             a->w_low.data == NULL ? NULL : (Bf16 *)a->w_low.data + at,
             n,
             a->momentum,
             a->decay,
             (float)((double)a->scale * muon_size(a->steps)),
             a->nesterov,
             packs_fit<float>({ a->w.data, a->g.data, a->m.data, a->w_low.data }, { n }) };
}

/* The matrices of a group, which begin at element `at`. */
template <typename M, typename Y>
static Status group_run(struct Exec *ex, const Muon *a, Group k, int64_t at)
{
    const Update<M> u = update_of<M>(a, at);
    const dim3 parts((unsigned)k.blocks, (unsigned)k.s.count);
    momentum_kernel<M, Y><<<parts, THREADS, 0, exec_stream(ex)>>>(u, k.part, (Y *)k.y);
    norm_kernel<<<(unsigned)k.s.count, THREADS, 0, exec_stream(ex)>>>(k.part, k.blocks, k.by, k.row,
                                                                      k.s.side);
    TRY(kernel_status("muon"));
    for (int step = 0; step < a->steps; step++) {
        TRY(products(ex, &k, a->products, step));
        void *y = k.y;
        k.y = k.next;
        k.next = y;
    }
    apply_kernel<M, Y><<<parts, THREADS, 0, exec_stream(ex)>>>(u, k.by, (const Y *)k.y);
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
