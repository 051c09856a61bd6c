/* exchange_alltoall on a GPU: rows to their places, and back into sums. Bound by memory: each row is
 * read and written once. */
#include "op/pack.cuh"

#include "op/exchange.h"

/* Dispatch: a row of threads for each (token, rank). */

template <typename T> struct Pack {
    const T *x;
    const int32_t *index; /* or NULL: rows go alone */
    const float *weight;
    const int32_t *place;
    T *rows;
    int32_t *rows_index;
    float *rows_weight;
    int64_t N, K, D, here, room;
};

static __device__ __forceinline__ int32_t local_expert(int64_t e, int64_t first, int64_t here)
{
    return e >= first && e < first + here ? (int32_t)(e - first) : -1;
}

template <typename T, bool WIDE> static __global__ void exchange_pack_kernel(Pack<T> a)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (at >= a.N * a.K || a.place[at] < 0) return;
    int64_t p = a.place[at], n = at / a.K;
    move<WIDE>(a.x + n * a.D, a.rows + p * a.D, a.D, (int)threadIdx.x, (int)blockDim.x);
    if (a.index == NULL) return;
    for (int64_t k = threadIdx.x; k < a.K; k += blockDim.x) {
        a.rows_index[p * a.K + k] = local_expert(a.index[n * a.K + k], p / a.room * a.here, a.here);
        a.rows_weight[p * a.K + k] = a.weight[n * a.K + k];
    }
}

static Status pack(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *out)
{
    int64_t D = tensor_cols(&a->x), K = tensor_cols(&a->place), N = a->x.dim[0];
    return launch_packed("exchange_dispatch", a->x.dtype, { a->x.data, out->x.data }, { D },
                         [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             Pack<T> p = {};
                             p.x = (const T *)a->x.data;
                             p.rows = (T *)out->x.data;
                             p.index = (const int32_t *)a->index.data;
                             p.weight = (const float *)a->weight.data;
                             p.place = (const int32_t *)a->place.data;
                             p.rows_index = (int32_t *)out->index.data;
                             p.rows_weight = (float *)out->weight.data;
                             p.N = N;
                             p.K = K;
                             p.D = D;
                             p.here = a->experts / a->ranks;
                             p.room = out->x.dim[0] / a->ranks;
                             dim3 block = row_block(D / (wide ? PACK<T> : 1));
                             exchange_pack_kernel<T, wide>
                                 <<<grid_of(N * K, block.y), block, 0, exec_stream(ex)>>>(p);
                         });
}

const ExchangeLocal exchange_alltoall_cuda = { pack, exchange_unpack };
