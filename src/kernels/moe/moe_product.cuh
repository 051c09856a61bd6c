/*
 * moe_product: products of routed rows (moe_product.h) as policies of grouped.cuh, and how they are launched, for plain
 * operands (moe_product.cu) and 8-bit ones (moe_scaled.cu). RowProduct says where operands are. The others derive from
 * it and say what is done with a tile of the result in the block:
 *
 *   store      It is stored, unchanged or with the expert's bias.
 *   swiglu     The columns of a tile are gates and their ups, 8 and 8 alternating. So a thread that has a
 *              gate also has its up, and act is computed before either is stored.
 *   backward   The gradient of SwiGLU, the routing weight and each row's share of <da, act> are computed
 *              from a tile of da. A row's shares, one for each range of its columns, go to the workspace,
 *              and a second launch adds them from left to right.
 *
 * Biases and other gated activations are separate policies, so calls without them do not pay for them.
 */
#ifndef KERNELS_MOE_MOE_PRODUCT_CUH
#define KERNELS_MOE_MOE_PRODUCT_CUH

#include "engine/gpu/fast_math.cuh"
#include "kernels/moe/grouped_vendor.cuh"

#include "kernels/moe/moe_product.h"
#include "kernels/moe/swiglu.cuh"

using namespace grouped;

/* c_r = in[row_token[r]] W_e^T (TURNED) or in[row_token[r]] W_e. 8-bit weights are transposed where
 * W_e is, so they always have the terms of one column of c in a row. */
template <typename Types, bool TURNED, bool GATHERS, bool PAIRED> struct RowProduct : Types {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef typename Types::C C;
    typedef Side<A, true, GATHERS && Types::INDEXED, false> SideA;
    typedef Side<B, TURNED, false, PAIRED> SideB;
    typedef typename std::conditional<TURNED, TileShapes<TILE_SHARED, TILE_IN_TURN>,
                                      TileShapes<TILE_SHARED>>::type PlainShapes;
    typedef typename ShapesOf<Types::EIGHT, SideA::GATHERS, PlainShapes>::Type Shapes;
    typedef Nothing Row;
    template <int N> using Extra = Nothing;
    static constexpr bool SUMS = false, DOTS = false, READS = false, AS_IS = true;
    static constexpr Dtype MAPPED =
        Types::EIGHT ? DTYPE_E4M3 : DTYPE_BF16; /* for the copy engine */
    Groups groups;
    int64_t m, n, rows_in, rows_w; /* of in; of an expert's matrix */
    Source<A> in;
    Source<B> w;
    const int32_t *row_token; /* or NULL: row r reads in[r] */
    C *out;

    explicit RowProduct(const MoeProduct &p)
        : groups(groups_of(p.offsets, p.rows, p.first)), m(0), n(p.O),
          rows_in(tensor_elems(&p.in->data) / p.I), rows_w(TURNED ? p.O : p.I), in(*p.in), w(*p.w),
          row_token(p.row_token == NULL ? NULL : (const int32_t *)p.row_token->data),
          out(p.out == NULL ? NULL : (C *)p.out->data)
    {
    }

    /* The tile's first row of `in`. `in` is the pooled tensor only if it is not gathered. */
    __device__ __forceinline__ int64_t row_of_in(const GroupTile &t) const
    {
        return GATHERS ? t.first : t.pooled;
    }
    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        if (GATHERS && row_token != NULL)
            return in.view(0, 0, row_token + t.first, t.rows, in.ld, 0);
        return in.view(row_of_in(t), 0, NULL, t.rows, in.ld, 0);
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        if (TURNED) return w.view(t.expert * n + t.col, 0, NULL, n - t.col, in.ld, 0);
        return w.view(t.expert * in.ld, t.col, NULL, in.ld, n - t.col, 0);
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return in.ld; }

    __device__ __forceinline__ const Scales &a_scales() const { return in.scales; }
    __device__ __forceinline__ const Scales &b_scales() const { return w.scales; }

    TensorShape a_shape() const { return { in.data, in.ld, rows_in, 1, MAPPED }; }
    TensorShape b_shape() const { return { w.data, w.ld, rows_w, groups.experts, MAPPED }; }
    TensorShape c_shape() const { return {}; }
    __device__ __forceinline__ int4 a_at(const GroupTile &t) const
    {
        return make_int4(0, (int)row_of_in(t), 0, 0);
    }
    __device__ __forceinline__ int4 b_at(const GroupTile &t) const
    {
        int col = (int)t.col, e = (int)t.expert;
        return TURNED ? make_int4(0, PAIRED ? col / 16 : col, e, 0) : make_int4(col, 0, e, 0);
    }

    __device__ __forceinline__ Nothing row(const GroupTile &, int64_t) const { return {}; }
    template <int N> __device__ __forceinline__ Nothing extra(const GroupTile &, int64_t, int) const
    {
        return {};
    }
    template <int N>
    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[N], Nothing, Nothing) const
    {
        put<Types::WIDE>(out + (t.first + i) * n + t.col + j, n - t.col - j, v);
        return 0;
    }
    __device__ __forceinline__ C *place(const GroupTile &t, int64_t i, int j) const
    {
        return i < t.rows && t.col + j < n ? out + (t.first + i) * n + t.col + j : NULL;
    }
};

/* 1 / (1 + e^-x). Results in bf16 are rounded to 8 bits. */
template <typename C> static __device__ __forceinline__ float sigmoid(float x)
{
    if constexpr (sizeof(C) == 2) return sigmoid_fast(x);
    return 1 / (1 + expf(-x));
}

/* out_r = c_r + b_e */
template <typename Types> struct BiasedStore : RowProduct<Types, true, false, false> {
    typedef typename Types::C C;
    template <int N> using Extra = Coming<Types::WIDE, C, N>;
    static constexpr bool AS_IS = false;
    static constexpr int UNIT = 8;
    const C *bias;

    explicit BiasedStore(const MoeProduct &p)
        : RowProduct<Types, true, false, false>(p), bias((const C *)p.bias->data)
    {
    }

    template <int N>
    __device__ __forceinline__ Extra<N> extra(const GroupTile &t, int64_t, int j) const
    {
        int64_t f = t.col + j;
        Extra<N> e;
        e.ask(bias + t.expert * this->n + f, this->n - f);
        return e;
    }
    template <int N>
    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[N], const Extra<N> &e, Nothing) const
    {
        int64_t f = t.col + j;
        float sum[N];
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = v[k] + e[k];
        put<Types::WIDE>(this->out + (t.first + i) * this->n + f, this->n - f, sum);
        return 0;
    }
};

/* N columns of gate and up that are being loaded. */
template <bool WIDE, typename C, int N> struct Pre {
    Coming<WIDE, C, N> gate, up;
};

/* pre_r = c_r,  act_r = silu(pre_r[:F]) * pre_r[F:]. Not PLAIN: pre_r = c_r + b_e if there are
 * biases, and act_r is another gated activation if `glu` says so. */
template <typename Types, bool PLAIN> struct UpForward : RowProduct<Types, true, true, true> {
    typedef typename Types::B B;
    typedef typename Types::C C;
    typedef typename std::conditional<Types::INDEXED, TileShapes<TILE_SHARED>,
                                      TileShapes<TILE_SHARED, TILE_IN_TURN>>::type PlainShapes;
    typedef typename ShapesOf<Types::EIGHT, Types::INDEXED, PlainShapes>::Type Shapes;
    template <int N>
    using Extra = typename std::conditional<PLAIN, Nothing, Pre<Types::WIDE, C, N / 2>>::type;
    static constexpr bool AS_IS = false;
    static constexpr int UNIT = 16;
    C *act;
    int64_t F;
    const C *bias; /* or NULL */
    Glu glu;

    UpForward(const MoeProduct &p, const MoeUpFwd *a)
        : RowProduct<Types, true, true, true>(p), act((C *)p.result->data), F(p.width),
          bias((const C *)a->bias.data), glu(a->glu)
    {
        this->n = (F + 7) / 8 * 16; /* 2F rounded up to whole pairs of 8 */
    }

    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        int64_t f = t.col / 2;
        return this->w.view(t.expert * 2 * F + f, 0, NULL, F - f, this->in.ld, F);
    }

    template <int N>
    __device__ __forceinline__ Extra<N> extra(const GroupTile &t, int64_t, int j) const
    {
        Extra<N> e = {};
        if constexpr (!PLAIN) {
            int64_t f = (t.col + j) / 2;
            if (bias == NULL) return e;
            e.gate.ask(bias + t.expert * 2 * F + f, F - f);
            e.up.ask(bias + t.expert * 2 * F + F + f, F - f);
        }
        return e;
    }

    __device__ __forceinline__ float act_of(float gate, float up) const
    {
        if (!PLAIN && glu.limit > 0) return glu_slopes(glu, gate, up, sigmoid<C>).act;
        return gate * sigmoid<C>(gate) * up;
    }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[16], const Extra<16> &e, Nothing) const
    {
        int64_t r = t.first + i, kept = t.pooled + i, f = (t.col + j) / 2;
        float gate[8], up[8], y[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            gate[k] = v[k];
            up[k] = v[8 + k];
            if constexpr (!PLAIN) {
                gate[k] += e.gate[k];
                up[k] += e.up[k];
            }
            y[k] = act_of(gate[k], up[k]);
        }
        put<Types::WIDE>(this->out + kept * 2 * F + f, F - f, gate);
        put<Types::WIDE>(this->out + kept * 2 * F + F + f, F - f, up);
        put<Types::WIDE>(act + r * F + f, F - f, y);
        return 0;
    }
};

/*
 * With dy_r = dy[row_token[r]], w_r = weight[row_slot[r]]:
 *
 *   out_r = act_r W2_e^T, y = sum of w_r out_r     da_r = dy_r W2_e, without w_r
 *                                                  dweight = <dy_r, out_r> = <da_r, act_r>
 *   act = silu(g) u, s = 1 / (1 + e^-g)            dg = w da u s (1 + g (1 - s))
 *                                                  du = w da g s
 * or GENERAL: the slopes of glu.h. A bias adds <dy_r, b_e> to dweight in a separate launch. dpre may be pre: a thread
 * reads its columns before it writes them, and no other thread reads them.
 */
template <typename Types, bool GENERAL>
struct DownBackward : RowProduct<Types, Types::EIGHT, true, false> {
    typedef typename Types::C C;
    typedef typename ShapesOf<Types::EIGHT, true, TileShapes<TILE_IN_TURN>>::Type Shapes;
    typedef float Row;
    template <int N> using Extra = Pre<Types::WIDE, C, N>;
    static constexpr bool WIDE = Types::WIDE, DOTS = true, READS = true, AS_IS = false;
    static constexpr int UNIT = 8;
    const int32_t *row_slot; /* or NULL: row r has weight[r] */
    const float *weight;
    int64_t rows_pre;
    const C *pre;
    C *dpre, *wact;
    float *share; /* (parts, bound) */
    Glu glu;

    DownBackward(const MoeProduct &p, const MoeDownBwdInput *a, float *shares)
        : RowProduct<Types, Types::EIGHT, true, false>(p),
          row_slot((const int32_t *)a->row_slot.data), weight((const float *)a->weight.data),
          rows_pre(tensor_elems(&a->pre.data) / (2 * p.O)), pre((const C *)a->pre.data.data),
          dpre((C *)a->dpre.data.data), wact((C *)a->wact.data.data), share(shares), glu(a->glu)
    {
    }

    TensorShape c_shape() const { return { pre, 2 * this->n, rows_pre, 1, DTYPE_BF16 }; }
    __device__ __forceinline__ float row(const GroupTile &t, int64_t i) const
    {
        int64_t r = t.first + i;
        return weight[row_slot != NULL ? row_slot[r] : r];
    }

    template <int N>
    __device__ __forceinline__ Extra<N> extra(const GroupTile &t, int64_t i, int j) const
    {
        int64_t n = this->n, f = t.col + j;
        const C *at = pre + (t.pooled + i) * 2 * n + f;
        Extra<N> e;
        e.gate.ask(at, n - f);
        e.up.ask(at + n, n - f);
        return e;
    }

    /* The same of 8 columns that a kernel has loaded itself. */
    static __device__ __forceinline__ Extra<8> extra_of(uint4 gate, uint4 up)
    {
        Extra<8> e;
        e.gate.v = gate;
        e.up.v = up;
        return e;
    }

    /* Of one element: its act, and the gradients of its gate and up and its weighted act. */
    __device__ __forceinline__ float gradients(float g, float u, float da, float scale,
                                               float (&out)[3]) const
    {
        float wda = scale * da;
        if constexpr (GENERAL) {
            GluSlopes c = glu_slopes(glu, g, u, sigmoid<C>);
            out[0] = wda * c.by_gate;
            out[1] = wda * c.by_up;
            out[2] = scale * c.act;
            return c.act;
        } else {
            float s = sigmoid<C>(g), silu = g * s, act = silu * u;
            out[0] = wda * u * s * (1 + g * (1 - s));
            out[1] = wda * silu;
            out[2] = scale * act;
            return act;
        }
    }

    /* Returns the columns' part of <da, act>. */
    template <int N>
    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&da)[N], const Extra<N> &e,
                                           float scale) const
    {
        int64_t n = this->n, r = t.first + i, f = t.col + j, at = (t.pooled + i) * 2 * n + f;
        float dg[N], du[N], y[N], dot = 0;
#pragma unroll
        for (int k = 0; k < N; k++) {
            float out[3];
            dot += da[k] * gradients(e.gate[k], e.up[k], da[k], scale, out);
            dg[k] = out[0], du[k] = out[1], y[k] = out[2];
        }
        put<WIDE>(dpre + at, n - f, dg);
        put<WIDE>(dpre + at + n, n - f, du);
        put<WIDE>(wact + r * n + f, n - f, y);
        return dot;
    }

    __device__ __forceinline__ void dot(const GroupTile &t, int64_t i, int64_t part,
                                        float sum) const
    {
        share[part * this->groups.bound + t.first + i] = sum;
    }
};

/* dweight of each row that belongs to an expert. */
static __global__ void moe_dweight_kernel(Groups groups, const float *share, int64_t parts,
                                          const int32_t *row_slot, float *dweight)
{
    int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (r < groups.first(0) || r >= groups.first(groups.experts)) return;
    float sum = 0;
#pragma unroll 4
    for (int64_t k = 0; k < parts; k++) sum += share[k * groups.bound + r];
    dweight[row_slot != NULL ? row_slot[r] : r] = sum;
}

enum { DOT_THREADS = 256 };

/* dweight += <dy_r, b_e>. A block handles a tile of rows, a warp one row at a time. */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(DOT_THREADS) void moe_dweight_bias_kernel(
    Groups groups, const T *dy, const int32_t *row_token, const T *bias, const int32_t *row_slot,
    float *dweight, int64_t d)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    GroupTile t;
    if (!find_rows(groups, blockIdx.x, &t)) return;
    int lane = (int)threadIdx.x % WARP;
    for (int64_t r = t.first + threadIdx.x / WARP; r < t.first + t.rows; r += DOT_THREADS / WARP) {
        const T *row = dy + (row_token != NULL ? row_token[r] : r) * d;
        float sum = 0;
#pragma unroll 4
        for (int64_t at = lane * P; at < d; at += WARP * P) {
            float x[P], b[P];
            load_const<WIDE>(row + at, x);
            load_const<WIDE>(bias + t.expert * d + at, b);
#pragma unroll
            for (int k = 0; k < P; k++) sum += x[k] * b[k];
        }
        sum = warp_sum(sum);
        if (lane == 0) dweight[row_slot != NULL ? row_slot[r] : r] += sum;
    }
}

/* The same where dy has 8 bits. Only models whose experts have biases need it, so it is plain. */
template <typename T>
static __global__ __launch_bounds__(DOT_THREADS) void moe_dweight_bias_scaled_kernel(
    Groups groups, Source<EightBit> dy, const int32_t *row_token, const T *bias,
    const int32_t *row_slot, float *dweight, int64_t d)
{
    GroupTile t;
    if (!find_rows(groups, blockIdx.x, &t)) return;
    int lane = (int)threadIdx.x % WARP;
    View<EightBit> v = dy.view(0, 0, NULL, INT64_MAX, d, 0);
    for (int64_t r = t.first + threadIdx.x / WARP; r < t.first + t.rows; r += DOT_THREADS / WARP) {
        int64_t row = row_token != NULL ? row_token[r] : r;
        float sum = 0;
        for (int64_t at = lane; at < d; at += WARP)
            sum += v.value(row, at) * v.scale(row, at) * to_f32(bias[t.expert * d + at]);
        sum = warp_sum(sum);
        if (lane == 0) dweight[row_slot != NULL ? row_slot[r] : r] += sum;
    }
}

template <bool EIGHT>
static Status dweight_bias(struct Exec *ex, const MoeProduct &p, const MoeDownBwdInput *a)
{
    const void *dy = a->dy.data.data, *bias = a->bias.data;
    Groups groups = groups_of(p.offsets, p.rows, NULL);
    unsigned blocks = (unsigned)(groups.bound / TILE + groups.experts);
    const int32_t *row_token = (const int32_t *)a->row_token.data;
    const int32_t *row_slot = (const int32_t *)a->row_slot.data;
    return launch_packed(ex, p.op, a->bias.dtype, { dy, bias }, { p.I }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        if constexpr (EIGHT) {
            moe_dweight_bias_scaled_kernel<T><<<blocks, DOT_THREADS, 0, exec_stream(ex)>>>(
                groups, Source<EightBit>(a->dy), row_token, (const T *)bias, row_slot,
                (float *)a->dweight.data, p.I);
        } else {
            moe_dweight_bias_kernel<T, wide><<<blocks, DOT_THREADS, 0, exec_stream(ex)>>>(
                groups, (const T *)dy, row_token, (const T *)bias, row_slot,
                (float *)a->dweight.data, p.I);
        }
    });
}

/* run(types) for this kernel and the types of the call. FORWARD: `in` is not a gradient, so a
 * vendor's kernel takes it in e4m3 alone. */
template <Kernel KERNEL, bool EIGHT, bool INDEXES, bool FORWARD, typename F>
static Status product_types(const MoeProduct &p, F run)
{
    bool indexed = p.row_token != NULL && p.row_token->data != NULL;
    bool f32 = p.act == DTYPE_F32;
    if constexpr (EIGHT) {
        bool e5m2 = p.in->data.dtype == DTYPE_E5M2;
        return scaled_types<KERNEL, INDEXES, FORWARD>(e5m2, f32, indexed, run);
    } else {
        return by_types<KERNEL, INDEXES>(f32, indexed, run);
    }
}

template <Kernel KERNEL, bool EIGHT, bool TURNED>
static Status store(struct Exec *ex, const MoeProduct &p)
{
    return product_types<KERNEL, EIGHT, false, false>(p, [&](auto types) {
        return launch(ex, p.op, RowProduct<decltype(types), TURNED, false, false>(p));
    });
}

template <Kernel KERNEL, bool EIGHT>
static Status store_biased(struct Exec *ex, const MoeProduct &p)
{
    return product_types<KERNEL, EIGHT, false, true>(
        p, [&](auto types) { return launch(ex, p.op, BiasedStore<decltype(types)>(p)); });
}

template <Kernel KERNEL, bool EIGHT, bool PLAIN, template <typename, bool> class Policy = UpForward>
static Status swiglu(struct Exec *ex, const MoeProduct &p, const MoeUpFwd *a)
{
    return product_types<KERNEL, EIGHT, true, true>(
        p, [&](auto types) { return launch(ex, p.op, Policy<decltype(types), PLAIN>(p, a)); });
}

template <Kernel KERNEL, bool EIGHT, bool GENERAL,
          template <typename, bool> class Policy = DownBackward>
static Status swiglu_backward(struct Exec *ex, const MoeProduct &p, const MoeDownBwdInput *a)
{
    if (p.zeroed != NULL) {
        TRY(gpu_fill(p.zeroed->data, 0, tensor_bytes(p.zeroed), exec_stream(ex)));
    }
    if (p.rows->bound == 0) return OK;
    return product_types<KERNEL, EIGHT, true, false>(p, [&](auto types) {
        Policy<decltype(types), GENERAL> kernel(p, a, (float *)exec_workspace(ex));
        TRY(launch(ex, p.op, kernel));
        moe_dweight_kernel<<<grid_of(p.rows->bound, 256), 256, 0, exec_stream(ex)>>>(
            kernel.groups, kernel.share, dot_parts(kernel), kernel.row_slot,
            (float *)a->dweight.data);
        TRY(kernel_status(p.op));
        return a->bias.data != NULL ? dweight_bias<EIGHT>(ex, p, a) : OK;
    });
}

/* What happens to a row of the product. EIGHT: operands have 8 bits. */
template <Kernel KERNEL, bool EIGHT> static Status product(struct Exec *ex, const void *call)
{
    const MoeProduct &p = *(const MoeProduct *)((const GroupedCall *)call)->product;
    const MoeUpFwd *up = (const MoeUpFwd *)p.args;
    const MoeDownBwdInput *down = (const MoeDownBwdInput *)p.args;
    bool biased = moe_product_biased(&p);
    switch (p.epilogue) {
    case MOE_SWIGLU:
        return biased || up->glu.limit > 0 ? swiglu<KERNEL, EIGHT, false>(ex, p, up)
                                           : swiglu<KERNEL, EIGHT, true>(ex, p, up);
    case MOE_SWIGLU_BACKWARD:
        return down->glu.limit > 0 ? swiglu_backward<KERNEL, EIGHT, true>(ex, p, down)
                                   : swiglu_backward<KERNEL, EIGHT, false>(ex, p, down);
    default:
        return biased              ? store_biased<KERNEL, EIGHT>(ex, p)
               : EIGHT || p.turned ? store<KERNEL, EIGHT, true>(ex, p)
                                   : store<KERNEL, EIGHT, EIGHT>(ex, p);
    }
}

#endif
