/* Products of the rows of each expert that go from a tensor to a tensor, with nothing around them.
 */
#include "op/grouped_mma.cuh"

#include "op/moe_product.h"

using namespace grouped;

/* out_r = in_r W_e^T (TURNED) or in_r W_e */
template <typename Types, bool TURNED> struct RowProduct : Types {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef typename Types::C C;
    static constexpr bool SUMS = false, DOTS = false;
    static constexpr bool A_ALONG = true, B_ALONG = TURNED;
    Groups groups;
    int64_t m, n;
    const A *in;
    const B *w;
    C *out;
    int64_t width; /* of in */

    explicit RowProduct(const MoeProduct &p)
        : groups(groups_of(p.offsets, p.rows)), m(0), n(tensor_cols(p.out)),
          in((const A *)p.in->data.data), w((const B *)p.w->data.data), out((C *)p.out->data),
          width(tensor_cols(&p.in->data))
    {
    }

    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        return { in + t.first * width, width, NULL, t.rows, width, 0 };
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        if (TURNED) return { w + (t.expert * n + t.col) * width, width, NULL, n - t.col, width, 0 };
        return { w + t.expert * width * n + t.col, n, NULL, width, n - t.col, 0 };
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return width; }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[UNIT]) const
    {
        put16<Types::MMA>(out + (t.first + i) * n + t.col + j, n - t.col - j, v);
        return 0;
    }
};

template <bool TURNED> static Status run(struct Exec *ex, const MoeProduct &p)
{
    return by_kernel(
        *p.in, *p.w, { p.out->data }, { tensor_cols(&p.in->data), tensor_cols(p.out) },
        [&](auto types) { return launch(ex, p.op, RowProduct<decltype(types), TURNED>(p)); });
}

extern "C" Status moe_product_cuda(struct Exec *ex, const MoeProduct *p)
{
    return p->turned ? run<true>(ex, *p) : run<false>(ex, *p);
}
