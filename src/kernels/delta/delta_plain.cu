/*
 * delta_plain: the gated delta rule token by token, for all GPUs, types and widths, and the end of backward that it
 * shares with nv/delta_chunk.cu. LANES threads have a column of S in registers, every LANES-th row each; a block has 32
 * to 128 columns of a head. q, k and gates of a batch of tokens lie in shared memory.
 *
 * Backward has the state before every 64th token from a first walk. It takes these pieces from the last to the first,
 * notes the states before each of their tokens in the workspace, and walks back. Gradients of q and k are summed over the
 * columns of a block in shared memory; a last kernel adds blocks, and heads that share a key.
 */
#include "kernels/norm/rows_add.cuh"

#include "kernels/delta/delta_call.cuh"

enum {
    LANES = 8,
    SIDE = 32, /* columns that threads of a block have at a time */
    THREADS = LANES * SIDE,
    WARPS = THREADS / WARP,
    PIECE = 64,      /* tokens whose states are noted at a time */
    SLAB = 32,       /* heads at a time, backward */
    FINISH_ROWS = 16 /* rows whose sums of ddecay one block makes */
};

/* R rows and C columns of S for each thread; tokens of a batch. */
template <int R> constexpr int COLUMNS = R <= 16 ? 4 : 2;
template <int R> constexpr int PARTS = 2 * R *LANES + 2; /* of a token: dq, dk, dbeta, dlog alpha */
template <int R> constexpr int BATCH = R <= 16 ? 16 : 8;

template <typename T> struct Call {
    DeltaShape s;
    const T *qkv, *x, *d_o;
    const float *decay;
    T *o, *dqkv;
    float *state, *dstate, *span, *begins, *before, *parts, *slopes;
    int64_t unit;               /* the first head of the slab */
    int64_t groups, parts_cols; /* blocks of a head; PARTS */
    float q_scale;
};

/* q and k of unit length, q scaled, of a batch of tokens; columns behind Dk are 0. */
template <int R> struct Batch {
    static constexpr int WIDTH = R * LANES, BYTES = BATCH<R> * (2 * WIDTH + 4) * 4;
    float *q, *k, *gates; /* gates: alpha, beta of each */

    __device__ __forceinline__ explicit Batch(float *at)
        : q(at), k(at + BATCH<R> * WIDTH), gates(at + 2 * BATCH<R> * WIDTH)
    {
    }
};

template <typename T>
static __device__ __forceinline__ const T *q_at(const Call<T> &a, int64_t row, int head)
{
    return a.qkv + row * a.s.qkv_cols + (int64_t)(head / a.s.shared) * a.s.key;
}

template <typename T> static __device__ __forceinline__ float unit_scale(const T *x, int width)
{
    float sum = 0;
    for (int i = (int)threadIdx.x % WARP; i < width; i += WARP) sum += to_f32(x[i]) * to_f32(x[i]);
    return 1 / sqrtf(warp_sum(sum) + DELTA_LENGTH_EPS);
}

/* Tokens t .. t + n of sequence b; a warp makes one at a time. */
template <typename T, int R>
static __device__ __forceinline__ void load_batch(const Call<T> &a, const Batch<R> &to, int64_t b,
                                                  int head, int64_t t, int n)
{
    __syncthreads();
    for (int i = (int)threadIdx.x / WARP; i < n; i += WARPS) {
        int64_t row = b * a.s.sequence + t + i;
        const T *q = q_at(a, row, head), *k = q + (int64_t)a.s.key_heads * a.s.key;
        float by_q = unit_scale(q, a.s.key) * a.q_scale, by_k = unit_scale(k, a.s.key);
        for (int j = (int)threadIdx.x % WARP; j < to.WIDTH; j += WARP) {
            to.q[i * to.WIDTH + j] = j < a.s.key ? to_f32(q[j]) * by_q : 0.0f;
            to.k[i * to.WIDTH + j] = j < a.s.key ? to_f32(k[j]) * by_k : 0.0f;
        }
        if (threadIdx.x % WARP > 0) continue;
        const T *x = a.x + row * a.s.x_cols + delta_b_of(a.s, head);
        DeltaGates g = delta_gates(a.s, a.decay, head, to_f32(x[0]), to_f32(x[a.s.shared]));
        bool begins = delta_first_of(a.s, row) == delta_position_of(a.s, row);
        to.gates[2 * i] = begins ? 0.0f : expf(g.log_alpha);
        to.gates[2 * i + 1] = g.beta;
    }
    __syncthreads();
}

static __device__ __forceinline__ float lanes_add(float v)
{
#pragma unroll
    for (int bits = 1; bits < LANES; bits *= 2) v += lane_get_xor(v, bits);
    return v;
}

/* Where a thread's columns and rows are. */
struct Own {
    int64_t b, column; /* column: the first; others are SIDE apart */
    int head, lane;

    template <typename T, int C> static __device__ __forceinline__ Own of(const Call<T> &a)
    {
        Own o;
        int64_t unit = a.unit + blockIdx.x / a.groups;
        o.b = unit / a.s.heads, o.head = (int)(unit % a.s.heads);
        o.lane = (int)threadIdx.x % LANES;
        o.column = blockIdx.x % a.groups * SIDE * C + threadIdx.x / LANES;
        return o;
    }
};

/* Reads or writes the part of a given state, (Dk, Dv), that this thread has; others are zeros. */
template <bool STORE, int R, int C>
static __device__ __forceinline__ void move_state(const DeltaShape &s, const Own &own, float *state,
                                                  float (&S)[C][R])
{
    state += (own.b * s.heads + own.head) * (int64_t)s.key * s.value;
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            int64_t i = r * LANES + own.lane, j = own.column + c * SIDE;
            bool inside = i < s.key && j < s.value;
            if (STORE && inside) state[i * s.value + j] = S[c][r];
            if (!STORE) S[c][r] = inside ? state[i * s.value + j] : 0.0f;
        }
    }
}

/* The same to the columns of a span: B or C, and M behind them. */
template <int R, int C>
static __device__ __forceinline__ void store_span(const DeltaShape &s, const Own &own, float *span,
                                                  int columns, const float (&S)[C][R])
{
    int64_t width = s.key + s.value;
    span += (own.b * s.heads + own.head) * s.key * width;
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            int64_t i = r * LANES + own.lane, j = own.column + c * SIDE;
            if (i < s.key && j < columns) span[i * width + j] = S[c][r];
        }
    }
}

/* Notes what this thread has of the block's n-th state, or takes it. */
template <bool STORE, int R, int C>
static __device__ __forceinline__ void note_state(float *notes, int64_t n, float (&S)[C][R])
{
    float *at = notes + n * THREADS * C * R + threadIdx.x;
#pragma unroll
    for (int i = 0; i < C * R; i++) {
        if (STORE)
            at[i * THREADS] = S[i / R][i % R];
        else
            S[i / R][i % R] = at[i * THREADS];
    }
}

/* e of a token's column: v less what the decayed state has for k. */
template <int R>
static __device__ __forceinline__ float missing(const float (&S)[R], const float *k, int lane,
                                                float alpha, float v)
{
    float sum = 0;
#pragma unroll
    for (int r = 0; r < R; r++) sum += S[r] * k[r * LANES + lane];
    return v - alpha * lanes_add(sum);
}

/* Walks tokens t .. t + n. o NULL: only states. NOTE: with the state before each in a.before. */
template <bool NOTE, typename T, int R, int C>
static __device__ __forceinline__ void walk(const Call<T> &a, const Own &own, const Batch<R> &batch,
                                            int64_t t, int64_t n, float (&S)[C][R])
{
    for (int64_t first = t; first < t + n; first += BATCH<R>) {
        int many = (int)min((int64_t)BATCH<R>, t + n - first);
        load_batch<T, R>(a, batch, own.b, own.head, first, many);
        for (int i = 0; i < many; i++) {
            const float *q = batch.q + i * batch.WIDTH, *k = batch.k + i * batch.WIDTH;
            float alpha = batch.gates[2 * i], beta = batch.gates[2 * i + 1];
            int64_t row = own.b * a.s.sequence + first + i;
            if (NOTE) note_state<true>(a.before, blockIdx.x * PIECE + first + i - t, S);
#pragma unroll
            for (int c = 0; c < C; c++) {
                int64_t j = own.column + c * SIDE;
                bool inside = j < a.s.value;
                const T *v = a.qkv + row * a.s.qkv_cols + 2 * (int64_t)a.s.key_heads * a.s.key +
                             (int64_t)own.head * a.s.value + j;
                float u = beta * missing<R>(S[c], k, own.lane, alpha, inside ? to_f32(*v) : 0.0f);
                float sum = 0;
#pragma unroll
                for (int r = 0; r < R; r++) {
                    S[c][r] = alpha * S[c][r] + k[r * LANES + own.lane] * u;
                    sum += S[c][r] * q[r * LANES + own.lane];
                }
                if (a.o == NULL) continue;
                sum = lanes_add(sum);
                if (own.lane == 0 && inside)
                    a.o[(row * a.s.heads + own.head) * a.s.value + j] = from_f32<T>(sum);
            }
        }
    }
}

/* Forward, or the first walk of backward: then with the state before every PIECE-th token. */
template <typename T, int R, int C>
static __global__ __launch_bounds__(THREADS) void delta_plain_fwd_kernel(const Call<T> a)
{
    extern __shared__ float room[];
    Batch<R> batch(room);
    Own own = Own::of<T, C>(a);
    int64_t tokens = a.s.sequence, pieces = (tokens + PIECE - 1) / PIECE;
    float S[C][R] = {};
    if (a.state != NULL) move_state<false>(a.s, own, a.state, S);
#pragma unroll
    for (int i = 0; i < C * R; i++) /* columns behind v, of M, begin as ones and see no v */
        if (a.span != NULL && own.column + i / R * SIDE == a.s.value + i % R * LANES + own.lane)
            S[i / R][i % R] = 1;
    for (int64_t t = 0; t < tokens; t += PIECE) {
        if (a.begins != NULL) note_state<true>(a.begins, blockIdx.x * pieces + t / PIECE, S);
        walk<false>(a, own, batch, t, min((int64_t)PIECE, tokens - t), S);
    }
    if (a.state != NULL && a.o != NULL) move_state<true>(a.s, own, a.state, S);
    if (a.span != NULL) store_span(a.s, own, a.span, a.s.value + a.s.key, S);
}

/* What a thread adds to the sums of a token over columns. */
template <int R> struct Share {
    float dq[R], dk[R], dbeta, slope;
};

/* One token of one column, from the last: d is the gradient of the state behind it, then of the one before. */
template <int R>
static __device__ __forceinline__ float pull_column(const Batch<R> &batch, int i, int lane,
                                                    float q_scale, const float (&S)[R], float v,
                                                    float d_o, float (&d)[R], Share<R> &sum)
{
    const float *q = batch.q + i * batch.WIDTH + lane, *k = batch.k + i * batch.WIDTH + lane;
    float alpha = batch.gates[2 * i], beta = batch.gates[2 * i + 1], du = 0;
    float e = missing<R>(S, k - lane, lane, alpha, v), u = beta * e;
#pragma unroll
    for (int r = 0; r < R; r++) {
        sum.dq[r] += q_scale * (alpha * S[r] + k[r * LANES] * u) * d_o;
        d[r] += q[r * LANES] * d_o;
        du += d[r] * k[r * LANES];
    }
    du = lanes_add(du);
    float dv = beta * du;
    if (lane == 0) sum.dbeta += du * e;
#pragma unroll
    for (int r = 0; r < R; r++) {
        float decayed = alpha * S[r];
        sum.dk[r] += d[r] * u - decayed * dv;
        d[r] -= k[r * LANES] * dv;
        sum.slope += d[r] * decayed;
        d[r] *= alpha;
    }
    return dv;
}

/* Adds up a token's shares over the columns of the block, and writes them to `to`. */
template <int R>
static __device__ __forceinline__ void store_shares(Share<R> &own, float *room, float *to)
{
    constexpr int WIDTH = R * LANES, ALL = PARTS<R>;
    int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / WARP;
    float *mine = room + warp * ALL;
    own.slope = lanes_add(own.slope), own.dbeta = lanes_add(own.dbeta);
    for (int bits = LANES; bits < WARP; bits *= 2) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            own.dq[r] += lane_get_xor(own.dq[r], bits);
            own.dk[r] += lane_get_xor(own.dk[r], bits);
        }
        own.dbeta += lane_get_xor(own.dbeta, bits), own.slope += lane_get_xor(own.slope, bits);
    }
    if (threadIdx.x % WARP < LANES) {
#pragma unroll
        for (int r = 0; r < R; r++) {
            mine[r * LANES + lane] = own.dq[r];
            mine[WIDTH + r * LANES + lane] = own.dk[r];
        }
        if (lane == 0) mine[2 * WIDTH] = own.dbeta, mine[2 * WIDTH + 1] = own.slope;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < ALL; i += THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += room[w * ALL + i];
        to[i] = sum;
    }
    __syncthreads();
}

template <typename T, int R, int C>
static __device__ __forceinline__ void
pull_token(const Call<T> &a, const Own &own, const Batch<R> &batch, int i, int64_t t,
           const float (&S)[C][R], float (&d)[C][R], float *room)
{
    Share<R> sum = {};
    int64_t row = own.b * a.s.sequence + t;
#pragma unroll
    for (int c = 0; c < C; c++) {
        int64_t j = own.column + c * SIDE;
        bool inside = j < a.s.value;
        int64_t v = row * a.s.qkv_cols + 2 * (int64_t)a.s.key_heads * a.s.key +
                    (int64_t)own.head * a.s.value + j;
        int64_t o = (row * a.s.heads + own.head) * a.s.value + j;
        float dv =
            pull_column<R>(batch, i, own.lane, a.q_scale, S[c], inside ? to_f32(a.qkv[v]) : 0.0f,
                           inside ? to_f32(a.d_o[o]) : 0.0f, d[c], sum);
        if (own.lane == 0 && inside) a.dqkv[v] = from_f32<T>(dv);
    }
    store_shares<R>(sum, room, a.parts + (blockIdx.x * a.s.sequence + t) * PARTS<R>);
}

template <typename T, int R, int C>
static __global__ __launch_bounds__(THREADS) void delta_plain_bwd_kernel(const Call<T> a)
{
    extern __shared__ float room[];
    Batch<R> batch(room);
    Own own = Own::of<T, C>(a);
    int64_t pieces = (a.s.sequence + PIECE - 1) / PIECE;
    float d[C][R] = {}, S[C][R];
    if (a.dstate != NULL) move_state<false>(a.s, own, a.dstate, d);
    for (int64_t piece = pieces - 1; piece >= 0; piece--) {
        int64_t t = piece * PIECE, n = min((int64_t)PIECE, a.s.sequence - t);
        note_state<false>(a.begins, blockIdx.x * pieces + piece, S);
        walk<true>(a, own, batch, t, n, S);
        for (int64_t first = (n - 1) / BATCH<R> * BATCH<R>; first >= 0; first -= BATCH<R>) {
            int many = (int)min((int64_t)BATCH<R>, n - first);
            load_batch<T, R>(a, batch, own.b, own.head, t + first, many);
            for (int i = many - 1; i >= 0; i--) {
                note_state<false>(a.before, blockIdx.x * PIECE + first + i, S);
                pull_token(a, own, batch, i, t + first + i, S, d, room + batch.BYTES / 4);
            }
        }
    }
    if (a.dstate != NULL) move_state<true>(a.s, own, a.dstate, d);
}

/* C of a span: the walk back of a state's gradient alone, which needs no state. */
template <typename T, int R>
static __global__ __launch_bounds__(THREADS) void delta_plain_span_kernel(const Call<T> a)
{
    extern __shared__ float room[];
    Batch<R> batch(room);
    Own own = Own::of<T, 1>(a);
    float d[1][R] = {};
    for (int64_t first = (a.s.sequence - 1) / BATCH<R> * BATCH<R>; first >= 0; first -= BATCH<R>) {
        int many = (int)min((int64_t)BATCH<R>, a.s.sequence - first);
        load_batch<T, R>(a, batch, own.b, own.head, first, many);
        for (int i = many - 1; i >= 0; i--) {
            const float *q = batch.q + i * batch.WIDTH + own.lane,
                        *k = batch.k + i * batch.WIDTH + own.lane;
            int64_t row = own.b * a.s.sequence + first + i;
            const T *at = a.d_o + (row * a.s.heads + own.head) * a.s.value + own.column;
            float d_o = own.column < a.s.value ? to_f32(*at) : 0.0f, du = 0;
#pragma unroll
            for (int r = 0; r < R; r++) {
                d[0][r] += q[r * LANES] * d_o;
                du += k[r * LANES] * d[0][r];
            }
            float dv = batch.gates[2 * i + 1] * lanes_add(du);
#pragma unroll
            for (int r = 0; r < R; r++)
                d[0][r] = batch.gates[2 * i] * (d[0][r] - k[r * LANES] * dv);
        }
    }
    store_span(a.s, own, a.span, a.s.value, d);
}

/* What is left of a vector's gradient: (d - u (u . d)) / |x| for u = x / |x|. A warp has a vector. */
template <typename T>
static __device__ __forceinline__ void store_unit(const Call<T> &a, int64_t unit, int64_t t,
                                                  const T *x, T *to, int part)
{
    float by = unit_scale(x, a.s.key), along = 0;
    for (int pass = 0; pass < 2; pass++) {
        float sum = 0;
        for (int i = (int)threadIdx.x % WARP; i < a.s.key; i += WARP) {
            float d = 0, u = to_f32(x[i]) * by;
            for (int64_t p = 0; p < a.s.shared * a.groups; p++)
                d += a.parts[((unit * a.groups + p) * a.s.sequence + t) * a.parts_cols +
                             part * (a.parts_cols / 2 - 1) + i];
            sum += d * u;
            if (pass == 1) to[i] = from_f32<T>(by * (d - u * along));
        }
        along = warp_sum(sum);
    }
}

/* Gradients of q and k, and slopes: a warp has a token of a key head. */
template <typename T>
static __global__ __launch_bounds__(THREADS) void delta_parts_kernel(Call<T> a)
{
    int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, unit = blockIdx.y * a.s.shared;
    if (t >= a.s.sequence) return;
    int64_t row = (a.unit + unit) / a.s.heads * a.s.sequence + t;
    int head = (int)((a.unit + unit) % a.s.heads);
    int64_t q = q_at(a, row, head) - a.qkv, k = q + (int64_t)a.s.key_heads * a.s.key;
    store_unit(a, unit, t, a.qkv + q, a.dqkv + q, 0);
    store_unit(a, unit, t, a.qkv + k, a.dqkv + k, 1);
    for (int r = (int)threadIdx.x % WARP; r < a.s.shared; r += WARP) {
        const T *x = a.x + row * a.s.x_cols + delta_b_of(a.s, head + r);
        float beta = 1 / (1 + expf(-to_f32(x[0]))), sum[2] = {};
        for (int64_t g = 0; g < a.groups; g++) {
            const float *from =
                a.parts + (((unit + r) * a.groups + g) * a.s.sequence + t + 1) * a.parts_cols - 2;
            sum[0] += from[0], sum[1] += from[1];
        }
        float *to = a.slopes + (row * a.s.heads + head + r) * 2;
        to[0] = sum[0] * beta * (1 - beta), to[1] = sum[1];
    }
}

/* ---- launchers ---- */

/* Elements of the workspace, in its order: slopes and what delta_finish needs, then those of a slab. */
struct Rooms {
    int64_t slab, groups, begins, before, parts;
};

static bool narrow(const DeltaDims *d) { return d->key <= 16 * LANES; }

static Rooms rooms_of(const DeltaRuleFwd *f)
{
    const DeltaDims *d = &f->dims;
    int64_t units = f->x.dim[0] / f->sequence * d->heads, shared = delta_shared(d);
    int64_t own = narrow(d) ? COLUMNS<16> * 16 : COLUMNS<32> * 32; /* of a thread */
    int64_t columns = SIDE * (narrow(d) ? COLUMNS<16> : COLUMNS<32>);
    Rooms r;
    r.slab = (SLAB + shared - 1) / shared * shared;
    if (r.slab > units) r.slab = units;
    r.groups = grid_of(d->value, columns);
    r.before = r.slab * r.groups * PIECE * THREADS * own;
    r.begins = r.slab * r.groups * grid_of(f->sequence, PIECE) * THREADS * own;
    r.parts = r.slab * r.groups * f->sequence * (narrow(d) ? PARTS<16> : PARTS<32>);
    return r;
}

template <typename T> static Call<T> call_of(const DeltaRuleFwd *f)
{
    Call<T> a = {};
    a.s = delta_rule_shape(f);
    a.qkv = (const T *)f->qkv.data, a.x = (const T *)f->x.data;
    a.decay = (const float *)f->decay.data, a.state = (float *)f->state.data;
    a.q_scale = 1 / sqrtf((float)f->dims.key);
    a.parts_cols = narrow(&f->dims) ? PARTS<16> : PARTS<32>;
    return a;
}

template <int R, int C, typename T>
static Status walk_forward(struct Exec *ex, Call<T> a, int64_t units)
{
    a.groups = grid_of(a.s.value + (a.span != NULL ? a.s.key : 0), SIDE * C);
    TRY(kernel_shared("delta_rule", delta_plain_fwd_kernel<T, R, C>, Batch<R>::BYTES));
    delta_plain_fwd_kernel<T, R, C>
        <<<(unsigned)(units * a.groups), THREADS, Batch<R>::BYTES, exec_stream(ex)>>>(a);
    return kernel_status("delta_rule");
}

template <int R, typename T>
static Status walk_back(struct Exec *ex, const Call<T> &a, int64_t units)
{
    constexpr int C = COLUMNS<R>, BYTES = Batch<R>::BYTES + WARPS * PARTS<R> * 4;
    TRY((walk_forward<R, C>(ex, a, units)));
    TRY(kernel_shared("delta_rule", delta_plain_bwd_kernel<T, R, C>, BYTES));
    delta_plain_bwd_kernel<T, R, C>
        <<<(unsigned)(units * a.groups), THREADS, BYTES, exec_stream(ex)>>>(a);
    return kernel_status("delta_rule");
}

extern "C" size_t delta_plain_bwd_workspace(const void *args)
{
    const DeltaRuleFwd *f = &((const DeltaRuleBwd *)args)->of;
    Rooms r = rooms_of(f);
    return delta_finish_bytes(f) + (size_t)(r.begins + r.before + r.parts) * sizeof(float);
}

/* Forward, or of a span its B and M. */
static Status forward(struct Exec *ex, const DeltaRuleFwd *f, float *span)
{
    int64_t units = f->x.dim[0] / f->sequence * f->dims.heads;
    Status s = OK;
    TRY(launch_typed("delta_rule_fwd", f->x.dtype, [&](auto t) {
        typedef decltype(t) T;
        Call<T> a = call_of<T>(f);
        a.o = span == NULL ? (T *)f->o.data : NULL, a.span = span;
        s = narrow(&f->dims) ? walk_forward<16, 1>(ex, a, units)
                             : walk_forward<32, 1>(ex, a, units);
    }));
    return s;
}

extern "C" Status delta_plain_fwd(struct Exec *ex, const void *args)
{
    return forward(ex, (const DeltaRuleFwd *)args, NULL);
}

extern "C" Status delta_plain_span_fwd(struct Exec *ex, const void *args)
{
    const DeltaSpanFwd *f = (const DeltaSpanFwd *)args;
    return forward(ex, &f->of, (float *)f->span.data);
}

template <int R, typename T>
static Status span_back(struct Exec *ex, const Call<T> &a, int64_t units)
{
    TRY(kernel_shared("delta_span_bwd", delta_plain_span_kernel<T, R>, Batch<R>::BYTES));
    delta_plain_span_kernel<T, R>
        <<<(unsigned)(units * a.groups), THREADS, Batch<R>::BYTES, exec_stream(ex)>>>(a);
    return kernel_status("delta_span_bwd");
}

extern "C" Status delta_plain_span_bwd(struct Exec *ex, const void *args)
{
    const DeltaSpanBwd *b = (const DeltaSpanBwd *)args;
    const DeltaRuleFwd *f = &b->of;
    int64_t units = f->x.dim[0] / f->sequence * f->dims.heads;
    Status s = OK;
    TRY(launch_typed("delta_span_bwd", f->x.dtype, [&](auto t) {
        typedef decltype(t) T;
        Call<T> a = call_of<T>(f);
        a.d_o = (const T *)f->o.data, a.span = (float *)b->span.data;
        a.groups = grid_of(a.s.value, SIDE);
        s = narrow(&f->dims) ? span_back<16>(ex, a, units) : span_back<32>(ex, a, units);
    }));
    return s;
}

template <typename T> static Status backward(struct Exec *ex, const DeltaRuleBwd *b, float *room)
{
    const DeltaRuleFwd *f = &b->of;
    Rooms r = rooms_of(f);
    int64_t units = f->x.dim[0] / f->sequence * f->dims.heads;
    Call<T> a = call_of<T>(f);
    a.d_o = (const T *)f->o.data, a.dqkv = (T *)b->dqkv.data;
    a.slopes = room, a.groups = r.groups, a.dstate = (float *)b->dstate.data;
    a.begins = room + delta_finish_bytes(f) / sizeof(float);
    a.before = a.begins + r.begins, a.parts = a.before + r.before;
    for (; a.unit < units; a.unit += r.slab) {
        int64_t n = units - a.unit < r.slab ? units - a.unit : r.slab;
        TRY(narrow(&f->dims) ? walk_back<16>(ex, a, n) : walk_back<32>(ex, a, n));
        dim3 grid(grid_of(f->sequence, WARPS), (unsigned)(n / a.s.shared));
        delta_parts_kernel<T><<<grid, THREADS, 0, exec_stream(ex)>>>(a);
        TRY(kernel_status("delta_rule_bwd"));
    }
    return delta_finish(ex, b, room);
}

extern "C" Status delta_plain_bwd(struct Exec *ex, const void *args)
{
    const DeltaRuleBwd *b = (const DeltaRuleBwd *)args;
    float *room = (float *)exec_workspace(ex);
    return b->of.x.dtype == DTYPE_F32 ? backward<float>(ex, b, room) : backward<Bf16>(ex, b, room);
}

/* ---- the end of backward ---- */

/* A thread has a head and FINISH_ROWS rows. part (blocks, 2 H): sums of the gradients of A and dt. */
template <typename T>
static __global__ void delta_finish_kernel(DeltaShape s, const T *x, const float *decay,
                                           const float *slopes, T *dx, float *part)
{
    int head = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    int64_t first = (int64_t)blockIdx.x * FINISH_ROWS;
    float dA = 0, ddt = 0;
    if (head >= s.heads) return;
    for (int64_t row = first; row < min(first + FINISH_ROWS, s.rows); row++) {
        int64_t at = row * s.x_cols + delta_b_of(s, head);
        const float *slope = slopes + (row * s.heads + head) * 2;
        DeltaGates g = delta_gates(s, decay, head, to_f32(x[at]), to_f32(x[at + s.shared]));
        float da = -slope[1] * expf(decay[head]) * g.gate;
        dx[at] = from_f32<T>(slope[0]);
        dx[at + s.shared] = from_f32<T>(da);
        dA += slope[1] * g.log_alpha, ddt += da;
    }
    part[(int64_t)blockIdx.x * 2 * s.heads + head] = dA;
    part[(int64_t)blockIdx.x * 2 * s.heads + s.heads + head] = ddt;
}

size_t delta_finish_bytes(const DeltaRuleFwd *f)
{
    int64_t rows = f->x.dim[0], blocks = grid_of(rows, FINISH_ROWS);
    return ((size_t)((rows + blocks) * 2 * f->dims.heads) * sizeof(float) + 255) / 256 * 256;
}

Status delta_finish(struct Exec *ex, const DeltaRuleBwd *b, float *slopes)
{
    const DeltaRuleFwd *f = &b->of;
    DeltaShape s = delta_rule_shape(f);
    int64_t blocks = grid_of(s.rows, FINISH_ROWS), cols = 2 * (int64_t)s.heads;
    float *part = slopes + s.rows * cols;
    TRY(launch_typed("delta_rule_bwd", f->x.dtype, [&](auto t) {
        typedef decltype(t) T;
        dim3 grid((unsigned)blocks, grid_of(s.heads, SIDE));
        delta_finish_kernel<T><<<grid, SIDE, 0, exec_stream(ex)>>>(
            s, (const T *)f->x.data, (const float *)f->decay.data, slopes, (T *)b->dx.data, part);
    }));
    if (b->ddecay.data == NULL) return OK;
    rows_add_kernel<<<grid_of(cols, ADD_SIDE), dim3(ADD_SIDE, ADD_SIDE), 0, exec_stream(ex)>>>(
        part, (float *)b->ddecay.data, blocks, cols);
    return kernel_status("delta_rule_bwd");
}
