/* exchange_alltoall: the kernel that copies rows to their offsets before they are sent. It is bound
 * by memory: each row is read and written once. Rows that come back are summed by moe_combine. */
#include "kernels/norm/rows.cuh"

#include "kernels/exchange/exchange.h"

/* Dispatch: a row of threads handles EACH pairs (token, rank). A token's row is read from memory
 * once; for further ranks it comes from the caches. Rows are bytes here, whatever their type. */

enum { EACH = 4 };

struct Pack {
    const uint8_t *x;
    const float *scale;   /* or NULL: rows are plain */
    const int32_t *index; /* or NULL: rows go without routing */
    const float *weight;
    const int32_t *offset;
    uint8_t *rows;
    float *rows_scale;
    int32_t *rows_index;
    float *rows_weight;
    int64_t N, K, bytes, scales, here, room; /* bytes and scales of a row */
};

/* exchange_local_expert for the device: that one is host code. */
static __device__ __forceinline__ int32_t local_expert(int64_t e, int64_t first, int64_t here)
{
    return e >= first && e < first + here ? (int32_t)(e - first) : -1;
}

/* Copies the routing of token n to offset p. `lanes` threads hold the token's row, and thread
 * `lane` copies its share of the slots. */
static __device__ __forceinline__ void pack_slots(const Pack &a, int64_t n, int64_t p, int64_t lane,
                                                  int64_t lanes)
{
    for (int64_t k = lane; k < a.K; k += lanes) {
        int64_t first = p / a.room * a.here, at = p * a.K + k;
        a.rows_index[at] = local_expert(read_const(a.index + n * a.K + k), first, a.here);
        a.rows_weight[at] = read_const(a.weight + n * a.K + k);
    }
}

static __device__ __forceinline__ void pack_scales(const Pack &a, int64_t n, int64_t p,
                                                   int64_t lane, int64_t lanes)
{
    for (int64_t s = lane; s < a.scales; s += lanes)
        a.rows_scale[p * a.scales + s] = read_const(a.scale + n * a.scales + s);
}

/* There are fewer than 2^31 slots, so the token of a slot is a 32-bit division. */
template <bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS) void exchange_pack_kernel(Pack a)
{
    constexpr int P = Packed<uint8_t, WIDE>::P;
    row_groups<EACH, P>(a.N * a.K, a.bytes, [&](int64_t col, int64_t at, int64_t step) {
        int64_t lane = col / P, lanes = (a.bytes + P - 1) / P;
        Packed<uint8_t, WIDE> v[EACH];
        int32_t offset[EACH];
        uint32_t token[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            bool there = at + j * step < a.N * a.K;
            offset[j] = there ? read_const(a.offset + at + j * step) : -1;
            token[j] = (uint32_t)(at + j * step) / (uint32_t)a.K;
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (offset[j] >= 0) fetch(v[j], a.x + token[j] * a.bytes + col);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (offset[j] < 0) continue;
            put(v[j], a.rows + offset[j] * a.bytes + col);
            if (a.scale != NULL) pack_scales(a, token[j], offset[j], lane, lanes);
            if (a.index != NULL) pack_slots(a, token[j], offset[j], lane, lanes);
        }
    });
}

extern "C" Status exchange_pack_gpu(struct Exec *ex, const ExchangeDispatch *a,
                                    const ExchangeRows *out)
{
    static const char op[] = "exchange_dispatch";
    const Tensor *x = &a->x.data;
    Pack p = {};
    p.x = (const uint8_t *)x->data;
    p.scale = (const float *)a->x.scale.data;
    p.index = (const int32_t *)a->index.data;
    p.weight = (const float *)a->weight.data;
    p.offset = (const int32_t *)a->offset.data;
    p.rows = (uint8_t *)out->x.data.data;
    p.rows_scale = (float *)out->x.scale.data;
    p.rows_index = (int32_t *)out->index.data;
    p.rows_weight = (float *)out->weight.data;
    p.N = x->dim[0];
    p.K = tensor_cols(&a->offset);
    p.bytes = (int64_t)exchange_row_bytes(x);
    p.scales = p.scale == NULL ? 0 : tensor_cols(&a->x.scale);
    p.here = a->experts / a->ranks;
    p.room = out->x.data.dim[0] / a->ranks;
    bool wide = packs_chosen<uint8_t>(ex, op, { x->data, out->x.data.data }, { p.bytes });
    RowGrid g = row_grid(p.N * p.K, p.bytes / (wide ? PACK<uint8_t> : 1), EACH);
    auto *kernel = wide ? exchange_pack_kernel<true> : exchange_pack_kernel<false>;
    kernel<<<g.grid, g.block, 0, exec_stream(ex)>>>(p);
    return kernel_status(op);
}

extern "C" ExchangeLocal exchange_alltoall_gpu(void)
{
    return { exchange_pack_gpu, exchange_unpack };
}
