/*
 * quant: kernels that make 8-bit operands and convert them back. As on the CPU, all four kinds of
 * scales are one case: blocks of height x width elements with a scale each. A warp handles 128
 * columns of a row. The largest magnitude of a block is found with atomic maxima of integers:
 * magnitudes have the order of their bits, and a maximum is the same in any order. Then scales are
 * computed, then the 8-bit numbers. Bound by memory: x is read twice.
 *
 * Bytes and scales are those of the CPU, NaNs included. The device cannot report an infinity: the
 * scale of its block and all bytes of the block become NaN.
 */
#include "op/dtype.cuh"

extern "C" {
#include "op/quant.h"
}

#include <cfloat>

enum {
    WARPS = 8,           /* rows of a block */
    PIECE = 128,         /* columns that a warp takes: as wide as a block of the scales */
    EACH = PIECE / WARP, /* elements of a lane */
    THREADS = 256,
    GRID_Y_MAX = 65535,
};

static_assert(EACH * WARP == PIECE,
              "a block of the scales is one warp's: it finds the largest alone");

static const uint32_t INFINITE = 0x7F800000u, NOT_A_NUMBER = 0x7FC00000u;

/* The matrix and its scales. */
typedef struct Blocks {
    int64_t n, d, height; /* height: rows of a block */
    int64_t rows, cols;   /* of the scales; a block is one PIECE wide, or as wide as the matrix */
    bool narrow;          /* the former */
    bool wide;            /* rows may be read in packs */
} Blocks;

static Blocks blocks_of(const Operand *q, const void *x)
{
    OperandGrid g = operand_grid_of(q);
    Blocks b = { g.n, g.d, g.height, g.rows, g.cols, g.cols > 1, false };
    b.wide = b.d % EACH == 0 && packs_fit<float>({ x, q->data.data }, {});
    return b;
}

/* x: blocks of WARPS rows. y: more than one if there are too few rows to keep the device busy. */
static dim3 grid_over(const Blocks &b)
{
    int64_t pieces = (b.d + PIECE - 1) / PIECE, strips = 1 + 65536 / (b.n > 0 ? b.n : 1);
    strips = strips < pieces ? strips : pieces;
    strips = strips < GRID_Y_MAX ? strips : (int64_t)GRID_Y_MAX;
    return dim3(grid_of(b.n, WARPS), strips > 0 ? (unsigned)strips : 1);
}

/* The first column of a lane's elements of a piece. scale_of: the index of their scale. */
static __device__ __forceinline__ int64_t first_column(int64_t piece)
{
    return piece * PIECE + threadIdx.x * EACH;
}

static __device__ __forceinline__ int64_t scale_of(const Blocks &b, int64_t row, int64_t piece)
{
    return row / b.height * b.cols + (b.narrow ? piece : 0);
}

/* EACH elements of format F from column `col` on, 0 after the row's end. */
template <typename F>
static __device__ __forceinline__ void row_load(const Blocks &b, const void *t, int64_t row,
                                                int64_t col, float (&v)[EACH])
{
    if (b.wide && col < b.d) {
        codes_load<F, true>(t, row * b.d + col, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        float one[1] = { 0 };
        if (col + k < b.d) codes_load<F, false>(t, row * b.d + col + k, one);
        v[k] = one[0];
    }
}

template <typename F>
static __device__ __forceinline__ void row_store(const Blocks &b, void *t, int64_t row, int64_t col,
                                                 const float (&v)[EACH])
{
    if (b.wide && col < b.d) {
        codes_store<F, true>(t, row * b.d + col, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        float one[1] = { v[k] };
        if (col + k < b.d) codes_store<F, false>(t, row * b.d + col + k, one);
    }
}

/* Raises *amax to the largest value of the warp. *amax only grows, so a plain read first saves most
 * of the atomics. */
static __device__ __forceinline__ void amax_raise(uint32_t *amax, uint32_t most)
{
    most = lanes_max(most);
    if (threadIdx.x == 0 && most > *(volatile uint32_t *)amax) atomicMax(amax, most);
}

template <typename A>
static __global__ void quantize_amax_kernel(Blocks b, const void *x, uint32_t *amax)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y, pieces = (b.d + PIECE - 1) / PIECE;
    uint32_t most = 0;
    if (row >= b.n) return;
    for (int64_t piece = blockIdx.y; piece < pieces; piece += gridDim.y) {
        float v[EACH];
        row_load<A>(b, x, row, first_column(piece), v);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            uint32_t bits = __float_as_uint(v[k]) & 0x7FFFFFFFu;
            most = max(most, bits > INFINITE ? 0 : bits); /* a NaN does not enter */
        }
        if (!b.narrow) continue;
        amax_raise(amax + scale_of(b, row, piece), most);
        most = 0;
    }
    if (!b.narrow) amax_raise(amax + scale_of(b, row, 0), most);
}

/* One thread for each scale. As on the CPU: at least FLT_MIN, and 1 where all of a block is 0. */
static __global__ void quantize_scale_kernel(const uint32_t *amax, int64_t n, float largest,
                                             float *scale)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    float quotient = fmaxf(__uint_as_float(amax[i]) / largest, FLT_MIN);
    quotient = amax[i] == INFINITE ? __uint_as_float(NOT_A_NUMBER) : quotient;
    scale[i] = amax[i] == 0 ? 1 : quotient;
}

template <typename A, typename F>
static __global__ void quantize_kernel(Blocks b, const void *x, const float *scale, void *data)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y, pieces = (b.d + PIECE - 1) / PIECE;
    const float largest = F::largest();
    if (row >= b.n) return;
    for (int64_t piece = blockIdx.y; piece < pieces; piece += gridDim.y) {
        int64_t col = first_column(piece);
        float s = scale[scale_of(b, row, piece)], v[EACH];
        row_load<A>(b, x, row, col, v);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            float q = fminf(fmaxf(v[k] / s, -largest), largest);
            q = isnan(s) ? s : q;
            v[k] = isnan(v[k]) ? v[k] : q; /* a NaN keeps its bits, as on the CPU */
        }
        row_store<F>(b, data, row, col, v);
    }
}

template <typename A, typename F>
static __global__ void dequantize_kernel(Blocks b, const void *data, const float *scale, void *y)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y, pieces = (b.d + PIECE - 1) / PIECE;
    if (row >= b.n) return;
    for (int64_t piece = blockIdx.y; piece < pieces; piece += gridDim.y) {
        int64_t col = first_column(piece);
        float s = scale[scale_of(b, row, piece)], v[EACH];
        row_load<F>(b, data, row, col, v);
#pragma unroll
        for (int k = 0; k < EACH; k++) v[k] = isnan(v[k]) ? v[k] : v[k] * s;
        row_store<A>(b, y, row, col, v);
    }
}

/* One integer for each scale: here a block's rows raise one maximum by atomics. */
extern "C" size_t quantize_gpu_workspace(const struct Exec *, const void *args)
{
    const Quantize *a = (const Quantize *)args;
    return (size_t)tensor_elems(&a->quant.scale) * sizeof(uint32_t);
}

template <typename A, typename F> static Status quantize_run(struct Exec *ex, const Quantize *a)
{
    Blocks b = blocks_of(&a->quant, a->x.data);
    int64_t scales = b.rows * b.cols;
    float largest = a->quant.data.dtype == DTYPE_E4M3 ? 448.0f : 57344.0f;
    float *scale = (float *)a->quant.scale.data;
    uint32_t *amax = (uint32_t *)exec_workspace(ex);
    LaunchStream stream = exec_stream(ex);
    dim3 grid = grid_over(b), block(WARP, WARPS);
    TRY(gpu_fill(amax, 0, (size_t)scales * sizeof *amax, stream));
    quantize_amax_kernel<A><<<grid, block, 0, stream>>>(b, a->x.data, amax);
    TRY(kernel_status("quantize"));
    quantize_scale_kernel<<<grid_of(scales, THREADS), THREADS, 0, stream>>>(amax, scales, largest,
                                                                            scale);
    TRY(kernel_status("quantize"));
    quantize_kernel<A, F><<<grid, block, 0, stream>>>(b, a->x.data, scale, a->quant.data.data);
    return kernel_status("quantize");
}

extern "C" Status quantize_gpu(struct Exec *ex, const void *args)
{
    const Quantize *a = (const Quantize *)args;
    bool wide = a->x.dtype == DTYPE_F32, e4m3 = a->quant.data.dtype == DTYPE_E4M3;
    if (e4m3) return wide ? quantize_run<F32, E4M3>(ex, a) : quantize_run<BF16, E4M3>(ex, a);
    return wide ? quantize_run<F32, E5M2>(ex, a) : quantize_run<BF16, E5M2>(ex, a);
}

template <typename A, typename F> static Status dequantize_run(struct Exec *ex, const Dequantize *a)
{
    Blocks b = blocks_of(&a->quant, a->y.data);
    dequantize_kernel<A, F><<<grid_over(b), dim3(WARP, WARPS), 0, exec_stream(ex)>>>(
        b, a->quant.data.data, (const float *)a->quant.scale.data, a->y.data);
    return kernel_status("dequantize");
}

extern "C" Status dequantize_gpu(struct Exec *ex, const void *args)
{
    const Dequantize *a = (const Dequantize *)args;
    bool wide = a->y.dtype == DTYPE_F32, e4m3 = a->quant.data.dtype == DTYPE_E4M3;
    if (e4m3) return wide ? dequantize_run<F32, E4M3>(ex, a) : dequantize_run<BF16, E4M3>(ex, a);
    return wide ? dequantize_run<F32, E5M2>(ex, a) : dequantize_run<BF16, E5M2>(ex, a);
}
