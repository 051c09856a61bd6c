/*
 * The experts' first product. Forward, a tile of the result is TILE / 2 gates and the ups that
 * belong to them, 8 and 8 in turn: whoever has a gate then has its up, and act is made before
 * either leaves the block.
 */
#include "op/grouped_mma.cuh"

using namespace grouped;

/* pre_r = x[row_token[r]] W1_e^T,  act_r = silu(pre_r[:F]) * pre_r[F:] */
template <typename Types> struct UpForward : Types {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef typename Types::C C;
    static constexpr bool SUMS = false, DOTS = false;
    static constexpr bool A_ALONG = true, B_ALONG = true;
    Groups groups;
    int64_t m, n; /* n: 2F rounded up to whole pairs of 8 */
    const A *x;
    const B *w;
    const int32_t *row_token; /* or NULL: row r reads x[r] */
    C *pre, *act;
    int64_t D, F;

    explicit UpForward(const MoeUpFwd *a)
        : groups(groups_of(&a->offsets, &a->rows)), m(0), x((const A *)a->x.data.data),
          w((const B *)a->w.data.data), row_token((const int32_t *)a->row_token.data),
          pre((C *)a->pre.data), act((C *)a->act.data), D(tensor_cols(&a->x.data)),
          F(tensor_cols(&a->act))
    {
        n = (F + 7) / 8 * 16;
    }

    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        if (row_token != NULL) return { x, D, row_token + t.first, t.rows, D, 0 };
        return { x + t.first * D, D, NULL, t.rows, D, 0 };
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        int64_t f = t.col / 2;
        return { w + (t.expert * 2 * F + f) * D, D, NULL, F - f, D, F };
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return D; }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[UNIT]) const
    {
        int64_t r = t.first + i, f = (t.col + j) / 2;
        const float *gate = v, *up = v + 8;
        float y[8];
#pragma unroll
        for (int k = 0; k < 8; k++) y[k] = gate[k] / (1 + expf(-gate[k])) * up[k];
        put8<Types::MMA>(pre + r * 2 * F + f, F - f, gate);
        put8<Types::MMA>(pre + r * 2 * F + F + f, F - f, up);
        put8<Types::MMA>(act + r * F + f, F - f, y);
        return 0;
    }
};

extern "C" Status moe_up_fwd_cuda(struct Exec *ex, const void *args)
{
    const MoeUpFwd *a = (const MoeUpFwd *)args;
    return by_kernel(
        a->x, a->w, { a->pre.data, a->act.data }, { tensor_cols(&a->x.data), tensor_cols(&a->act) },
        [&](auto types) { return launch(ex, "moe_up_fwd", UpForward<decltype(types)>(a)); });
}
