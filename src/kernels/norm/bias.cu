/*
 * bias: kernels of y = x + b and of its gradient. Both are bound by memory.
 *
 * forward: a thread adds one pack of the bias to EACH rows. backward sums columns: a block sums
 * ROWS rows of its threads' columns and writes the sums to the workspace. A second kernel adds the
 * blocks' sums in order. ROWS does not depend on the GPU's size, so bits are the same on all GPUs.
 */
#include "kernels/norm/rows_add.cuh"

#include "kernels/norm/bias.h"

enum {
    EACH = 4,   /* rows a thread fetches before it uses any */
    ROWS = 256, /* of a block, backward */
    LANES = 32, /* threads of a block along a row, backward */
    DEEP = 8,   /* and over rows */
};

/* y = x + b */

template <typename T, bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS) void bias_fwd_kernel(const T *x, const float *b,
                                                                       T *y, int64_t n, int64_t d)
{
    constexpr int P = Packed<T, WIDE>::P;
    row_groups<EACH, P>(n, d, [&](int64_t col, int64_t row, int64_t step) {
        Packed<T, WIDE> held[EACH];
        float add[P];
        load_const<WIDE>(b + col, add);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            clear(held[j]);
            if (row + j * step < n) fetch_once(held[j], x + (row + j * step) * d + col);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row + j * step >= n) break;
            float v[P];
            widen(held[j], v);
#pragma unroll
            for (int k = 0; k < P; k++) v[k] += add[k];
            store<WIDE>(y + (row + j * step) * d + col, v);
        }
    });
}

extern "C" Status bias_fwd_gpu(struct Exec *ex, const void *args)
{
    const BiasFwd *a = (const BiasFwd *)args;
    int64_t n = a->x.dim[0], d = tensor_row_elems(&a->x);
    if (n * d == 0) return OK;
    return launch_packed(ex, "bias_fwd", a->x.dtype, { a->x.data, a->b.data, a->y.data }, { d },
                         [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             RowGrid g = row_grid(n, d / Packed<T, wide>::P, EACH);
                             bias_fwd_kernel<T, wide><<<g.grid, g.block, 0, exec_stream(ex)>>>(
                                 (const T *)a->x.data, (const float *)a->b.data, (T *)a->y.data, n,
                                 d);
                         });
}

/* db += sum of dy */

/* The sums of ROWS rows: part (blocks, d). */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(LANES *DEEP) void bias_bwd_kernel(const T *dy, float *part,
                                                                      int64_t n, int64_t d)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ float sums[DEEP][LANES * P];
    int64_t col = ((int64_t)blockIdx.x * LANES + threadIdx.x) * P;
    int64_t first = (int64_t)blockIdx.y * ROWS, end = min(first + ROWS, n);
    float sum[P] = {};
    for (int64_t row = first + threadIdx.y; row < end && col < d; row += DEEP * EACH) {
        Packed<T, WIDE> held[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            clear(held[j]);
            if (row + j * DEEP < end) fetch(held[j], dy + (row + j * DEEP) * d + col);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) add_pack(held[j], sum);
    }
#pragma unroll
    for (int k = 0; k < P; k++) sums[threadIdx.y][threadIdx.x * P + k] = sum[k];
    __syncthreads();
    int64_t left = (int64_t)blockIdx.x * LANES * P;
    for (int c = threadIdx.y * LANES + threadIdx.x; c < LANES * P && left + c < d;
         c += LANES * DEEP) {
        float total = 0;
        for (int y = 0; y < DEEP; y++) total += sums[y][c];
        part[blockIdx.y * d + left + c] = total;
    }
}

static int64_t blocks_of(const BiasBwd *a) { return grid_of(a->dy.dim[0], ROWS); }

extern "C" size_t bias_bwd_gpu_workspace(const struct Exec *, const void *args)
{
    const BiasBwd *a = (const BiasBwd *)args;
    return (size_t)(blocks_of(a) * tensor_row_elems(&a->dy)) * sizeof(float);
}

extern "C" Status bias_bwd_gpu(struct Exec *ex, const void *args)
{
    const BiasBwd *a = (const BiasBwd *)args;
    int64_t n = a->dy.dim[0], d = tensor_row_elems(&a->dy), blocks = blocks_of(a);
    float *part = (float *)exec_workspace(ex);
    if (n * d == 0) return OK;
    TRY(launch_packed(ex, "bias_bwd", a->dy.dtype, { a->dy.data }, { d }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        dim3 grid(grid_of(d, LANES * Packed<T, wide>::P), (unsigned)blocks);
        bias_bwd_kernel<T, wide>
            <<<grid, dim3(LANES, DEEP), 0, exec_stream(ex)>>>((const T *)a->dy.data, part, n, d);
    }));
    rows_add_kernel<<<grid_of(d, ADD_SIDE), dim3(ADD_SIDE, ADD_SIDE), 0, exec_stream(ex)>>>(
        part, (float *)a->db.data, blocks, d);
    return kernel_status("bias_bwd");
}
