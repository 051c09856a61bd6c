/*
 * The part of the second product's backward that goes to the rows: a tile of da never leaves the
 * block: SwiGLU's gradient, the routing weight and each row's share of <da, act> are worked out
 * where it lies. A row's shares, one for each stretch of its columns, go to the workspace, and a
 * second launch adds them from the left.
 */
#include "op/grouped_mma.cuh"

using namespace grouped;

/*
 * With dy_r = dy[row_token[r]], w_r = weight[row_slot[r]]:
 *
 *   out_r = act_r W2_e^T, y = sum of w_r out_r     da_r = dy_r W2_e, without w_r
 *                                                  dweight = <dy_r, out_r> = <da_r, act_r>
 *   act = silu(g) u, s = 1 / (1 + e^-g)            dg = w da u s (1 + g (1 - s))
 *                                                  du = w da g s
 * dpre may be pre: a thread reads its columns before it writes them, and no other reads them.
 */
template <typename Types> struct DownBackward : Types {
    typedef typename Types::A A;
    typedef typename Types::B B;
    typedef typename Types::C C;
    static constexpr bool MMA = Types::MMA, SUMS = false, DOTS = true;
    static constexpr bool A_ALONG = true, B_ALONG = false;
    Groups groups;
    int64_t m, n; /* n: F */
    const A *dy;
    const B *w;
    const int32_t *row_token, *row_slot; /* or NULL: row r reads dy[r], has weight[r] */
    const float *weight;
    const C *pre;
    C *dpre, *wact;
    float *share; /* (parts, bound) */
    int64_t D;

    DownBackward(const MoeDownBwdInput *a, void *workspace)
        : groups(groups_of(&a->offsets, &a->rows)), m(0), n(tensor_cols(&a->wact)),
          dy((const A *)a->dy.data.data), w((const B *)a->w.data.data),
          row_token((const int32_t *)a->row_token.data),
          row_slot((const int32_t *)a->row_slot.data), weight((const float *)a->weight.data),
          pre((const C *)a->pre.data), dpre((C *)a->dpre.data), wact((C *)a->wact.data),
          share((float *)workspace), D(tensor_cols(&a->dy.data))
    {
    }

    __device__ __forceinline__ View<A> a(const GroupTile &t) const
    {
        if (row_token != NULL) return { dy, D, row_token + t.first, t.rows, D, 0 };
        return { dy + t.first * D, D, NULL, t.rows, D, 0 };
    }
    __device__ __forceinline__ View<B> b(const GroupTile &t) const
    {
        return { w + t.expert * D * n + t.col, n, NULL, D, n - t.col, 0 };
    }
    __device__ __forceinline__ int64_t depth(const GroupTile &) const { return D; }

    /* 8 columns from f on; returns their part of <da, act>. */
    __device__ __forceinline__ float eight(int64_t r, int64_t f, const float *da) const
    {
        int64_t at = r * 2 * n + f, exist = n - f;
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
        share[part * groups.bound + t.first + i] = sum;
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

extern "C" size_t moe_down_bwd_input_cuda_workspace(const struct Exec *, const void *args)
{
    const MoeDownBwdInput *a = (const MoeDownBwdInput *)args;
    int64_t parts = (tensor_cols(&a->wact) + TILE - 1) / TILE * PARTS<PLAIN_THREADS>;
    return (size_t)(parts * a->rows.bound) * sizeof(float);
}

extern "C" Status moe_down_bwd_input_cuda(struct Exec *ex, const void *args)
{
    const MoeDownBwdInput *a = (const MoeDownBwdInput *)args;
    const char *op = "moe_down_bwd_input";
    if (a->rows.device != NULL && a->row_slot.data != NULL) {
        TRY(cuda_status(
            cudaMemsetAsync(a->dweight.data, 0, tensor_bytes(&a->dweight), exec_stream(ex)), op));
    }
    if (a->rows.bound == 0) return OK;
    return by_kernel(
        a->dy, a->w, { a->pre.data, a->dpre.data, a->wact.data },
        { tensor_cols(&a->dy.data), tensor_cols(&a->wact) }, [&](auto types) {
            DownBackward<decltype(types)> p(a, exec_workspace(ex));
            constexpr int threads = types.MMA ? (int)MMA_THREADS : (int)PLAIN_THREADS;
            int64_t parts = (p.n + TILE - 1) / TILE * PARTS<threads>;
            TRY(launch(ex, op, p));
            moe_dweight_kernel<<<grid_of(p.groups.bound, 256), 256, 0, exec_stream(ex)>>>(
                p.groups, p.share, parts, p.row_slot, (float *)a->dweight.data);
            return kernel_status(op);
        });
}
