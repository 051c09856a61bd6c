/*
 * exchange_direct on a GPU: dispatch and combine are one kernel each. It waits for the kernels of
 * other ranks by flags in the ranks' flag areas (exchange_peers.h). The host does not wait, and
 * what a kernel needs from the last exchange is on the device, so the kernel can be captured.
 *
 * BLOCKS blocks of WARPS warps; a warp handles a token. Dispatch reads a token's row once, PACKS packs a lane at a time, and stores it to each of its ranks; stores need no answer.
 * Combine loads the rows of SOURCES ranks at a time and adds them in the order of ranks. A load
 * from another GPU takes about 2 us; BLOCKS x WARPS x SOURCES x HELD x 512 bytes = 2 MB are in
 * flight.
 */
#include "kernels/exchange/exchange_peers.cuh"

enum { BLOCKS = 24, WARPS = PEERS_THREADS / WARP, PACKS = 8, HELD = 2, SOURCES = 4 };

/* Addresses of the peers' buffers, and their first rows for tokens of this rank. */
typedef struct Peers {
    char *at[PEER_BUFFERS][DIRECT_RANKS];
    int32_t first[DIRECT_RANKS];
} Peers;

/* Fills *out from the posts, one thread for each rank. Call it after barrier_enter; the caller then
 * needs a barrier of the block before others read *out. */
static __device__ __forceinline__ void resolve_peers(const Windows &w, const int32_t *first,
                                                     Peers *out)
{
    int rank = (int)threadIdx.x;
    if (rank >= w.ranks) return;
    const DirectPost *post = &header_of(w, w.me)->post[rank];
    for (int i = 0; i < PEER_BUFFERS; i++)
        out->at[i][rank] = w.window[rank] + load_volatile(&post->at[i]);
    if (first != NULL) out->first[rank] = first[rank];
}

/* The row of token n at the k-th of its ranks; rank -1: no such rank, or no room there. */
struct PeerRow {
    int rank;
    int32_t row;
};

static __device__ __forceinline__ PeerRow peer_row_of(const Peers &r, const int32_t *offset,
                                                      int64_t at, uint32_t n_tokens, int64_t m)
{
    int32_t p = read_const(offset + at);
    if (p < 0) return PeerRow{ -1, 0 };
    uint32_t rank = (uint32_t)p / n_tokens, row = (uint32_t)p % n_tokens;
    row += (uint32_t)r.first[rank]; /* after a fault it may be anything */
    return row < (uint64_t)m ? PeerRow{ (int)rank, (int32_t)row } : PeerRow{ -1, 0 };
}

/* Runs `with(rank, row)` for the ranks of token n, in their order. A whole warp must call it. */
template <typename F>
static __device__ __forceinline__ void each_peer_row(const Peers &r, const int32_t *offset,
                                                     int64_t n, int64_t k, uint32_t n_tokens,
                                                     int64_t m, F with)
{
    int lane = (int)threadIdx.x % WARP;
    for (int64_t base = 0; base < k; base += WARP) {
        PeerRow f = base + lane < k ? peer_row_of(r, offset, n * k + base + lane, n_tokens, m)
                                    : PeerRow{ -1, 0 };
        for (LaneMask left = lanes_where(f.rank >= 0); left != 0; left &= left - 1) {
            int from = lanes_first(left);
            with(lane_get(f.rank, from), (int64_t)lane_get(f.row, from));
        }
    }
}

/* Dispatch: rows are bytes here, whatever their type. */

struct Store {
    Windows w;
    const uint8_t *x;
    const float *scale;   /* or NULL: rows are plain */
    const int32_t *index; /* or NULL: rows go without routing, to where `first` says */
    const float *weight;
    const int32_t *offset, *count;
    int32_t *first;
    float *overflow;                      /* or NULL */
    int64_t N, K, bytes, scales, M, here; /* bytes and scales of a row */
};

/* Computes from the posted counts where this rank's tokens begin at each rank, and how many rows
 * come here. One thread for each rank; the first block also stores the result for combine. */
static __device__ __forceinline__ void layout(const Store &a, Peers *out)
{
    int rank = (int)threadIdx.x;
    int32_t before = 0, all = 0;
    if (rank >= a.w.ranks) return;
    const DirectPost *post = header_of(a.w, a.w.me)->post;
    for (int from = 0; from < a.w.ranks; from++) {
        if (from == a.w.me) before = all;
        all += load_volatile(&post[from].count[rank]);
    }
    out->first[rank] = before;
    if (blockIdx.x > 0) return;
    a.first[rank] = before;
    if (rank != a.w.me) return;
    a.first[a.w.ranks] = (int32_t)min((int64_t)all, a.M);
    if (all > a.M && a.overflow != NULL) *a.overflow = 1;
}

/* A warp stores token n to its ranks. */
template <bool WIDE>
static __device__ __forceinline__ void store_token(const Store &a, const Peers &r, int64_t n)
{
    constexpr int P = Packed<uint8_t, WIDE>::P;
    constexpr int64_t STEP = (int64_t)WARP * P, SPAN = STEP * PACKS;
    int lane = (int)threadIdx.x % WARP;
    for (int64_t col = lane * P; col - lane * P < a.bytes; col += SPAN) {
        Packed<uint8_t, WIDE> v[PACKS];
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            if (col + i * STEP < a.bytes) fetch_once(v[i], a.x + n * a.bytes + col + i * STEP);
        }
        each_peer_row(r, a.offset, n, a.K, (uint32_t)a.N, a.M, [&](int rank, int64_t row) {
            uint8_t *to = reinterpret_cast<uint8_t *>(r.at[PEER_ROWS][rank]) + row * a.bytes + col;
#pragma unroll
            for (int i = 0; i < PACKS; i++) {
                if (col + i * STEP < a.bytes) put(v[i], to + i * STEP);
            }
        });
    }
}

static __device__ __forceinline__ void store_scales(const Store &a, const Peers &r, int64_t n)
{
    int lane = (int)threadIdx.x % WARP;
    each_peer_row(r, a.offset, n, a.K, (uint32_t)a.N, a.M, [&](int rank, int64_t row) {
        float *to = reinterpret_cast<float *>(r.at[PEER_SCALES][rank]) + row * a.scales;
        for (int64_t s = lane; s < a.scales; s += WARP)
            to[s] = read_const(a.scale + n * a.scales + s);
    });
}

static __device__ __forceinline__ void store_routing(const Store &a, const Peers &r, int64_t n)
{
    int lane = (int)threadIdx.x % WARP;
    each_peer_row(r, a.offset, n, a.K, (uint32_t)a.N, a.M, [&](int rank, int64_t row) {
        int32_t *expert = reinterpret_cast<int32_t *>(r.at[PEER_EXPERTS][rank]) + row * a.K;
        float *weight = reinterpret_cast<float *>(r.at[PEER_WEIGHTS][rank]) + row * a.K;
        for (int64_t k = lane; k < a.K; k += WARP) {
            int64_t e = read_const(a.index + n * a.K + k) - rank * a.here;
            expert[k] = e >= 0 && e < a.here ? (int32_t)e : -1;
            weight[k] = read_const(a.weight + n * a.K + k);
        }
    });
}

template <bool WIDE>
static __global__ __launch_bounds__(PEERS_THREADS,
                                    1) void exchange_store_kernel(const __grid_constant__ Store a)
{
    __shared__ Peers r;
    uint32_t epoch = load_volatile(&header_of(a.w, a.w.me)->epoch) + 1;
    bool routed = a.index != NULL;
    barrier_post(a.w, routed ? a.count : NULL, epoch);
    bool ok = barrier_enter(a.w, epoch);
    if (ok) {
        resolve_peers(a.w, routed ? NULL : a.first, &r);
        if (routed) layout(a, &r);
        __syncthreads();
        int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
        for (int64_t n = warp; n < a.N; n += (int64_t)gridDim.x * WARPS) {
            store_token<WIDE>(a, r, n);
            if (a.scale != NULL) store_scales(a, r, n);
            if (routed) store_routing(a, r, n);
        }
    }
    barrier_leave(a.w, epoch, ok);
}

/* Combine */

template <typename T> struct Load {
    Windows w;
    const int32_t *offset, *first;
    const T *shared, *residual; /* or NULL */
    T *y;
    float *weight; /* or NULL */
    int64_t N, K, D, M;
};

/* The sums of a lane: HELD packs of a token. Sums are f32 and rounded once, when y is stored. */
template <typename T, bool WIDE> struct Sum {
    float v[HELD][Packed<T, WIDE>::P];
};

/* Loads up to HELD packs of a row, zeros after its end; `at`: the lane's first pack of the row. */
template <typename T, bool WIDE>
static __device__ __forceinline__ void ask(Packed<T, WIDE> (&v)[HELD], const T *at, int64_t left)
{
    constexpr int64_t STEP = (int64_t)WARP * Packed<T, WIDE>::P;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        clear(v[i]);
        if (i * STEP < left) fetch_once(v[i], at + i * STEP);
    }
}

template <typename T, bool WIDE>
static __device__ __forceinline__ void add_all(Sum<T, WIDE> &s, const Packed<T, WIDE> (&v)[HELD])
{
#pragma unroll
    for (int i = 0; i < HELD; i++) add_pack(v[i], s.v[i]);
}

/* Adds a token's rows from all its ranks. The rows of SOURCES ranks are loaded before any is added. */
template <typename T, bool WIDE>
static __device__ __forceinline__ void add_sources(const Load<T> &a, const Peers &r, PeerRow f,
                                                   int64_t col, Sum<T, WIDE> &sum)
{
    LaneMask left = lanes_where(f.rank >= 0);
    while (left != 0) {
        Packed<T, WIDE> v[SOURCES][HELD];
        int n = 0;
#pragma unroll
        for (int s = 0; s < SOURCES; s++) {
            if (left == 0) break;
            int from = lanes_first(left), rank = lane_get(f.rank, from);
            int64_t row = lane_get(f.row, from);
            ask(v[s], reinterpret_cast<const T *>(r.at[PEER_ROWS][rank]) + row * a.D + col,
                a.D - col);
            left &= left - 1;
            n++;
        }
#pragma unroll
        for (int s = 0; s < SOURCES; s++) {
            if (s < n) add_all(sum, v[s]);
        }
    }
}

template <typename T, bool WIDE>
static __device__ __forceinline__ void load_token(const Load<T> &a, const Peers &r, int64_t n)
{
    constexpr int P = Packed<T, WIDE>::P;
    constexpr int64_t STEP = (int64_t)WARP * P;
    int lane = (int)threadIdx.x % WARP;
    for (int64_t col = lane * P; col - lane * P < a.D; col += STEP * HELD) {
        Sum<T, WIDE> sum = {};
        Packed<T, WIDE> shared[HELD], residual[HELD]; /* asked for first, added last */
        int64_t at = n * a.D + col;
        if (a.shared != NULL) ask(shared, a.shared + at, a.D - col);
        if (a.residual != NULL) ask(residual, a.residual + at, a.D - col);
        for (int64_t base = 0; base < a.K; base += WARP) {
            PeerRow f = { -1, 0 };
            if (base + lane < a.K)
                f = peer_row_of(r, a.offset, n * a.K + base + lane, (uint32_t)a.N, a.M);
            add_sources(a, r, f, col, sum);
        }
        if (a.shared != NULL) add_all(sum, shared);
        if (a.residual != NULL) add_all(sum, residual);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if (col + i * STEP < a.D) store<WIDE>(a.y + at + i * STEP, sum.v[i]);
        }
    }
}

template <typename T>
static __device__ __forceinline__ void load_weights(const Load<T> &a, const Peers &r, int64_t n)
{
    for (int64_t base = 0; base < a.K; base += WARP) {
        int64_t k = base + threadIdx.x % WARP;
        float sum = 0;
        each_peer_row(r, a.offset, n, a.K, (uint32_t)a.N, a.M, [&](int rank, int64_t row) {
            const float *from =
                reinterpret_cast<const float *>(r.at[PEER_WEIGHTS][rank]) + row * a.K;
            if (k < a.K) sum += read_once(from + k);
        });
        if (k < a.K) a.weight[n * a.K + k] = sum;
    }
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(PEERS_THREADS,
                                    1) void exchange_load_kernel(const __grid_constant__ Load<T> a)
{
    __shared__ Peers r;
    uint32_t epoch = load_volatile(&header_of(a.w, a.w.me)->epoch) + 1;
    barrier_post(a.w, NULL, epoch);
    bool ok = barrier_enter(a.w, epoch);
    if (ok) {
        resolve_peers(a.w, a.first, &r);
        __syncthreads();
        int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
        for (int64_t n = warp; n < a.N; n += (int64_t)gridDim.x * WARPS) {
            load_token<T, WIDE>(a, r, n);
            if (a.weight != NULL) load_weights(a, r, n);
        }
    }
    barrier_leave(a.w, epoch, ok);
}

/* Launchers */

static Status store_rows(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *r)
{
    static const char op[] = "exchange_dispatch";
    const Tensor *x = &a->x.data;
    Store s = {};
    s.w = windows_of(r);
    s.x = (const uint8_t *)x->data;
    s.scale = (const float *)a->x.scale.data;
    s.index = (const int32_t *)a->index.data;
    s.weight = (const float *)a->weight.data;
    s.offset = (const int32_t *)a->offset.data;
    s.count = (const int32_t *)a->count.data;
    s.first = (int32_t *)a->first.data;
    s.overflow = (float *)a->overflow.data;
    s.N = x->dim[0];
    s.K = tensor_cols(&a->offset);
    s.bytes = (int64_t)exchange_row_bytes(x);
    s.scales = s.scale == NULL ? 0 : tensor_cols(&a->x.scale);
    s.M = a->rows.data.dim[0];
    s.here = a->experts / a->ranks;
    bool wide = packs_chosen<uint8_t>(ex, op, { x->data, a->rows.data.data }, { s.bytes });
    auto *kernel = wide ? exchange_store_kernel<true> : exchange_store_kernel<false>;
    kernel<<<peers_blocks(s.N, WARPS, BLOCKS), PEERS_THREADS, 0, exec_stream(ex)>>>(s);
    return kernel_status(op);
}

static Status load_rows(struct Exec *ex, const ExchangeCombine *a, const ExchangeRows *r)
{
    int64_t D = tensor_cols(&a->y), N = a->y.dim[0];
    return launch_packed(
        ex, "exchange_combine", a->y.dtype,
        { a->x.data, a->shared.data, a->residual.data, a->y.data }, { D }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            Load<T> l = {};
            l.w = windows_of(r);
            l.offset = (const int32_t *)a->offset.data;
            l.first = (const int32_t *)a->first.data;
            l.shared = (const T *)a->shared.data;
            l.residual = (const T *)a->residual.data;
            l.y = (T *)a->y.data;
            l.weight = (float *)a->weight.data;
            l.N = N;
            l.K = tensor_cols(&a->offset);
            l.D = D;
            l.M = a->x.dim[0];
            exchange_load_kernel<T, wide>
                <<<peers_blocks(N, WARPS, BLOCKS), PEERS_THREADS, 0, exec_stream(ex)>>>(l);
        });
}

extern "C" ExchangeLocal exchange_direct_gpu(void) { return { store_rows, load_rows }; }
