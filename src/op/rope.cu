/*
 * rope: a block is a token, its warps take heads in turn, a warp's lanes lie along a head: no index
 * needs a division, and a head's columns are moved or turned by whole packs where they lie so.
 * Bound by memory; a head of 64 or 128 leaves lanes idle, which costs nothing that memory would
 * not. Loops along a head go around once or twice and are not unrolled, for the registers' sake.
 *
 * The device cannot report a position outside the tables: what it would have turned is NaN.
 */
#include "op/pack.cuh"

#include "op/rope_parts.h"

enum { WARP = 32, WARPS = 8 };

/* Where the tables lie, and which way to turn. */
typedef struct Rotation {
    const int32_t *pos;
    const float *cos, *sin;
    int64_t positions, half; /* rows and columns of the tables */
    bool back, interleaved;
} Rotation;

typedef struct Angle {
    const float *cos, *sin; /* of the token's position */
    float sign;             /* -1: by the opposite angle; NaN: there is no such position */
    int64_t half;
    bool interleaved;
} Angle;

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

/* Columns that must be whole packs for a rotated part to be one. */
static int64_t rotation_span(const Rotation &r) { return r.interleaved ? 2 * r.half : r.half; }

static __device__ __forceinline__ Angle angle_at(const Rotation &r, int64_t row)
{
    int64_t p = r.pos == NULL ? 0 : r.pos[row];
    bool known = p >= 0 && p < r.positions;
    int64_t first = known ? p * r.half : 0;
    float sign = r.back ? -1.0f : 1.0f;
    return Angle{ r.cos + first, r.sin + first, known ? sign : __uint_as_float(0x7FC00000u), r.half,
                  r.interleaved };
}

/* (a, b) to (a cos - b sin, a sin + b cos) */
static __device__ __forceinline__ void turn_pair(float &a, float &b, float c, float s)
{
    float x = a;
    a = x * c - b * s;
    b = x * s + b * c;
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void turn_neighbours(const Angle &t, const T *x, T *y)
{
    constexpr int P = WIDE ? PACK<T> : 2;
#pragma unroll 1
    for (int64_t i = (int64_t)threadIdx.x * P; i < 2 * t.half; i += WARP * P) {
        float v[P], c[P / 2], s[P / 2];
        load_const<WIDE>(x + i, v);
        load_const<WIDE>(t.cos + i / 2, c);
        load_const<WIDE>(t.sin + i / 2, s);
#pragma unroll
        for (int k = 0; k < P / 2; k++) turn_pair(v[2 * k], v[2 * k + 1], c[k], t.sign * s[k]);
        store<WIDE>(y + i, v);
    }
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void turn_halves(const Angle &t, const T *x, T *y)
{
    constexpr int P = WIDE ? PACK<T> : 1;
#pragma unroll 1
    for (int64_t i = (int64_t)threadIdx.x * P; i < t.half; i += WARP * P) {
        float a[P], b[P], c[P], s[P];
        load_const<WIDE>(x + i, a);
        load_const<WIDE>(x + t.half + i, b);
        load_const<WIDE>(t.cos + i, c);
        load_const<WIDE>(t.sin + i, s);
#pragma unroll
        for (int k = 0; k < P; k++) turn_pair(a[k], b[k], c[k], t.sign * s[k]);
        store<WIDE>(y + i, a);
        store<WIDE>(y + t.half + i, b);
    }
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void turn(const Angle &t, const T *x, T *y)
{
    if (t.interleaved)
        turn_neighbours<WIDE>(t, x, y);
    else
        turn_halves<WIDE>(t, x, y);
}

template <bool WIDE, typename T>
static __device__ __forceinline__ void move_span(const T *from, T *to, int64_t n)
{
    move<WIDE>(from, to, n, (int)threadIdx.x, WARP);
}

/* MLA. wide side: q, kv, k_rope; heads side: q_out, k_out, v_out; or the gradients of either. */

template <typename T> struct Mla {
    T *q, *kv, *k_rope; /* q, k_rope: first column of the window */
    T *q_out, *k_out, *v_out;
    int64_t q_width, k_width; /* from row to row of q and of k_rope */
    int64_t n, heads, nope, rope, v;
    Rotation rotation;
};

template <typename T, bool WIDE> static __global__ void rope_mla_fwd_kernel(Mla<T> a)
{
    int64_t row = blockIdx.x, qk = a.nope + a.rope, kv = a.nope + a.v;
    Angle t = angle_at(a.rotation, row);
    const T *k_rope = a.k_rope + row * a.k_width;
    for (int64_t h = threadIdx.y; h < a.heads; h += WARPS) {
        const T *q = a.q + row * a.q_width + h * qk, *k = a.kv + (row * a.heads + h) * kv;
        T *q_out = a.q_out + (row * a.heads + h) * qk, *k_out = a.k_out + (row * a.heads + h) * qk;
        if (a.q != NULL) {
            move_span<WIDE>(q, q_out, a.nope);
            turn<WIDE>(t, q + a.nope, q_out + a.nope);
        }
        if (a.kv == NULL) continue;
        move_span<WIDE>(k, k_out, a.nope);
        turn<WIDE>(t, k_rope, k_out + a.nope);
        move_span<WIDE>(k + a.nope, a.v_out + (row * a.heads + h) * a.v, a.v);
    }
}

/* sum += a head's gradient of the shared key; a lane keeps to its own columns. */
template <bool WIDE, typename T>
static __device__ __forceinline__ void shared_key_add(const T *dk, float *sum, int64_t n)
{
    constexpr int P = WIDE ? PACK<T> : 1;
#pragma unroll 1
    for (int64_t i = (int64_t)threadIdx.x * P; i < n; i += WARP * P) {
        float v[P];
        load_const<WIDE>(dk + i, v);
#pragma unroll
        for (int k = 0; k < P; k++) sum[i + k] += v[k];
    }
}

/* dk_rope of the row: the warps' sums in their order, turned back. */
template <typename T>
static __device__ __forceinline__ void shared_key_finish(const Angle &t, float *sums, T *dk_rope)
{
    int64_t rope = 2 * t.half;
    int thread = (int)(threadIdx.y * WARP + threadIdx.x), threads = WARP * WARPS;
    for (int64_t i = thread; i < rope; i += threads) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += sums[w * rope + i];
        sums[i] = sum;
    }
    __syncthreads();
    for (int64_t i = thread; i < t.half; i += threads) {
        int64_t first = t.interleaved ? 2 * i : i, second = t.interleaved ? 2 * i + 1 : i + t.half;
        float a = sums[first], b = sums[second];
        turn_pair(a, b, t.cos[i], t.sign * t.sin[i]);
        dk_rope[first] = from_f32<T>(a);
        dk_rope[second] = from_f32<T>(b);
    }
}

template <typename T, bool WIDE> static __global__ void rope_mla_bwd_kernel(Mla<T> a)
{
    extern __shared__ float sums[]; /* WARPS rows of `rope` */
    int64_t row = blockIdx.x, qk = a.nope + a.rope, kv = a.nope + a.v;
    Angle t = angle_at(a.rotation, row);
    float *sum = sums + threadIdx.y * a.rope;
    for (int64_t i = threadIdx.x; i < a.rope; i += WARP) sum[i] = 0;
    __syncwarp();
    for (int64_t h = threadIdx.y; h < a.heads; h += WARPS) {
        const T *dq_out = a.q_out + (row * a.heads + h) * qk;
        const T *dk_out = a.k_out + (row * a.heads + h) * qk;
        T *dq = a.q + row * a.q_width + h * qk, *dk = a.kv + (row * a.heads + h) * kv;
        if (a.q != NULL) {
            move_span<WIDE>(dq_out, dq, a.nope);
            turn<WIDE>(t, dq_out + a.nope, dq + a.nope);
        }
        if (a.kv == NULL) continue;
        move_span<WIDE>(dk_out, dk, a.nope);
        shared_key_add<WIDE>(dk_out + a.nope, sum, a.rope);
        move_span<WIDE>(a.v_out + (row * a.heads + h) * a.v, dk + a.nope, a.v);
    }
    if (a.kv == NULL) return;
    __syncthreads();
    shared_key_finish(t, sums, a.k_rope + row * a.k_width);
}

template <typename T> static bool mla_packs(const Mla<T> &a)
{
    return packs_fit<T>(
        { a.q, a.kv, a.k_rope, a.q_out, a.k_out, a.v_out, a.rotation.cos, a.rotation.sin },
        { a.q_width, a.k_width, a.nope, a.v, rotation_span(a.rotation) });
}

/* The window of a tensor that is given. */
template <typename T> static T *window(const RopePart &p)
{
    return p.wide->data == NULL ? NULL : (T *)p.wide->data + p.wide_col;
}

static Status mla_run(struct Exec *ex, const Rope &r)
{
    const RopePart *p = r.part;
    const Tensor *given = p[0].wide->data != NULL ? p[0].wide : p[2].wide;
    size_t room = r.back ? (size_t)(WARPS * p[1].n) * sizeof(float) : 0; /* 32 KiB at the most */
    if (given->dim[0] == 0) return OK;
    return launch_typed(r.op, given->dtype, [&](auto t) {
        typedef decltype(t) T;
        Mla<T> a = {};
        a.q = window<T>(p[0]);
        a.q_out = (T *)p[0].heads->data;
        a.kv = (T *)p[2].wide->data;
        a.k_out = (T *)p[2].heads->data;
        a.k_rope = window<T>(p[3]);
        a.v_out = (T *)p[4].heads->data;
        if (a.q != NULL) a.q_width = tensor_row_elems(p[0].wide);
        if (a.k_rope != NULL) a.k_width = tensor_row_elems(p[3].wide);
        a.n = given->dim[0];
        a.heads = p->count;
        a.nope = p[0].n;
        a.rope = p[1].n;
        a.v = p[4].n;
        a.rotation = rotation_of(r);
        bool wide = mla_packs(a);
        auto kernel = wide ? rope_mla_fwd_kernel<T, true> : rope_mla_fwd_kernel<T, false>;
        if (r.back) kernel = wide ? rope_mla_bwd_kernel<T, true> : rope_mla_bwd_kernel<T, false>;
        kernel<<<(unsigned)a.n, dim3(WARP, WARPS), room, exec_stream(ex)>>>(a);
    });
}

extern "C" Status rope_mla_fwd_cuda(struct Exec *ex, const void *args)
{
    return mla_run(ex, rope_mla_fwd_parts((const RopeMlaFwd *)args));
}

extern "C" Status rope_mla_bwd_cuda(struct Exec *ex, const void *args)
{
    return mla_run(ex, rope_mla_bwd_parts((const RopeMlaBwd *)args));
}

/* GQA: q and k turned, v moved; both directions walk the same heads, which lie side by side in
 * wide: qkv, or its gradient; q and k maybe by themselves. */

template <typename T> struct Gqa {
    T *wide[3], *narrow[3];          /* q, k, v; wide: first column of the window */
    int64_t width[3], heads, groups; /* width: from row to row of wide */
    int64_t n, head;
    Rotation rotation;
};

template <typename T, bool WIDE> static __global__ void rope_gqa_kernel(Gqa<T> a)
{
    int64_t row = blockIdx.x, all = a.heads + 2 * a.groups, d = a.head;
    Angle t = angle_at(a.rotation, row);
    for (int64_t i = threadIdx.y; i < all; i += WARPS) {
        int part = i < a.heads ? 0 : i < a.heads + a.groups ? 1 : 2;
        int64_t heads = part == 0 ? a.heads : a.groups;
        int64_t h = part == 0 ? i : (i - a.heads) - (part - 1) * a.groups;
        T *wide = a.wide[part] + row * a.width[part] + h * d;
        T *narrow = a.narrow[part] + (row * heads + h) * d;
        const T *from = a.rotation.back ? narrow : wide;
        T *to = a.rotation.back ? wide : narrow;
        if (part == 2)
            move_span<WIDE>(from, to, d);
        else
            turn<WIDE>(t, from, to);
    }
}

static Status gqa_run(struct Exec *ex, const Rope &r)
{
    const RopePart *p = r.part;
    if (p->wide->dim[0] == 0) return OK;
    return launch_packed(r.op, p->wide->dtype,
                         { p[0].wide->data, p[1].wide->data, p[2].wide->data, p[0].heads->data,
                           p[1].heads->data, p[2].heads->data, r.cos->data, r.sin->data },
                         { p->n, rotation_span(rotation_of(r)) }, [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             Gqa<T> a = {};
                             for (int i = 0; i < 3; i++) {
                                 a.wide[i] = window<T>(p[i]);
                                 a.narrow[i] = (T *)p[i].heads->data;
                                 a.width[i] = tensor_row_elems(p[i].wide);
                             }
                             a.n = p->wide->dim[0];
                             a.heads = p[0].count;
                             a.groups = p[1].count;
                             a.head = p->n;
                             a.rotation = rotation_of(r);
                             rope_gqa_kernel<T, wide>
                                 <<<(unsigned)a.n, dim3(WARP, WARPS), 0, exec_stream(ex)>>>(a);
                         });
}

extern "C" Status rope_gqa_fwd_cuda(struct Exec *ex, const void *args)
{
    return gqa_run(ex, rope_gqa_fwd_parts((const RopeGqaFwd *)args));
}

extern "C" Status rope_gqa_bwd_cuda(struct Exec *ex, const void *args)
{
    return gqa_run(ex, rope_gqa_bwd_parts((const RopeGqaBwd *)args));
}
