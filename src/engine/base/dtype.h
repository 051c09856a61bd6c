/* dtype: element types and bit-exact conversions between them.
 *
 *   F32   IEEE binary32
 *   BF16  the upper half of an F32 (8 exponent bits, 7 mantissa bits)
 *   F16   IEEE binary16
 *   E4M3  OCP 8-bit (arXiv:2209.05433): bias 7, no infinity, S.1111.111 is NaN, largest 448
 *   E5M2  OCP 8-bit: bias 15, IEEE-like infinities and NaNs, largest 57344
 *   E2M1, E2M3, E3M2  OCP Microscaling (MX) 4- and 6-bit: bias 1, 1, 3, largest 6, 7.5, 28. Emulated:
 *         an element is the E4M3 code of its value, so it takes a byte
 *   I32, I64, U8  integers, never converted
 *
 * Narrowing rounds to nearest, ties to even. Overflow goes to infinity, in E4M3 to NaN, in MX types to
 * their largest number. Subnormals are exact both ways. */
#ifndef ENGINE_BASE_DTYPE_H
#define ENGINE_BASE_DTYPE_H

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
    DTYPE_E2M1,
    DTYPE_E2M3,
    DTYPE_E3M2,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPE_COUNT
} Dtype;

size_t dtype_bytes(Dtype t);     /* of an element in memory */
int dtype_bits(Dtype t);         /* of an element where hardware has the type: 4 for e2m1 */
const char *dtype_name(Dtype t); /* "f32", "bf16", "f16", "e4m3", "e2m1", "i32" and so on */
float dtype_largest(Dtype t);    /* the largest finite number of a type of at most 8 bits */

/* The enum lists the floating types first, then the integers. */
static inline bool dtype_is_float(Dtype t) { return t < DTYPE_I32; }

/* What 8-bit operands hold; of these, what is emulated on a CPU alone. */
static inline bool dtype_is_narrow(Dtype t) { return t >= DTYPE_E4M3 && t < DTYPE_I32; }
static inline bool dtype_is_emulated(Dtype t) { return t >= DTYPE_E2M1 && t < DTYPE_I32; }

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
