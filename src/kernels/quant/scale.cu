/* scale: kernels that multiply each row by its factor. Both directions are bound by memory. Threads are laid out along
 * a row if rows are wide. In backward the threads of a row sum over it, in one order. */
#include "kernels/norm/rows.cuh"

extern "C" {
#include "kernels/quant/scale.h"
}

enum { EACH = 4 }; /* rows a thread fetches before it uses any */

/* As on the CPU, but with expf, so bits differ from the CPU's within the tolerance of f32. */
static __device__ __forceinline__ float factor_of(float w, bool sigmoid)
{
    return sigmoid ? 1 / (1 + expf(-w)) : w;
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS) void scale_fwd_kernel(const T *x, const float *w,
                                                                        T *y, int64_t n, int64_t d,
                                                                        bool sigmoid)
{
    constexpr int P = Packed<T, WIDE>::P;
    row_groups<EACH, P>(n, d, [&](int64_t col, int64_t row, int64_t step) {
        Packed<T, WIDE> held[EACH];
        float factor[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            clear(held[j]);
            factor[j] = 0;
            if (row + j * step >= n) continue;
            fetch_once(held[j], x + (row + j * step) * d + col);
            factor[j] = read_const(w + row + j * step);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row + j * step >= n) break;
            float v[P], s = factor_of(factor[j], sigmoid);
            widen(held[j], v);
#pragma unroll
            for (int k = 0; k < P; k++) v[k] *= s;
            store<WIDE>(y + (row + j * step) * d + col, v);
        }
    });
}

extern "C" Status scale_fwd_gpu(struct Exec *ex, const void *args)
{
    const ScaleFwd *a = (const ScaleFwd *)args;
    int64_t n = a->x.dim[0], d = tensor_row_elems(&a->x);
    if (n * d == 0) return OK;
    return launch_packed(
        ex, "scale_fwd", a->x.dtype, { a->x.data, a->y.data }, { d }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            RowGrid g = row_grid(n, d / Packed<T, wide>::P, EACH);
            scale_fwd_kernel<T, wide><<<g.grid, g.block, 0, exec_stream(ex)>>>(
                (const T *)a->x.data, (const float *)a->w.data, (T *)a->y.data, n, d, a->sigmoid);
        });
}

/* blockDim.x threads share a row. Threads without a row stay, because all must call row_sum. */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS) void scale_bwd_kernel(const T *dy, const T *x,
                                                                        const float *w, const T *r,
                                                                        T *dx, float *dw, int64_t n,
                                                                        int64_t d, bool sigmoid)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float room[BLOCK_WARPS];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    float sum = 0, s = row < n ? factor_of(read_const(w + row), sigmoid) : 0;
#pragma unroll 2
    for (int64_t col = threadIdx.x * P; row < n && col < d; col += blockDim.x * P) {
        Packed<T, WIDE> held_dy, held_x, held_r;
        float g[P], v[P], more[P];
        clear(held_r);
        fetch_once(held_dy, dy + row * d + col);
        fetch_once(held_x, x + row * d + col);
        if (r != NULL) fetch_once(held_r, r + row * d + col);
        widen(held_dy, g);
        widen(held_x, v);
        widen(held_r, more);
#pragma unroll
        for (int k = 0; k < P; k++) {
            sum += g[k] * v[k];
            more[k] += s * g[k];
        }
        store<WIDE>(dx + row * d + col, more);
    }
    sum = row_sum(sum, room);
    if (row < n && threadIdx.x == 0) dw[row] = sigmoid ? s * (1 - s) * sum : sum;
}

extern "C" Status scale_bwd_gpu(struct Exec *ex, const void *args)
{
    const ScaleBwd *a = (const ScaleBwd *)args;
    int64_t n = a->x.dim[0], d = tensor_row_elems(&a->x);
    if (n * d == 0) return OK;
    return launch_packed(
        ex, "scale_bwd", a->x.dtype, { a->dy.data, a->x.data, a->r.data, a->dx.data }, { d },
        [&](auto t, auto wide) {
            typedef decltype(t) T;
            unsigned lanes = row_lanes(d / Packed<T, wide>::P), rows = ROWS_THREADS / lanes;
            scale_bwd_kernel<T, wide><<<grid_of(n, rows), dim3(lanes, rows), 0, exec_stream(ex)>>>(
                (const T *)a->dy.data, (const T *)a->x.data, (const float *)a->w.data,
                (const T *)a->r.data, (T *)a->dx.data, (float *)a->dw.data, n, d, a->sigmoid);
        });
}
