/*
 * rmsnorm: both directions are bound by memory; sums are f32 in an order that the shape alone
 * decides.
 *
 * forward: one warp a row. A row is 16 to 220 elements a lane and is walked twice, the second time
 * out of the caches.
 *
 * backward: one block for ROW_BLOCK rows. First its warps take rows and find what mean(g x) asks
 * for; then its threads take columns and walk the rows downwards, so that a column's share of dw
 * stays in a register. Shares go to the workspace, and a second kernel adds them, again by column.
 * A block has no more warps than a row has columns for: rows may be heads, which are narrow.
 */
#include "op/pack.cuh"

#include "op/rmsnorm.h"

enum {
    WARP = 32,
    WARPS = 8,      /* of a block */
    ROW_BLOCK = 16, /* rows whose share of dw is summed apart */
};

static int64_t row_blocks(int64_t n) { return (n + ROW_BLOCK - 1) / ROW_BLOCK; }

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

/* forward   y = x rstd w,  rstd = (mean(x^2) + eps)^-1/2 */

template <typename T> struct Forward {
    const T *x; /* first column of the window */
    const float *w;
    T *y;
    float *rstd;
    Window window;
    float eps;
};

template <typename T, bool WIDE> static __global__ void rmsnorm_fwd_kernel(Forward<T> a)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y, d = a.window.d;
    if (row >= a.window.rows) return;
    const T *x = a.x + x_at(a.window, row);
    float sum = 0;
#pragma unroll 4
    for (int64_t i = (int64_t)threadIdx.x * P; i < d; i += WARP * P) {
        float v[P];
        load<WIDE>(x + i, v);
#pragma unroll
        for (int k = 0; k < P; k++) sum += v[k] * v[k];
    }
    float rstd = 1 / sqrtf(warp_sum(sum) / (float)d + a.eps);
    if (threadIdx.x == 0) a.rstd[row] = rstd;
    for (int64_t i = (int64_t)threadIdx.x * P; i < d; i += WARP * P) {
        float v[P], w[P];
        load<WIDE>(x + i, v);
        load_weight<WIDE>(a.w, i, w);
#pragma unroll
        for (int k = 0; k < P; k++) v[k] *= rstd * w[k];
        store<WIDE>(a.y + row * d + i, v);
    }
}

extern "C" Status rmsnorm_fwd_cuda(struct Exec *ex, const void *args)
{
    const RmsnormFwd *a = (const RmsnormFwd *)args;
    Window window = window_of(a->x, a->y, a->rstd);
    const void *x = tensor_at(&a->x, a->x_col), *w = a->w.data;
    void *y = a->y.data;
    return launch_packed(
        "rmsnorm_fwd", a->x.dtype, { x, w, y }, { window.d, window.width }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            Forward<T> f = {};
            f.x = (const T *)x;
            f.w = (const float *)w;
            f.y = (T *)y;
            f.rstd = (float *)a->rstd.data;
            f.window = window;
            f.eps = a->eps;
            rmsnorm_fwd_kernel<T, wide>
                <<<grid_of(window.rows, WARPS), dim3(WARP, WARPS), 0, exec_stream(ex)>>>(f);
        });
}

/* backward, g = dy w   dx = dres + rstd (g - x rstd^2 mean(g x)),  dw += sum of dy x rstd */

template <typename T> struct Backward {
    const T *dy, *x; /* x, dx: first column of the window */
    const float *w, *rstd;
    const T *dres; /* or NULL; may be dx */
    T *dx;
    float *part; /* a row of d for each block of rows; NULL: dw is not wanted */
    Window window;
};

/* rstd^3 mean(g x) of a row that begins at `at` in x, in all lanes of its warp. */
template <typename T, bool WIDE>
static __device__ __forceinline__ float row_shrink(const Backward<T> &a, int64_t row, int64_t at,
                                                   float rstd)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int64_t d = a.window.d;
    float sum = 0;
#pragma unroll 2
    for (int64_t i = (int64_t)(threadIdx.x % WARP) * P; i < d; i += WARP * P) {
        float dy[P], x[P], w[P];
        load_const<WIDE>(a.dy + row * d + i, dy);
        load_const<WIDE>(a.x + at + i, x);
        load_weight<WIDE>(a.w, i, w);
#pragma unroll
        for (int k = 0; k < P; k++) sum += w[k] * dy[k] * x[k];
    }
    return warp_sum(sum) / (float)d * rstd * rstd * rstd;
}

/* What the columns need of a row: where it begins in x, rstd, rstd^3 mean(g x). */
struct RowScale {
    int64_t at;
    float rstd, shrink;
};

/* One pack of one row; adds to dw. */
template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void row_pack(const Backward<T> &a, int64_t row, int64_t i,
                                                const float (&w)[P], const RowScale &s,
                                                float (&dw)[P])
{
    float dy[P], x[P], dres[P] = {};
    load_const<WIDE>(a.dy + row * a.window.d + i, dy);
    load_const<WIDE>(a.x + s.at + i, x);
    if (a.dres != NULL) load<WIDE>(a.dres + row * a.window.d + i, dres);
#pragma unroll
    for (int k = 0; k < P; k++) {
        dw[k] += dy[k] * x[k] * s.rstd;
        dres[k] += s.rstd * w[k] * dy[k] - s.shrink * x[k];
    }
    store<WIDE>(a.dx + s.at + i, dres);
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(WARP *WARPS) void rmsnorm_bwd_kernel(Backward<T> a)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    __shared__ RowScale scale[ROW_BLOCK];
    int64_t first = (int64_t)blockIdx.x * ROW_BLOCK, d = a.window.d;
    int rows = (int)min((int64_t)ROW_BLOCK, a.window.rows - first);
    for (int r = (int)threadIdx.x / WARP; r < rows; r += (int)blockDim.x / WARP) {
        int64_t at = x_at(a.window, first + r);
        float rstd = a.rstd[first + r], shrink = row_shrink<T, WIDE>(a, first + r, at, rstd);
        if (threadIdx.x % WARP == 0) scale[r] = RowScale{ at, rstd, shrink };
    }
    __syncthreads();
    for (int64_t i = (int64_t)threadIdx.x * P; i < d; i += (int64_t)blockDim.x * P) {
        float w[P], dw[P] = {};
        load_weight<WIDE>(a.w, i, w);
#pragma unroll 2
        for (int r = 0; r < rows; r++) row_pack<T, WIDE>(a, first + r, i, w, scale[r], dw);
        if (a.part != NULL) store<WIDE>(a.part + (int64_t)blockIdx.x * d + i, dw);
    }
}

/* As many threads as a row has packs, in whole warps. */
static unsigned threads_of(int64_t packs)
{
    return (unsigned)(packs < WARP * WARPS ? (packs + WARP - 1) / WARP * WARP : WARP * WARPS);
}

/* dw += the blocks' shares. A warp's lanes are neighbouring columns; warp k adds blocks k, k + 32,
 * and so on, then the first warp adds the warps' sums in order. */
static __global__ void rmsnorm_dw_kernel(const float *part, float *dw, int64_t blocks, int64_t d)
{
    __shared__ float sums[WARP][WARP];
    int64_t col = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float sum = 0;
    if (col < d) {
#pragma unroll 4
        for (int64_t b = threadIdx.y; b < blocks; b += WARP) sum += part[b * d + col];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= d) return;
    float total = 0;
    for (int k = 0; k < WARP; k++) total += sums[k][threadIdx.x];
    dw[col] += total;
}

extern "C" size_t rmsnorm_bwd_cuda_workspace(const struct Exec *, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    if (a->dw.data == NULL) return 0;
    Window w = window_of(a->x, a->dy, a->rstd);
    return (size_t)(row_blocks(w.rows) * w.d) * sizeof(float);
}

extern "C" Status rmsnorm_bwd_cuda(struct Exec *ex, const void *args)
{
    const RmsnormBwd *a = (const RmsnormBwd *)args;
    Window window = window_of(a->x, a->dy, a->rstd);
    const void *dy = a->dy.data, *x = tensor_at(&a->x, a->x_col), *w = a->w.data;
    const void *dres = a->dres.data;
    void *dx = tensor_at(&a->dx, a->x_col);
    float *part = a->dw.data != NULL ? (float *)exec_workspace(ex) : NULL;
    unsigned blocks = (unsigned)row_blocks(window.rows);
    if (blocks == 0) return OK;
    return launch_packed(
        "rmsnorm_bwd", a->x.dtype, { dy, x, w, dres, dx, part }, { window.d, window.width },
        [&](auto t, auto wide) {
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
            unsigned threads = threads_of(wide ? window.d / PACK<T> : window.d);
            rmsnorm_bwd_kernel<T, wide><<<blocks, threads, 0, exec_stream(ex)>>>(b);
            if (part == NULL) return;
            rmsnorm_dw_kernel<<<grid_of(window.d, WARP), dim3(WARP, WARP), 0, exec_stream(ex)>>>(
                part, (float *)a->dw.data, blocks, window.d);
        });
}
