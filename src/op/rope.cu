/*
 * rope: the list of parts (rope_parts.h) as one list of items a token, over both layouts and both
 * directions. An item is a pack that is moved, or what a turn takes together: a pack of neighbours,
 * or two packs half a head apart. A thread has one item and takes it of TOKENS tokens: it fetches
 * them all, then turns and stores them. All lanes work, whatever the widths and counts of heads, and
 * where its item lies a thread works out once. Blocks of the same tokens run side by side, so rows
 * are read and written whole and the tables' rows come out of the caches.
 *
 * The gradient of a key that heads share is a sum over heads: a kernel of its own, with threads over
 * packs, heads and tokens, that joins heads in shared memory from the first on.
 *
 * The device cannot report a position outside the tables: what it would have turned is NaN.
 */
#include "op/rows.cuh"

#include "op/rope_parts.h"

/* Of a thread: 64 bytes on their way, and as much or more of the tables. */
template <bool WITHIN> constexpr int TOKENS = WITHIN ? 4 : 2;

/* Where the tables lie, and which way to turn. */
typedef struct Rotation {
    const int32_t *pos; /* or NULL: 0 */
    const float *cos, *sin;
    int64_t positions, half; /* rows and columns of the tables */
    bool back, interleaved;
} Rotation;

static Rotation rotation_of(const Rope &r)
{
    return Rotation{ (const int32_t *)r.pos->data,
                     (const float *)r.cos->data,
                     (const float *)r.sin->data,
                     r.cos->dim[0],
                     tensor_cols(r.cos),
                     r.back,
                     r.interleaved };
}

static __device__ __forceinline__ int64_t position_of(const Rotation &r, int64_t row)
{
    return r.pos == NULL ? 0 : __ldg(r.pos + row);
}

/* Cosines and sines of N pairs from number `pair` on, to turn by or back; NaN where there is no such
 * position. */
template <int N> struct Angles {
    float c[N], s[N];
};

template <bool WIDE, int N>
static __device__ __forceinline__ void angles_fetch(Angles<N> &a, const Rotation &r, int64_t pos,
                                                    int64_t pair)
{
    bool known = pos >= 0 && pos < r.positions;
    float sign = !known ? __uint_as_float(0x7FC00000u) : r.back ? -1.0f : 1.0f;
    int64_t at = (known ? pos * r.half : 0) + pair;
    load_const<WIDE>(r.cos + at, a.c);
    load_const<WIDE>(r.sin + at, a.s);
#pragma unroll
    for (int k = 0; k < N; k++) a.s[k] *= sign;
}

/* (a, b) to (a cos - b sin, a sin + b cos) */
static __device__ __forceinline__ void turn_pair(float &a, float &b, float c, float s)
{
    float x = a;
    a = x * c - b * s;
    b = x * s + b * c;
}

/* A part on the device. Steps are in elements: from token to token, from head to head. */
template <typename T> struct Piece {
    const T *from;
    T *to;
    int64_t from_row, to_row, from_step, to_step;
    uint32_t units, items; /* of a head, of a token */
    bool turned;
};

template <typename T> struct Walk {
    Piece<T> piece[ROPE_PARTS_MAX];
    uint32_t items, groups; /* of a token; blocks for all items of some tokens */
    int64_t n;
    Rotation rotation;
};

template <typename T> struct Item {
    const T *from; /* of token 0 */
    T *to;
    int64_t from_row, to_row;
    int64_t apart; /* from the pack to its partner; 0: it has none */
    int64_t pair;
    bool turned;
};

/* WITHIN: neighbours that are turned lie in one pack. */
template <bool WITHIN, int P, typename T>
static __device__ __forceinline__ Item<T> item_at(const Walk<T> &a, uint32_t i)
{
    int at = 0;
    while (i >= a.piece[at].items) i -= a.piece[at++].items;
    const Piece<T> &p = a.piece[at];
    uint32_t head = i / p.units, unit = i % p.units;
    bool across = p.turned && !WITHIN, neighbours = across && a.rotation.interleaved;
    int64_t col = (int64_t)unit * (neighbours ? 2 : P);
    return Item<T>{ p.from + head * p.from_step + col,
                    p.to + head * p.to_step + col,
                    p.from_row,
                    p.to_row,
                    !across      ? 0
                    : neighbours ? 1
                                 : a.rotation.half,
                    (int64_t)unit * (WITHIN ? P / 2 : P),
                    p.turned };
}

/* Positions come first and tables before the items are used: one is waited for, not one a token. */
template <typename T, bool WIDE, bool WITHIN>
static __global__
__launch_bounds__(ROWS_THREADS, WITHIN ? 4 : 3) void rope_kernel(const __grid_constant__ Walk<T> a)
{
    constexpr int P = Packed<T, WIDE>::P, N = WITHIN ? P / 2 : P, EACH = TOKENS<WITHIN>;
    uint32_t i = blockIdx.x % a.groups * ROWS_THREADS + threadIdx.x;
    int64_t row = (int64_t)(blockIdx.x / a.groups) * EACH;
    if (i >= a.items) return;
    const Item<T> t = item_at<WITHIN, P>(a, i);
    Packed<T, WIDE> first[EACH], second[EACH];
    Angles<N> angles[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (row + j >= a.n) break;
        const T *from = t.from + (row + j) * t.from_row;
        fetch_once(first[j], from);
        if (!WITHIN && t.apart > 0) fetch_once(second[j], from + t.apart);
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (row + j >= a.n || !t.turned) break;
        angles_fetch<WIDE>(angles[j], a.rotation, position_of(a.rotation, row + j), t.pair);
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (row + j >= a.n) break;
        T *to = t.to + (row + j) * t.to_row;
        if (!t.turned) {
            put(first[j], to);
            continue;
        }
        float v[P], w[P];
        widen(first[j], v);
        if constexpr (!WITHIN) widen(second[j], w);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float &x = WITHIN ? v[2 * k] : v[k], &y = WITHIN ? v[2 * k + 1] : w[k];
            turn_pair(x, y, angles[j].c[k], angles[j].s[k]);
        }
        store<WIDE>(to, v);
        if constexpr (!WITHIN) store<WIDE>(to + t.apart, w);
    }
}

/* The gradient of a key that heads share. */

template <typename T> struct Shared {
    const T *from; /* of head 0 */
    T *to;
    int64_t from_row, from_step, to_row, n, heads;
    Rotation rotation;
};

/* A block's z are tokens, y heads, x packs; `sums` has a row for each (token, y). */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(ROWS_THREADS) void rope_shared_kernel(Shared<T> a)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    extern __shared__ float sums[];
    int64_t row = (int64_t)blockIdx.x * blockDim.z + threadIdx.z, cols = 2 * a.rotation.half;
    float *of_token = sums + threadIdx.z * blockDim.y * cols;
    const T *from = a.from + row * a.from_row;
    for (int64_t i = (int64_t)threadIdx.x * P; i < cols && row < a.n; i += blockDim.x * P) {
        float sum[P] = {};
#pragma unroll 4
        for (int64_t h = threadIdx.y; h < a.heads; h += blockDim.y) {
            float v[P];
            load_const<WIDE>(from + h * a.from_step + i, v);
#pragma unroll
            for (int k = 0; k < P; k++) sum[k] += v[k];
        }
#pragma unroll
        for (int k = 0; k < P; k++) of_token[threadIdx.y * cols + i + k] = sum[k];
    }
    __syncthreads();
    if (row >= a.n) return;
    T *to = a.to + row * a.to_row;
    for (int64_t i = threadIdx.y * blockDim.x + threadIdx.x; i < a.rotation.half;
         i += blockDim.x * blockDim.y) {
        int64_t first = a.rotation.interleaved ? 2 * i : i;
        int64_t second = a.rotation.interleaved ? first + 1 : i + a.rotation.half;
        Angles<1> angle;
        angles_fetch<false>(angle, a.rotation, position_of(a.rotation, row), i);
        float v = 0, w = 0;
        for (int64_t y = 0; y < blockDim.y; y++) {
            v += of_token[y * cols + first];
            w += of_token[y * cols + second];
        }
        turn_pair(v, w, angle.c[0], angle.s[0]);
        to[first] = from_f32<T>(v);
        to[second] = from_f32<T>(w);
    }
}

/* Launchers. */

/* First column of head 0 of a part, on either side. */
template <typename T> static T *wide_at(const RopePart &p)
{
    return (T *)p.wide->data + p.wide_col;
}

template <typename T> static T *heads_at(const RopePart &p)
{
    return (T *)p.heads->data + p.heads_col;
}

static bool has_work(const RopePart &p) { return p.wide->data != NULL && p.count * p.n > 0; }

static bool is_shared_gradient(const Rope &r, const RopePart &p)
{
    return r.back && p.wide_step == 0 && p.turned;
}

/* May all parts be moved and turned by packs? */
template <typename T> static bool rope_packs(const Rope &r)
{
    int64_t pairs = tensor_cols(r.cos);
    bool fit = packs_fit<T>({ r.cos->data, r.sin->data }, { r.interleaved ? 2 * pairs : pairs });
    for (const RopePart *p = r.part; p < r.part + r.parts; p++) {
        if (!has_work(*p)) continue;
        fit = fit && packs_fit<T>({ wide_at<T>(*p), heads_at<T>(*p) },
                                  { tensor_row_elems(p->wide), tensor_row_elems(p->heads),
                                    p->wide_step, p->heads_step, p->n });
    }
    return fit;
}

template <typename T> static Piece<T> piece_of(const Rope &r, const RopePart &p, int64_t unit)
{
    Piece<T> out = {};
    out.from = r.back ? heads_at<T>(p) : wide_at<T>(p);
    out.to = r.back ? wide_at<T>(p) : heads_at<T>(p);
    out.from_row = tensor_row_elems(r.back ? p.heads : p.wide);
    out.to_row = tensor_row_elems(r.back ? p.wide : p.heads);
    out.from_step = r.back ? p.heads_step : p.wide_step;
    out.to_step = r.back ? p.wide_step : p.heads_step;
    out.units = (uint32_t)(p.n / unit);
    out.items = (uint32_t)p.count * out.units;
    out.turned = p.turned;
    return out;
}

template <typename T, bool WIDE>
static void shared_launch(cudaStream_t stream, const Rope &r, const RopePart &p)
{
    int64_t n = p.wide->dim[0], packs = p.n / (WIDE ? PACK<T> : 1);
    dim3 block(1);
    while (block.x < ROWS_THREADS && block.x < packs) block.x *= 2;
    while (block.x * block.y < ROWS_THREADS && block.y < p.count) block.y *= 2;
    block.z = ROWS_THREADS / (block.x * block.y);
    if (block.z > 64) block.z = 64;                                  /* of any GPU */
    size_t room = (size_t)(block.y * block.z * p.n) * sizeof(float); /* 16 KiB at the most */
    Shared<T> s = { heads_at<T>(p),
                    wide_at<T>(p),
                    tensor_row_elems(p.heads),
                    p.heads_step,
                    tensor_row_elems(p.wide),
                    n,
                    p.count,
                    rotation_of(r) };
    rope_shared_kernel<T, WIDE><<<grid_of(n, block.z), block, room, stream>>>(s);
}

template <typename T, bool WIDE>
static void rope_launch(cudaStream_t stream, const Rope &r, int64_t n)
{
    const int64_t pack = WIDE ? PACK<T> : 1;
    Walk<T> w = {};
    int pieces = 0;
    for (const RopePart *p = r.part; p < r.part + r.parts; p++) {
        if (!has_work(*p)) continue;
        if (is_shared_gradient(r, *p)) {
            shared_launch<T, WIDE>(stream, r, *p);
            continue;
        }
        bool within = WIDE && r.interleaved;
        w.piece[pieces] = piece_of<T>(r, *p, p->turned && !within ? 2 * pack : pack);
        w.items += w.piece[pieces++].items;
    }
    if (w.items == 0) return;
    w.groups = grid_of(w.items, ROWS_THREADS);
    w.n = n;
    w.rotation = rotation_of(r);
    if (WIDE && r.interleaved) {
        unsigned grid = w.groups * grid_of(n, TOKENS<WIDE>);
        rope_kernel<T, WIDE, WIDE><<<grid, ROWS_THREADS, 0, stream>>>(w);
    } else {
        unsigned grid = w.groups * grid_of(n, TOKENS<false>);
        rope_kernel<T, WIDE, false><<<grid, ROWS_THREADS, 0, stream>>>(w);
    }
}

static Status rope_run(struct Exec *ex, const Rope &r)
{
    const RopePart *p = r.part;
    while (p < r.part + r.parts - 1 && !has_work(*p)) p++;
    if (!has_work(*p) || p->wide->dim[0] == 0) return OK;
    return launch_typed(r.op, p->wide->dtype, [&](auto t) {
        typedef decltype(t) T;
        bool wide = rope_packs<T>(r);
        if (!wide) exec_note_once(ex, r.op, UNPACKED);
        if (wide)
            rope_launch<T, true>(exec_stream(ex), r, p->wide->dim[0]);
        else
            rope_launch<T, false>(exec_stream(ex), r, p->wide->dim[0]);
    });
}

extern "C" Status rope_mla_fwd_cuda(struct Exec *ex, const void *args)
{
    return rope_run(ex, rope_mla_fwd_parts((const RopeMlaFwd *)args));
}

extern "C" Status rope_mla_bwd_cuda(struct Exec *ex, const void *args)
{
    return rope_run(ex, rope_mla_bwd_parts((const RopeMlaBwd *)args));
}

extern "C" Status rope_gqa_fwd_cuda(struct Exec *ex, const void *args)
{
    return rope_run(ex, rope_gqa_fwd_parts((const RopeGqaFwd *)args));
}

extern "C" Status rope_gqa_bwd_cuda(struct Exec *ex, const void *args)
{
    return rope_run(ex, rope_gqa_bwd_parts((const RopeGqaBwd *)args));
}
