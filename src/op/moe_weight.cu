/*
 * The weight gradients (moe_product.h). A tile is summed over all rows of its expert by one block,
 * in their order, and then added to what stands in dw: a gradient is read and written once, and its
 * bits depend on the groups alone.
 */
#include "op/grouped_mma.cuh"

#include "op/moe_product.h"

using namespace grouped;

template <typename Type, bool ON_MMA, bool TOKEN_FIRST> struct WeightSum {
    typedef Type T;
    static constexpr bool MMA = ON_MMA, SUMS = true, DOTS = false;
    static constexpr bool A_ALONG = false, B_ALONG = false;
    Groups groups;
    int64_t m, n;
    const T *by_token, *by_row;
    const int32_t *row_token; /* or NULL */
    float *dw;

    __device__ __forceinline__ View<T> token_view(const GroupTile &t, int64_t col,
                                                  int64_t width) const
    {
        if (row_token == NULL) return row_view(by_token, t, col, width);
        return { by_token + col, width, row_token + t.first, t.rows, width - col, 0 };
    }
    __device__ __forceinline__ View<T> row_view(const T *data, const GroupTile &t, int64_t col,
                                                int64_t width) const
    {
        return { data + t.first * width + col, width, NULL, t.rows, width - col, 0 };
    }
    __device__ __forceinline__ View<T> a(const GroupTile &t) const
    {
        return TOKEN_FIRST ? token_view(t, t.row, m) : row_view(by_row, t, t.row, m);
    }
    __device__ __forceinline__ View<T> b(const GroupTile &t) const
    {
        return TOKEN_FIRST ? row_view(by_row, t, t.col, n) : token_view(t, t.col, n);
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &t) const { return t.rows; }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[UNIT]) const
    {
        int64_t col = t.col + j;
        float *at = dw + (t.expert * m + t.row + i) * n + col, sum[UNIT];
#pragma unroll
        for (int h = 0; h < UNIT; h += 8) get8<MMA>(at + h, n - col - h, sum + h);
#pragma unroll
        for (int k = 0; k < UNIT; k++) sum[k] += v[k];
        put16<MMA>(at, n - col, sum);
        return 0;
    }
};

template <bool TOKEN_FIRST> static Status run(struct Exec *ex, const MoeSum &s)
{
    int64_t D = tensor_cols(s.by_token), F = tensor_cols(s.by_row); /* 2F for dW1 */
    return by_kernel(s.by_row->dtype, { s.by_token->data, s.by_row->data, s.dw->data }, { D, F },
                     [&](auto t, auto mma) {
                         typedef decltype(t) T;
                         WeightSum<T, mma, TOKEN_FIRST> p = {};
                         p.groups = groups_of(s.offsets, s.rows);
                         p.m = TOKEN_FIRST ? D : F, p.n = TOKEN_FIRST ? F : D;
                         p.by_token = (const T *)s.by_token->data,
                         p.by_row = (const T *)s.by_row->data;
                         p.row_token = (const int32_t *)s.row_token->data,
                         p.dw = (float *)s.dw->data;
                         return launch(ex, s.op, p);
                     });
}

extern "C" Status moe_up_bwd_weight_cuda(struct Exec *ex, const void *args)
{
    return run<false>(ex, moe_up_bwd_weight_sum((const MoeUpBwdWeight *)args));
}

extern "C" Status moe_down_bwd_weight_cuda(struct Exec *ex, const void *args)
{
    return run<true>(ex, moe_down_bwd_weight_sum((const MoeDownBwdWeight *)args));
}
