/*
 * rope: kernels and launchers of rotary embeddings, for both layouts and both directions. The parts
 * of a call (rope_parts.h) become one list of items a token.
 *
 * An item is a pack that is copied, or the packs that one rotation needs: a pack of neighbours, or two packs half a
 * head apart. A thread handles one item of TOKENS tokens. It fetches all of them first, then rotates and stores them.
 * So all lanes have work for any width and number of heads, and a thread computes the address of its item once. Blocks
 * of the same tokens are neighbours, so rows are read and written whole, and the tables' rows come from caches.
 *
 * If heads share a key, its gradient is a sum over heads, in order. A thread sums one item of one
 * token. The first blocks do that while the other blocks copy.
 *
 * 8-bit copies of 1 x 128 are made in tiles of the wide side (quant_made.cuh). These parts are then left out here.
 *
 * The device cannot report a position outside the tables. What it would have rotated becomes NaN.
 */
#include "kernels/quant/quant_made.cuh"

#include "kernels/attention/rope_parts.h"

enum { THREADS = 128 }; /* 6 blocks a multiprocessor: with more the compiler delays loads */

/* Tokens of a thread: 64 bytes of them are in flight, and at least 64 more of the tables. */
template <bool WITHIN> constexpr int TOKENS = WITHIN ? 4 : 2;

/* Heads of a sum that a thread fetches at a time: 128 bytes. */
template <bool WITHIN> constexpr int HEADS = WITHIN ? 8 : 4;

/* The tables of angles, and the direction of the rotation. */
typedef struct Rotation {
    const int32_t *pos; /* or NULL: nothing turns */
    const float *cos, *sin;
    int64_t positions, half; /* rows and columns of the tables */
    bool back, interleaved;
    int64_t temper_floor;
    float temper_scale;
} Rotation;

static Rotation rotation_of(const Rope &r)
{
    return Rotation{ (const int32_t *)r.pos->data,
                     (const float *)r.cos->data,
                     (const float *)r.sin->data,
                     r.cos->dim[0],
                     tensor_cols(r.cos),
                     r.back,
                     r.interleaved,
                     r.gqa == NULL ? 0 : r.gqa->temper_floor,
                     r.gqa == NULL ? 0 : r.gqa->temper_scale };
}

/* Positions are read by every thread of a token, mostly from the cache. */
static __device__ __forceinline__ int32_t position_of(const Rotation &r, int64_t row)
{
    return r.pos == NULL ? 0 : read_const(r.pos + row);
}

/* Cosines and sines of N pairs from pair number `pair` on, as in the tables. sign: 1; -1 for backward; NaN if the
 * position is outside the tables. The sign is applied later, so that nothing waits for the tables here. */
template <int N> struct Angles {
    float c[N], s[N], sign;
};

template <bool WIDE, int N>
static __device__ __forceinline__ void angles_fetch(Angles<N> &a, const Rotation &r, int32_t pos,
                                                    int64_t pair)
{
    bool known = pos >= 0 && pos < r.positions;
    if (r.pos == NULL) {
#pragma unroll
        for (int k = 0; k < N; k++) a.c[k] = 1, a.s[k] = 0;
        a.sign = 1;
        return;
    }
    int64_t at = (known ? pos * r.half : 0) + pair;
    a.sign = !known ? __uint_as_float(0x7FC00000u) : r.back ? -1.0f : 1.0f;
    load_const<WIDE>(r.cos + at, a.c);
    load_const<WIDE>(r.sin + at, a.s);
}

/* The factor of queries at a position; NaN if the position is outside the tables. */
static __device__ __forceinline__ float temper_of(const Rotation &r, int32_t pos)
{
    if (pos < 0 || pos >= r.positions) return __uint_as_float(0x7FC00000u);
    return 1 + r.temper_scale * log1pf((float)((pos + 1) / r.temper_floor));
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
    bool turned, tempered;
};

template <typename T> struct Walk {
    Piece<T> piece[ROPE_PARTS];
    uint32_t items, groups; /* of a token; blocks for all items of some tokens */
    Piece<T> sum;           /* the gradient that is a sum, over sum_heads */
    uint32_t sum_heads, sum_blocks;
    int64_t n;
    Rotation rotation;
};

template <typename T> struct Item {
    const T *from; /* of token 0 */
    T *to;
    int64_t from_row, to_row;
    int64_t apart; /* from the pack to its partner; 0: it has none */
    int64_t pair;
    bool turned, tempered;
};

/* WITHIN: neighbours that are turned lie in one pack. */
template <bool WITHIN, int P, typename T>
static __device__ __forceinline__ Item<T> item_of(const Rotation &r, const Piece<T> &p,
                                                  uint32_t head, uint32_t unit)
{
    bool across = p.turned && !WITHIN, neighbours = across && r.interleaved;
    int64_t col = (int64_t)unit * (neighbours ? 2 : P);
    return Item<T>{ p.from + head * p.from_step + col,
                    p.to + head * p.to_step + col,
                    p.from_row,
                    p.to_row,
                    !across ? 0 : neighbours ? 1 : r.half,
                    (int64_t)unit * (WITHIN ? P / 2 : P),
                    p.turned,
                    p.tempered };
}

template <bool WITHIN, int P, typename T>
static __device__ __forceinline__ Item<T> item_at(const Walk<T> &a, uint32_t i)
{
    int at = 0;
    while (i >= a.piece[at].items) i -= a.piece[at++].items;
    const Piece<T> &p = a.piece[at];
    return item_of<WITHIN, P>(a.rotation, p, i / p.units, i % p.units);
}

/* Rotates an item and stores it. WITHIN: a pack has both elements of each pair, and w is not used. */
template <bool WIDE, bool WITHIN, typename T, int P, int N>
static __device__ __forceinline__ void turn_store(const Item<T> &t, T *to, const Angles<N> &angles,
                                                  float (&v)[P], float (&w)[P])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        float &x = WITHIN ? v[2 * k] : v[k], &y = WITHIN ? v[2 * k + 1] : w[k];
        turn_pair(x, y, angles.c[k], angles.sign * angles.s[k]);
    }
    store<WIDE>(to, v);
    if constexpr (!WITHIN) store<WIDE>(to + t.apart, w);
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void temper_store(const Packed<T, WIDE> &from, T *to,
                                                    float temper)
{
    float v[Packed<T, WIDE>::P];
    widen(from, v);
#pragma unroll
    for (int k = 0; k < Packed<T, WIDE>::P; k++) v[k] *= temper;
    store<WIDE>(to, v);
}

/* Item `i` of all tokens' sums. */
template <typename T, bool WIDE, bool WITHIN>
static __device__ __forceinline__ void sum_heads(const Walk<T> &a, int64_t i)
{
    constexpr int P = Packed<T, WIDE>::P, N = WITHIN ? P / 2 : P, EACH = HEADS<WITHIN>;
    int64_t row = i / a.sum.units;
    if (row >= a.n) return;
    const Item<T> t = item_of<WITHIN, P>(a.rotation, a.sum, 0, (uint32_t)(i % a.sum.units));
    const T *from = t.from + row * t.from_row;
    Angles<N> angles;
    float v[P] = {}, w[P] = {};
    angles_fetch<WIDE>(angles, a.rotation, position_of(a.rotation, row), t.pair);
    for (uint32_t h = 0; h < a.sum_heads; h += EACH) {
        Packed<T, WIDE> first[EACH], second[EACH];
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            const T *head = from + (h + j) * a.sum.from_step;
            clear(first[j]);
            clear(second[j]);
            if (h + j >= a.sum_heads) continue;
            fetch_once(first[j], head);
            if (!WITHIN) fetch_once(second[j], head + t.apart);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            add_pack(first[j], v);
            if (!WITHIN) add_pack(second[j], w);
        }
    }
    turn_store<WIDE, WITHIN>(t, t.to + row * t.to_row, angles, v, w);
}

/* Item i of the tokens from `row` on. There is no branch between the fetches: beyond the last token, the last token is
 * fetched again. So the thread waits once for positions and once for tables. */
template <typename T, bool WIDE, bool WITHIN>
static __device__ __forceinline__ void move_item(const Walk<T> &a, uint32_t i, int64_t row)
{
    constexpr int P = Packed<T, WIDE>::P, N = WITHIN ? P / 2 : P, EACH = TOKENS<WITHIN>;
    if (i >= a.items) return;
    const Item<T> t = item_at<WITHIN, P>(a, i);
    Packed<T, WIDE> first[EACH], second[EACH];
    Angles<N> angles[EACH];
    int32_t pos[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const T *from = t.from + min(row + j, a.n - 1) * t.from_row;
        fetch_once(first[j], from);
        if (!WITHIN && t.apart > 0) fetch_once(second[j], from + t.apart);
    }
    compiler_fence(); /* else the compiler moves the fetches into the branch */
    if (t.turned) {
#pragma unroll
        for (int j = 0; j < EACH; j++) pos[j] = position_of(a.rotation, min(row + j, a.n - 1));
#pragma unroll
        for (int j = 0; j < EACH; j++) angles_fetch<WIDE>(angles[j], a.rotation, pos[j], t.pair);
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (row + j >= a.n) break;
        T *to = t.to + (row + j) * t.to_row;
        if (!t.turned && !t.tempered) {
            put(first[j], to);
            continue;
        }
        if (t.tempered) {
            temper_store<WIDE>(first[j], to,
                               temper_of(a.rotation, position_of(a.rotation, row + j)));
            continue;
        }
        float v[P], w[P] = {};
        widen(first[j], v);
        if constexpr (!WITHIN) widen(second[j], w);
        turn_store<WIDE, WITHIN>(t, to, angles[j], v, w);
    }
}

template <typename T, bool WIDE, bool WITHIN>
static __global__ __launch_bounds__(THREADS, 6) void rope_kernel(const __grid_constant__ Walk<T> a)
{
    if (blockIdx.x < a.sum_blocks) {
        sum_heads<T, WIDE, WITHIN>(a, (int64_t)blockIdx.x * THREADS + threadIdx.x);
        return;
    }
    uint32_t block = blockIdx.x - a.sum_blocks;
    move_item<T, WIDE, WITHIN>(a, block % a.groups * THREADS + threadIdx.x,
                               (int64_t)(block / a.groups) * TOKENS<WITHIN>);
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

/* Can all parts be copied and rotated in packs? */
template <typename T> static bool rope_packs(const Rope &r)
{
    int64_t pairs = tensor_cols(r.cos);
    bool fit = packs_fit<T>({ r.cos->data, r.sin->data }, { r.interleaved ? 2 * pairs : pairs });
    for (const RopePart *p = r.part; p < r.part + ROPE_PARTS; p++) {
        if (!has_work(*p)) continue;
        fit = fit && packs_fit<T>({ wide_at<T>(*p), heads_at<T>(*p) },
                                  { tensor_row_elems(p->wide), tensor_row_elems(p->heads),
                                    p->wide_step, p->heads_step, p->n });
    }
    return fit;
}

/* `unit` is in elements: a pack, or the two packs that one rotation needs. Backward exchanges the two sides. */
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
    out.tempered = p.tempered;
    return out;
}

/* The pieces of what has work. */
template <typename T> static Walk<T> walk_of(const Rope &r, int64_t n, int64_t pack, bool within)
{
    Walk<T> w = {};
    int pieces = 0;
    w.n = n;
    w.rotation = rotation_of(r);
    for (const RopePart *p = r.part; p < r.part + ROPE_PARTS; p++) {
        if (!has_work(*p)) continue;
        Piece<T> piece = piece_of<T>(r, *p, p->turned && !within ? 2 * pack : pack);
        if (is_shared_gradient(r, *p)) {
            w.sum = piece;
            w.sum_heads = (uint32_t)p->count;
            w.sum_blocks = grid_of(n * piece.units, THREADS);
            continue;
        }
        w.piece[pieces++] = piece;
        w.items += piece.items;
    }
    w.groups = grid_of(w.items, THREADS);
    return w;
}

template <typename T, bool WIDE, bool WITHIN>
static void walk_launch(LaunchStream stream, const Rope &r, int64_t n)
{
    Walk<T> w = walk_of<T>(r, n, WIDE ? PACK<T> : 1, WITHIN);
    unsigned grid = w.sum_blocks + (w.items > 0 ? w.groups * grid_of(n, TOKENS<WITHIN>) : 0);
    rope_kernel<T, WIDE, WITHIN><<<grid, THREADS, 0, stream>>>(w);
}

template <typename T, bool WIDE>
static void rope_launch(LaunchStream stream, const Rope &r, int64_t n)
{
    if (WIDE && r.interleaved)
        walk_launch<T, WIDE, WIDE>(stream, r, n);
    else
        walk_launch<T, WIDE, false>(stream, r, n);
}

static Status plain_run(struct Exec *ex, const Rope &r)
{
    const RopePart *p = r.part;
    while (p < r.part + ROPE_PARTS - 1 && !has_work(*p)) p++;
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

/* Copies of a tensor of the wide side. */

/* A maker of one tensor of the wide side, backward. Pairs that turn are neighbours. TURNS: some do. */
template <bool TURNS> struct MakeWide {
    static constexpr int EACH = TURNS ? 1 : 4; /* angles take many registers */
    struct Part {
        const Bf16 *from; /* of the heads' side */
        int64_t row, step, col, wide_step;
        uint32_t count, n;
        bool turned;
    };
    Part part[ROPE_PARTS];
    int parts;
    Rotation rotation;

    template <bool WIDE> struct Rest {
        Angles<WIDE ? PACK<Bf16> / 2 : 1> angles;
        Packed<Bf16, WIDE> other; /* of the pair, if there is no pack */
    };

    struct Place {
        const Bf16 *from;
        int64_t row, pair;
        bool turned, second; /* second: of its pair */
    };

    template <bool WIDE> __device__ __forceinline__ Place place(int64_t col) const
    {
        Place at = {};
#pragma unroll
        for (int i = 0; i < ROPE_PARTS; i++) {
            const Part &p = part[i];
            if (i >= parts || col < p.col) continue;
            uint32_t c = (uint32_t)(col - p.col), step = (uint32_t)p.wide_step;
            uint32_t head = c / step, k = c - head * step;
            if (head >= p.count || k >= p.n) continue;
            at = Place{ p.from + head * p.step + k, p.row, k / 2, p.turned, k % 2 == 1 };
        }
        return at;
    }
    __device__ __forceinline__ const Bf16 *first(const Place &at, int64_t row) const
    {
        return at.from + row * at.row;
    }
    __device__ __forceinline__ int32_t note(const Place &at, int64_t row) const
    {
        return TURNS && at.turned ? position_of(rotation, row) : 0;
    }

    template <bool WIDE>
    __device__ __forceinline__ void fetch(Rest<WIDE> &in, int32_t pos, const Place &at,
                                          int64_t row) const
    {
        if (!TURNS || !at.turned) return;
        angles_fetch<WIDE>(in.angles, rotation, pos, at.pair);
        if constexpr (!WIDE) fetch_once(in.other, first(at, row) + (at.second ? -1 : 1));
    }

    template <bool WIDE, int P>
    __device__ __forceinline__ void compute(float (&v)[P], const Rest<WIDE> &in, int32_t,
                                            const Place &at) const
    {
        if (!TURNS || !at.turned) return;
        if constexpr (WIDE) {
#pragma unroll
            for (int k = 0; k < P; k += 2)
                turn_pair(v[k], v[k + 1], in.angles.c[k / 2], in.angles.sign * in.angles.s[k / 2]);
        } else {
            float w[1];
            widen(in.other, w);
            float &one = at.second ? w[0] : v[0], &two = at.second ? v[0] : w[0];
            turn_pair(one, two, in.angles.c[0], in.angles.sign * in.angles.s[0]);
        }
    }
};

/* Can the copies of out[i] be made in one kernel? */
static bool is_made(const Rope *r, int i)
{
    const RopeQuant *q = &r->out[i];
    if (q->quant == NULL || !quant::made_fits(*q->quant, q->plain)) return false;
    for (const RopePart *p = r->part; p < r->part + ROPE_PARTS; p++) {
        if (p->wide != q->plain || p->n == 0) continue;
        if (p->tempered || (p->turned && !r->interleaved)) return false;
        if (!packs_fit<Bf16>({ heads_at<Bf16>(*p) }, { tensor_row_elems(p->heads), p->wide_col,
                                                       p->wide_step, p->heads_step, p->n }))
            return false;
    }
    return packs_fit<Bf16>({ r->cos->data, r->sin->data }, { 2 * tensor_cols(r->cos) });
}

/* Makes the copies of out[i], and takes its parts off the list. */
template <bool TURNS> static Status made_run(struct Exec *ex, Rope &r, int i)
{
    static const Tensor none = {};
    MakeWide<TURNS> make = {};
    make.rotation = rotation_of(r);
    for (RopePart *p = r.part; p < r.part + ROPE_PARTS; p++) {
        if (p->wide != r.out[i].plain) continue;
        if (p->n > 0)
            make.part[make.parts++] = { heads_at<Bf16>(*p), tensor_row_elems(p->heads),
                                        p->heads_step,      p->wide_col,
                                        p->wide_step,       (uint32_t)p->count,
                                        (uint32_t)p->n,     p->turned };
        p->wide = &none;
    }
    return quant::made_run(ex, r.op, *r.out[i].quant, r.out[i].plain, make);
}

static bool turns(const Rope &r, int i)
{
    bool any = false;
    for (const RopePart &p : r.part) any = any || (p.wide == r.out[i].plain && p.turned);
    return any;
}

/* As quant_out_gpu_workspace: but what is made in one kernel needs none. */
extern "C" size_t rope_gpu_workspace(const struct Exec *ex, const Rope *r)
{
    size_t bytes = 0;
    for (int i = 0; i < ROPE_QUANTS; i++)
        if (r->out[i].quant != NULL && !is_made(r, i))
            bytes += quant_out_gpu_workspace(ex, r->out[i].quant, r->out[i].plain);
    return bytes;
}

extern "C" Status rope_gpu(struct Exec *ex, const Rope *rope)
{
    Rope r = *rope;
    Tensor plain[ROPE_QUANTS];
    char *space[ROPE_QUANTS];
    for (int i = 0; i < ROPE_QUANTS; i++) {
        if (!is_made(&r, i)) continue;
        TRY(turns(r, i) ? made_run<true>(ex, r, i) : made_run<false>(ex, r, i));
        r.out[i].quant = NULL;
    }
    rope_open(ex, &r, (char *)exec_workspace(ex), plain, space, quant_out_gpu_workspace);
    TRY(plain_run(ex, r));
    for (int i = 0; i < ROPE_QUANTS; i++)
        if (r.out[i].quant != NULL)
            TRY(quant_out_gpu(ex, r.out[i].quant, r.out[i].plain, space[i]));
    return OK;
}
