/*
 * moe_weight: what weight gradients of plain and of 8-bit operands share (moe_weight.cu, moe_scaled.cu): where their
 * sums go. A block sums a tile over all rows of its expert, in order, and then adds it to dw or overwrites dw. So a
 * gradient is read and written once, and its bits depend on the groups alone.
 */
#ifndef KERNELS_MOE_MOE_WEIGHT_CUH
#define KERNELS_MOE_MOE_WEIGHT_CUH

#include "kernels/moe/grouped_vendor.cuh"

extern "C" {
#include "kernels/dense/product.h"
}
#include "kernels/moe/moe_product.h"

using namespace grouped;

/* N neighbouring elements of dw. */
template <int N> struct Old {
    float v[N];
};

/* The result of a sum: m x n for each expert. */
template <typename Types> struct SumResult : Types {
    typedef Nothing Row;
    template <int N> using Extra = Old<N>;
    static constexpr bool WIDE = Types::WIDE, SUMS = true, DOTS = false, READS = false;
    Groups groups;
    int64_t m, n;
    float *dw;
    bool overwrite;

    SumResult(const Groups &g, const Tensor *result, bool over)
        : groups(g), m(0), n(0), dw((float *)result->data), overwrite(over)
    {
    }

    TensorShape c_shape() const { return { dw, n, m, groups.experts, DTYPE_F32 }; }
    __device__ __forceinline__ int64_t depth(const GroupTile &t) const { return t.rows; }
    __device__ __forceinline__ float *at(const GroupTile &t, int64_t i, int j) const
    {
        return dw + (t.expert * m + t.row + i) * n + t.col + j;
    }
    __device__ __forceinline__ Nothing row(const GroupTile &, int64_t) const { return {}; }
    template <int N>
    __device__ __forceinline__ Old<N> extra(const GroupTile &t, int64_t i, int j) const
    {
        Old<N> old = {};
        if (!overwrite) get<WIDE>((const float *)at(t, i, j), n - t.col - j, old.v);
        return old;
    }
    template <int N>
    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[N], const Old<N> &old, Nothing) const
    {
        float sum[N];
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = old.v[k] + v[k];
        put<WIDE>(at(t, i, j), n - t.col - j, sum);
        return 0;
    }
};

/* dw = or += the sum of part (parts, packs), in order. */
static __global__ void parts_add_kernel(const float4 *part, float4 *dw, int64_t parts,
                                        int64_t packs, bool overwrite)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= packs) return;
    float4 sum = overwrite ? make_float4(0, 0, 0, 0) : dw[i];
#pragma unroll 4
    for (int64_t k = 0; k < parts; k++) {
        float4 one = part[k * packs + i];
        sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
    dw[i] = sum;
}

/* A dense weight gradient: its parts (weight_parts) are groups of tokens, made in the workspace and then added.
 * g: sizes, c and beta. sum(s) launches the product of the groups in s. */
template <typename F>
static Status sum_in_parts(struct Exec *ex, const char *op, const GemmArgs &g, void *workspace,
                           F sum)
{
    enum { THREADS = 256 };
    const int64_t parts = weight_parts(g.m, g.n, g.k), packs = g.m * g.n / 4;
    const Tensor offsets = { NULL, DTYPE_I32, 1, { parts + 1 } };
    const Tensor dw = { parts > 1 ? workspace : g.c.at, DTYPE_F32, 3, { parts, g.m, g.n } };
    Rows rows = {};
    rows.bound = g.k;
    MoeSum s = {};
    s.op = op, s.offsets = &offsets, s.rows = &rows, s.dw = &dw, s.token_first = true;
    s.overwrite = g.beta == 0 || parts > 1;
    TRY(sum(s));
    if (parts == 1) return OK;
    parts_add_kernel<<<grid_of(packs, THREADS), THREADS, 0, exec_stream(ex)>>>(
        (const float4 *)dw.data, (float4 *)g.c.at, parts, packs, g.beta == 0);
    return kernel_status(op);
}

/* Clears dw of experts without rows, which have no tile. Each expert has a column of blocks. */
static __global__ void clear_empty_kernel(Groups groups, float *dw, int64_t each)
{
    if (groups.first(blockIdx.x) < groups.first(blockIdx.x + 1)) return;
    int64_t step = (int64_t)gridDim.y * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; i < each; i += step)
        dw[blockIdx.x * each + i] = 0;
}

/* Does so if dw is overwritten: no tile would overwrite the gradient of an expert without rows. */
static Status clear_empty(struct Exec *ex, const MoeSum *s)
{
    enum { BLOCKS = 32, THREADS = 256 };
    unsigned experts = (unsigned)tensor_elems(s->offsets) - 1;
    if (!s->overwrite) return OK;
    clear_empty_kernel<<<dim3(experts, BLOCKS), THREADS, 0, exec_stream(ex)>>>(
        groups_of(s->offsets, s->rows, NULL), (float *)s->dw->data, tensor_elems(s->dw) / experts);
    return kernel_status(s->op);
}

#endif
