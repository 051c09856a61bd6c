/*
 * exchange_rows: gathers and reduce-scatters of the rows that ranks of tp hold of the residual stream
 * (engine/model/stream.h), in each other's memory. One launch each:
 *
 *   gather           a rank reads its rows once, and stores them into the results of all ranks
 *   reduce-scatter   a rank loads its rows of all parts, and adds them in f32, in the order of ranks
 *
 * Nothing is staged. Between two H200s (450 GB/s) loads reach 330 GB/s, since their requests travel, too, and
 * stores more; NCCL's gather of 64 MiB with 32 blocks reaches 240. A load from another GPU takes about 2 us,
 * so BLOCKS * PEERS_THREADS * EACH * 16 bytes are in flight.
 *
 * Compute waits for these rows, so they take more blocks than an exchange of tokens beside products.
 */
#include "kernels/exchange/exchange_peers.cuh"

enum { BLOCKS = 32, EACH = 4, SOURCES = 2 };

/* Rows as packs of 16 bytes. `run`: packs of one part's rows of one rank, of `parts` parts. */
typedef struct RowTransfer {
    Windows w;
    const uint4 *in;
    uint4 *out;
    int64_t run, parts;
} RowTransfer;

/* The buffers that the ranks have posted: results of a gather, parts of a sum. Call it after barrier_enter; the
 * block then needs a barrier. */
static __device__ __forceinline__ void find_buffers(const Windows &w, uint4 **of)
{
    const int rank = (int)threadIdx.x;
    if (rank >= w.ranks) return;
    const DirectPost *post = &header_of(w, w.me)->post[rank];
    of[rank] = reinterpret_cast<uint4 *>(w.window[rank] + load_volatile(&post->at[PEER_ROWS]));
}

/* Pack i of this rank's rows, in the tensor of all ranks' rows: (parts, ranks, run). */
static __device__ __forceinline__ int64_t whole_pack(const RowTransfer &a, int64_t i)
{
    int64_t part = i / a.run;
    return (part * a.w.ranks + a.w.me) * a.run + i - part * a.run;
}

/* Calls with(i) for this thread's first pack i of each tile among n packs: a thread has EACH packs of a tile,
 * PEERS_THREADS apart. */
template <typename F> static __device__ __forceinline__ void each_tile(int64_t n, F with)
{
    const int64_t tile = (int64_t)PEERS_THREADS * EACH;
    for (int64_t at = blockIdx.x * tile; at < n; at += gridDim.x * tile) with(at + threadIdx.x);
}

/* Runs with(buffers of the ranks, first pack of a tile, n packs) for all tiles, between the two barriers. */
template <typename F>
static __device__ __forceinline__ void each_tile_at_peers(const RowTransfer &a, F with)
{
    __shared__ uint4 *at[DIRECT_RANKS];
    uint32_t epoch = load_volatile(&header_of(a.w, a.w.me)->epoch) + 1;
    barrier_post(a.w, NULL, epoch);
    bool ok = barrier_enter(a.w, epoch);
    if (ok) {
        const int64_t n = a.run * a.parts;
        find_buffers(a.w, at);
        __syncthreads();
        each_tile(n, [&](int64_t first) { with(at, first, n); });
    }
    barrier_leave(a.w, epoch, ok);
}

/* Each rank begins with itself and goes on with the rank behind it, so that no two store into one. */
static __device__ __forceinline__ void store_packs(const RowTransfer &a, uint4 *const *to,
                                                   int64_t first, int64_t n)
{
    uint4 v[EACH];
    int64_t at[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + (int64_t)k * PEERS_THREADS;
        at[k] = i < n ? whole_pack(a, i) : -1;
        if (i < n) v[k] = read_once(a.in + i);
    }
    for (int d = 0; d < a.w.ranks; d++) {
        uint4 *out = to[(a.w.me + d) % a.w.ranks];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (at[k] >= 0) write_whole(out + at[k], v[k]);
        }
    }
}

static __global__ __launch_bounds__(PEERS_THREADS,
                                    1) void rows_store_kernel(const __grid_constant__ RowTransfer a)
{
    each_tile_at_peers(
        a, [&](uint4 *const *to, int64_t first, int64_t n) { store_packs(a, to, first, n); });
}

/* The sums of a thread's EACH packs. The packs of SOURCES ranks are asked for before any is added. */
template <typename T>
static __device__ __forceinline__ void add_rows(const RowTransfer &a, uint4 *const *from,
                                                int64_t first, int64_t n)
{
    constexpr int P = PACK<T>;
    float sum[EACH][P] = {};
    int64_t at[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) at[k] = whole_pack(a, first + (int64_t)k * PEERS_THREADS);
    for (int rank = 0; rank < a.w.ranks; rank += SOURCES) {
        Packed<T, true> v[SOURCES][EACH];
#pragma unroll
        for (int s = 0; s < SOURCES; s++) {
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                clear(v[s][k]);
                if (rank + s < a.w.ranks && first + (int64_t)k * PEERS_THREADS < n)
                    v[s][k].bits = read_once(from[rank + s] + at[k]);
            }
        }
#pragma unroll
        for (int s = 0; s < SOURCES; s++) {
#pragma unroll
            for (int k = 0; k < EACH; k++) add_pack(v[s][k], sum[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + (int64_t)k * PEERS_THREADS;
        if (i < n) store<true>(reinterpret_cast<T *>(a.out + i), sum[k]);
    }
}

template <typename T>
static __global__ __launch_bounds__(PEERS_THREADS,
                                    1) void rows_add_kernel(const __grid_constant__ RowTransfer a)
{
    each_tile_at_peers(
        a, [&](uint4 *const *from, int64_t first, int64_t n) { add_rows<T>(a, from, first, n); });
}

extern "C" Status exchange_rows_run(struct Exec *ex, const Collective *a, const ExchangeRows *r)
{
    const bool gather = a->kind == COMM_ALL_GATHER;
    const int64_t least = (int64_t)tensor_bytes(gather ? &a->in : &a->out);
    RowTransfer t = {};
    t.w = windows_of(r);
    t.in = (const uint4 *)a->in.data;
    t.out = (uint4 *)a->out.data;
    t.parts = a->parts > 1 ? a->parts : 1;
    t.run = least / t.parts / (int64_t)sizeof(uint4);
    const unsigned blocks = peers_blocks(t.run * t.parts, PEERS_THREADS * EACH, BLOCKS);
    if (gather) {
        rows_store_kernel<<<blocks, PEERS_THREADS, 0, exec_stream(ex)>>>(t);
        return kernel_status("exchange_collective");
    }
    return launch_typed("exchange_collective", a->in.dtype, [&](auto of) {
        rows_add_kernel<decltype(of)><<<blocks, PEERS_THREADS, 0, exec_stream(ex)>>>(t);
    });
}
