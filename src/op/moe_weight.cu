/*
 * The weight gradients (moe_product.h). A tile is summed over all rows of its expert by one block,
 * in their order, and then added to what stands in dw: a gradient is read and written once, and its
 * bits depend on the groups alone.
 */
#include "op/grouped_mma.cuh"

#include "op/moe_product.h"

using namespace grouped;

/* A is the operand that gives the rows of the result, B its columns; the result is f32. */
template <typename Types, bool TOKEN_FIRST> struct WeightSum : Types {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef typename std::conditional<TOKEN_FIRST, A, B>::type Token;
    typedef typename std::conditional<TOKEN_FIRST, B, A>::type Row;
    static constexpr bool MMA = Types::MMA, SUMS = true, DOTS = false;
    static constexpr bool A_ALONG = false, B_ALONG = false;
    Groups groups;
    int64_t m, n;
    const Token *by_token;
    const Row *by_row;
    const int32_t *row_token; /* or NULL */
    float *dw;

    __device__ __forceinline__ View<Token> token_view(const GroupTile &t, int64_t col,
                                                      int64_t width) const
    {
        if (row_token == NULL) return rows_of(by_token, t, col, width);
        return { by_token + col, width, row_token + t.first, t.rows, width - col, 0 };
    }
    template <typename T>
    __device__ __forceinline__ View<T> rows_of(const T *data, const GroupTile &t, int64_t col,
                                               int64_t width) const
    {
        return { data + t.first * width + col, width, NULL, t.rows, width - col, 0 };
    }
    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        if constexpr (TOKEN_FIRST)
            return token_view(t, t.row, m);
        else
            return rows_of(by_row, t, t.row, m);
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        if constexpr (TOKEN_FIRST)
            return rows_of(by_row, t, t.col, n);
        else
            return token_view(t, t.col, n);
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
    const Quant *a = TOKEN_FIRST ? s.by_token : s.by_row, *b = TOKEN_FIRST ? s.by_row : s.by_token;
    int64_t m = tensor_cols(&a->data), n = tensor_cols(&b->data);
    return by_kernel(*a, *b, { s.dw->data }, { m, n }, [&](auto types) {
        typedef WeightSum<decltype(types), TOKEN_FIRST> Sum;
        Sum p = {};
        p.groups = groups_of(s.offsets, s.rows);
        p.m = m, p.n = n;
        p.by_token = (const typename Sum::Token *)s.by_token->data.data;
        p.by_row = (const typename Sum::Row *)s.by_row->data.data;
        p.row_token = (const int32_t *)s.row_token->data, p.dw = (float *)s.dw->data;
        return launch(ex, s.op, p);
    });
}

extern "C" Status moe_weight_cuda(struct Exec *ex, const MoeSum *s)
{
    return s->token_first ? run<true>(ex, *s) : run<false>(ex, *s);
}
