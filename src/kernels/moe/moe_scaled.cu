/*
 * moe_scaled: products of routed rows and weight gradients of experts whose operands have 8 bits, and the dense
 * products, which have one group. Products of rows are moe_product.cuh's, with other types. A weight gradient reads
 * transposed operands (kernels/quant/quant.h): the terms of an expert are columns of both.
 */
#include "kernels/moe/moe_product.cuh"
#include "kernels/moe/moe_weight.cuh"

/* dw_e[i][j] += sum over the columns c of group e of a[i][c] b[j][c] */
template <typename Types> struct ScaledSum : SumResult<Types> {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef Side<A, true, false, false> SideA;
    typedef Side<B, true, false, false> SideB;
    typedef TileShapes<TILE_SHARED, TILE_TALL> Shapes;
    Source<A> left;
    Source<B> right;

    ScaledSum(const Groups &g, const Operand &x, const Operand &y, const Tensor *result, bool over)
        : SumResult<Types>(g, result, over), left(x), right(y)
    {
        this->m = x.data.dim[0];
        this->n = y.data.dim[0];
    }

    template <typename T>
    __device__ __forceinline__ View<T> view(const Source<T> &x, const GroupTile &t, int64_t first,
                                            int64_t rows) const
    {
        return x.view(first, t.column, NULL, rows - first, t.rows, 0, t.expert);
    }
    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        return view(left, t, t.row, this->m);
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        return view(right, t, t.col, this->n);
    }
    __device__ __forceinline__ const Scales &a_scales() const { return left.scales; }
    __device__ __forceinline__ const Scales &b_scales() const { return right.scales; }

    TensorShape a_shape() const { return { left.data, left.ld, this->m, 1, DTYPE_E4M3 }; }
    TensorShape b_shape() const { return { right.data, right.ld, this->n, 1, DTYPE_E4M3 }; }
    __device__ __forceinline__ int4 a_at(const GroupTile &t) const
    {
        return make_int4((int)t.column, (int)t.row, 0, 0);
    }
    __device__ __forceinline__ int4 b_at(const GroupTile &t) const
    {
        return make_int4((int)t.column, (int)t.col, 0, 0);
    }
};

template <Kernel KERNEL> static Status weight(struct Exec *ex, const void *call)
{
    const GroupedCall &c = *(const GroupedCall *)call;
    const MoeSum &s = *(const MoeSum *)c.product;
    TRY(clear_empty(ex, &s));
    bool e5m2 = c.a->data.dtype == DTYPE_E5M2;
    return scaled_types<KERNEL, false, false>(e5m2, true, false, [&](auto types) {
        return launch(ex, s.op,
                      ScaledSum<decltype(types)>(groups_of(s.offsets, s.rows, NULL), *c.a, *c.b,
                                                 s.dw, s.overwrite));
    });
}

/* out = c + r. r may be out: a thread reads its columns before it writes them. */
template <typename Types> struct ResidualStore : RowProduct<Types, true, false, false> {
    typedef typename Types::C C;
    template <int N> using Extra = Coming<Types::WIDE, C, N>;
    static constexpr bool AS_IS = false;
    static constexpr int UNIT = 8;
    const C *r;

    ResidualStore(const MoeProduct &p, const void *added)
        : RowProduct<Types, true, false, false>(p), r((const C *)added)
    {
    }

    template <int N>
    __device__ __forceinline__ Extra<N> extra(const GroupTile &t, int64_t i, int j) const
    {
        Extra<N> e;
        e.ask(r + (t.first + i) * this->n + t.col + j, this->n - t.col - j);
        return e;
    }
    template <int N>
    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[N], const Extra<N> &e, Nothing) const
    {
        float sum[N];
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = v[k] + e[k];
        put<Types::WIDE>(this->out + (t.first + i) * this->n + t.col + j, this->n - t.col - j, sum);
        return 0;
    }
};

/* The offsets of one group of all rows. */
static const Tensor ONE_GROUP = { NULL, DTYPE_I32, 2, { 1, 2 } };

/* A dense product is one group: with bf16 results a product of rows, with f32 ones a sum over k, in parts. */
template <Kernel KERNEL>
static Status dense(struct Exec *ex, const char *op, const ScaledCall &call)
{
    const ScaledArgs &s = *call.s;
    Tensor c = { s.c.at, s.c.type, 2, { s.m, s.n } };
    bool f32 = s.c.type == DTYPE_F32;
    GemmArgs sizes = {};
    sizes.m = s.m, sizes.n = s.n, sizes.k = s.k, sizes.c = s.c, sizes.beta = s.r != NULL;
    Rows rows = {};
    rows.bound = s.m;
    MoeProduct p = {};
    p.op = op, p.in = s.a.q, p.w = s.b.q, p.offsets = &ONE_GROUP, p.rows = &rows;
    p.I = s.k, p.O = s.n, p.turned = true, p.result = p.out = &c;
    p.act = c.dtype, p.R = s.m, p.width = s.n;
    return scaled_types<KERNEL, false, false>(
        s.a.q->data.dtype == DTYPE_E5M2, f32, false, [&](auto types) {
            typedef decltype(types) Types;
            auto sum = [&](const MoeSum &w) {
                return launch(ex, op,
                              ScaledSum<Types>(groups_of(w.offsets, w.rows, NULL), *s.a.q, *s.b.q,
                                               w.dw, w.overwrite));
            };
            if (f32) return sum_in_parts(ex, op, sizes, call.workspace, sum);
            if (s.r != NULL) return launch(ex, op, ResidualStore<Types>(p, s.r));
            return launch(ex, op, RowProduct<Types, true, false, false>(p));
        });
}

/* Entries for each kernel, which product_kernels.c names. */
#define ENTRY(name, KERNEL)                                                                        \
    extern "C" Status moe_scaled_product_##name(struct Exec *ex, const void *call)                 \
    {                                                                                              \
        return product<KERNEL, true>(ex, call);                                                    \
    }                                                                                              \
    extern "C" Status moe_scaled_weight_##name(struct Exec *ex, const void *call)                  \
    {                                                                                              \
        return weight<KERNEL>(ex, call);                                                           \
    }
ENTRY(plain, KERNEL_PLAIN)
GROUPED_VENDOR_SCALED_KERNELS(ENTRY)

/* The same for scaled_kernels.c. */
#define DENSE_ENTRY(name, KERNEL)                                                                  \
    extern "C" Status scaled_##name(struct Exec *ex, const void *call)                             \
    {                                                                                              \
        return dense<KERNEL>(ex, "linear", *(const ScaledCall *)call);                             \
    }
GROUPED_VENDOR_SCALED_KERNELS(DENSE_ENTRY)
