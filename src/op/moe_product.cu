/*
 * moe_product: products of routed rows (moe_product.h): one policy for how operands lie, and one
 * more for each thing that is done with a tile of the result before it leaves the block.
 *
 *   store      as it is
 *   swiglu     A tile is TILE / 2 gates and the ups that belong to them, 8 and 8 in turn: whoever
 *              has a gate then has its up, and act is made before either leaves the block.
 *   backward   SwiGLU's gradient, the routing weight and each row's share of <da, act> are worked
 *              out where a tile of da lies. A row's shares, one for each stretch of its columns, go
 *              to the workspace, and a second launch adds them from the left.
 */
#include "op/grouped_mma.cuh"

#include "op/moe_product.h"

using namespace grouped;

/* c_r = in[row_token[r]] W_e^T (TURNED) or in[row_token[r]] W_e */
template <typename Types, bool TURNED, bool GATHERS> struct RowProduct : Types {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef typename Types::C C;
    static constexpr bool SUMS = false, DOTS = false;
    static constexpr bool A_ALONG = true, B_ALONG = TURNED;
    Groups groups;
    int64_t m, n;
    Operand<A> in;
    Operand<B> w;
    const int32_t *row_token; /* or NULL: row r reads in[r] */
    C *out;

    explicit RowProduct(const MoeProduct &p)
        : groups(groups_of(p.offsets, p.rows)), m(0), n(p.O), in(*p.in), w(*p.w),
          row_token(p.row_token == NULL ? NULL : (const int32_t *)p.row_token->data),
          out(p.out == NULL ? NULL : (C *)p.out->data)
    {
    }

    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        if (GATHERS && row_token != NULL)
            return in.view(0, 0, row_token + t.first, t.rows, in.ld, 0);
        return in.view(t.first, 0, NULL, t.rows, in.ld, 0);
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        if (TURNED) return w.view(t.expert * n + t.col, 0, NULL, n - t.col, in.ld, 0);
        return w.view(t.expert * in.ld, t.col, NULL, in.ld, n - t.col, 0);
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return in.ld; }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[UNIT]) const
    {
        put16<Types::MMA>(out + (t.first + i) * n + t.col + j, n - t.col - j, v);
        return 0;
    }
};

/* pre_r = c_r,  act_r = silu(pre_r[:F]) * pre_r[F:] */
template <typename Types> struct UpForward : RowProduct<Types, true, true> {
    typedef typename Types::B B;
    typedef typename Types::C C;
    C *act;
    int64_t F;

    explicit UpForward(const MoeProduct &p)
        : RowProduct<Types, true, true>(p), act((C *)p.result->data), F(tensor_cols(p.result))
    {
        this->n = (F + 7) / 8 * 16; /* 2F rounded up to whole pairs of 8 */
    }

    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        int64_t f = t.col / 2;
        return this->w.view(t.expert * 2 * F + f, 0, NULL, F - f, this->in.ld, F);
    }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[UNIT]) const
    {
        int64_t r = t.first + i, f = (t.col + j) / 2;
        const float *gate = v, *up = v + 8;
        float y[8];
#pragma unroll
        for (int k = 0; k < 8; k++) y[k] = gate[k] / (1 + expf(-gate[k])) * up[k];
        put8<Types::MMA>(this->out + r * 2 * F + f, F - f, gate);
        put8<Types::MMA>(this->out + r * 2 * F + F + f, F - f, up);
        put8<Types::MMA>(act + r * F + f, F - f, y);
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
 * dpre may be pre: a thread reads its columns before it writes them, and no other reads them.
 */
template <typename Types> struct DownBackward : RowProduct<Types, false, true> {
    typedef typename Types::C C;
    static constexpr bool MMA = Types::MMA, DOTS = true;
    const int32_t *row_slot; /* or NULL: row r has weight[r] */
    const float *weight;
    const C *pre;
    C *dpre, *wact;
    float *share; /* (parts, bound) */

    DownBackward(const MoeProduct &p, const MoeDownBwdInput *a, void *workspace)
        : RowProduct<Types, false, true>(p), row_slot((const int32_t *)a->row_slot.data),
          weight((const float *)a->weight.data), pre((const C *)a->pre.data),
          dpre((C *)a->dpre.data), wact((C *)a->wact.data), share((float *)workspace)
    {
    }

    /* 8 columns from f on; returns their part of <da, act>. */
    __device__ __forceinline__ float eight(int64_t r, int64_t f, const float *da) const
    {
        int64_t n = this->n, at = r * 2 * n + f, exist = n - f;
        float g[8], u[8], y[8], scale = weight[row_slot != NULL ? row_slot[r] : r], dot = 0;
        get8<MMA>(pre + at, exist, g);
        get8<MMA>(pre + at + n, exist, u);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float s = 1 / (1 + expf(-g[k])), silu = g[k] * s, act = silu * u[k];
            float wda = scale * da[k];
            dot += da[k] * act;
            y[k] = scale * act;
            g[k] = wda * u[k] * s * (1 + g[k] * (1 - s));
            u[k] = wda * silu;
        }
        put8<MMA>(dpre + at, exist, g);
        put8<MMA>(dpre + at + n, exist, u);
        put8<MMA>(wact + r * n + f, exist, y);
        return dot;
    }

    __device__ __forceinline__ float store(const GroupTile &t, int64_t i, int j,
                                           const float (&v)[UNIT]) const
    {
        int64_t r = t.first + i, f = t.col + j;
        float left = eight(r, f, v);
        return left + eight(r, f + 8, v + 8);
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

/* Only the backward pass has shares. */
extern "C" size_t moe_product_cuda_workspace(const struct Exec *, const MoeProduct *p)
{
    int64_t parts = (p->O + TILE - 1) / TILE * PARTS<PLAIN_THREADS>;
    return (size_t)(parts * p->rows->bound) * sizeof(float);
}

template <bool TURNED> static Status store(struct Exec *ex, const MoeProduct &p)
{
    return by_kernel(*p.in, *p.w, { p.out->data }, { p.I, p.O }, [&](auto types) {
        return launch(ex, p.op, RowProduct<decltype(types), TURNED, false>(p));
    });
}

static Status swiglu(struct Exec *ex, const MoeProduct &p)
{
    return by_kernel(*p.in, *p.w, { p.out->data, p.result->data }, { p.I, tensor_cols(p.result) },
                     [&](auto types) { return launch(ex, p.op, UpForward<decltype(types)>(p)); });
}

static Status swiglu_backward(struct Exec *ex, const MoeProduct &p, const MoeDownBwdInput *a)
{
    if (p.zeroed != NULL) {
        TRY(cuda_status(cudaMemsetAsync(p.zeroed->data, 0, tensor_bytes(p.zeroed), exec_stream(ex)),
                        p.op));
    }
    if (p.rows->bound == 0) return OK;
    return by_kernel(
        *p.in, *p.w, { a->pre.data, a->dpre.data, a->wact.data }, { p.I, p.O }, [&](auto types) {
            DownBackward<decltype(types)> kernel(p, a, exec_workspace(ex));
            constexpr int threads = types.MMA ? (int)MMA_THREADS : (int)PLAIN_THREADS;
            int64_t parts = (p.O + TILE - 1) / TILE * PARTS<threads>;
            TRY(launch(ex, p.op, kernel));
            moe_dweight_kernel<<<grid_of(p.rows->bound, 256), 256, 0, exec_stream(ex)>>>(
                kernel.groups, kernel.share, parts, kernel.row_slot, (float *)a->dweight.data);
            return kernel_status(p.op);
        });
}

extern "C" Status moe_product_cuda(struct Exec *ex, const MoeProduct *p)
{
    switch (p->epilogue) {
    case MOE_SWIGLU: return swiglu(ex, *p);
    case MOE_SWIGLU_BACKWARD: return swiglu_backward(ex, *p, (const MoeDownBwdInput *)p->args);
    default: return p->turned ? store<true>(ex, *p) : store<false>(ex, *p);
    }
}
