/*
 * exchange: the kernel of exchange_place, and the table of GPU kernels of all kinds. Kernels are
 * launched on the stream of comm's calls, so the host never waits.
 *
 * exchange_place has a block for each rank. The block walks the tokens, one for each thread, and
 * counts earlier tokens by ballots. So a token's offset depends on positions alone, not on timing.
 * index is read once for each rank, but it is small and stays in L2.
 */
#include "kernels/core/kernel.cuh"

#include "kernels/exchange/exchange.h"

enum { PLACE_THREADS = 1024 };

/* Offsets */

typedef struct Place {
    const int32_t *index;
    int32_t *offset;
    float *overflow; /* or NULL */
    int32_t *count;  /* or NULL */
    int64_t N, K, here, room;
} Place;

/* The index of `rank` among the token's ranks, in rising order; -1: it is none of them. */
static __device__ __forceinline__ int64_t rank_of_token(const Place &a, const int32_t *index,
                                                        int32_t rank)
{
    int64_t lower = 0;
    bool found = false;
    for (int64_t k = 0; k < a.K; k++) {
        if (index[k] < 0) continue;
        int32_t r = (int32_t)(index[k] / a.here);
        found = found || r == rank;
        bool seen = r >= rank;
        for (int64_t j = 0; j < k && !seen; j++) seen = index[j] >= 0 && index[j] / a.here == r;
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
        LaneMask go = lanes_where(i >= 0);
        if (lane == 0) warps[warp] = lanes_count(go);
        __syncthreads();
        int64_t at = used + lanes_count(go & lanes_below(lane));
        for (int w = 0; w < PLACE_THREADS / WARP; w++) {
            if (w < warp) at += warps[w];
            used += warps[w];
        }
        if (i >= 0 && at < a.room) a.offset[n * a.K + i] = (int32_t)(rank * a.room + at);
        __syncthreads(); /* all have read `warps` */
    }
    if (a.count != NULL && threadIdx.x == 0) a.count[rank] = (int32_t)min(used, a.room);
    if (used > a.room && a.overflow != NULL && threadIdx.x == 0) *a.overflow = 1;
}

extern "C" Status exchange_place_gpu(struct Exec *ex, const void *args)
{
    const ExchangePlace *a = (const ExchangePlace *)args;
    Place p = {};
    p.index = (const int32_t *)a->index.data;
    p.offset = (int32_t *)a->offset.data;
    p.overflow = (float *)a->overflow.data;
    p.N = a->index.dim[0];
    p.K = tensor_cols(&a->index);
    p.count = (int32_t *)a->count.data;
    p.here = a->experts / a->ranks;
    p.room = a->room;
    TRY(gpu_fill(a->offset.data, 0xFF, tensor_bytes(&a->offset), exec_stream(ex))); /* -1 */
    exchange_place_kernel<<<(unsigned)a->ranks, PLACE_THREADS, 0, exec_stream(ex)>>>(p);
    return kernel_status("exchange_place");
}

/* Functions, because a constant that holds host functions would become one of HIP's device code. */
static ExchangeLocal (*const on_gpu[EXCHANGE_KINDS])(void) = {
#define EXCHANGE(KIND, name) exchange_##name##_gpu,
#include "kernels/exchange/exchange.def"
#undef EXCHANGE
};

extern "C" Status exchange_dispatch_gpu(struct Exec *ex, const void *args)
{
    const ExchangeDispatch *a = (const ExchangeDispatch *)args;
    ExchangeLocal local = on_gpu[a->kind]();
    return exchange_dispatch_run(ex, a, &local);
}

extern "C" Status exchange_combine_gpu(struct Exec *ex, const void *args)
{
    const ExchangeCombine *a = (const ExchangeCombine *)args;
    ExchangeLocal local = on_gpu[a->kind]();
    return exchange_combine_run(ex, a, &local);
}

/* Ranks of tp that reach each other's memory load their rows themselves (exchange_rows.cu). */
extern "C" Status exchange_collective_gpu(struct Exec *ex, const void *args)
{
    const Collective *a = (const Collective *)args;
    ExchangeRows r = {};
    return exchange_rows_direct(ex, a, &r) ? exchange_rows_run(ex, a, &r)
                                           : exchange_collective_comm(ex, a);
}
