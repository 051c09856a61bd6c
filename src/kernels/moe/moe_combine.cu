/*
 * moe_combine: kernels of the weighted sum of experts' rows, and of the update of the router's bias.
 *
 * Combine is bound by memory: it reads K rows of each token once and writes y once. A thread has one pack of y and
 * handles one token after the other. It adds the rows of SLOTS slots, then shared and residual, in that order. As soon
 * as it has added a pack, it loads the same pack of its next token into the same registers, and the row numbers of the
 * token after that. So loads never pause, and no load waits for its row number. y may be the residual, because a thread
 * writes only what it has read. Threads of a block are laid out along a row first, then over tokens. The grid has
 * exactly the blocks that can run at once.
 *
 * The bias update is one block: it reads domains x experts integers once a step, or 128 an expert.
 */
#include "kernels/norm/rows.cuh"

#include "kernels/moe/moe.h"
#include "kernels/route/route_margin.h"

enum { SLOTS_MOST = 8 }; /* slots that a thread adds at a time: 128 + 32 bytes are in flight */

/* Blocks for each multiprocessor, as registers allow. */
template <int SLOTS> constexpr int COMBINE_BLOCKS = SLOTS <= 6 ? 3 : 2;

/* y_n = sum over k of weight[n][k] * out[slot_row[n][k]] + shared_n + residual_n */

template <typename T> struct Combine {
    const T *out;
    const int32_t *slot_row;    /* or NULL: row n for token n */
    const float *weight;        /* or NULL: 1 */
    const T *shared, *residual; /* or NULL */
    T *y;
    int64_t n;
    int k, d;
};

template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void combine_add(const Packed<T, WIDE> &row, float weight,
                                                   float (&sum)[P])
{
    float v[P];
    widen(row, v);
#pragma unroll
    for (int i = 0; i < P; i++) sum[i] += weight * v[i];
}

/* `slots` slots of token n from its slot `first` on, which is slot `at` of all tokens' slots. slots
 * is 0 past the last token. */
struct Pass {
    int64_t n, at;
    int first, slots;
};

/* A thread's registers for a pass: its packs, or zeros where a slot has no row or does not exist;
 * and the row numbers of the next pass, -1 for none. */
template <typename T, bool WIDE, int SLOTS> struct Held {
    Packed<T, WIDE> pack[SLOTS], shared, residual;
    float weight[SLOTS];
    int32_t row[SLOTS];
};

template <int SLOTS, typename T>
static __device__ __forceinline__ Pass pass_at(const Combine<T> &a, int64_t n, int first)
{
    return Pass{ n, n * a.k + first, first, n < a.n ? min(SLOTS, a.k - first) : 0 };
}

template <int SLOTS, typename T>
static __device__ __forceinline__ Pass pass_after(const Combine<T> &a, const Pass &p)
{
    bool more = p.first + SLOTS < a.k;
    return pass_at<SLOTS>(a, more ? p.n : p.n + (int64_t)gridDim.y * blockDim.y,
                          more ? p.first + SLOTS : 0);
}

/* Loads the row numbers of a pass. SLOTS 1: there are no slots, token n has row n. */
template <typename T, bool WIDE, int SLOTS>
static __device__ __forceinline__ void rows_ask(const Combine<T> &a, const Pass &p,
                                                Held<T, WIDE, SLOTS> &h)
{
    const int32_t *row = a.slot_row + p.at;
#pragma unroll
    for (int k = 0; k < SLOTS; k++) {
        h.row[k] = -1;
        if (k < p.slots) h.row[k] = SLOTS == 1 ? (int32_t)p.n : read_const(row + k);
    }
}

/* Loads slot k of a pass, whose row number is known. out: this thread's column of row 0. */
template <typename T, bool WIDE, int SLOTS>
static __device__ __forceinline__ void slot_ask(const Combine<T> &a, const T *out,
                                                const float *weight, int k, Held<T, WIDE, SLOTS> &h)
{
    bool there = h.row[k] >= 0, weighed = there & (a.weight != NULL);
    h.weight[k] = there ? 1 : 0;
    clear(h.pack[k]);
    if (there) fetch_once(h.pack[k], out + (int64_t)h.row[k] * a.d);
    if (weighed) h.weight[k] = read_const(weight + k);
}

template <typename T, bool WIDE, int SLOTS>
static __device__ __forceinline__ void rest_ask(const Combine<T> &a, int64_t col, int64_t n,
                                                Held<T, WIDE, SLOTS> &h)
{
    if (n >= a.n) return;
    if (a.shared != NULL) fetch_once(h.shared, a.shared + n * a.d + col);
    if (a.residual != NULL) fetch_once(h.residual, a.residual + n * a.d + col);
}

template <typename T, bool WIDE, int SLOTS>
static __global__ __launch_bounds__(ROWS_THREADS,
                                    COMBINE_BLOCKS<SLOTS>) void moe_combine_kernel(Combine<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    int64_t col = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * P;
    Pass now = pass_at<SLOTS>(a, (int64_t)blockIdx.y * blockDim.y + threadIdx.y, 0);
    Pass next = pass_after<SLOTS>(a, now);
    Held<T, WIDE, SLOTS> h;
    const T *out = a.out + col;
    float sum[P] = {};
    if (col >= a.d) return;
    rows_ask(a, now, h);
#pragma unroll
    for (int k = 0; k < SLOTS; k++) slot_ask(a, out, a.weight + now.at, k, h);
    rows_ask(a, next, h);
    rest_ask(a, col, now.n, h);
    while (now.n < a.n) {
        Pass after = pass_after<SLOTS>(a, next);
        const float *weight = a.weight + next.at;
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            combine_add(h.pack[k], h.weight[k], sum);
            slot_ask(a, out, weight, k, h);
        }
        rows_ask(a, after, h);
        if (next.n != now.n) {
            if (a.shared != NULL) combine_add(h.shared, 1, sum);
            if (a.residual != NULL) combine_add(h.residual, 1, sum);
            rest_ask(a, col, next.n, h);
            store<WIDE>(a.y + now.n * a.d + col, sum);
#pragma unroll
            for (int i = 0; i < P; i++) sum[i] = 0;
        }
        now = next;
        next = after;
    }
}

/* Chooses the smallest SLOTS that holds all k. */
template <typename T, bool WIDE, int SLOTS = 1>
static void combine_launch(LaunchStream stream, const Combine<T> &c)
{
    if constexpr (SLOTS < SLOTS_MOST) {
        if (SLOTS == 1 ? c.slot_row != NULL : c.k > SLOTS) {
            combine_launch<T, WIDE, SLOTS == 1 ? 2 : SLOTS + 2>(stream, c);
            return;
        }
    }
    RowGrid g = row_grid(c.n, c.d / (WIDE ? PACK<T> : 1), 1);
    unsigned blocks = (unsigned)gpu_limit(GPU_PROCESSORS) * COMBINE_BLOCKS<SLOTS>;
    unsigned most = blocks > g.grid.x ? blocks / g.grid.x : 1;
    if (g.grid.y > most) g.grid.y = most;
    moe_combine_kernel<T, WIDE, SLOTS><<<g.grid, g.block, 0, stream>>>(c);
}

extern "C" Status moe_combine_gpu(struct Exec *ex, const void *args)
{
    const MoeCombine *a = (const MoeCombine *)args;
    int64_t d = tensor_cols(&a->y), n = tensor_elems(&a->y) / d, k = moe_combine_slots(a);
    const void *shared = a->shared.data, *residual = a->residual.data;
    if (n == 0) return OK;
    return launch_packed(ex, "moe_combine", a->y.dtype,
                         { a->out.data, shared, residual, a->y.data }, { d },
                         [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             Combine<T> c = {};
                             c.out = (const T *)a->out.data;
                             c.slot_row = (const int32_t *)a->slot_row.data;
                             c.weight = (const float *)a->weight.data;
                             c.y = (T *)a->y.data;
                             c.shared = (const T *)shared;
                             c.residual = (const T *)residual;
                             c.n = n;
                             c.k = (int)k;
                             c.d = (int)d;
                             combine_launch<T, wide>(exec_stream(ex), c);
                         });
}

/* bias_e += rate * sign(mean(n) - n_e) */

enum { BIAS_THREADS = 512 };

static __global__ __launch_bounds__(BIAS_THREADS) void moe_bias_update_kernel(
    const int32_t *load, const float *gate, float *bias, int64_t domains, int64_t experts,
    float rate, bool centred)
{
    __shared__ int64_t room[BLOCK_WARPS];
    int64_t mine = 0;
    for (int64_t i = threadIdx.x; i < domains * experts; i += BIAS_THREADS) mine += load[i];
    int64_t total = block_sum(mine, room);
    auto sign = [=](int64_t e) {
        int64_t n = 0;
        for (int64_t d = 0; d < domains; d++) n += load[d * experts + e];
        int64_t under = total - n * experts; /* experts times the mean less n: 0 is exact */
        return (int64_t)(under > 0) - (int64_t)(under < 0);
    };
    mine = 0;
    for (int64_t e = threadIdx.x; centred && e < experts; e += BIAS_THREADS) mine += sign(e);
    float mean = __fdiv_rn((float)block_sum(mine, room), (float)experts);
    if (!isfinite(*gate)) return;
    for (int64_t e = threadIdx.x; e < experts; e += BIAS_THREADS)
        bias[e] += rate * ((float)sign(e) - mean);
}

/* bias_e += rate * (x_e - mean(x)), x_e = the quantile of e's margins */
static __global__ __launch_bounds__(BIAS_THREADS) void moe_bias_quantile_kernel(
    const int32_t *margins, const float *gate, float *bias, int64_t top_k, int64_t experts,
    float rate)
{
    __shared__ double room[BLOCK_WARPS];
    double mine = 0;
    if (!isfinite(*gate)) return;
    for (int64_t e = threadIdx.x; e < experts; e += BIAS_THREADS) {
        float x = margin_quantile(margins + e * MARGIN_BINS, top_k, experts);
        bias[e] += rate * x;
        mine += (double)x;
    }
    float mean = (float)block_sum(mine, room) / (float)experts;
    for (int64_t e = threadIdx.x; e < experts; e += BIAS_THREADS) bias[e] -= rate * mean;
}

extern "C" Status moe_bias_update_gpu(struct Exec *ex, const void *args)
{
    const MoeBiasUpdate *a = (const MoeBiasUpdate *)args;
    int64_t experts = tensor_elems(&a->bias);
    if (a->margins.data != NULL) {
        moe_bias_quantile_kernel<<<1, BIAS_THREADS, 0, exec_stream(ex)>>>(
            (const int32_t *)a->margins.data, (const float *)a->gate.data, (float *)a->bias.data,
            a->top_k, experts, a->rate);
        return kernel_status("moe_bias_update");
    }
    moe_bias_update_kernel<<<1, BIAS_THREADS, 0, exec_stream(ex)>>>(
        (const int32_t *)a->load.data, (const float *)a->gate.data, (float *)a->bias.data,
        tensor_elems(&a->load) / experts, experts, a->rate, a->centred);
    return kernel_status("moe_bias_update");
}
