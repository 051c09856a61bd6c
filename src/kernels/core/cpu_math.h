/*
 * cpu_math: functions for the CPU versions of ops: e^x that vectorises, and rows of "act" tensors read as f32.
 *
 * A kernel reads rows through row_load, works in f32 and narrows once at the end:
 *
 *     const float *x = row_load(&a->x, n * D, D, buffer);     f32: the tensor's own memory, no copy
 *     float *y = row_open(&a->y, n * D, buffer2);             bf16: the buffer
 *     for (int64_t d = 0; d < D; d++) y[d] = 2 * x[d];
 *     row_store(&a->y, n * D, D, y);                          f32: already there
 *
 * A buffer holds at least as many floats as the row and belongs to one thread: workspace, or a small array on the stack
 * if the row is walked in pieces. Offsets count elements from the start of the tensor.
 *
 * These functions are compiled into each set of CPU ops (cpu_set.h). GPU kernels have rows.cuh.
 */
#ifndef KERNELS_CORE_CPU_MATH_H
#define KERNELS_CORE_CPU_MATH_H

#include "engine/base/tensor.h"
#include "kernels/moe/glu.h"

#include <math.h>

/*
 * e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; ln 2 in two parts so that r is exact to the last bit, e^r by
 * its minimax polynomial of degree 6 (Cephes' expf). 2^n is applied as two factors, so subnormal results and the step
 * to infinity are rounded once and right. Within 1.1 ulp of e^x everywhere (tested over all orders of magnitude);
 * e^-inf = 0, e^inf = inf, NaN stays NaN. No branch and no table: a loop over it becomes vector code.
 */
static inline float exp_f32(float x)
{
    const float lowest = -104.0f, highest = 89.0f; /* beyond: 0 and infinity after rounding */
    x = lowest > x ? lowest : x;
    x = highest < x ? highest : x;
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer in the low bits */
    float shifted = x * 1.44269504088896341f + shift;
    float n = shifted - shift;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t e = (int32_t)(f32_bits(shifted) - 0x4B400000u), half = e >> 1;
    float first = f32_from_bits((uint32_t)(half + 127) << 23);
    float second = f32_from_bits((uint32_t)(e - half + 127) << 23);
    return p * first * second;
}

/* A gated activation of one gate and up (kernels/moe/glu.h), and its derivatives. NaN stays NaN. */
typedef struct GluSlopes {
    float act, by_gate, by_up; /* y, dy/dgate, dy/dup */
} GluSlopes;

static inline GluSlopes glu_slopes(Glu k, float gate, float up)
{
    float g = gate > k.limit ? k.limit : gate;
    float u = up > k.limit ? k.limit : up < -k.limit ? -k.limit : up;
    float q = g > k.reach ? k.reach : g < -k.reach ? -k.reach : g, bend = k.cube * q * q;
    float s = 1 / (1 + exp_f32(-q * (k.slope + bend))), glu = g * s;
    float slope = (u + k.shift) * s * (1 + q * (k.slope + 3 * bend) * (1 - s));
    return (GluSlopes){ .act = (u + k.shift) * glu,
                        .by_gate = gate > k.limit ? 0 : slope,
                        .by_up = up > k.limit || up < -k.limit ? 0 : glu };
}

/* y = silu(gate) * up, or another Glu; y may be gate or up. */
static inline void glu_f32(float *y, const float *gate, const float *up, int64_t n, Glu glu)
{
    if (glu.limit > 0) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = glu_slopes(glu, gate[i], up[i]).act;
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1 + exp_f32(-gate[i])) * up[i];
    }
}

/* The largest of n floats, -infinity if n is 0; NaNs are skipped. The loop keeps a maximum per lane and combines lanes
 * in pairs at the end: a compiler may not reorder a maximum over possible NaNs. */
static inline float max_f32(const float *x, int64_t n)
{
    enum { WIDTH = 32 };
    float lane[WIDTH];
    for (int l = 0; l < WIDTH; l++) lane[l] = -INFINITY;
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        for (int l = 0; l < WIDTH; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    }
    for (int l = 0; l < n - i; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int half = WIDTH / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) {
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
        }
    }
    return lane[0];
}

/* Elements [first, first + n) of t as f32: the tensor's own memory if it is f32, else widened into `buffer`. */
static inline const float *row_load(const Tensor *t, int64_t first, int64_t n, float *buffer)
{
    if (t->dtype == DTYPE_F32) return (const float *)t->data + first;
    dtype_to_f32(buffer, (const char *)t->data + (size_t)first * dtype_bytes(t->dtype), t->dtype,
                 n);
    return buffer;
}

/* Where to compute a row that row_store then stores at element `first`. */
static inline float *row_open(const Tensor *t, int64_t first, float *buffer)
{
    return t->dtype == DTYPE_F32 ? (float *)t->data + first : buffer;
}

static inline void row_store(const Tensor *t, int64_t first, int64_t n, const float *row)
{
    char *at = (char *)t->data + (size_t)first * dtype_bytes(t->dtype);
    if ((const char *)row != at) dtype_from_f32(at, t->dtype, row, n);
}

#endif
