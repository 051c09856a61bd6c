/*
 * rmsnorm: both directions are bound by memory: every row is read from it once and kept, as it came,
 * in registers between the sum over it and the use of that sum. Sums are f32 in an order that the
 * shape alone decides.
 *
 * forward: a row has 8 to 256 threads, each 8 packs of it (2 where the row is short), so that
 * 2048 columns of bf16 are one warp's, without a barrier, and 7168 four warps'. A multiprocessor
 * holds 1024 threads of 128 bytes.
 *
 * backward: a block takes every `grid`-th row, or few rows at a time where they are short. A thread
 * keeps to its columns, so a column's share of dw stays in a register for all rows of the block;
 * threads of one column join in shared memory, and a block's shares go to the workspace. A second
 * kernel adds them up. How many blocks there are is a constant, not the GPU's size, for the bits'
 * sake: a multiple of the 132 multiprocessors of an H200, all of them resident.
 *
 * A row too wide for its threads' registers (16384 columns forward, 8192 backward, in bf16) is
 * walked in spans and read twice, its dw kept in the workspace: correct, and slower.
 */
#include "op/rows.cuh"

#include "op/rmsnorm.h"

enum {
    FEW = 2,      /* packs of a row that a thread holds, forward: of a short row */
    MANY = 8,     /* of others */
    WIDE_ROW = 4, /* the same, backward, of a row of more than ROWS_THREADS packs */
    BLOCKS = 528, /* backward: 4 for each multiprocessor, half as many for wide rows */
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

/* What a thread holds of a row, or of a span of it. */
template <typename T, bool WIDE, int V> struct Terms {
    Packed<T, WIDE> dy[V], x[V], dres[V];
};

/* A row of the window; `at`: where it begins in x and dx. end 0: there is none, the thread only
 * takes part in sums. */
struct Row {
    int64_t row, at, end;
};

template <typename T, bool WIDE, int V>
static __device__ __forceinline__ void terms_fetch(const Backward<T> &a, const Row &r,
                                                   int64_t first, Terms<T, WIDE, V> &t)
{
    span_fetch(t.dy, a.dy + r.row * a.window.d, first, r.end);
    span_fetch(t.x, a.x + r.at, first, r.end);
    span_fetch(t.dres, a.dres + r.row * a.window.d, first, a.dres == NULL ? 0 : r.end);
}

/* This thread's part of sum of g x. */
template <typename T, bool WIDE, int V>
static __device__ __forceinline__ float terms_sum(const Backward<T> &a, int64_t first, int64_t end,
                                                  const Terms<T, WIDE, V> &t)
{
    constexpr int P = Packed<T, WIDE>::P;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int64_t col = first + (int64_t)(k * blockDim.x + threadIdx.x) * P;
        if (col >= end) break;
        float dy[P], x[P], w[P];
        widen(t.dy[k], dy);
        widen(t.x[k], x);
        load_weight<WIDE>(a.w, col, w);
#pragma unroll
        for (int p = 0; p < P; p++) sum += w[p] * dy[p] * x[p];
    }
    return sum;
}

/* dx of the span; adds to dw. shrink: rstd^3 mean(g x). */
template <typename T, bool WIDE, int V, int P>
static __device__ __forceinline__ void terms_finish(const Backward<T> &a, const Row &r,
                                                    int64_t first, const Terms<T, WIDE, V> &t,
                                                    float rstd, float shrink, float (&dw)[V][P])
{
#pragma unroll
    for (int k = 0; k < V; k++) {
        int64_t col = first + (int64_t)(k * blockDim.x + threadIdx.x) * P;
        if (col >= r.end) break;
        float dy[P], x[P], dx[P], w[P];
        widen(t.dy[k], dy);
        widen(t.x[k], x);
        widen(t.dres[k], dx);
        load_weight<WIDE>(a.w, col, w);
#pragma unroll
        for (int p = 0; p < P; p++) {
            dw[k][p] += dy[p] * x[p] * rstd;
            dx[p] += rstd * w[p] * dy[p] - shrink * x[p];
        }
        store<WIDE>(a.dx + r.at + col, dx);
    }
}

/* Shares of dw to or from the block's row of the workspace. */
template <bool LOAD, bool WIDE, int V, int P>
static __device__ __forceinline__ void shares_move(float *part, int64_t first, int64_t d,
                                                   float (&dw)[V][P])
{
    if (part == NULL) return;
#pragma unroll
    for (int k = 0; k < V; k++) {
        int64_t col = first + (int64_t)(k * blockDim.x + threadIdx.x) * P;
        if (col >= d) break;
        if (LOAD)
            load<WIDE>(part + col, dw[k]);
        else
            store<WIDE>(part + col, dw[k]);
    }
}

/* Adds the shares of a column's threads, from the top, to the first one's. */
template <int P>
static __device__ __forceinline__ void shares_join(float (*shares)[P], float (&dw)[P])
{
    int lane = (int)threadIdx.x, lanes = (int)blockDim.x;
#pragma unroll
    for (int p = 0; p < P; p++) shares[(int)threadIdx.y * lanes + lane][p] = dw[p];
    __syncthreads();
    for (int y = 1; y < (int)blockDim.y; y++) {
#pragma unroll
        for (int p = 0; p < P; p++) dw[p] += shares[y * lanes + lane][p];
    }
}

/* V 1: rows of up to ROWS_THREADS packs, several of them at a time where they are short. */
template <typename T, bool WIDE, int V>
static __global__ __launch_bounds__(ROWS_THREADS,
                                    V == 1 ? 4 : 2) void rmsnorm_bwd_kernel(Backward<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float room[2][ROWS_WARP];
    int64_t d = a.window.d, span = (int64_t)blockDim.x * V * P;
    float *part = a.part == NULL ? NULL : a.part + blockIdx.x * d, dw[V][P] = {};
    int64_t step = (int64_t)gridDim.x * blockDim.y, top = (int64_t)blockIdx.x * blockDim.y;
    for (int64_t first = 0; span < d && first < d; first += span) {
        shares_move<false, WIDE>(part, first, d, dw); /* zeros */
    }
    for (int turn = 0; top < a.window.rows; top += step, turn ^= 1) {
        Row r = { top + threadIdx.y, 0, 0 };
        if (r.row < a.window.rows) r = Row{ r.row, x_at(a.window, r.row), d };
        Terms<T, WIDE, V> t;
        float rstd = r.end > 0 ? a.rstd[r.row] : 0, sum = 0;
        for (int64_t first = 0; first < d; first += span) {
            terms_fetch(a, r, first, t);
            sum += terms_sum(a, first, r.end, t);
        }
        float shrink = row_sum(sum, room[turn]) / (float)d * rstd * rstd * rstd;
        for (int64_t first = 0; first < d; first += span) {
            if (span < d) {
                terms_fetch(a, r, first, t);
                shares_move<true, WIDE>(part, first, d, dw);
            }
            terms_finish(a, r, first, t, rstd, shrink, dw);
            if (span < d) shares_move<false, WIDE>(part, first, d, dw);
        }
    }
    if (span < d || part == NULL) return;
    if constexpr (V == 1) {
        __shared__ float shares[ROWS_THREADS][P];
        if (blockDim.y > 1) shares_join(shares, dw[0]);
        if (threadIdx.y > 0) return;
    }
    shares_move<false, WIDE>(part, 0, d, dw);
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
static int64_t most_blocks(int64_t rows) { return rows < BLOCKS ? rows : (int64_t)BLOCKS; }

extern "C" size_t rmsnorm_bwd_cuda_workspace(const struct Exec *, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    if (a->dw.data == NULL) return 0;
    Window w = window_of(a->x, a->dy, a->rstd);
    return (size_t)(most_blocks(w.rows) * w.d) * sizeof(float);
}

/* Returns how many blocks there are. */
template <typename T, bool WIDE>
static unsigned backward_launch(cudaStream_t stream, const Backward<T> &b)
{
    int64_t packs = b.window.d / Packed<T, WIDE>::P, rows = b.window.rows;
    if (packs <= ROWS_THREADS) {
        dim3 block(lanes_for(packs));
        block.y = ROWS_THREADS / block.x;
        unsigned grid = (unsigned)most_blocks(grid_of(rows, block.y));
        rmsnorm_bwd_kernel<T, WIDE, 1><<<grid, block, 0, stream>>>(b);
        return grid;
    }
    int64_t lanes = (int64_t)grid_of(packs, WIDE_ROW * ROWS_WARP) * ROWS_WARP;
    if (lanes > ROWS_THREADS) lanes = ROWS_THREADS;
    unsigned grid = (unsigned)(rows < BLOCKS / 2 ? rows : (int64_t)BLOCKS / 2);
    rmsnorm_bwd_kernel<T, WIDE, WIDE_ROW><<<grid, (unsigned)lanes, 0, stream>>>(b);
    return grid;
}

extern "C" Status rmsnorm_bwd_cuda(struct Exec *ex, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    Window window = window_of(a->x, a->dy, a->rstd);
    const void *dy = a->dy.data, *x = tensor_at(&a->x, a->x_col), *w = a->w.data;
    const void *dres = a->dres.data;
    void *dx = tensor_at(&a->dx, a->x_col);
    float *part = a->dw.data != NULL ? (float *)exec_workspace(ex) : NULL;
    if (window.rows == 0) return OK;
    return launch_packed(ex, "rmsnorm_bwd", a->x.dtype, { dy, x, w, dres, dx, part },
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
                             unsigned blocks = backward_launch<T, wide>(exec_stream(ex), b);
                             if (part == NULL) return;
                             rmsnorm_dw_kernel<<<grid_of(window.d, ROWS_WARP),
                                                 dim3(ROWS_WARP, ROWS_WARP), 0, exec_stream(ex)>>>(
                                 part, (float *)a->dw.data, blocks, window.d);
                         });
}
