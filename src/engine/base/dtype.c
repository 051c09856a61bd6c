/* dtype: conversions between f32 and narrow types, one element or many, by integer arithmetic. */
#include "engine/base/dtype.h"

#include <assert.h>
#include <string.h>

/* The small formats differ in a few numbers. Each function below gets them as a constant, so
 * that inlining removes them and the loops vectorise. Only integer arithmetic and exact products of
 * normal numbers are used. So the results are right in every rounding mode and with subnormals
 * flushed to zero. */
typedef struct Format {
    int mantissa_bits, bias;
    uint32_t largest;  /* code of the largest finite value */
    uint32_t overflow; /* code for larger values: infinity, or NaN in a format without infinity */
    uint32_t nan;      /* quiet NaN */
    int bits;
} Format;

static const Format F16 = { 10, 15, 0x7BFF, 0x7C00, 0x7E00, 16 };
static const Format E4M3 = { 3, 7, 0x7E, 0x7F, 0x7F, 8 };
static const Format E5M2 = { 2, 15, 0x7B, 0x7C, 0x7E, 8 };
/* These have neither infinity nor NaN: what is larger becomes the largest. */
static const Format E2M1 = { 1, 1, 0x07, 0x07, 0x07, 4 };
static const Format E2M3 = { 3, 1, 0x1F, 0x1F, 0x1F, 6 };
static const Format E3M2 = { 2, 3, 0x1F, 0x1F, 0x1F, 6 };

static const struct {
    const char *name;
    size_t bytes;
    int bits;
    float largest;
} TYPE[DTYPE_COUNT] = {
    [DTYPE_F32] = { "f32", 4, 32, 0 },      [DTYPE_BF16] = { "bf16", 2, 16, 0 },
    [DTYPE_F16] = { "f16", 2, 16, 65504 },  [DTYPE_E4M3] = { "e4m3", 1, 8, 448 },
    [DTYPE_E5M2] = { "e5m2", 1, 8, 57344 }, [DTYPE_E2M1] = { "e2m1", 1, 4, 6 },
    [DTYPE_E2M3] = { "e2m3", 1, 6, 7.5f },  [DTYPE_E3M2] = { "e3m2", 1, 6, 28 },
    [DTYPE_I32] = { "i32", 4, 32, 0 },      [DTYPE_I64] = { "i64", 8, 64, 0 },
    [DTYPE_U8] = { "u8", 1, 8, 0 },
};

size_t dtype_bytes(Dtype t)
{
    assert((unsigned)t < DTYPE_COUNT);
    return TYPE[t].bytes;
}

int dtype_bits(Dtype t)
{
    assert((unsigned)t < DTYPE_COUNT);
    return TYPE[t].bits;
}

float dtype_largest(Dtype t)
{
    assert(dtype_is_narrow(t));
    return TYPE[t].largest;
}

const char *dtype_name(Dtype t)
{
    assert((unsigned)t < DTYPE_COUNT);
    return TYPE[t].name;
}

/* 2^e for a normal f32. */
static inline float power_of_two(int e) { return f32_from_bits((uint32_t)(e + 127) << 23); }

/* normal:     the same exponent and mantissa fields, moved, with the bias changed
 * subnormal:  mantissa * 2^(1 - bias - mantissa_bits), a normal f32 in all small formats */
static inline float widen(uint32_t code, Format f)
{
    uint32_t sign = code >> (f.bits - 1) << 31;
    uint32_t magnitude = code & ((1u << (f.bits - 1)) - 1);
    int up = 23 - f.mantissa_bits;
    uint32_t normal = (magnitude << up) + ((uint32_t)(127 - f.bias) << 23);
    uint32_t subnormal =
        f32_bits((float)(int32_t)magnitude * power_of_two(1 - f.bias - f.mantissa_bits));
    uint32_t special =
        f.overflow == f.nan ? 0x7FC00000u : 0x7F800000u | ((magnitude << up) & 0x7FFFFFu);
    uint32_t u = magnitude >> f.mantissa_bits == 0 ? subnormal : normal;
    u = magnitude > f.largest ? special : u;
    return f32_from_bits(sign | u);
}

/* Shifts the 24-bit significand down to the target's precision, further if the result is subnormal.
 * Rounds to nearest even: adds half of the last kept bit less one, plus that bit. A carry out of the
 * significand increments the exponent field, which is what rounding up needs. */
static inline uint32_t narrow(float v, Format f)
{
    uint32_t u = f32_bits(v);
    uint32_t sign = u >> 31 << (f.bits - 1);
    uint32_t magnitude = u & 0x7FFFFFFFu;
    int exponent = (int)(magnitude >> 23) - 127, lowest = 1 - f.bias;
    uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    int shift = 23 - f.mantissa_bits + (exponent < lowest ? lowest - exponent : 0);
    shift = shift > 25 ? 25 : shift; /* below half the smallest subnormal: 0 */
    uint32_t odd = significand >> shift & 1u;
    uint32_t code = (significand + (1u << (shift - 1)) - 1u + odd) >> shift;
    code += exponent > lowest ? (uint32_t)(exponent - lowest) << f.mantissa_bits : 0;
    code = code > f.largest ? f.overflow : code;
    uint32_t payload = magnitude >> (23 - f.mantissa_bits) & ((1u << f.mantissa_bits) - 1);
    code = magnitude > 0x7F800000u ? f.nan | payload : code;
    return sign | code;
}

/* The E4M3 code of v rounded to a format whose numbers E4M3 has, too; NaN stays NaN. */
static inline uint32_t narrow_to(float v, Format f)
{
    uint32_t magnitude = f32_bits(v) & 0x7FFFFFFFu;
    return narrow(magnitude > 0x7F800000u ? v : widen(narrow(v, f), f), E4M3);
}

/* bf16 has its own pair of functions: its exponent is that of f32, so a shift is enough. */
static inline float widen_bf16(uint16_t v) { return f32_from_bits((uint32_t)v << 16); }

static inline uint16_t narrow_bf16(float v)
{
    uint32_t u = f32_bits(v);
    uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
    uint32_t quiet = u >> 16 | 0x40u; /* rounding could carry a NaN's payload into the sign */
    return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

float f32_from_bf16(uint16_t v) { return widen_bf16(v); }
uint16_t bf16_from_f32(float v) { return narrow_bf16(v); }

/* One loop per type, without branches on the type, so that the compiler can vectorise it.
 * NOLINTBEGIN(bugprone-macro-parentheses): types take none */
#define LOOP(name, From, To, convert)                                                              \
    static void name(To *restrict dst, const From *restrict src, int64_t n)                        \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) dst[i] = (To)(convert);                                    \
    }

LOOP(f32_from_bf16_n, uint16_t, float, widen_bf16(src[i]))
LOOP(f32_from_f16_n, uint16_t, float, widen(src[i], F16))
LOOP(f32_from_e4m3_n, uint8_t, float, widen(src[i], E4M3))
LOOP(f32_from_e5m2_n, uint8_t, float, widen(src[i], E5M2))
LOOP(bf16_from_f32_n, float, uint16_t, narrow_bf16(src[i]))
LOOP(f16_from_f32_n, float, uint16_t, narrow(src[i], F16))
LOOP(e4m3_from_f32_n, float, uint8_t, narrow(src[i], E4M3))
LOOP(e5m2_from_f32_n, float, uint8_t, narrow(src[i], E5M2))
LOOP(e2m1_from_f32_n, float, uint8_t, narrow_to(src[i], E2M1))
LOOP(e2m3_from_f32_n, float, uint8_t, narrow_to(src[i], E2M3))
LOOP(e3m2_from_f32_n, float, uint8_t, narrow_to(src[i], E3M2))
/* NOLINTEND(bugprone-macro-parentheses) */

void dtype_to_f32(float *dst, const void *src, Dtype src_type, int64_t n)
{
    if (n <= 0) return;
    switch (src_type) {
    case DTYPE_F32: memcpy(dst, src, (size_t)n * sizeof(float)); return;
    case DTYPE_BF16: f32_from_bf16_n(dst, src, n); return;
    case DTYPE_F16: f32_from_f16_n(dst, src, n); return;
    case DTYPE_E2M1:
    case DTYPE_E2M3:
    case DTYPE_E3M2:
    case DTYPE_E4M3: f32_from_e4m3_n(dst, src, n); return;
    case DTYPE_E5M2: f32_from_e5m2_n(dst, src, n); return;
    default: assert(!"dtype_to_f32 of an integer type");
    }
}

void dtype_from_f32(void *dst, Dtype dst_type, const float *src, int64_t n)
{
    if (n <= 0) return;
    switch (dst_type) {
    case DTYPE_F32: memcpy(dst, src, (size_t)n * sizeof(float)); return;
    case DTYPE_BF16: bf16_from_f32_n(dst, src, n); return;
    case DTYPE_F16: f16_from_f32_n(dst, src, n); return;
    case DTYPE_E4M3: e4m3_from_f32_n(dst, src, n); return;
    case DTYPE_E5M2: e5m2_from_f32_n(dst, src, n); return;
    case DTYPE_E2M1: e2m1_from_f32_n(dst, src, n); return;
    case DTYPE_E2M3: e2m3_from_f32_n(dst, src, n); return;
    case DTYPE_E3M2: e3m2_from_f32_n(dst, src, n); return;
    default: assert(!"dtype_from_f32 to an integer type");
    }
}
