/*
 * muon: the update of matrices on a GPU. Products, which take nearly all of the time, run as dense candidates
 * (product_kernels.c), for several matrices at a time; what lies between them is bound by memory.
 *
 * Matrices go through the workspace in groups (muon_group), so that many experts need no more of it
 * than a few. Sums of squares are added in double, by blocks of a fixed size. So the bits
 * of a matrix depend neither on its group nor on the grid.
 *
 * Of matrices that ranks split, a round takes a group for each rank. Parts lie matrix by matrix, so
 * those for one owner are neighbours in w as in a message. The factor 1 / |u| of each matrix travels
 * by itself: in X, it would be one more rounding.
 */
#include "kernels/core/flat.cuh"

#include "kernels/optimizer/muon.h"

extern "C" {
#include "kernels/dense/product.h"
#include "kernels/optimizer/muon_square.h"
}

enum {
    THREADS = 256,
    EACH = 4,        /* elements that a thread takes at a time */
    BLOCK = 1 << 13, /* of one partial sum, and of a block */
};

/* A group of matrices at work. y, next: (count, rows, cols); p, q: (count, side, side). */
typedef struct Group {
    MuonShape s;
    MuonParts split;
    int64_t n, blocks;                       /* elements of a matrix, and its partial sums */
    void *y, *next, *p, *q, *came, *product; /* came: parts from all ranks */
    double *part;
    float *by;    /* 1 / (|u| + eps), of each matrix; room for those of all ranks */
    int32_t *row; /* the first row of each p in all of them, and their end */
    size_t bytes;
} Group;

static Group group_at(const Muon *a, void *workspace)
{
    Group k = {};
    size_t at = 0, size = dtype_bytes(a->products);
    k.s = muon_owned(a);
    k.s.count = muon_group(&k.s, a->products);
    k.split = muon_parts(a);
    k.n = k.s.rows * k.s.cols;
    k.blocks = (k.n + BLOCK - 1) / BLOCK;
    size_t square = (size_t)(k.s.count * k.s.side * k.s.side) * size;
    size_t room = (size_t)(k.s.count * muon_room(&k.s)) * size;
    k.y = muon_take(workspace, &at, room);
    k.next = muon_take(workspace, &at, room);
    k.p = muon_take(workspace, &at, square);
    k.q = muon_take(workspace, &at, square);
    k.came = muon_take(workspace, &at, (size_t)(k.s.count * k.s.sent) * size);
    k.part = (double *)muon_take(workspace, &at, (size_t)(k.s.count * k.blocks) * sizeof(double));
    k.by = (float *)muon_take(workspace, &at, (size_t)(k.split.ranks * k.s.count) * sizeof(float));
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

/* Block (x, y): part x of matrix y. y = u: its products take out its size (Group.by). part NULL: of
 * parts of matrices, whose squares their owners add up. */
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
    if (part == NULL) return;
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) part[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

/* Where parts lie in messages: a block for each rank, with parts of `each` matrices. */
struct Message {
    MuonParts p;
    int64_t n, each; /* n: elements of a whole matrix */
    bool wide;       /* EACH neighbours lie in one run, and packs fit */

    /* Of a matrix, that of its elements that is element i of a rank's part. */
    __device__ __forceinline__ int64_t whole(int64_t rank, int64_t i) const
    {
        int64_t line = i / p.run;
        return line * p.stride + rank / p.copies * p.run + i - line * p.run;
    }
    /* Element i of this matrix, in the part of the first rank that has it. */
    __device__ __forceinline__ int64_t part(int64_t matrix, int64_t i) const
    {
        int64_t line = i / p.stride, at = i - line * p.stride, part = at / p.run;
        return (part * p.copies * each + matrix) * p.elems + line * p.run + at - part * p.run;
    }
};

/* The whole u of matrix y of this rank, from the parts that came, and its partial sum x. */
template <typename Y>
static __global__ void join_kernel(Message a, const Y *came, Y *y, double *sums)
{
    __shared__ double room[BLOCK_WARPS];
    int64_t first = (int64_t)blockIdx.x * BLOCK + threadIdx.x * EACH;
    double sum = 0;
#pragma unroll 2
    for (int i = 0; i < BLOCK; i += THREADS * EACH) {
        int64_t at = first + i;
        float u[EACH] = {};
        if (a.wide && at < a.n) load<true>(came + a.part(blockIdx.y, at), u);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (!a.wide && at + k < a.n) u[k] = to_f32(came[a.part(blockIdx.y, at + k)]);
            sum += (double)u[k] * (double)u[k];
        }
        store_flat(y + (int64_t)blockIdx.y * a.n, at, a.n, a.wide, u);
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) sums[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

/* Part x of what rank z gets of matrix y of this rank. */
template <typename Y> static __global__ void cut_kernel(Message a, const Y *y, Y *sent)
{
    int64_t first = (int64_t)blockIdx.x * BLOCK + threadIdx.x * EACH;
    const Y *from = y + (int64_t)blockIdx.y * a.n;
    Y *to = sent + (blockIdx.z * a.each + blockIdx.y) * a.p.elems;
#pragma unroll 2
    for (int i = 0; i < BLOCK; i += THREADS * EACH) {
        int64_t at = first + i;
        float x[EACH] = {};
        if (a.wide && at < a.p.elems) load<true>(from + a.whole(blockIdx.z, at), x);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (!a.wide && at + k < a.p.elems) x[k] = to_f32(from[a.whole(blockIdx.z, at + k)]);
        }
        store_flat(to, at, a.p.elems, a.wide, x);
    }
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

static int64_t blocks_of(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

/* Y of the matrices of a group after all steps, from y = u and the partial sums of its squares. */
static Status orthogonalise(struct Exec *ex, const Muon *a, Group *k)
{
    norm_kernel<<<(unsigned)k->s.count, THREADS, 0, exec_stream(ex)>>>(k->part, k->blocks, k->by,
                                                                       k->row, k->s.side);
    TRY(kernel_status("muon"));
    for (int step = 0; step < a->steps; step++) {
        TRY(products(ex, k, a->products, step));
        void *y = k->y;
        k->y = k->next;
        k->next = y;
    }
    return OK;
}

/* The matrices of a group, which begin at element `at`. */
template <typename M, typename Y>
static Status group_run(struct Exec *ex, const Muon *a, Group k, int64_t at)
{
    const Update<M> u = update_of<M>(a, at);
    const dim3 parts((unsigned)k.blocks, (unsigned)k.s.count);
    momentum_kernel<M, Y><<<parts, THREADS, 0, exec_stream(ex)>>>(u, k.part, (Y *)k.y);
    TRY(orthogonalise(ex, a, &k));
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

/* Matrices that ranks split */

/* Sends `next`, a block to each rank, and receives `came`. */
static Status exchange(Comm *c, const Group *k, int64_t each, Dtype type)
{
    const int64_t n = c->size * each * k->split.elems;
    const Tensor sent = { k->next, type, 1, { n } }, came = { k->came, type, 1, { n } };
    return comm_all_to_all(c, &sent, &came);
}

/* X of the matrices that this rank owns in a round: from `came` to `next`. */
template <typename Y>
static Status owned_run(struct Exec *ex, const Muon *a, Group *k, const Message &m)
{
    const unsigned count = (unsigned)k->s.count;
    const dim3 whole((unsigned)k->blocks, count);
    const dim3 cut((unsigned)blocks_of(m.p.elems), count, (unsigned)m.p.ranks);
    join_kernel<Y>
        <<<whole, THREADS, 0, exec_stream(ex)>>>(m, (const Y *)k->came, (Y *)k->y, k->part);
    TRY(orthogonalise(ex, a, k));
    cut_kernel<Y><<<cut, THREADS, 0, exec_stream(ex)>>>(m, (const Y *)k->y, (Y *)k->next);
    return kernel_status("muon");
}

/* The parts of n matrices from element `at` on, `each` for every rank but the last ones. */
template <typename M, typename Y>
static Status round_run(struct Exec *ex, const Muon *a, Comm *c, Group k, int64_t at, int64_t n)
{
    const Update<M> u = update_of<M>(a, at);
    const int64_t each = (n + c->size - 1) / c->size, left = n - c->rank * each;
    const Message m = { k.split, k.n, each, packs_fit<float>({ k.came }, { k.split.run }) };
    const dim3 parts((unsigned)blocks_of(k.split.elems), (unsigned)n);
    float *by = k.by;
    momentum_kernel<M, Y><<<parts, THREADS, 0, exec_stream(ex)>>>(u, NULL, (Y *)k.next);
    TRY(kernel_status("muon"));
    TRY(exchange(c, &k, each, a->products));
    k.s.count = left < each ? left : each;
    k.by = by + c->rank * each;
    if (left > 0) TRY(owned_run<Y>(ex, a, &k, m));
    TRY(exchange(c, &k, each, a->products));
    const Tensor own = { k.by, DTYPE_F32, 1, { each } };
    const Tensor all = { by, DTYPE_F32, 1, { c->size * each } };
    TRY(comm_all_gather(c, &own, &all));
    apply_kernel<M, Y><<<parts, THREADS, 0, exec_stream(ex)>>>(u, by, (const Y *)k.came);
    return kernel_status("muon");
}

template <typename M> static Status rounds_run(struct Exec *ex, const Muon *a)
{
    const Group k = group_at(a, exec_workspace(ex));
    const int64_t all = muon_shape(&a->w).count, most = k.s.count * k.split.ranks;
    const auto run = a->products == DTYPE_BF16 ? round_run<M, Bf16> : round_run<M, float>;
    Comm *c = NULL;
    TRY(muon_group_of(ex, a, &c));
    for (int64_t first = 0; first < all; first += most)
        TRY(run(ex, a, c, k, first * k.split.elems, all - first < most ? all - first : most));
    return OK;
}

extern "C" Status muon_gpu(struct Exec *ex, const void *args)
{
    const Muon *a = (const Muon *)args;
    if (a->ranks > 1)
        return a->m.dtype == DTYPE_BF16 ? rounds_run<Bf16>(ex, a) : rounds_run<float>(ex, a);
    return a->m.dtype == DTYPE_BF16 ? groups_run<Bf16>(ex, a) : groups_run<float>(ex, a);
}
