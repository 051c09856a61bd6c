/* small_float: bf16 and the 8-bit floats of gfx942. These are FNUZ: no infinity, no negative zero, 0x80
 * is NaN, and the bias is one higher than OCP's: 1.0 is 0x40 in fp8 (e4m3) and in bf8 (e5m2). */
#ifndef GFXRUN_SMALL_FLOAT_H
#define GFXRUN_SMALL_FLOAT_H

#include "gfxrun/lane_math.h"

static inline float as_bf16(uint64_t v) { return as_f32(v << 16); }

static inline uint64_t bits_bf16(float f)
{
    uint64_t u = bits_f32(f);
    if (isnan(f)) return u >> 16 | 64;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* As an f32 the bits have the same fraction and the smallest exponents, which the factor 2^(127 - bias)
 * moves. That holds for subnormal numbers, too. */
static inline float as_fnuz(uint64_t v, int fraction_bits, int bias)
{
    float f = as_f32((v & 127) << (23 - fraction_bits)) * as_f32((uint64_t)(254 - bias) << 23);
    if ((v & 255) == 0x80) return NAN;
    return v & 0x80 ? -f : f;
}

/* Rounds to nearest even; what is too large becomes NaN. */
static inline uint64_t bits_fnuz(float f, int fraction_bits, int bias)
{
    int exponent;
    if (!isfinite(f)) return 0x80;
    if (f == 0) return 0;
    (void)frexpf(f, &exponent); /* f = m * 2^exponent, m in [0.5, 1) */
    if (exponent < 2 - bias) exponent = 2 - bias;
    int64_t steps = (int64_t)nearbyintf(ldexpf(fabsf(f), fraction_bits + 1 - exponent));
    uint64_t bits = (uint64_t)(steps + ((int64_t)(exponent - 2 + bias) << fraction_bits));
    if (bits > 127) return 0x80;
    return bits == 0 ? 0 : bits | (f < 0 ? 0x80 : 0);
}

static inline float as_fp8(uint64_t v) { return as_fnuz(v, 3, 8); }
static inline float as_bf8(uint64_t v) { return as_fnuz(v, 2, 16); }
static inline uint64_t bits_fp8(float f) { return bits_fnuz(f, 3, 8); }
static inline uint64_t bits_bf8(float f) { return bits_fnuz(f, 2, 16); }

#endif
