/* Products of the rows of each expert that go from a tensor to a tensor, with nothing around them.
 */
#include "op/grouped_mma.cuh"

#include "op/moe_product.h"

using namespace grouped;

/* out_r = in_r W_e^T (TURNED) or in_r W_e */
template <typename Type, bool ON_MMA, bool TURNED> struct RowProduct {
    typedef Type T;
    static constexpr bool MMA = ON_MMA, SUMS = false, DOTS = false;
    static constexpr bool A_ALONG = true, B_ALONG = TURNED;
    Groups groups;
    int64_t m, n;
    const T *in, *w;
    T *out;
    int64_t width; /* of in */

    explicit RowProduct(const MoeProduct &p)
        : groups(groups_of(p.offsets, p.rows)), m(0), n(tensor_cols(p.out)),
          in((const T *)p.in->data), w((const T *)p.w->data), out((T *)p.out->data),
          width(tensor_cols(p.in))
    {
    }

    __device__ __forceinline__ View<T> a(const GroupTile &t) const
    {
        return { in + t.first * width, width, NULL, t.rows, width, 0 };
    }
    __device__ __forceinline__ View<T> b(const GroupTile &t) const
    {
        if (TURNED) return { w + (t.expert * n + t.col) * width, width, NULL, n - t.col, width, 0 };
        return { w + t.expert * width * n + t.col, n, NULL, width, n - t.col, 0 };
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return width; }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[UNIT]) const
    {
        put16<MMA>(out + (t.first + i) * n + t.col + j, n - t.col - j, v);
        return 0;
    }
};

template <bool TURNED> static Status run(struct Exec *ex, const MoeProduct &p)
{
    return by_kernel(p.in->dtype, { p.in->data, p.w->data, p.out->data },
                     { tensor_cols(p.in), tensor_cols(p.out) }, [&](auto t, auto mma) {
                         return launch(ex, p.op, RowProduct<decltype(t), mma, TURNED>(p));
                     });
}

extern "C" Status moe_down_fwd_cuda(struct Exec *ex, const void *args)
{
    return run<true>(ex, moe_down_fwd_product((const MoeDownFwd *)args));
}

extern "C" Status moe_up_bwd_input_cuda(struct Exec *ex, const void *args)
{
    return run<false>(ex, moe_up_bwd_input_product((const MoeUpBwdInput *)args));
}
