/* exchange_alltoall: the kernel that copies rows to their offsets before they are sent. It is bound
 * by memory: each row is read and written once. Rows that come back are summed by moe_combine. */
#include "op/rows.cuh"

#include "op/exchange.h"

/* Dispatch: a row of threads handles EACH pairs (token, rank). A token's row is read from memory
 * once; for further ranks it comes from the caches. */

enum { EACH = 4 };

template <typename T> struct Pack {
    const T *x;
    const int32_t *index; /* or NULL: rows go alone */
    const float *weight;
    const int32_t *offset;
    T *rows;
    int32_t *rows_index;
    float *rows_weight;
    int64_t N, K, D, here, room;
};

/* exchange_local_expert for the device: that one is host code. */
static __device__ __forceinline__ int32_t local_expert(int64_t e, int64_t first, int64_t here)
{
    return e >= first && e < first + here ? (int32_t)(e - first) : -1;
}

/* Copies the routing of token n to offset p. `lanes` threads hold the token's row, and thread
 * `lane` copies its share of the slots. */
template <typename T>
static __device__ __forceinline__ void pack_slots(const Pack<T> &a, int64_t n, int64_t p,
                                                  int64_t lane, int64_t lanes)
{
    for (int64_t k = lane; k < a.K; k += lanes) {
        int64_t first = p / a.room * a.here, at = p * a.K + k;
        a.rows_index[at] = local_expert(read_const(a.index + n * a.K + k), first, a.here);
        a.rows_weight[at] = read_const(a.weight + n * a.K + k);
    }
}

/* There are fewer than 2^31 slots, so the token of a slot is a 32-bit division. */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS) void exchange_pack_kernel(Pack<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    row_groups<EACH, P>(a.N * a.K, a.D, [&](int64_t col, int64_t at, int64_t step) {
        Packed<T, WIDE> v[EACH];
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
            if (offset[j] >= 0) fetch(v[j], a.x + token[j] * a.D + col);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (offset[j] < 0) continue;
            put(v[j], a.rows + offset[j] * a.D + col);
            if (a.index != NULL) pack_slots(a, token[j], offset[j], col / P, (a.D + P - 1) / P);
        }
    });
}

extern "C" Status exchange_pack_gpu(struct Exec *ex, const ExchangeDispatch *a,
                                    const ExchangeRows *out)
{
    int64_t D = tensor_cols(&a->x), K = tensor_cols(&a->offset), N = a->x.dim[0];
    return launch_packed(ex, "exchange_dispatch", a->x.dtype, { a->x.data, out->x.data }, { D },
                         [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             Pack<T> p = {};
                             p.x = (const T *)a->x.data;
                             p.rows = (T *)out->x.data;
                             p.index = (const int32_t *)a->index.data;
                             p.weight = (const float *)a->weight.data;
                             p.offset = (const int32_t *)a->offset.data;
                             p.rows_index = (int32_t *)out->index.data;
                             p.rows_weight = (float *)out->weight.data;
                             p.N = N;
                             p.K = K;
                             p.D = D;
                             p.here = a->experts / a->ranks;
                             p.room = out->x.dim[0] / a->ranks;
                             RowGrid g = row_grid(N * K, D / (wide ? PACK<T> : 1), EACH);
                             exchange_pack_kernel<T, wide>
                                 <<<g.grid, g.block, 0, exec_stream(ex)>>>(p);
                         });
}

const ExchangeLocal exchange_alltoall_gpu = { exchange_pack_gpu, exchange_unpack };
