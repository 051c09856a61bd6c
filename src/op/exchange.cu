/*
 * What lies between the calls of comm on a GPU: launches on the same stream, so nothing waits.
 *
 * Places: a block for each rank walks the tokens, a thread a token, and counts those before it by
 * ballots: a place is decided by position alone. index is read once for each rank, but it is small
 * and stays in L2. Packing and unpacking are bound by memory: each row is read and written once.
 */
#include "op/pack.cuh"

#include "op/exchange.h"

enum { WARP = 32, PLACE_THREADS = 1024 };

/* Places */

typedef struct Place {
    const int32_t *index;
    int32_t *place;
    float *overflow; /* or NULL */
    int32_t *count;  /* or NULL */
    int64_t N, K, here, room;
} Place;

/* Which of the token's ranks, by number, `rank` is; -1: none. */
static __device__ __forceinline__ int64_t rank_of_token(const Place &a, const int32_t *index,
                                                        int32_t rank)
{
    int64_t lower = 0;
    bool found = false;
    for (int64_t k = 0; k < a.K; k++) {
        int32_t r = (int32_t)(index[k] / a.here);
        found = found || r == rank;
        bool seen = r >= rank;
        for (int64_t j = 0; j < k && !seen; j++) seen = (int32_t)(index[j] / a.here) == r;
        lower += !seen;
    }
    return found ? lower : -1;
}

static __global__ __launch_bounds__(PLACE_THREADS) void exchange_place_kernel(Place a)
{
    __shared__ int64_t warps[PLACE_THREADS / WARP]; /* tokens of each that go to the rank */
    int64_t used = 0;
    int32_t rank = (int32_t)blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int64_t from = 0; from < a.N; from += PLACE_THREADS) {
        int64_t n = from + threadIdx.x, i = -1;
        if (n < a.N) i = rank_of_token(a, a.index + n * a.K, rank);
        unsigned go = __ballot_sync(0xFFFFFFFFu, i >= 0);
        if (lane == 0) warps[warp] = __popc(go);
        __syncthreads();
        int64_t at = used + __popc(go & ((1u << lane) - 1));
        for (int w = 0; w < PLACE_THREADS / WARP; w++) {
            if (w < warp) at += warps[w];
            used += warps[w];
        }
        if (i >= 0 && at < a.room) a.place[n * a.K + i] = (int32_t)(rank * a.room + at);
        __syncthreads(); /* all have read `warps` */
    }
    if (a.count != NULL && threadIdx.x == 0) a.count[rank] = (int32_t)min(used, a.room);
    if (used > a.room && a.overflow != NULL && threadIdx.x == 0) *a.overflow = 1;
}

/* All bytes, before places are filled. */
static Status fill(struct Exec *ex, const Tensor *t, int byte)
{
    return cuda_status(cudaMemsetAsync(t->data, byte, tensor_bytes(t), exec_stream(ex)), "fill");
}

extern "C" Status exchange_place_cuda(struct Exec *ex, const void *args)
{
    const ExchangePlace *a = (const ExchangePlace *)args;
    Place p = {};
    p.index = (const int32_t *)a->index.data, p.place = (int32_t *)a->place.data;
    p.overflow = (float *)a->overflow.data, p.N = a->index.dim[0], p.K = tensor_cols(&a->index);
    p.count = (int32_t *)a->count.data;
    p.here = a->experts / a->ranks, p.room = a->room;
    TRY(fill(ex, &a->place, 0xFF)); /* -1 */
    exchange_place_kernel<<<(unsigned)a->ranks, PLACE_THREADS, 0, exec_stream(ex)>>>(p);
    return kernel_status("exchange_place");
}

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
    if (a->index.data != NULL) {
        TRY(fill(ex, &out->index, 0xFF));
        TRY(fill(ex, &out->weight, 0));
    }
    return launch_packed(
        "exchange_dispatch", a->x.dtype, { a->x.data, out->x.data }, { D }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            Pack<T> p = {};
            p.x = (const T *)a->x.data, p.rows = (T *)out->x.data;
            p.index = (const int32_t *)a->index.data, p.weight = (const float *)a->weight.data;
            p.place = (const int32_t *)a->place.data;
            p.rows_index = (int32_t *)out->index.data, p.rows_weight = (float *)out->weight.data;
            p.N = N, p.K = K, p.D = D;
            p.here = a->experts / a->ranks, p.room = out->x.dim[0] / a->ranks;
            dim3 block = row_block(D / (wide ? PACK<T> : 1));
            exchange_pack_kernel<T, wide>
                <<<grid_of(N * K, block.y), block, 0, exec_stream(ex)>>>(p);
        });
}

static __global__ void exchange_keep_own_kernel(int32_t *index, int64_t n, int64_t first,
                                                int64_t here)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) index[i] = local_expert(index[i], first, here);
}

static Status keep_own(struct Exec *ex, const Tensor *index, int64_t first, int64_t here)
{
    int64_t n = tensor_elems(index);
    exchange_keep_own_kernel<<<grid_of(n, 256), 256, 0, exec_stream(ex)>>>((int32_t *)index->data,
                                                                           n, first, here);
    return kernel_status("exchange_dispatch");
}

/* Combine: y_n = sum over the token's places of their rows + shared_n + residual_n */

template <typename T> struct Unpack {
    const T *rows;
    const int32_t *place;       /* or NULL: a row a token */
    const T *shared, *residual; /* or NULL */
    T *y;
    const float *rows_weight; /* or NULL */
    float *weight;
    int64_t N, K, D;
};

template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void unpack_add(const T *row, float (&sum)[P])
{
    float v[P];
    load<WIDE>(row, v);
#pragma unroll
    for (int i = 0; i < P; i++) sum[i] += v[i];
}

template <typename T, bool WIDE> static __global__ void exchange_unpack_kernel(Unpack<T> a)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int64_t n = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (n >= a.N) return;
    for (int64_t d = (int64_t)threadIdx.x * P; d < a.D; d += (int64_t)blockDim.x * P) {
        float sum[P] = {};
#pragma unroll 4
        for (int64_t k = 0; k < a.K; k++) {
            int64_t row = a.place == NULL ? n : a.place[n * a.K + k];
            if (row >= 0) unpack_add<T, WIDE>(a.rows + row * a.D + d, sum);
        }
        if (a.shared != NULL) unpack_add<T, WIDE>(a.shared + n * a.D + d, sum);
        if (a.residual != NULL) unpack_add<T, WIDE>(a.residual + n * a.D + d, sum);
        store<WIDE>(a.y + n * a.D + d, sum);
    }
    if (a.rows_weight == NULL) return;
    for (int64_t k = threadIdx.x; k < a.K; k += blockDim.x) {
        float sum = 0;
        for (int64_t i = 0; i < a.K; i++) {
            int64_t row = a.place[n * a.K + i];
            if (row >= 0) sum += a.rows_weight[row * a.K + k];
        }
        a.weight[n * a.K + k] = sum;
    }
}

static Status unpack(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *back)
{
    int64_t D = tensor_cols(&a->y), N = a->y.dim[0];
    bool gathered = a->kind == EXCHANGE_ALLGATHER;
    return launch_packed(
        "exchange_combine", a->y.dtype,
        { a->y.data, back->x.data, a->shared.data, a->residual.data }, { D },
        [&](auto t, auto wide) {
            typedef decltype(t) T;
            Unpack<T> u = {};
            u.rows = (const T *)back->x.data, u.y = (T *)a->y.data;
            u.place = gathered ? NULL : (const int32_t *)a->place.data;
            u.shared = (const T *)a->shared.data, u.residual = (const T *)a->residual.data;
            u.rows_weight = (const float *)back->weight.data, u.weight = (float *)a->weight.data;
            u.N = N, u.K = gathered ? 1 : tensor_cols(&a->place), u.D = D;
            dim3 block = row_block(D / (wide ? PACK<T> : 1));
            exchange_unpack_kernel<T, wide><<<grid_of(N, block.y), block, 0, exec_stream(ex)>>>(u);
        });
}

static const ExchangeLocal on_gpu = { pack, keep_own, unpack };

extern "C" Status exchange_dispatch_cuda(struct Exec *ex, const void *args)
{
    return exchange_dispatch_run(ex, (const ExchangeDispatch *)args, &on_gpu);
}

extern "C" Status exchange_combine_cuda(struct Exec *ex, const void *args)
{
    return exchange_combine_run(ex, (const ExchangeCombine *)args, &on_gpu);
}
