/* moe_weight: the weight gradients (moe_product.h) of plain operands, as a policy of grouped.cuh. */
#include "kernels/moe/moe_weight.cuh"

/* A is the operand that gives the rows of the result, B its columns; the result is f32. m and n are the sizes of one
 * expert's dw. The depth of a tile is the number of the expert's rows, which differs from expert to expert. */
template <typename Types, bool TOKEN_FIRST> struct WeightSum : SumResult<Types> {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef typename std::conditional<TOKEN_FIRST, A, B>::type Token;
    typedef typename std::conditional<TOKEN_FIRST, B, A>::type Routed;
    typedef Side<A, false, Types::INDEXED && TOKEN_FIRST, false> SideA;
    typedef Side<B, false, Types::INDEXED && !TOKEN_FIRST, false> SideB;
    /* The operand that an index gathers is the expensive one: a tile has 128 of its columns, and
     * 256 of the other operand. */
    typedef typename std::conditional<
        !Types::INDEXED, TileShapes<TILE_SHARED, TILE_TALL>,
        typename std::conditional<TOKEN_FIRST, TileShapes<TILE_SHARED>,
                                  TileShapes<TILE_TALL, TILE_SHARED>>::type>::type Shapes;
    typedef SumResult<Types> Result;
    int64_t tokens, routed; /* rows of by_token and of by_row */
    Source<Token> by_token;
    Source<Routed> by_row;
    const int32_t *row_token; /* or NULL */

    explicit WeightSum(const MoeSum &s)
        : Result(groups_of(s.offsets, s.rows, s.first), s.dw, s.overwrite), by_token(*s.by_token),
          by_row(*s.by_row), row_token((const int32_t *)s.row_token->data)
    {
        this->m = TOKEN_FIRST ? by_token.ld : by_row.ld;
        this->n = TOKEN_FIRST ? by_row.ld : by_token.ld;
        tokens = tensor_elems(&s.by_token->data) / by_token.ld;
        routed = tensor_elems(&s.by_row->data) / by_row.ld;
    }

    __device__ __forceinline__ View<Token> token_view(const GroupTile &t, int64_t col) const
    {
        if (row_token == NULL) return rows_of(by_token, t, t.first, col);
        return by_token.view(0, col, row_token + t.first, t.rows, by_token.ld - col, 0);
    }
    template <typename T>
    __device__ __forceinline__ View<T> rows_of(const Source<T> &x, const GroupTile &t,
                                               int64_t first, int64_t col) const
    {
        return x.view(first, col, NULL, t.rows, x.ld - col, 0);
    }
    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        if constexpr (TOKEN_FIRST)
            return token_view(t, t.row);
        else
            return rows_of(by_row, t, t.pooled, t.row);
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        if constexpr (TOKEN_FIRST)
            return rows_of(by_row, t, t.pooled, t.col);
        else
            return token_view(t, t.col);
    }
    TensorShape token_shape() const
    {
        return { by_token.data, by_token.ld, tokens, 1, DTYPE_BF16 };
    }
    TensorShape row_shape() const { return { by_row.data, by_row.ld, routed, 1, DTYPE_BF16 }; }
    TensorShape a_shape() const { return TOKEN_FIRST ? token_shape() : row_shape(); }
    TensorShape b_shape() const { return TOKEN_FIRST ? row_shape() : token_shape(); }
    __device__ __forceinline__ int4 a_at(const GroupTile &t) const
    {
        return make_int4((int)t.row, (int)(TOKEN_FIRST ? t.first : t.pooled), 0, 0);
    }
    __device__ __forceinline__ int4 b_at(const GroupTile &t) const
    {
        return make_int4((int)t.col, (int)(TOKEN_FIRST ? t.pooled : t.first), 0, 0);
    }
};

template <Kernel KERNEL, bool TOKEN_FIRST> static Status sum_rows(struct Exec *ex, const MoeSum &s)
{
    bool f32 = s.by_row->data.dtype == DTYPE_F32;
    return by_types<KERNEL, true>(f32, s.row_token->data != NULL, [&](auto types) {
        return launch(ex, s.op, WeightSum<decltype(types), TOKEN_FIRST>(s));
    });
}

template <Kernel KERNEL> static Status weight(struct Exec *ex, const void *call)
{
    const MoeSum &s = *(const MoeSum *)((const GroupedCall *)call)->product;
    TRY(clear_empty(ex, &s));
    return s.token_first ? sum_rows<KERNEL, true>(ex, s) : sum_rows<KERNEL, false>(ex, s);
}

/* A dense weight gradient (DenseCall) as that of groups of its tokens. */
template <Kernel KERNEL> static Status dense(struct Exec *ex, const void *call)
{
    const DenseCall &d = *(const DenseCall *)call;
    const GemmArgs &g = *d.g;
    const Operand a = operand_plain({ const_cast<void *>(g.a.at), DTYPE_BF16, 2, { g.k, g.m } });
    const Operand b = operand_plain({ const_cast<void *>(g.b.at), DTYPE_BF16, 2, { g.k, g.n } });
    const Tensor none = {};
    return sum_in_parts(ex, "linear", g, d.workspace, [&](MoeSum s) {
        s.by_token = &a, s.by_row = &b, s.row_token = &none;
        return sum_rows<KERNEL, true>(ex, s);
    });
}

/* Entries for each kernel, which product_kernels.c names. */
#define ENTRY(name, KERNEL)                                                                        \
    extern "C" Status moe_weight_##name(struct Exec *ex, const void *call)                         \
    {                                                                                              \
        return weight<KERNEL>(ex, call);                                                           \
    }
ENTRY(plain, KERNEL_PLAIN)
GROUPED_VENDOR_KERNELS(ENTRY)

#define DENSE_ENTRY(name, KERNEL)                                                                  \
    extern "C" Status dense_split_##name(struct Exec *ex, const void *call)                        \
    {                                                                                              \
        return dense<KERNEL>(ex, call);                                                            \
    }
GROUPED_VENDOR_SCALED_KERNELS(DENSE_ENTRY)
