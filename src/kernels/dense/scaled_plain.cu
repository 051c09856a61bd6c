/*
 * scaled_plain: dense products of 8-bit operands with f32 multiply-adds, on any GPU. It is the last
 * candidate (scaled_kernels.c), and faster ones are compared with it.
 *
 * It is gemm_plain's product of tiles, with the promotion of kernels/dense/scaled.h: 128 terms are summed in
 * f32, multiplied by their scales, and added to the sum. Where scales do not change along k, each
 * 128 terms are multiplied by the same scales.
 */
#include "kernels/core/dtype.cuh"

extern "C" {
#include "kernels/dense/product.h"
}

enum { TILE = 64, DEPTH = 16, SIDE = 16, EACH = TILE / SIDE, THREADS = SIDE * SIDE };

static_assert(OPERAND_BLOCK % DEPTH == 0, "a block of terms is whole steps");

/* An operand, and how its scales lie (kernels/core/operand.h). */
typedef struct Side {
    const uint8_t *data;
    const float *scale;
    OperandGrid grid;
    int64_t rows, k;
    bool e4m3, along_k; /* along_k: each 128 terms have a scale */
} Side;

template <typename U> struct Args {
    Side a, b; /* b by columns of C */
    U *c;
    const U *r; /* NULL: nothing is added */
    int64_t ldc;
};

static Side side_of(const ScaledSide &s, int64_t rows, int64_t k)
{
    const Operand *q = s.q;
    bool along_k = q->kind == OPERAND_1X128 || q->kind == OPERAND_128X128;
    return Side{ (const uint8_t *)q->data.data,
                 (const float *)q->scale.data,
                 operand_grid_of(q),
                 rows,
                 k,
                 q->data.dtype == DTYPE_E4M3,
                 along_k };
}

/* to[l][i] = element (first + i, l0 + l), 0 outside. Neighbouring threads read neighbouring terms. */
static __device__ __forceinline__ void tile_load(float (*to)[TILE + 1], const Side &x,
                                                 int64_t first, int64_t l0)
{
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = e / DEPTH, l = e % DEPTH;
        bool inside = first + i < x.rows && l0 + l < x.k;
        uint8_t code = inside ? x.data[(first + i) * x.k + l0 + l] : (uint8_t)0;
        to[l][i] = x.e4m3 ? E4M3::widen(code) : E5M2::widen(code);
    }
}

/* The scale of a row for terms [l0, l0 + 128). */
static __device__ __forceinline__ float scale_at(const Side &x, int64_t row, int64_t l0)
{
    const OperandGrid &g = x.grid;
    if (row >= x.rows) return 0;
    int64_t block = row / g.n * g.rows + row % g.n / g.height;
    return x.scale[block * g.cols + (x.along_k ? l0 / OPERAND_BLOCK : 0)];
}

template <typename U>
static __global__ __launch_bounds__(THREADS) void scaled_plain_kernel(const Args<U> p)
{
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    int64_t across = (p.b.rows + TILE - 1) / TILE;
    int64_t i0 = (int64_t)blockIdx.x / across * TILE, j0 = (int64_t)blockIdx.x % across * TILE;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE;
    float sum[EACH * EACH] = {}, part[EACH * EACH] = {};
    for (int64_t l0 = 0; l0 < p.a.k; l0 += DEPTH) {
        tile_load(a, p.a, i0, l0);
        tile_load(b, p.b, j0, l0);
        __syncthreads();
#pragma unroll
        for (int l = 0; l < DEPTH; l++) {
#pragma unroll
            for (int e = 0; e < EACH * EACH; e++)
                part[e] = fmaf(a[l][y + SIDE * (e / EACH)], b[l][x + SIDE * (e % EACH)], part[e]);
        }
        __syncthreads();
        if ((l0 + DEPTH) % OPERAND_BLOCK != 0 && l0 + DEPTH < p.a.k) continue;
#pragma unroll
        for (int e = 0; e < EACH * EACH; e++) {
            float left = scale_at(p.a, i0 + y + SIDE * (e / EACH), l0);
            float right = scale_at(p.b, j0 + x + SIDE * (e % EACH), l0);
            sum[e] = fmaf(part[e], left * right, sum[e]);
            part[e] = 0;
        }
    }
#pragma unroll
    for (int e = 0; e < EACH * EACH; e++) {
        int64_t i = i0 + y + SIDE * (e / EACH), j = j0 + x + SIDE * (e % EACH);
        if (i >= p.a.rows || j >= p.b.rows) continue;
        float add = p.r == NULL ? 0.0f : to_f32(p.r[i * p.ldc + j]);
        p.c[i * p.ldc + j] = from_f32<U>(sum[e] + add);
    }
}

extern "C" Status scaled_plain(struct Exec *ex, const void *call)
{
    const ScaledArgs &s = *((const ScaledCall *)call)->s;
    Side a = side_of(s.a, s.m, s.k), b = side_of(s.b, s.n, s.k);
    unsigned grid = (unsigned)(((s.m + TILE - 1) / TILE) * ((s.n + TILE - 1) / TILE));
    return launch_typed("scaled_plain", s.c.type, [&](auto t) {
        typedef decltype(t) U;
        Args<U> p = { a, b, (U *)s.c.at, (const U *)s.r, s.c.ld };
        scaled_plain_kernel<U><<<grid, THREADS, 0, exec_stream(ex)>>>(p);
    });
}
