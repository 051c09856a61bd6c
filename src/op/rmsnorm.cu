/*
 * rmsnorm: both directions are bound by memory: every row is read from it once and kept, as it came,
 * in registers between the sum over it and the use of that sum. Sums are f32 in an order that the
 * shape alone decides.
 *
 * forward: a row has 8 to 256 threads, each 8 packs of it (2 where the row is short), so that
 * 2048 columns of bf16 are one warp's, without a barrier, and 7168 four warps'. A multiprocessor
 * holds 1024 threads of 128 bytes.
 *
 * backward: a thread has one pack of a row and keeps to its columns, so their weights and their
 * shares of dw stay in registers for all rows of the block. What it needs of its next AHEAD rows is on
 * its way to a place in shared memory that it alone reads: so loads never pause, though each row
 * waits for a sum over its threads. Rows of a block wait for their own threads alone. Threads of one
 * column join in shared memory, and a block's shares go to the workspace. A second kernel adds them
 * up. How many blocks there are is a constant, not the GPU's size, for the bits' sake: one for each
 * of the 132 multiprocessors of an H200.
 *
 * A row too wide for its threads (16384 columns forward, 8192 backward, in bf16) is walked in spans
 * and read twice, its dw kept in the workspace. So backward, by smaller blocks, is a row that is not
 * aligned. Both are correct, and slower.
 */
#include "op/rows.cuh"

#include "op/rmsnorm.h"

enum {
    FEW = 2,             /* packs of a row that a thread holds, forward: of a short row */
    MANY = 8,            /* of others */
    AHEAD = 3,           /* backward: rows on their way for each thread */
    PACK_THREADS = 1024, /* of a block, and the most packs of a row */
    PACK_BLOCKS = 132,   /* one for each multiprocessor */
    SPAN_BLOCKS = 528,   /* backward, of rows in spans: 4 for each */
};

/* Where the rows of a window of x lie: row i is head i % heads of token i / heads. */
struct Window {
    int64_t rows, heads, d;
    int64_t width; /* from token to token */
};

static __device__ __forceinline__ int64_t x_at(const Window &w, int64_t row)
{
    return w.heads == 1 ? row * w.width : row / w.heads * w.width + row % w.heads * w.d;
}

static Window window_of(const Tensor &x, const Tensor &y, const Tensor &rstd)
{
    int64_t heads = tensor_row_elems(&rstd);
    return Window{ x.dim[0] * heads, heads, tensor_row_elems(&y) / heads, tensor_row_elems(&x) };
}

/* w NULL: ones. */
template <bool WIDE, int P>
static __device__ __forceinline__ void load_weight(const float *w, int64_t i, float (&out)[P])
{
    if (w != NULL) {
        load_const<WIDE>(w + i, out);
        return;
    }
#pragma unroll
    for (int k = 0; k < P; k++) out[k] = 1;
}

/* Packs of a row that a thread holds: first, first + lanes, and so on, in columns. */
template <typename T, bool WIDE, int V>
static __device__ __forceinline__ void span_fetch(Packed<T, WIDE> (&v)[V], const T *row,
                                                  int64_t first, int64_t end)
{
    constexpr int P = Packed<T, WIDE>::P;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int64_t col = first + (int64_t)(k * blockDim.x + threadIdx.x) * P;
        clear(v[k]);
        if (col < end) fetch_once(v[k], row + col);
    }
}

/* forward   y = x rstd w,  rstd = (mean(x^2) + eps)^-1/2 */

template <typename T> struct Forward {
    const T *x; /* first column of the window */
    const float *w;
    T *y;
    float *rstd;
    Window window;
    float eps;
};

template <typename T, bool WIDE, int V>
static __global__ __launch_bounds__(ROWS_THREADS, 4) void rmsnorm_fwd_kernel(Forward<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float room[ROWS_WARP];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, d = a.window.d;
    int64_t end = row < a.window.rows ? d : 0, span = (int64_t)blockDim.x * V * P;
    const T *x = a.x + x_at(a.window, row);
    Packed<T, WIDE> held[V];
    float sum = 0;
    for (int64_t first = 0; first < d; first += span) {
        span_fetch(held, x, first, end);
#pragma unroll
        for (int k = 0; k < V; k++) {
            float v[P];
            widen(held[k], v);
#pragma unroll
            for (int p = 0; p < P; p++) sum += v[p] * v[p];
        }
    }
    float rstd = 1 / sqrtf(row_sum(sum, room) / (float)d + a.eps);
    if (end > 0 && threadIdx.x == 0) a.rstd[row] = rstd;
    for (int64_t first = 0; first < end; first += span) {
        if (span < d) span_fetch(held, x, first, end);
#pragma unroll
        for (int k = 0; k < V; k++) {
            int64_t col = first + (int64_t)(k * blockDim.x + threadIdx.x) * P;
            if (col >= end) break;
            float v[P], w[P];
            widen(held[k], v);
            load_weight<WIDE>(a.w, col, w);
#pragma unroll
            for (int p = 0; p < P; p++) v[p] *= rstd * w[p];
            store<WIDE>(a.y + row * d + col, v);
        }
    }
}

/* The least power of two from 8 to ROWS_THREADS that n does not exceed; ROWS_THREADS for more. */
static unsigned lanes_for(int64_t n)
{
    unsigned lanes = 8;
    while (lanes < ROWS_THREADS && lanes < n) lanes *= 2;
    return lanes;
}

template <typename T, bool WIDE>
static void forward_launch(cudaStream_t stream, const Forward<T> &f)
{
    int64_t packs = f.window.d / Packed<T, WIDE>::P;
    bool narrow = packs < 8 * MANY; /* 8 lanes of a row read a line of 128 bytes */
    unsigned lanes = lanes_for(grid_of(packs, narrow ? FEW : MANY));
    dim3 block(lanes, ROWS_THREADS / lanes);
    unsigned grid = grid_of(f.window.rows, block.y);
    if (narrow)
        rmsnorm_fwd_kernel<T, WIDE, FEW><<<grid, block, 0, stream>>>(f);
    else
        rmsnorm_fwd_kernel<T, WIDE, MANY><<<grid, block, 0, stream>>>(f);
}

extern "C" Status rmsnorm_fwd_cuda(struct Exec *ex, const void *args)
{
    const RmsnormFwd *a = (const RmsnormFwd *)args;
    Window window = window_of(a->x, a->y, a->rstd);
    const void *x = tensor_at(&a->x, a->x_col), *w = a->w.data;
    void *y = a->y.data;
    return launch_packed(ex, "rmsnorm_fwd", a->x.dtype, { x, w, y }, { window.d, window.width },
                         [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             Forward<T> f = {};
                             f.x = (const T *)x;
                             f.w = (const float *)w;
                             f.y = (T *)y;
                             f.rstd = (float *)a->rstd.data;
                             f.window = window;
                             f.eps = a->eps;
                             forward_launch<T, wide>(exec_stream(ex), f);
                         });
}

/* backward, g = dy w   dx = dres + rstd (g - x rstd^2 mean(g x)),  dw += sum of dy x rstd */

template <typename T> struct Backward {
    const T *dy, *x; /* x, dx: first column of the window */
    const float *w, *rstd;
    const T *dres; /* or NULL; may be dx */
    T *dx;
    float *part; /* a row of d for each block; NULL: dw is not wanted */
    Window window;
};

/* Adds the shares of a column's threads, from the top, to the first one's. `shares`: P floats a
 * thread of the block. */
template <int P> static __device__ __forceinline__ void shares_join(float *shares, float (&dw)[P])
{
    int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
    for (int p = 0; p < P; p++) shares[thread * P + p] = dw[p];
    __syncthreads();
    for (int y = 1; threadIdx.y == 0 && y < (int)blockDim.y; y++) {
#pragma unroll
        for (int p = 0; p < P; p++) dw[p] += shares[(y * (int)blockDim.x + thread) * P + p];
    }
}

/* Backward of rows of up to PACK_THREADS packs. */

/* What a thread asked for of AHEAD rows: dy, x and dres side by side, one thread behind the other,
 * then a rstd for each. */
template <typename T> struct Queue {
    Packed<T, true> *packs;
    float *rstd;
    int terms, threads; /* 3 with dres, else 2 */

    static size_t bytes(int terms, int threads)
    {
        return (size_t)AHEAD * threads * (terms * sizeof(Packed<T, true>) + sizeof(float));
    }

    __device__ __forceinline__ Packed<T, true> *at(int place, int term) const
    {
        return packs + (place * terms + term) * threads;
    }
};

/* Asks for this thread's pack of a row, zeros where there is none. A group of copies either way. */
template <typename T>
static __device__ __forceinline__ void queue_fill(const Backward<T> &a, const Queue<T> &q,
                                                  int place, int64_t row, int64_t col)
{
    bool known = row < a.window.rows, inside = known && col < a.window.d;
    int64_t at = inside ? row * a.window.d + col : 0;
    int64_t x_first = inside ? x_at(a.window, row) + col : 0;
    copy_chunk(shared_address(q.at(place, 0)), a.dy + at, inside);
    copy_chunk(shared_address(q.at(place, 1)), a.x + x_first, inside);
    if (q.terms > 2) copy_chunk(shared_address(q.at(place, 2)), a.dres + at, inside);
    copy_word(shared_address(q.rstd + place * q.threads), a.rstd + (known ? row : 0), known);
    copies_close();
}

template <typename T>
static __global__ __launch_bounds__(PACK_THREADS, 1) void rmsnorm_bwd_kernel(Backward<T> a)
{
    constexpr int P = PACK<T>;
    extern __shared__ uint4 pack_room[];
    __shared__ float room[2][ROWS_WARP];
    int terms = a.dres == NULL ? 2 : 3, threads = (int)(blockDim.x * blockDim.y);
    int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), place = 0;
    Packed<T, true> *packs = (Packed<T, true> *)pack_room;
    Queue<T> q = { packs + thread, (float *)(packs + AHEAD * terms * threads) + thread, terms,
                   threads };
    int64_t d = a.window.d, col = (int64_t)threadIdx.x * P, step = (int64_t)gridDim.x * blockDim.y;
    int64_t top = (int64_t)blockIdx.x * blockDim.y, row = top + threadIdx.y;
    float w[P] = {}, dw[P] = {};
    for (int k = 0; k < AHEAD; k++) queue_fill(a, q, k, row + k * step, col);
    if (col < d) load_weight<true>(a.w, col, w);
    for (int turn = 0; top < a.window.rows; top += step, row += step, turn ^= 1) {
        copies_wait<AHEAD - 1>();
        float dy[P], x[P], dx[P] = {}, sum = 0, rstd = q.rstd[place * threads];
        widen(*q.at(place, 0), dy);
        widen(*q.at(place, 1), x);
        if (terms > 2) widen(*q.at(place, 2), dx);
        queue_fill(a, q, place, row + AHEAD * step, col);
        place = place + 1 < AHEAD ? place + 1 : 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            float both = dy[p] * x[p];
            sum += w[p] * both;
            dw[p] += both * rstd;
        }
        float shrink = row_sum<true>(sum, room[turn]) / (float)d * rstd * rstd * rstd;
        if (row >= a.window.rows || col >= d) continue;
#pragma unroll
        for (int p = 0; p < P; p++) dx[p] += rstd * w[p] * dy[p] - shrink * x[p];
        store<true>(a.dx + x_at(a.window, row) + col, dx);
    }
    if (a.part == NULL) return;
    copies_wait<0>();
    __syncthreads(); /* nothing is on its way to where shares are joined */
    shares_join((float *)pack_room, dw);
    if (threadIdx.y == 0 && col < d) store<true>(a.part + blockIdx.x * d + col, dw);
}

/* Backward of other rows, in spans of a pack a thread, several rows at a time where they are short. */

template <typename T, bool WIDE> struct Terms {
    Packed<T, WIDE> dy[1], x[1], dres[1];
};

/* A row of the window; `at`: where it begins in x and dx. end 0: there is none, the thread only
 * takes part in sums. */
struct Row {
    int64_t row, at, end;
};

template <typename T, bool WIDE>
static __device__ __forceinline__ void terms_fetch(const Backward<T> &a, const Row &r,
                                                   int64_t first, Terms<T, WIDE> &t)
{
    span_fetch(t.dy, a.dy + r.row * a.window.d, first, r.end);
    span_fetch(t.x, a.x + r.at, first, r.end);
    span_fetch(t.dres, a.dres + r.row * a.window.d, first, a.dres == NULL ? 0 : r.end);
}

/* This thread's part of sum of g x. */
template <typename T, bool WIDE>
static __device__ __forceinline__ float terms_sum(const Backward<T> &a, int64_t col, int64_t end,
                                                  const Terms<T, WIDE> &t)
{
    constexpr int P = Packed<T, WIDE>::P;
    float sum = 0, dy[P], x[P], w[P];
    if (col >= end) return 0;
    widen(t.dy[0], dy);
    widen(t.x[0], x);
    load_weight<WIDE>(a.w, col, w);
#pragma unroll
    for (int p = 0; p < P; p++) sum += w[p] * dy[p] * x[p];
    return sum;
}

/* dx of the span; adds to dw. shrink: rstd^3 mean(g x). */
template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void terms_finish(const Backward<T> &a, const Row &r, int64_t col,
                                                    const Terms<T, WIDE> &t, float rstd,
                                                    float shrink, float (&dw)[P])
{
    float dy[P], x[P], dx[P], w[P];
    if (col >= r.end) return;
    widen(t.dy[0], dy);
    widen(t.x[0], x);
    widen(t.dres[0], dx);
    load_weight<WIDE>(a.w, col, w);
#pragma unroll
    for (int p = 0; p < P; p++) {
        dw[p] += dy[p] * x[p] * rstd;
        dx[p] += rstd * w[p] * dy[p] - shrink * x[p];
    }
    store<WIDE>(a.dx + r.at + col, dx);
}

/* Shares of dw to or from the block's row of the workspace. */
template <bool LOAD, bool WIDE, int P>
static __device__ __forceinline__ void shares_move(float *part, int64_t col, int64_t d,
                                                   float (&dw)[P])
{
    if (part == NULL || col >= d) return;
    if (LOAD)
        load<WIDE>(part + col, dw);
    else
        store<WIDE>(part + col, dw);
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS, 4) void rmsnorm_bwd_span_kernel(Backward<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float room[2][ROWS_WARP], shares[ROWS_THREADS * P];
    int64_t d = a.window.d, span = (int64_t)blockDim.x * P, mine = (int64_t)threadIdx.x * P;
    float *part = a.part == NULL ? NULL : a.part + blockIdx.x * d, dw[P] = {};
    int64_t step = (int64_t)gridDim.x * blockDim.y, top = (int64_t)blockIdx.x * blockDim.y;
    for (int64_t first = 0; span < d && first < d; first += span) {
        shares_move<false, WIDE>(part, first + mine, d, dw); /* zeros */
    }
    for (int turn = 0; top < a.window.rows; top += step, turn ^= 1) {
        Row r = { top + threadIdx.y, 0, 0 };
        if (r.row < a.window.rows) r = Row{ r.row, x_at(a.window, r.row), d };
        Terms<T, WIDE> t;
        float rstd = r.end > 0 ? a.rstd[r.row] : 0, sum = 0;
        for (int64_t first = 0; first < d; first += span) {
            terms_fetch(a, r, first, t);
            sum += terms_sum(a, first + mine, r.end, t);
        }
        float shrink = row_sum(sum, room[turn]) / (float)d * rstd * rstd * rstd;
        for (int64_t first = 0; first < d; first += span) {
            if (span < d) {
                terms_fetch(a, r, first, t);
                shares_move<true, WIDE>(part, first + mine, d, dw);
            }
            terms_finish(a, r, first + mine, t, rstd, shrink, dw);
            if (span < d) shares_move<false, WIDE>(part, first + mine, d, dw);
        }
    }
    if (span < d || part == NULL) return;
    shares_join(shares, dw);
    if (threadIdx.y == 0) shares_move<false, WIDE>(part, mine, d, dw);
}

/* dw += the blocks' shares. A warp's lanes are neighbouring columns; warp k adds blocks k, k + 32,
 * and so on, then the first warp adds the warps' sums in order. */
static __global__ void rmsnorm_dw_kernel(const float *part, float *dw, int64_t blocks, int64_t d)
{
    __shared__ float sums[ROWS_WARP][ROWS_WARP];
    int64_t col = (int64_t)blockIdx.x * ROWS_WARP + threadIdx.x;
    float sum = 0;
    if (col < d) {
#pragma unroll 8
        for (int64_t b = threadIdx.y; b < blocks; b += ROWS_WARP) sum += __ldg(part + b * d + col);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= d) return;
    float total = 0;
    for (int k = 0; k < ROWS_WARP; k++) total += sums[k][threadIdx.x];
    dw[col] += total;
}

/* At least as many as the launch makes, whatever the alignment. */
static int64_t most_blocks(int64_t rows)
{
    return rows < SPAN_BLOCKS ? rows : (int64_t)SPAN_BLOCKS;
}

extern "C" size_t rmsnorm_bwd_cuda_workspace(const struct Exec *, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    if (a->dw.data == NULL) return 0;
    Window w = window_of(a->x, a->dy, a->rstd);
    return (size_t)(most_blocks(w.rows) * w.d) * sizeof(float);
}

/* Sets how many blocks there are. */
template <typename T>
static Status packs_launch(cudaStream_t stream, const Backward<T> &b, unsigned *blocks)
{
    int64_t packs = b.window.d / PACK<T>;
    dim3 block(packs <= ROWS_WARP ? lanes_for(packs) : grid_of(packs, ROWS_WARP) * ROWS_WARP);
    block.y = PACK_THREADS / block.x;
    if (block.x > ROWS_WARP && block.y > 15) block.y = 15; /* as row_sum wants it */
    *blocks = grid_of(b.window.rows, block.y);
    if (*blocks > PACK_BLOCKS) *blocks = PACK_BLOCKS;
    size_t bytes = Queue<T>::bytes(b.dres == NULL ? 2 : 3, (int)(block.x * block.y));
    TRY(cuda_status(cudaFuncSetAttribute((const void *)rmsnorm_bwd_kernel<T>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                    "rmsnorm_bwd"));
    rmsnorm_bwd_kernel<T><<<*blocks, block, bytes, stream>>>(b);
    return OK;
}

template <typename T, bool WIDE>
static Status backward_launch(cudaStream_t stream, const Backward<T> &b, unsigned *blocks)
{
    int64_t packs = b.window.d / Packed<T, WIDE>::P;
    if constexpr (WIDE) {
        if (packs <= PACK_THREADS) return packs_launch(stream, b, blocks);
    }
    dim3 block(lanes_for(packs));
    block.y = ROWS_THREADS / block.x;
    *blocks = (unsigned)most_blocks(grid_of(b.window.rows, block.y));
    rmsnorm_bwd_span_kernel<T, WIDE><<<*blocks, block, 0, stream>>>(b);
    return OK;
}

extern "C" Status rmsnorm_bwd_cuda(struct Exec *ex, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    Window window = window_of(a->x, a->dy, a->rstd);
    const void *dy = a->dy.data, *x = tensor_at(&a->x, a->x_col), *w = a->w.data;
    const void *dres = a->dres.data;
    void *dx = tensor_at(&a->dx, a->x_col);
    float *part = a->dw.data != NULL ? (float *)exec_workspace(ex) : NULL;
    Status launched = OK;
    unsigned blocks = 0;
    if (window.rows == 0) return OK;
    Status s = launch_packed(ex, "rmsnorm_bwd", a->x.dtype, { dy, x, w, dres, dx, part },
                             { window.d, window.width }, [&](auto t, auto wide) {
                                 typedef decltype(t) T;
                                 Backward<T> b = {};
                                 b.dy = (const T *)dy;
                                 b.x = (const T *)x;
                                 b.w = (const float *)w;
                                 b.dres = (const T *)dres;
                                 b.rstd = (const float *)a->rstd.data;
                                 b.dx = (T *)dx;
                                 b.part = part;
                                 b.window = window;
                                 launched = backward_launch<T, wide>(exec_stream(ex), b, &blocks);
                             });
    TRY(launched);
    TRY(s);
    if (part == NULL) return OK;
    rmsnorm_dw_kernel<<<grid_of(window.d, ROWS_WARP), dim3(ROWS_WARP, ROWS_WARP), 0,
                        exec_stream(ex)>>>(part, (float *)a->dw.data, blocks, window.d);
    return kernel_status("rmsnorm_bwd");
}
