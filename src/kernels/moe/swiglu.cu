/*
 * swiglu: kernels of both directions, bound by memory: gu is read once and y written once; backward
 * also reads dy. A thread fetches its packs of EACH rows before it writes any, so dgu may be gu.
 *
 * In bf16 a sigmoid is only ex2 and rcp, accurate to about 1e-6, a thousandth of the rounding of
 * the result. With expf and a division, arithmetic took as long as memory (20 of 28 instructions an
 * element). f32 moves twice the bytes and uses the exact functions.
 */
#include "kernels/quant/quant_made.cuh"

#include "kernels/moe/swiglu.cuh"
#include "kernels/moe/swiglu.h"

#include "engine/gpu/fast_math.cuh"

enum { FORWARD_ROWS = 4, BACKWARD_ROWS = 2 }; /* 128 and 96 bytes on their way for each thread */

/* act = g s u, s = 1 / (1 + e^-g); GENERAL: another Glu */
template <typename T, bool GENERAL>
static __device__ __forceinline__ float act_of(float g, float u, const Glu &glu)
{
    if constexpr (GENERAL) return glu_slopes(glu, g, u, sigmoid_for<T>).act;
    return u * (g * sigmoid_for<T>(g));
}

/* dg = dy u s (1 + g (1 - s)),   du = dy g s, in x and y */
template <typename T, bool GENERAL>
static __device__ __forceinline__ float2 slopes_of(float dy, float g, float u, const Glu &glu)
{
    if constexpr (GENERAL) {
        GluSlopes c = glu_slopes(glu, g, u, sigmoid_for<T>);
        return make_float2(dy * c.by_gate, dy * c.by_up);
    }
    float s = sigmoid_for<T>(g);
    return make_float2(dy * u * s * (1 + g * (1 - s)), dy * g * s);
}

template <typename T, bool WIDE, bool GENERAL>
static __global__ __launch_bounds__(ROWS_THREADS) void swiglu_fwd_kernel(const T *gu, T *y,
                                                                         int64_t n, int64_t f,
                                                                         Glu glu)
{
    constexpr int EACH = FORWARD_ROWS, P = Packed<T, WIDE>::P;
    row_groups<EACH, P>(n, f, [&](int64_t col, int64_t row, int64_t step) {
        Packed<T, WIDE> gate[EACH], up[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row + j * step >= n) break;
            const T *at = gu + (row + j * step) * 2 * f + col;
            fetch_once(gate[j], at);
            fetch_once(up[j], at + f);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row + j * step >= n) break;
            float g[P], u[P];
            widen(gate[j], g);
            widen(up[j], u);
#pragma unroll
            for (int k = 0; k < P; k++) u[k] = act_of<T, GENERAL>(g[k], u[k], glu);
            store<WIDE>(y + (row + j * step) * f + col, u);
        }
    });
}

template <typename T, bool WIDE, bool GENERAL>
static __global__ __launch_bounds__(ROWS_THREADS) void swiglu_bwd_kernel(const T *dy, const T *gu,
                                                                         T *dgu, int64_t n,
                                                                         int64_t f, Glu glu)
{
    constexpr int EACH = BACKWARD_ROWS, P = Packed<T, WIDE>::P;
    row_groups<EACH, P>(n, f, [&](int64_t col, int64_t row, int64_t step) {
        Packed<T, WIDE> out[EACH], gate[EACH], up[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row + j * step >= n) break;
            const T *at = gu + (row + j * step) * 2 * f + col;
            fetch_once(out[j], dy + (row + j * step) * f + col);
            fetch_once(gate[j], at);
            fetch_once(up[j], at + f);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row + j * step >= n) break;
            T *at = dgu + (row + j * step) * 2 * f + col;
            float d[P], g[P], u[P];
            widen(out[j], d);
            widen(gate[j], g);
            widen(up[j], u);
#pragma unroll
            for (int k = 0; k < P; k++) {
                float2 slopes = slopes_of<T, GENERAL>(d[k], g[k], u[k], glu);
                g[k] = slopes.x, u[k] = slopes.y;
            }
            store<WIDE>(at, g);
            store<WIDE>(at + f, u);
        }
    });
}

/* A maker of y, for copies of 1 x 128 (quant_made.cuh). */
template <bool GENERAL> struct MakeForward {
    static constexpr int EACH = 4;
    const Bf16 *gu;
    int64_t f;
    Glu glu;

    template <bool WIDE> struct Rest {
        Packed<Bf16, WIDE> up;
    };

    template <bool WIDE> __device__ __forceinline__ const Bf16 *place(int64_t col) const
    {
        return gu + col;
    }
    __device__ __forceinline__ const Bf16 *first(const Bf16 *at, int64_t row) const
    {
        return at + row * 2 * f;
    }
    __device__ __forceinline__ int note(const Bf16 *, int64_t) const { return 0; }

    template <bool WIDE>
    __device__ __forceinline__ void fetch(Rest<WIDE> &in, int, const Bf16 *at, int64_t row) const
    {
        fetch_once(in.up, at + row * 2 * f + f);
    }

    template <bool WIDE, int P>
    __device__ __forceinline__ void compute(float (&v)[P], const Rest<WIDE> &in, int,
                                            const Bf16 *) const
    {
        float u[P];
        widen(in.up, u);
#pragma unroll
        for (int k = 0; k < P; k++) v[k] = act_of<Bf16, GENERAL>(v[k], u[k], glu);
    }
};

/* A source of dgu in blocks that have the same columns of both halves. The threads of a pack of gate
 * and of that of up share the work: each makes both gradients of half of the 16 rows, and they
 * exchange what the other keeps. So all is read once, and a sigmoid is made once: with both made in
 * tiles of their own, the gradient took 476 us instead of 302. */
template <bool GENERAL> struct Slopes {
    typedef quant::Patch Patch;
    static constexpr bool PACKED = true, FOLDED = true;
    static constexpr int RESIDENT = quant::WIDE_PATCH, HALF = quant::ROWS_EACH / 2;
    const Bf16 *dy, *gu;
    Bf16 *dgu; /* or NULL; may be gu */
    int64_t f;
    Glu glu;

    /* The gradients of a block are written when another thread of it asks for one. */
    __device__ __forceinline__ float number(const quant::Job &job, const quant::Strip &s, int r,
                                            int64_t col) const
    {
        int64_t row = s.first + r, c = col < f ? col : col - f;
        if (dgu != NULL) return to_f32(dgu[row * job.d + col]);
        const Bf16 *gate = gu + row * job.d + c;
        float2 slopes =
            slopes_of<Bf16, GENERAL>(to_f32(dy[row * f + c]), to_f32(*gate), to_f32(gate[f]), glu);
        return to_f32(from_f32<Bf16>(col < f ? slopes.x : slopes.y));
    }

    template <typename S>
    __device__ __forceinline__ void load(const quant::Job &job, const quant::Strip &s,
                                         const quant::Place<S> &at, int64_t col, Patch &p) const
    {
        constexpr int PACKS = S::PACKS / 2, APART = PACKS / S::ACROSS * WARP;
        __shared__ uint4 given[HALF * S::THREADS];
        bool up = at.pack >= PACKS;
        int64_t c = col + at.pack % PACKS * quant::PACK_COLS, row = s.first + at.row;
        int mine = up ? HALF : 0, live = s.live - at.row;
        Packed<Bf16, true> out[HALF], gate[HALF], more[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            clear(out[i]), clear(gate[i]), clear(more[i]);
            if (mine + i >= live) continue;
            const Bf16 *g = gu + (row + mine + i) * job.d + c;
            fetch_once(out[i], dy + (row + mine + i) * f + c);
            fetch_once(gate[i], g);
            fetch_once(more[i], g + f);
        }
        uint4 kept[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            uint4 by_gate, by_up;
            pack_slopes(out[i], gate[i], more[i], by_gate, by_up);
            kept[i] = up ? by_up : by_gate;
            given[i * S::THREADS + threadIdx.x] = up ? by_gate : by_up;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            uint4 got = given[i * S::THREADS + (threadIdx.x + (up ? -APART : APART))];
            p.word[i] = up ? got : kept[i];
            p.word[HALF + i] = up ? kept[i] : got;
        }
        if (dgu == NULL) return;
#pragma unroll
        for (int i = 0; i < quant::ROWS_EACH; i++)
            if (i < live)
                write_whole((uint4 *)(dgu + (row + i) * job.d + c + (up ? f : 0)), p.word[i]);
    }

    __device__ __forceinline__ void pack_slopes(const Packed<Bf16, true> &out,
                                                const Packed<Bf16, true> &gate,
                                                const Packed<Bf16, true> &up, uint4 &by_gate,
                                                uint4 &by_up) const
    {
        constexpr int P = PACK<Bf16>;
        float d[P], g[P], u[P];
        widen(out, d);
        widen(gate, g);
        widen(up, u);
#pragma unroll
        for (int k = 0; k < P; k++) {
            float2 slopes = slopes_of<Bf16, GENERAL>(d[k], g[k], u[k], glu);
            g[k] = slopes.x, u[k] = slopes.y;
        }
        by_gate = bf16_word<uint4>(g);
        by_up = bf16_word<uint4>(u);
    }
};

static bool forward_made(const SwigluFwd *a)
{
    return quant::made_fits(a->quant, &a->y) && packs_fit<Bf16>({ a->gu.data }, {});
}

/* Blocks of scales must not lie in both halves. */
static bool backward_made(const SwigluBwd *a)
{
    int64_t f = tensor_row_elems(&a->dy);
    return quant::made_fits(a->quant, &a->dgu) && f % OPERAND_BLOCK == 0 &&
           packs_fit<Bf16>({ a->dy.data, a->gu.data }, {});
}

extern "C" size_t swiglu_fwd_gpu_workspace(const struct Exec *ex, const void *args)
{
    const SwigluFwd *a = (const SwigluFwd *)args;
    return forward_made(a) ? 0 : quant_out_gpu_workspace(ex, &a->quant, &a->y);
}

extern "C" size_t swiglu_bwd_gpu_workspace(const struct Exec *ex, const void *args)
{
    const SwigluBwd *a = (const SwigluBwd *)args;
    return backward_made(a) ? 0 : quant_out_gpu_workspace(ex, &a->quant, &a->dgu);
}

extern "C" Status swiglu_fwd_gpu(struct Exec *ex, const void *args)
{
    const SwigluFwd *a = (const SwigluFwd *)args;
    const void *gu = a->gu.data;
    void *space = exec_workspace(ex);
    Tensor y = quant_out_open(&a->quant, a->y, space);
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    if (forward_made(a)) {
        if (a->glu.limit > 0)
            return quant::made_run(ex, "swiglu_fwd", a->quant, &a->y,
                                   MakeForward<true>{ (const Bf16 *)gu, f, a->glu });
        return quant::made_run(ex, "swiglu_fwd", a->quant, &a->y,
                               MakeForward<false>{ (const Bf16 *)gu, f, a->glu });
    }
    TRY(launch_packed(ex, "swiglu_fwd", y.dtype, { gu, y.data }, { f }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        RowGrid g = row_grid(n, f / (wide ? PACK<T> : 1), FORWARD_ROWS);
        auto *kernel =
            a->glu.limit > 0 ? swiglu_fwd_kernel<T, wide, true> : swiglu_fwd_kernel<T, wide, false>;
        kernel<<<g.grid, g.block, 0, exec_stream(ex)>>>((const T *)gu, (T *)y.data, n, f, a->glu);
    }));
    return quant_out_gpu(ex, &a->quant, &y, space);
}

extern "C" Status swiglu_bwd_gpu(struct Exec *ex, const void *args)
{
    const SwigluBwd *a = (const SwigluBwd *)args;
    const void *dy = a->dy.data, *gu = a->gu.data;
    void *space = exec_workspace(ex);
    Tensor dgu = quant_out_open(&a->quant, a->dgu, space);
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    if (backward_made(a)) {
        const Bf16 *d = (const Bf16 *)dy, *g = (const Bf16 *)gu;
        Bf16 *to = (Bf16 *)a->dgu.data;
        if (a->glu.limit > 0)
            return quant::source_run(ex, "swiglu_bwd", a->quant, &a->dgu,
                                     Slopes<true>{ d, g, to, f, a->glu });
        return quant::source_run(ex, "swiglu_bwd", a->quant, &a->dgu,
                                 Slopes<false>{ d, g, to, f, a->glu });
    }
    TRY(launch_packed(ex, "swiglu_bwd", dgu.dtype, { dy, gu, dgu.data }, { f },
                      [&](auto t, auto wide) {
                          typedef decltype(t) T;
                          RowGrid g = row_grid(n, f / (wide ? PACK<T> : 1), BACKWARD_ROWS);
                          auto *kernel = a->glu.limit > 0 ? swiglu_bwd_kernel<T, wide, true>
                                                          : swiglu_bwd_kernel<T, wide, false>;
                          kernel<<<g.grid, g.block, 0, exec_stream(ex)>>>(
                              (const T *)dy, (const T *)gu, (T *)dgu.data, n, f, a->glu);
                      }));
    return quant_out_gpu(ex, &a->quant, &dgu, space);
}
