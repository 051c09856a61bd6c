/*
 * moe_weight: the weight gradients (moe_product.h). A tile is summed over all rows of its expert by
 * one block, in their order, and then added to what stands in dw: a gradient is read and written
 * once, and its bits depend on the groups alone.
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
    Operand<Token> by_token;
    Operand<Row> by_row;
    const int32_t *row_token; /* or NULL */
    float *dw;

    explicit WeightSum(const MoeSum &s)
        : groups(groups_of(s.offsets, s.rows)), by_token(*s.by_token), by_row(*s.by_row),
          row_token((const int32_t *)s.row_token->data), dw((float *)s.dw->data)
    {
        m = TOKEN_FIRST ? by_token.ld : by_row.ld;
        n = TOKEN_FIRST ? by_row.ld : by_token.ld;
    }

    __device__ __forceinline__ View<Token> token_view(const GroupTile &t, int64_t col) const
    {
        if (row_token == NULL) return rows_of(by_token, t, col);
        return by_token.view(0, col, row_token + t.first, t.rows, by_token.ld - col, 0);
    }
    template <typename T>
    __device__ __forceinline__ View<T> rows_of(const Operand<T> &x, const GroupTile &t,
                                               int64_t col) const
    {
        return x.view(t.first, col, NULL, t.rows, x.ld - col, 0);
    }
    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        if constexpr (TOKEN_FIRST)
            return token_view(t, t.row);
        else
            return rows_of(by_row, t, t.row);
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        if constexpr (TOKEN_FIRST)
            return rows_of(by_row, t, t.col);
        else
            return token_view(t, t.col);
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
    return by_kernel(
        *a, *b, { s.dw->data }, { tensor_cols(&a->data), tensor_cols(&b->data) },
        [&](auto types) { return launch(ex, s.op, WeightSum<decltype(types), TOKEN_FIRST>(s)); });
}

extern "C" Status moe_weight_cuda(struct Exec *ex, const MoeSum *s)
{
    return s->token_first ? run<true>(ex, *s) : run<false>(ex, *s);
}
