/* dtype: element types and bit-exact conversions between them.
 *
 *   F32   IEEE binary32
 *   BF16  the upper half of an F32 (8 exponent bits, 7 mantissa bits)
 *   F16   IEEE binary16
 *   E4M3  OCP 8-bit (arXiv:2209.05433): bias 7, no infinity, S.1111.111 is NaN, largest 448
 *   E5M2  OCP 8-bit: bias 15, IEEE-like infinities and NaNs, largest 57344
 *   I32, I64, U8  integers, never converted
 *
 * Narrowing rounds to nearest, ties to even. Overflow goes to infinity, in E4M3 to NaN. Subnormals
 * are exact both ways. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum Dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_E4M3,
    DTYPE_E5M2,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPE_COUNT
} Dtype;

size_t dtype_bytes(Dtype t);
const char *dtype_name(Dtype t); /* "f32", "bf16", "f16", "e4m3", "e5m2", "i32", "i64", "u8" */

/* The enum lists the floating types first, then the integers. */
static inline bool dtype_is_float(Dtype t) { return t < DTYPE_I32; }

static inline uint32_t f32_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

float f32_from_bf16(uint16_t v);
uint16_t bf16_from_f32(float v);

/* Convert n elements of a floating type. src and dst must not overlap. F32 to F32 copies. */
void dtype_to_f32(float *dst, const void *src, Dtype src_type, int64_t n);
void dtype_from_f32(void *dst, Dtype dst_type, const float *src, int64_t n);

#endif
