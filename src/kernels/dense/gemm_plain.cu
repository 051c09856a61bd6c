/*
 * gemm_plain: C = op(A) op(B) + R with f32 multiply-adds, one template for all types and layouts. Tests compare
 * cuBLASLt with it, and it runs products that cuBLASLt does not support (product_kernels.c).
 *
 * A block computes a TILE x TILE piece of C, a thread 4 x 4 elements of it, so a value read from
 * shared memory is used in four multiply-adds. A thread's rows are 16 apart, and so are its
 * columns, so neighbouring threads read neighbouring words. Shared memory bounds it to about a
 * third of the peak of multiply-adds. Sums run over k from 0 on, whatever the shape.
 */
#include "kernels/core/kernel.cuh"

extern "C" {
#include "kernels/dense/product.h"
}

enum { TILE = 64, DEPTH = 16, SIDE = 16, EACH = TILE / SIDE, THREADS = SIDE * SIDE };

/* Element (i, l) of an operand is at `at + i * row + l * term`; row or term is 1. */
template <typename T> struct Side {
    const T *at;
    int64_t row, term;
};

template <typename T, typename U> struct Args {
    Side<T> a, b; /* b by columns of C */
    U *c;
    const U *r; /* NULL: nothing is added */
    int64_t m, n, k, ldc;
};

/* to[l][i] = element (first + i, l0 + l), 0 outside. Neighbouring threads read neighbouring
 * addresses, whether memory runs along rows or along terms. */
template <typename T>
static __device__ __forceinline__ void tile_load(float (*to)[TILE + 1], const Side<T> &x,
                                                 int64_t first, int64_t l0, int64_t rows,
                                                 int64_t terms)
{
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = x.term == 1 ? e / DEPTH : e % TILE;
        int l = x.term == 1 ? e % DEPTH : e / TILE;
        bool inside = first + i < rows && l0 + l < terms;
        to[l][i] = inside ? to_f32(x.at[(first + i) * x.row + (l0 + l) * x.term]) : 0.0f;
    }
}

template <typename T, typename U>
static __global__ __launch_bounds__(THREADS) void gemm_plain_kernel(const Args<T, U> p)
{
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    int64_t across = (p.n + TILE - 1) / TILE;
    int64_t i0 = (int64_t)blockIdx.x / across * TILE, j0 = (int64_t)blockIdx.x % across * TILE;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE;
    float sum[EACH][EACH] = {};
    for (int64_t l0 = 0; l0 < p.k; l0 += DEPTH) {
        tile_load(a, p.a, i0, l0, p.m, p.k);
        tile_load(b, p.b, j0, l0, p.n, p.k);
        __syncthreads();
#pragma unroll
        for (int l = 0; l < DEPTH; l++) {
#pragma unroll
            for (int e = 0; e < EACH * EACH; e++) {
                int i = e / EACH, j = e % EACH;
                sum[i][j] = fmaf(a[l][y + SIDE * i], b[l][x + SIDE * j], sum[i][j]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH * EACH; e++) {
        int64_t i = i0 + y + SIDE * (e / EACH), j = j0 + x + SIDE * (e % EACH);
        if (i >= p.m || j >= p.n) continue;
        float add = p.r == NULL ? 0.0f : to_f32(p.r[i * p.ldc + j]);
        p.c[i * p.ldc + j] = from_f32<U>(sum[e / EACH][e % EACH] + add);
    }
}

template <typename T, typename U> static Status gemm_plain(struct Exec *ex, const DenseCall *d)
{
    const GemmArgs *g = d->g;
    const GemmOperand &a = g->a, &b = g->b;
    const U *added = g->beta == 0 ? NULL : (const U *)d->r;
    Side<T> left = { (const T *)a.at, a.turned ? 1 : a.ld, a.turned ? a.ld : 1 };
    Side<T> right = { (const T *)b.at, b.turned ? b.ld : 1, b.turned ? 1 : b.ld };
    Args<T, U> p = { left, right, (U *)g->c.at, added, g->m, g->n, g->k, g->c.ld };
    int64_t blocks = ((p.m + TILE - 1) / TILE) * ((p.n + TILE - 1) / TILE);
    if (blocks == 0) return OK;
    gemm_plain_kernel<T, U><<<(unsigned)blocks, THREADS, 0, exec_stream(ex)>>>(p);
    return kernel_status("gemm_plain");
}

extern "C" Status dense_plain(struct Exec *ex, const void *call)
{
    const DenseCall *d = (const DenseCall *)call;
    bool to_f32 = d->g->c.type == DTYPE_F32;
    if (d->g->a.type == DTYPE_F32)
        return to_f32 ? gemm_plain<float, float>(ex, d) : gemm_plain<float, Bf16>(ex, d);
    return to_f32 ? gemm_plain<Bf16, float>(ex, d) : gemm_plain<Bf16, Bf16>(ex, d);
}
