/* lane_math: how the tables of vector arithmetic define an instruction: an expression of one lane's
 * operands a, b, c, which a loop over 64 lanes evaluates. */
#ifndef GFXRUN_LANE_MATH_H
#define GFXRUN_LANE_MATH_H

#include "engine/base/dtype.h"
#include "gfxrun/machine.h"

#include <math.h>
#include <string.h>

static inline float as_f32(uint64_t v) { return f32_from_bits((uint32_t)v); }
static inline uint64_t bits_f32(float f) { return f32_bits(f); }

static inline double as_f64(uint64_t v)
{
    double f;
    memcpy(&f, &v, sizeof f);
    return f;
}

static inline uint64_t bits_f64(double f)
{
    uint64_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline int32_t as_i32(uint64_t v) { return (int32_t)(uint32_t)v; }

/* f16 is exact in f32; back it rounds to nearest even. */
static inline float as_f16(uint64_t v)
{
    uint32_t sign = (uint32_t)(v >> 15 & 1) << 31, exponent = v >> 10 & 31, fraction = v & 1023;
    if (exponent == 0) {
        float f = (float)fraction * 0x1p-24F;
        return sign ? -f : f;
    }
    return as_f32(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}

static inline uint64_t bits_f16(float f)
{
    uint32_t u = (uint32_t)bits_f32(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00;
    if (magnitude >= 0x477ff000) return sign | 0x7c00; /* half a step above the largest */
    if (magnitude < 0x38800000) /* subnormal: a multiple of 2^-24, rounded by the addition */
        return sign | (uint64_t)(bits_f32(as_f32(magnitude) + 0.5F) - 0x3f000000);
    return sign | (uint64_t)((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13);
}

#define LANE_FN(name, expr)                                                                        \
    static void name(Results *restrict r_, const uint64_t *restrict a_,                            \
                     const uint64_t *restrict b_, const uint64_t *restrict c_)                     \
    {                                                                                              \
        for (int l = 0; l < LANES; l++) {                                                          \
            uint64_t a = a_[l], b = b_[l], c = c_[l];                                              \
            (void)b;                                                                               \
            (void)c;                                                                               \
            r_->d[l] = (expr);                                                                     \
        }                                                                                          \
    }

/* With a carry or another second result. */
#define LANE_FN2(name, expr, expr2)                                                                \
    static void name(Results *restrict r_, const uint64_t *restrict a_,                            \
                     const uint64_t *restrict b_, const uint64_t *restrict c_)                     \
    {                                                                                              \
        for (int l = 0; l < LANES; l++) {                                                          \
            uint64_t a = a_[l], b = b_[l], c = c_[l];                                              \
            (void)c;                                                                               \
            r_->d[l] = (expr);                                                                     \
            r_->d2[l] = (expr2);                                                                   \
        }                                                                                          \
    }

#endif
