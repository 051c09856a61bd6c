/*
 * A block is a token, its warps take heads in turn, a warp's lanes lie along a head: no index needs
 * a division, and a head's columns are moved or turned by whole packs where they lie so. Bound by
 * memory; a head of 64 or 128 leaves lanes idle, which costs nothing that memory would not. Loops
 * along a head go around once or twice and are not unrolled, for the registers' sake.
 *
 * The device cannot report a position outside the tables: what it would have turned is NaN.
 */
#include "op/pack.cuh"

#include "op/rope_parts.h"

enum { WARP = 32, WARPS = 8, THREADS = WARP * WARPS, BLOCKS = 5 /* a multiprocessor */ };

/* A RopePart with the addresses of row 0, head 0. */
template <typename T> struct Part {
    T *wide, *heads;
    int64_t wide_row, heads_row; /* from row to row */
    int wide_step, heads_step;   /* from head to head */
    int count, n;
    bool turned;
};

template <typename T> struct Parts {
    Part<T> part[ROPE_PARTS_MAX];
    int parts;
    const int32_t *pos;
    const float *cos, *sin;
    int64_t positions; /* rows of the tables */
    int half;          /* and columns */
    bool back, interleaved;
};

typedef struct Angle {
    const float *cos, *sin; /* of the token's position */
    float sign;             /* -1: by the opposite angle; NaN: there is no such position */
    int half;
    bool interleaved;
} Angle;

template <typename T>
static __device__ __forceinline__ Angle angle_at(const Parts<T> &a, int64_t row)
{
    int64_t p = a.pos[row];
    bool known = p >= 0 && p < a.positions;
    int64_t first = known ? p * a.half : 0;
    float sign = a.back ? -1.0f : 1.0f;
    return Angle{ a.cos + first, a.sin + first, known ? sign : __uint_as_float(0x7FC00000u), a.half,
                  a.interleaved };
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
    for (int i = (int)threadIdx.x * P; i < 2 * t.half; i += WARP * P) {
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
    for (int i = (int)threadIdx.x * P; i < t.half; i += WARP * P) {
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

/* sum += a head's gradient of what heads share; a lane keeps to its own columns. */
template <bool WIDE, typename T>
static __device__ __forceinline__ void shared_add(const T *from, float *sum, int n)
{
    constexpr int P = WIDE ? PACK<T> : 1;
#pragma unroll 1
    for (int i = (int)threadIdx.x * P; i < n; i += WARP * P) {
        float v[P];
        load_const<WIDE>(from + i, v);
#pragma unroll
        for (int k = 0; k < P; k++) sum[i + k] += v[k];
    }
}

/* The warps' sums in their order, turned back. */
template <typename T>
static __device__ __forceinline__ void shared_finish(const Angle &t, float *sums, T *to)
{
    int rope = 2 * t.half;
    int thread = (int)(threadIdx.y * WARP + threadIdx.x);
    __syncthreads();
    for (int i = thread; i < rope; i += THREADS) {
        float sum = 0;
        for (int w = 0; w < WARPS; w++) sum += sums[w * rope + i];
        sums[i] = sum;
    }
    __syncthreads();
    for (int i = thread; i < t.half; i += THREADS) {
        int first = t.interleaved ? 2 * i : i, second = t.interleaved ? 2 * i + 1 : i + t.half;
        float a = sums[first], b = sums[second];
        turn_pair(a, b, t.cos[i], t.sign * t.sin[i]);
        to[first] = from_f32<T>(a);
        to[second] = from_f32<T>(b);
    }
}

/* Of every part a warp has each WARPS-th head; the next part begins with the next warp. */
template <typename T, bool WIDE>
static __global__ __launch_bounds__(THREADS,
                                    BLOCKS) void rope_kernel(const __grid_constant__ Parts<T> a)
{
    extern __shared__ float sums[]; /* WARPS rows of a shared gradient */
    int64_t row = blockIdx.x;
    int first = (int)threadIdx.y; /* of the warp's heads */
    Angle t = angle_at(a, row);
    for (int k = 0; k < a.parts; k++) {
        const Part<T> &p = a.part[k];
        T *wide = p.wide + row * p.wide_row, *heads = p.heads + row * p.heads_row;
        bool summed = a.back && p.wide_step == 0;
        float *sum = sums + threadIdx.y * p.n;
        for (int i = (int)threadIdx.x; summed && i < p.n; i += WARP) sum[i] = 0;
        __syncwarp();
        for (int h = first % WARPS; h < p.count; h += WARPS) {
            T *at_wide = wide + h * p.wide_step, *at_heads = heads + h * p.heads_step;
            const T *from = a.back ? at_heads : at_wide;
            T *to = a.back ? at_wide : at_heads;
            if (summed)
                shared_add<WIDE>(from, sum, p.n);
            else if (p.turned)
                turn<WIDE>(t, from, to);
            else
                move<WIDE>(from, to, p.n, (int)threadIdx.x, WARP);
        }
        if (summed) shared_finish(t, sums, wide);
        first += WARPS - p.count % WARPS;
    }
}

template <typename T> static bool packs_fit(const Rope &r)
{
    int64_t half = tensor_cols(r.cos), span = r.interleaved ? 2 * half : half;
    bool fit = packs_fit<T>({ r.cos->data, r.sin->data }, { span });
    for (const RopePart *p = r.part; p < r.part + r.parts; p++)
        fit = fit && packs_fit<T>({ p->wide->data, p->heads->data },
                                  { tensor_row_elems(p->wide), tensor_row_elems(p->heads),
                                    p->wide_col, p->wide_step, p->heads_col, p->heads_step, p->n });
    return fit;
}

static Status run(struct Exec *ex, const Rope &r)
{
    int64_t n = r.part[0].wide->dim[0], half = tensor_cols(r.cos);
    size_t room = r.back ? (size_t)(WARPS * 2 * half) * sizeof(float) : 0; /* 32 KiB at the most */
    if (n == 0) return OK;
    return launch_typed(r.op, r.part[0].wide->dtype, [&](auto t) {
        typedef decltype(t) T;
        Parts<T> a = {};
        a.parts = r.parts, a.back = r.back, a.interleaved = r.interleaved;
        a.pos = (const int32_t *)r.pos->data, a.cos = (const float *)r.cos->data;
        a.sin = (const float *)r.sin->data, a.positions = r.cos->dim[0], a.half = (int)half;
        for (int k = 0; k < r.parts; k++) {
            const RopePart &p = r.part[k];
            Part<T> &to = a.part[k];
            to.wide = (T *)p.wide->data + p.wide_col, to.heads = (T *)p.heads->data + p.heads_col;
            to.wide_row = tensor_row_elems(p.wide), to.heads_row = tensor_row_elems(p.heads);
            to.wide_step = (int)p.wide_step, to.heads_step = (int)p.heads_step;
            to.count = (int)p.count, to.n = (int)p.n, to.turned = p.turned;
        }
        auto kernel = packs_fit<T>(r) ? rope_kernel<T, true> : rope_kernel<T, false>;
        kernel<<<(unsigned)n, dim3(WARP, WARPS), room, exec_stream(ex)>>>(a);
    });
}

extern "C" Status rope_mla_fwd_cuda(struct Exec *ex, const void *args)
{
    return run(ex, rope_mla_fwd_parts((const RopeMlaFwd *)args));
}

extern "C" Status rope_mla_bwd_cuda(struct Exec *ex, const void *args)
{
    return run(ex, rope_mla_bwd_parts((const RopeMlaBwd *)args));
}

extern "C" Status rope_gqa_fwd_cuda(struct Exec *ex, const void *args)
{
    return run(ex, rope_gqa_fwd_parts((const RopeGqaFwd *)args));
}

extern "C" Status rope_gqa_bwd_cuda(struct Exec *ex, const void *args)
{
    return run(ex, rope_gqa_bwd_parts((const RopeGqaBwd *)args));
}
