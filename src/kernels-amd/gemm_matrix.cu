/*
 * gemm_matrix: dense products in bf16 on AMD's matrix cores, C = op(A) op(B) + R with C in bf16 or f32:
 * the kernel of grouped_matrix.cuh for one group that has all rows.
 *
 * Rows of all matrices begin at multiples of 16 bytes; k is a multiple of 8 if it runs along the
 * memory of an operand (product_kernels.c).
 */
#include "kernels-amd/grouped_matrix.cuh"

extern "C" {
#include "kernels/dense/product.h"
}

using namespace grouped;

template <bool A_ALONG, bool B_ALONG, typename TypeC> struct DenseProduct {
    typedef Bf16 A;
    typedef Bf16 B;
    typedef TypeC C;
    typedef Side<A, A_ALONG, false, false> SideA;
    typedef Side<B, B_ALONG, false, false> SideB;
    typedef Nothing Row;
    template <int N> using Extra = Coming<true, C, N>;
    static constexpr bool SUMS = false, DOTS = false, MIRRORED = false;
    Groups groups;
    int64_t m, n, k, lda, ldb, ldc;
    const Bf16 *left, *right;
    C *out;
    const C *added; /* or NULL */

    explicit DenseProduct(const DenseCall &d)
        : groups(), m(d.g->m), n(d.g->n), k(d.g->k), lda(d.g->a.ld), ldb(d.g->b.ld), ldc(d.g->c.ld),
          left((const Bf16 *)d.g->a.at), right((const Bf16 *)d.g->b.at), out((C *)d.g->c.at),
          added(d.g->beta == 0 ? NULL : (const C *)d.r)
    {
        groups.bound = groups.each = m;
        groups.experts = 1;
    }

    /* The View of an operand from row `first` of its tile on. */
    template <bool ALONG>
    __device__ __forceinline__ View<Bf16> view(const Bf16 *data, int64_t ld, int64_t first,
                                               int64_t rows) const
    {
        if (ALONG) return { data + first * ld, ld, NULL, rows - first, k, 0, {} };
        return { data + first, ld, NULL, k, rows - first, 0, {} };
    }
    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        return view<A_ALONG>(left, lda, t.first, m);
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        return view<B_ALONG>(right, ldb, t.col, n);
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return k; }

    __device__ __forceinline__ Nothing row(const GroupTile &, int64_t) const { return {}; }
    template <int N>
    __device__ __forceinline__ Extra<N> extra(const GroupTile &t, int64_t i, int j) const
    {
        Extra<N> e = {};
        if (added != NULL) e.ask(added + (t.first + i) * ldc + t.col + j, n - t.col - j);
        return e;
    }
    template <int N>
    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[N], const Extra<N> &e, Nothing) const
    {
        float sum[N];
#pragma unroll
        for (int q = 0; q < N; q++) sum[q] = added != NULL ? v[q] + e[q] : v[q];
        put<true>(out + (t.first + i) * ldc + t.col + j, n - t.col - j, sum);
        return 0;
    }
};

template <bool A_ALONG, bool B_ALONG>
static Status dense_layout(struct Exec *ex, const DenseCall &d)
{
    if (d.g->c.type == DTYPE_F32)
        return matrix_launch(ex, "gemm_matrix", DenseProduct<A_ALONG, B_ALONG, float>(d));
    return matrix_launch(ex, "gemm_matrix", DenseProduct<A_ALONG, B_ALONG, Bf16>(d));
}

extern "C" Status dense_matrix(struct Exec *ex, const void *call)
{
    const DenseCall &d = *(const DenseCall *)call;
    if (d.g->a.turned)
        return d.g->b.turned ? dense_layout<false, true>(ex, d) : dense_layout<false, false>(ex, d);
    return d.g->b.turned ? dense_layout<true, true>(ex, d) : dense_layout<true, false>(ex, d);
}
