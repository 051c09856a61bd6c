/*
 * swiglu: kernels of both directions, bound by memory: gu is read once and y written once; backward
 * also reads dy. A thread fetches its packs of EACH rows before it writes any, so dgu may be gu.
 *
 * In bf16 a sigmoid is only ex2 and rcp, accurate to about 1e-6, a thousandth of the rounding of
 * the result. With expf and a division, arithmetic took as long as memory (20 of 28 instructions an
 * element). f32 moves twice the bytes and uses the exact functions.
 */
#include "op/rows.cuh"

#include "op/swiglu.cuh"
#include "op/swiglu.h"

enum { FORWARD_ROWS = 4, BACKWARD_ROWS = 2 }; /* 128 and 96 bytes on their way for each thread */

/* 1 / (1 + e^-g): 0 and 1 far away, where e^-g is infinite and 0. */
template <typename T> static __device__ __forceinline__ float sigmoid(float g)
{
    if constexpr (std::is_same<T, float>::value) {
        return 1 / (1 + expf(-g));
    } else {
        return fast_reciprocal(1 + fast_exp2(g * -1.44269504f)); /* 1 / ln 2 */
    }
}

/* y = g s u, s = 1 / (1 + e^-g); CLAMPED: the other form */
template <typename T, bool WIDE, bool CLAMPED>
static __global__ __launch_bounds__(ROWS_THREADS) void swiglu_fwd_kernel(const T *gu, T *y,
                                                                         int64_t n, int64_t f,
                                                                         float limit)
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
            for (int k = 0; k < P; k++) {
                if constexpr (CLAMPED)
                    u[k] = swiglu_clamped(g[k], u[k], limit, sigmoid<T>).act;
                else
                    u[k] *= g[k] * sigmoid<T>(g[k]);
            }
            store<WIDE>(y + (row + j * step) * f + col, u);
        }
    });
}

/* dg = dy u s (1 + g (1 - s)),   du = dy g s */
template <typename T, bool WIDE, bool CLAMPED>
static __global__ __launch_bounds__(ROWS_THREADS) void swiglu_bwd_kernel(const T *dy, const T *gu,
                                                                         T *dgu, int64_t n,
                                                                         int64_t f, float limit)
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
                if constexpr (CLAMPED) {
                    Clamped c = swiglu_clamped(g[k], u[k], limit, sigmoid<T>);
                    g[k] = d[k] * c.by_gate;
                    u[k] = d[k] * c.by_up;
                } else {
                    float s = sigmoid<T>(g[k]), dg = d[k] * u[k] * s * (1 + g[k] * (1 - s));
                    u[k] = d[k] * g[k] * s;
                    g[k] = dg;
                }
            }
            store<WIDE>(at, g);
            store<WIDE>(at + f, u);
        }
    });
}

extern "C" size_t swiglu_fwd_gpu_workspace(const struct Exec *ex, const void *args)
{
    const SwigluFwd *a = (const SwigluFwd *)args;
    return quant_out_gpu_workspace(ex, &a->quant, &a->y);
}

extern "C" size_t swiglu_bwd_gpu_workspace(const struct Exec *ex, const void *args)
{
    const SwigluBwd *a = (const SwigluBwd *)args;
    return quant_out_gpu_workspace(ex, &a->quant, &a->dgu);
}

extern "C" Status swiglu_fwd_gpu(struct Exec *ex, const void *args)
{
    const SwigluFwd *a = (const SwigluFwd *)args;
    const void *gu = a->gu.data;
    void *space = exec_workspace(ex);
    Tensor y = quant_out_open(&a->quant, a->y, space);
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    TRY(launch_packed(ex, "swiglu_fwd", y.dtype, { gu, y.data }, { f }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        RowGrid g = row_grid(n, f / (wide ? PACK<T> : 1), FORWARD_ROWS);
        auto *kernel =
            a->limit > 0 ? swiglu_fwd_kernel<T, wide, true> : swiglu_fwd_kernel<T, wide, false>;
        kernel<<<g.grid, g.block, 0, exec_stream(ex)>>>((const T *)gu, (T *)y.data, n, f, a->limit);
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
    TRY(launch_packed(
        ex, "swiglu_bwd", dgu.dtype, { dy, gu, dgu.data }, { f }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            RowGrid g = row_grid(n, f / (wide ? PACK<T> : 1), BACKWARD_ROWS);
            auto *kernel =
                a->limit > 0 ? swiglu_bwd_kernel<T, wide, true> : swiglu_bwd_kernel<T, wide, false>;
            kernel<<<g.grid, g.block, 0, exec_stream(ex)>>>((const T *)dy, (const T *)gu,
                                                            (T *)dgu.data, n, f, a->limit);
        }));
    return quant_out_gpu(ex, &a->quant, &dgu, space);
}
