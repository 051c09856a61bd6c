/*
 * head_loss: chunk by chunk, as on the CPU. The products run as dense candidates (product_kernels.c) over logits in
 * the workspace. The kernel between them turns a row of logits into its loss and its gradient.
 *
 * That kernel is bound by memory: a row must be read once and written once. So a block keeps a row in shared memory
 * between the sum over it and the gradient: 205 KB for 102400 logits in bf16. What does not fit is read again, from
 * L2. One such block fills a multiprocessor, and no other block keeps memory busy while it computes. So a thread that
 * has written a part of the gradient at once fetches that part of the block's next row into the same shared memory. A
 * thread reads only what it fetched itself, so this needs no barrier. Exponentials in bf16 use the GPU's own
 * instruction. Two for each logit take half the time of the memory traffic (predicted for an H200 at 4 TB/s).
 *
 * Rows that do not begin at multiples of 16 bytes are walked twice in memory, element by element.
 *
 * If ranks split the vocabulary, three kernels do the work, with an all-reduce between two of them:
 * this rank's maximum and sum of each row; the sum times e^(m_r - m); loss and gradient. A row is
 * read from memory twice, as shared memory does not outlive a kernel.
 *
 * The device cannot report a target outside the vocabulary: its loss is NaN, so the step is skipped.
 */
#include "kernels/core/kernel.cuh"
#include "kernels/norm/rows.cuh"

extern "C" {
#include "kernels/dense/product.h"
#include "kernels/head/head_private.h"
}

static const int THREADS = 512;
static const int LONG_ROW_BYTES = 96 << 10, LONG_ROW_THREADS = 1024; /* above: one block, not two */

/* Rows of the chunk; all pointers begin at its first one. */
template <typename T> struct ChunkRows {
    T *logits;
    const int32_t *target;
    const float *scale;
    float *loss;
    int64_t n, vocabulary;
    int64_t packs, held; /* packs of a row, and how many of them shared memory holds */
    bool gradient;       /* compute the gradient? */
};

/* The packs of a row. A thread has every blockDim.x-th pack, and works on batches of EACH packs. */
template <typename T, bool WIDE> struct Row {
    typedef Packed<T, WIDE> Pack;
    static constexpr int P = Pack::P, EACH = WIDE ? 4 : 8;
    T *at;
    Pack *slots; /* the packs in shared memory */
    int64_t packs, held;

    /* Pack k of this thread in the batch that begins at pack `first`. */
    static __device__ __forceinline__ int64_t pack(int64_t first, int k)
    {
        return first + k * (int)blockDim.x + (int)threadIdx.x;
    }
    static __device__ __forceinline__ int64_t batch() { return EACH * (int)blockDim.x; }

    /* Starts copies of the packs that shared memory holds. */
    __device__ __forceinline__ void fetch(int64_t first) const
    {
#pragma unroll
        for (int k = 0; k < EACH && WIDE; k++) {
            int64_t i = pack(first, k);
            if (i < held) copy_chunk(shared_address(slots + i), at + i * P, true);
        }
        copies_close();
    }

    /* Loads a batch; all loads start before the first result is used. -inf after the row's end. */
    __device__ __forceinline__ void read(int64_t first, float (&v)[EACH][P]) const
    {
        T none[P];
        Pack raw[EACH];
#pragma unroll
        for (int p = 0; p < P; p++) none[p] = from_f32<T>(-INFINITY);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int64_t i = pack(first, k);
            memcpy(&raw[k], none, sizeof none);
            if (i < held)
                raw[k] = slots[i];
            else if (i < packs)
                raw[k] = *reinterpret_cast<const Pack *>(at + i * P);
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) widen(raw[k], v[k]);
    }
};

/* e^x; in bf16 within about 2^-21, which is far less than the rounding of a logit. */
template <typename T> static __device__ __forceinline__ float exponential(float x)
{
    if constexpr (std::is_same<T, float>::value) {
        return expf(x);
    } else {
        return fast_exp2(x * 1.44269504f); /* 1 / ln 2 */
    }
}

/* The maximum of the values that a thread has seen, and the sum of e^(v - maximum) (Milakov and
 * Gimelshein, arXiv:1805.02867). */
struct Running {
    float max, sum;
};

/* The maximum and the sum over the whole row, in all threads. A thread that saw no logit has maximum -inf and sum 0. */
template <typename T, bool WIDE>
static __device__ __forceinline__ Running row_running(const Row<T, WIDE> &row, float *room)
{
    typedef Row<T, WIDE> R;
    Running r = { -INFINITY, 0 };
    int64_t left = (row.packs - 1) / R::batch(); /* batches whose copies may be under way */
    for (int64_t first = 0; first < row.packs; first += R::batch(), left--) {
        float v[R::EACH][R::P], max = r.max;
        if (left > 1) copies_wait<2>();
        if (left == 1) copies_wait<1>();
        if (left == 0) copies_wait<0>();
        row.read(first, v);
        if (R::pack(first, 0) >= row.packs) continue;
#pragma unroll
        for (int i = 0; i < R::EACH * R::P; i++) max = fmaxf(max, v[i / R::P][i % R::P]);
        r.sum *= exponential<T>(r.max - max);
        r.max = max;
#pragma unroll
        for (int i = 0; i < R::EACH * R::P; i++) {
            r.sum += exponential<T>(v[i / R::P][i % R::P] - max);
        }
    }
    Running all = { block_max(r.max, room), 0 };
    all.sum = block_sum(r.sum == 0 ? 0.0f : r.sum * exponential<T>(r.max - all.max), room);
    return all;
}

/* Replaces the logits by dlogits = (softmax - onehot) * scale. Meanwhile packs of the next row are
 * fetched into this row's shared memory. */
template <typename T, bool WIDE>
static __device__ __forceinline__ void row_gradient(const Row<T, WIDE> &row,
                                                    const Row<T, WIDE> &next, int64_t target,
                                                    Running all, float scale)
{
    typedef Row<T, WIDE> R;
    constexpr int P = R::P;
    float factor = scale / all.sum;
    for (int64_t first = 0; first < row.packs; first += R::batch()) {
        float v[R::EACH][P];
        row.read(first, v);
#pragma unroll
        for (int k = 0; k < R::EACH; k++) {
            int64_t i = R::pack(first, k);
            if (i >= row.packs) break;
#pragma unroll
            for (int p = 0; p < P; p++) v[k][p] = exponential<T>(v[k][p] - all.max) * factor;
            if (target >= i * P && target < (i + 1) * P) { /* in one thread of the block */
#pragma unroll
                for (int p = 0; p < P; p++) v[k][p] -= i * P + p == target ? scale : 0.0f;
            }
            store<WIDE>(row.at + i * P, v[k]);
        }
        next.fetch(first);
    }
}

/* Each block takes every gridDim.x-th row. */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(LONG_ROW_THREADS) void head_rows_kernel(const ChunkRows<T> a)
{
    extern __shared__ uint4 slots[];
    __shared__ float room[BLOCK_WARPS];
    int64_t V = a.vocabulary;
    Row<T, WIDE> row = { a.logits + blockIdx.x * V, (Packed<T, WIDE> *)slots, a.packs, a.held };
    for (int64_t n = blockIdx.x; n < a.n; n += gridDim.x) {
        if (n == blockIdx.x || !a.gradient)
            for (int64_t first = 0; first < a.packs; first += row.batch()) row.fetch(first);
        int64_t target = a.target[n];
        bool counts = target != -1, known = target >= 0 && target < V;
        float at_target = known ? to_f32(row.at[target]) : __uint_as_float(0x7FC00000u);
        Row<T, WIDE> next = row;
        next.at += gridDim.x * V;
        if (n + gridDim.x >= a.n) next.held = 0;
        Running all = row_running(row, room); /* behind its barriers the row may be written */
        if (threadIdx.x == 0) a.loss[n] = counts ? all.max - at_target + logf(all.sum) : 0.0f;
        if (a.gradient) row_gradient(row, next, target, all, counts ? *a.scale : 0.0f);
        row.at = next.at;
    }
}

/* A chunk of a split vocabulary: this rank has the ids [first, first + rows.vocabulary). */
template <typename T> struct SplitRows {
    ChunkRows<T> rows;
    HeadShare share;
    int64_t first, whole; /* whole: all ranks' rows */

    template <bool WIDE> __device__ __forceinline__ Row<T, WIDE> row(int64_t n) const
    {
        return { rows.logits + n * rows.vocabulary, NULL, rows.packs, 0 };
    }
};

/* A block for each row, here and in head_split_kernel. */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(THREADS) void head_share_kernel(const SplitRows<T> a)
{
    __shared__ float room[BLOCK_WARPS];
    int64_t n = blockIdx.x, id = a.rows.target[n], at = id - a.first;
    Row<T, WIDE> row = a.template row<WIDE>(n);
    Running own = row_running(row, room);
    if (threadIdx.x > 0) return;
    float known = id >= -1 && id < a.whole ? 0.0f : __uint_as_float(0x7FC00000u);
    if (at >= 0 && at < a.rows.vocabulary) known = to_f32(row.at[at]);
    a.share.own[n] = own.max;
    a.share.most[n] = own.max;
    a.share.sum[n] = own.sum;
    a.share.known[n] = known;
}

static __global__ __launch_bounds__(THREADS) void head_scale_kernel(HeadShare s, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) s.sum[i] *= expf(s.own[i] - s.most[i]);
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(THREADS) void head_split_kernel(const SplitRows<T> a)
{
    int64_t n = blockIdx.x, target = a.rows.target[n];
    Row<T, WIDE> row = a.template row<WIDE>(n);
    Running all = { a.share.most[n], a.share.sum[n] };
    bool counts = target != -1;
    if (threadIdx.x == 0)
        a.rows.loss[n] = counts ? all.max - a.share.known[n] + logf(all.sum) : 0.0f;
    if (!a.rows.gradient) return;
    row_gradient(row, row, target - a.first, all, counts ? *a.rows.scale : 0.0f);
}

/* loss_sum += scale * sum of losses: one block, each thread every THREADS-th token, then the threads in a tree. */
static __global__ __launch_bounds__(THREADS) void head_sum_kernel(const float *loss,
                                                                  const float *scale,
                                                                  float *loss_sum, int64_t n)
{
    __shared__ float room[BLOCK_WARPS];
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) sum += loss[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) *loss_sum += *scale * sum;
}

/* As many blocks as the GPU holds at a time. */
template <typename T, bool WIDE> static Status rows_launch(struct Exec *ex, ChunkRows<T> rows)
{
    auto kernel = head_rows_kernel<T, WIDE>;
    bool is_long = rows.vocabulary * (int64_t)sizeof(T) > LONG_ROW_BYTES;
    int own = BLOCK_WARPS * (int)sizeof(float), blocks = is_long ? 1 : 2;
    blocks *= gpu_limit(GPU_PROCESSORS);
    int64_t room = (gpu_limit(GPU_BLOCK_SHARED_BYTES) - own) / 16;
    rows.packs = rows.vocabulary / Packed<T, WIDE>::P;
    if (WIDE) rows.held = rows.packs < room ? rows.packs : room;
    int bytes = (int)rows.held * 16;
    TRY(kernel_shared("head_loss", kernel, (size_t)bytes));
    kernel<<<(unsigned)(blocks < rows.n ? blocks : rows.n), is_long ? LONG_ROW_THREADS : THREADS,
             (size_t)bytes, exec_stream(ex)>>>(rows);
    return kernel_status("head_loss");
}

template <typename T, bool WIDE>
static Status split_launch(struct Exec *ex, const HeadLoss *a, const ChunkRows<T> &rows)
{
    int64_t n = rows.n, V = rows.vocabulary;
    SplitRows<T> s = { rows, head_share(a, rows.logits, n), a->vocab_first, V * a->ranks };
    s.rows.packs = V / Packed<T, WIDE>::P;
    head_share_kernel<T, WIDE><<<(unsigned)n, THREADS, 0, exec_stream(ex)>>>(s);
    TRY(kernel_status("head_loss"));
    TRY(head_reduce(ex, a, s.share.most, n, REDUCE_MAX));
    head_scale_kernel<<<grid_of(n, THREADS), THREADS, 0, exec_stream(ex)>>>(s.share, n);
    TRY(kernel_status("head_loss"));
    TRY(head_reduce(ex, a, s.share.sum, 2 * n, REDUCE_SUM));
    head_split_kernel<T, WIDE><<<(unsigned)n, THREADS, 0, exec_stream(ex)>>>(s);
    return kernel_status("head_loss");
}

template <typename T>
static Status rows_run(struct Exec *ex, const HeadLoss *a, void *logits, int64_t first, int64_t n)
{
    ChunkRows<T> rows = {};
    rows.logits = (T *)logits;
    rows.target = (const int32_t *)a->target.data + first;
    rows.scale = (const float *)a->scale.data;
    rows.loss = (float *)a->loss.data + first;
    rows.n = n;
    rows.vocabulary = tensor_elems(&a->w.data) / tensor_cols(&a->w.data);
    rows.gradient = a->dx.data != NULL;
    bool wide = packs_chosen<T>(ex, "head_loss", { logits }, { rows.vocabulary });
    if (head_ranks(a) > 1)
        return wide ? split_launch<T, true>(ex, a, rows) : split_launch<T, false>(ex, a, rows);
    return wide ? rows_launch<T, true>(ex, rows) : rows_launch<T, false>(ex, rows);
}

static size_t product_space(const struct Exec *, const HeadProduct *p)
{
    if (!head_is_scaled(p)) return DENSE_WORKSPACE;
    ScaledArgs s = head_scaled(p);
    return scaled_dense_workspace(&s);
}

static Status product_run(struct Exec *ex, const HeadProduct *p, void *space)
{
    if (!head_is_scaled(p)) return dense_run(ex, &p->g, NULL, space);
    ScaledArgs s = head_scaled(p);
    return scaled_dense_run(ex, "head_loss", &s, space);
}

extern "C" size_t head_loss_gpu_workspace(const struct Exec *ex, const void *args)
{
    return head_space(ex, (const HeadLoss *)args, product_space, quant_out_gpu_workspace,
                      DENSE_WORKSPACE);
}

extern "C" Status head_loss_gpu(struct Exec *ex, const void *args)
{
    const HeadLoss *a = (const HeadLoss *)args;
    int64_t N = tensor_elems(&a->target), rows = head_chunk_rows(a);
    char *at_logits = (char *)exec_workspace(ex);
    char *copies = at_logits + head_logits_bytes(a) + head_share_bytes(a);
    char *space = copies + head_copies_bytes(a);
    for (int64_t first = 0; first < N; first += rows) {
        int64_t n = N - first < rows ? N - first : rows;
        char *at = copies;
        const HeadCopies c = head_copies(a, n, &at);
        const Tensor x = head_rows(a, first, n), logits = head_logits(a, at_logits, n);
        HeadProducts p = head_products(a, logits.data, &c, first, n);
        TRY(quant_out_gpu(ex, &c.x, &x, space));
        TRY(product_run(ex, &p.logits, space));
        TRY(a->x.dtype == DTYPE_F32 ? rows_run<float>(ex, a, logits.data, first, n)
                                    : rows_run<Bf16>(ex, a, logits.data, first, n));
        TRY(quant_out_gpu(ex, &c.dlogits, &logits, space));
        if (a->dx.data != NULL) TRY(product_run(ex, &p.dx, space));
        if (a->dw.data != NULL) TRY(product_run(ex, &p.dw, space));
    }
    if (a->silent) return OK;
    head_sum_kernel<<<1, THREADS, 0, exec_stream(ex)>>>(
        (const float *)a->loss.data, (const float *)a->scale.data, (float *)a->loss_sum.data, N);
    return kernel_status("head_loss");
}
