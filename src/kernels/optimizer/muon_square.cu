/*
 * muon_square: the symmetric products of Muon (muon_square.h) as a policy of grouped.cuh. Each matrix is
 * a group, and the rows of its result are the group's rows.
 *
 * Only tiles that reach the diagonal or lie below it are made: (T + 1) / 2T of all for T tiles on a
 * side. A tile below the diagonal is stored twice, the second time transposed.
 *
 * On an H200 for 26 of 1408 x 2048, in us a matrix: Y Y^T 7.4 and P P 6.4, where cuBLASLt takes 10.5
 * and 8.5 for all tiles.
 */
#include "kernels/moe/grouped_vendor.cuh"

#include "kernels/moe/moe_product.h"
#include "kernels/optimizer/muon_square.h"

using namespace grouped;

/* ALONG: memory runs along `deep`. */
template <typename Types, bool ALONG> struct Square : Types {
    typedef typename Types::A T;
    typedef Side<T, ALONG, false, false> SideA;
    typedef SideA SideB;
    typedef TileShapes<TILE_IN_TURN> Shapes; /* as high as wide; stores while it multiplies */
    typedef float Row;                       /* the factor of its sums */
    template <int N> using Extra = Coming<Types::WIDE, T, N>;
    static constexpr bool SUMS = false, DOTS = false, READS = false, AS_IS = false, MIRRORED = true;
    static constexpr int UNIT = 8;
    Groups groups;
    int64_t m, n, deep; /* n: the side */
    Source<T> y;
    const T *add; /* or NULL */
    T *out;
    const float *size; /* or NULL */
    float square, linear;

    explicit Square(const MuonSquare &s)
        : groups(), m(0), n(s.side), deep(0), y(s.y), add((const T *)s.add), out((T *)s.out),
          size(s.size), square(s.square), linear(s.linear)
    {
        groups.offsets = (const int32_t *)s.offsets.data;
        groups.experts = tensor_elems(&s.offsets) - 1;
        groups.bound = groups.experts * n;
        deep = groups.bound > 0 ? tensor_elems(&s.y.data) / groups.bound : 0;
    }

    __device__ __forceinline__ int64_t row_of(const GroupTile &t) const
    {
        return t.first - t.expert * n;
    }
    /* From row `first` of Y on. */
    __device__ __forceinline__ View<T> rows_of(const GroupTile &t, int64_t first) const
    {
        if (ALONG) return y.view(t.expert * n + first, 0, NULL, n - first, deep, 0);
        return y.view(t.expert * deep, first, NULL, deep, n - first, 0);
    }
    __device__ __forceinline__ View<T> a(const GroupTile &t) const { return rows_of(t, row_of(t)); }
    __device__ __forceinline__ View<T> b(const GroupTile &t) const { return rows_of(t, t.col); }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return deep; }

    TensorShape a_shape() const
    {
        return { y.data, y.ld, ALONG ? n : deep, groups.experts, DTYPE_BF16 };
    }
    TensorShape b_shape() const { return a_shape(); }
    TensorShape c_shape() const { return {}; }
    __device__ __forceinline__ int4 box_at(const GroupTile &t, int64_t first) const
    {
        int at = (int)first, e = (int)t.expert;
        return ALONG ? make_int4(0, at, e, 0) : make_int4(at, 0, e, 0);
    }
    __device__ __forceinline__ int4 a_at(const GroupTile &t) const { return box_at(t, row_of(t)); }
    __device__ __forceinline__ int4 b_at(const GroupTile &t) const { return box_at(t, t.col); }

    __device__ __forceinline__ float row(const GroupTile &t, int64_t) const
    {
        float s = size != NULL ? size[t.expert] : 1;
        return square * s * s;
    }
    template <int N>
    __device__ __forceinline__ Extra<N> extra(const GroupTile &t, int64_t i, int j) const
    {
        Extra<N> e = {};
        if (add != NULL) e.ask(add + (t.first + i) * n + t.col + j, n - t.col - j);
        return e;
    }
    template <int N>
    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[N], const Extra<N> &e,
                                           float factor) const
    {
        int64_t r = row_of(t) + i, c = t.col + j;
        float x[N];
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = factor * v[k] + (add != NULL ? linear * e[k] : 0.0f);
        put<Types::WIDE>(out + (t.first + i) * n + c, n - c, x);
        if (t.col == row_of(t)) return 0;
        /* Left of the diagonal all N columns exist. Threads with neighbouring rows write neighbours here. */
        T *turned = out + (t.expert * n + c) * n + r;
#pragma unroll
        for (int k = 0; k < N; k++) turned[k * n] = from_f32<T>(x[k]);
        return 0;
    }
};

template <Kernel KERNEL> static Status run(struct Exec *ex, const void *call)
{
    const MuonSquare &s = *(const MuonSquare *)((const GroupedCall *)call)->product;
    return by_types<KERNEL, false>(s.y.data.dtype == DTYPE_F32, false, [&](auto types) {
        typedef decltype(types) Types;
        if (s.turned) return launch(ex, "muon", Square<Types, false>(s));
        return launch(ex, "muon", Square<Types, true>(s));
    });
}

/* An entry for each kernel, which product_kernels.c names. */
#define ENTRY(name, KERNEL)                                                                        \
    extern "C" Status muon_square_##name(struct Exec *ex, const void *call)                        \
    {                                                                                              \
        return run<KERNEL>(ex, call);                                                              \
    }
ENTRY(plain, KERNEL_PLAIN)
GROUPED_VENDOR_KERNELS(ENTRY)
