/*
 * head_loss: chunk by chunk, as on the CPU: the products are cuBLASLt's (blas.cuh), over logits in
 * the workspace; the kernel between them turns a row of logits into its loss and its gradient. One
 * block a row: a row is a vocabulary long, and the chunk's rows fill the chip many times over. It
 * is bound by memory: a row is read twice (maximum and sum in one go, then the gradient) and its
 * gradient is written over it.
 *
 * The device cannot report a target outside the vocabulary: its loss is NaN, so the step is
 * skipped.
 */
#include "op/blas.cuh"

#include "op/product.h"

static const int THREADS = 512, WARP = 32;
static const int EACH = 8, PIECE = THREADS * EACH; /* logits of a row that are in registers */

/* Rows of the chunk; all pointers begin at its first one. */
typedef struct ChunkRows {
    float *logits;
    const int32_t *target;
    const float *scale;
    float *loss;
    int64_t vocabulary;
    bool gradient; /* is the gradient wanted? */
} ChunkRows;

/* The maximum of the values that a thread has seen, and the sum of e^(v - maximum) (Milakov and
 * Gimelshein, arXiv:1805.02867). */
typedef struct Running {
    float max, sum;
} Running;

/* EACH logits from `first` on, THREADS apart, of which the first one is inside the row: all are on
 * their way from memory before the first is used. */
static __device__ __forceinline__ void running_add(Running *r, const float *row, int64_t first,
                                                   int64_t vocabulary)
{
    float v[EACH], max = r->max;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * THREADS;
        v[k] = i < vocabulary ? row[i] : -INFINITY;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) max = fmaxf(max, v[k]);
    r->sum *= expf(r->max - max);
    r->max = max;
#pragma unroll
    for (int k = 0; k < EACH; k++) r->sum += expf(v[k] - max);
}

/* The maximum and the sum over the whole row, in all threads. A thread that saw no logit has
 * maximum -inf and sum 0. */
static __device__ __forceinline__ Running row_running(const float *row, int64_t vocabulary,
                                                      float *room)
{
    Running r = { -INFINITY, 0 };
    for (int64_t v = threadIdx.x; v < vocabulary; v += PIECE) running_add(&r, row, v, vocabulary);
    Running all = { block_max(r.max, room), 0 };
    all.sum = block_sum(r.sum == 0 ? 0.0f : r.sum * expf(r.max - all.max), room);
    return all;
}

/* dlogits = (softmax - onehot) * scale in the place of the logits, in type T. A piece is in
 * registers before its gradient is written, and gradients never take more room than the floats
 * that were read: what is written lies in front of what is still to be read. */
template <typename T>
static __device__ __forceinline__ void row_gradient(float *row, int64_t vocabulary, int64_t target,
                                                    Running all, float scale)
{
    T *to = reinterpret_cast<T *>(row);
    float factor = scale / all.sum;
    for (int64_t first = 0; first < vocabulary; first += PIECE) {
        float d[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int64_t v = first + k * THREADS + threadIdx.x;
            d[k] = v < vocabulary ? expf(row[v] - all.max) * factor : 0.0f;
            if (v == target) d[k] -= scale;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int64_t v = first + k * THREADS + threadIdx.x;
            if (v < vocabulary) to[v] = from_f32<T>(d[k]);
        }
    }
}

template <typename T>
static __global__ __launch_bounds__(THREADS) void head_rows_kernel(const ChunkRows a)
{
    __shared__ float room[WARP];
    __shared__ float at_target;
    int64_t n = blockIdx.x, target = a.target[n];
    float *row = a.logits + n * a.vocabulary;
    if (target == -1) {
        T *to = reinterpret_cast<T *>(row);
        for (int64_t v = threadIdx.x; v < a.vocabulary; v += THREADS) to[v] = from_f32<T>(0.0f);
        if (threadIdx.x == 0) a.loss[n] = 0;
        return;
    }
    bool known = target >= 0 && target < a.vocabulary;
    if (threadIdx.x == 0) at_target = known ? row[target] : __uint_as_float(0x7FC00000u);
    Running all = row_running(row, a.vocabulary, room); /* its barriers show at_target to all */
    if (threadIdx.x == 0) a.loss[n] = all.max - at_target + logf(all.sum);
    if (a.gradient) row_gradient<T>(row, a.vocabulary, target, all, *a.scale);
}

/* loss_sum += scale * sum of losses: one block, each thread every THREADS-th token, then the
 * threads in a tree. */
static __global__ __launch_bounds__(THREADS) void head_sum_kernel(const float *loss,
                                                                  const float *scale,
                                                                  float *loss_sum, int64_t n)
{
    __shared__ float room[WARP];
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) sum += loss[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) *loss_sum += *scale * sum;
}

static Status rows_run(struct Exec *ex, const HeadLoss *a, void *logits, int64_t first, int64_t n)
{
    ChunkRows rows;
    rows.logits = (float *)logits;
    rows.target = (const int32_t *)a->target.data + first;
    rows.scale = (const float *)a->scale.data;
    rows.loss = (float *)a->loss.data + first;
    rows.vocabulary = tensor_elems(&a->w) / tensor_cols(&a->w);
    rows.gradient = a->dx.data != NULL;
    if (a->x.dtype == DTYPE_F32)
        head_rows_kernel<float><<<(unsigned)n, THREADS, 0, exec_stream(ex)>>>(rows);
    else
        head_rows_kernel<Bf16><<<(unsigned)n, THREADS, 0, exec_stream(ex)>>>(rows);
    return kernel_status("head_loss");
}

extern "C" size_t head_loss_cuda_workspace(const struct Exec *, const void *args)
{
    return head_logits_bytes((const HeadLoss *)args) + BLAS_WORKSPACE_BYTES;
}

extern "C" Status head_loss_cuda(struct Exec *ex, const void *args)
{
    const HeadLoss *a = (const HeadLoss *)args;
    int64_t N = tensor_elems(&a->target), rows = head_chunk_rows(a);
    char *logits = (char *)exec_workspace(ex), *blas_space = logits + head_logits_bytes(a);
    for (int64_t first = 0; first < N; first += rows) {
        int64_t n = N - first < rows ? N - first : rows;
        HeadProducts p = head_products(a, logits, first, n);
        TRY(blas_run(ex, &p.logits, NULL, blas_space));
        TRY(rows_run(ex, a, logits, first, n));
        if (a->dx.data != NULL) TRY(blas_run(ex, &p.dx, NULL, blas_space));
        if (a->dw.data != NULL) TRY(blas_run(ex, &p.dw, NULL, blas_space));
    }
    head_sum_kernel<<<1, THREADS, 0, exec_stream(ex)>>>(
        (const float *)a->loss.data, (const float *)a->scale.data, (float *)a->loss_sum.data, N);
    return kernel_status("head_loss");
}
