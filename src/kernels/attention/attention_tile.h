/*
 * attention_tile: the matrix products inside attention on the CPU. These matrices are small (a head wide, a few queries
 * high), so packing them again for every product would cost more than it saves. Large products go through gemm.h.
 *
 * All matrices are stored in panels of LANES columns: row r of panel p is at p * stride + r *
 * LANES. So what one product writes, the next can read as any of its operands, without repacking:
 *
 *     c = a b     rows of a are walked through its panels         strip_product
 *     c = a^T b   a panel's row holds LANES columns of one step   strip_product_turned
 *     b           a step is a row of each panel
 *     c           panels again
 *
 * A strip is STRIP rows of c; a tile is WIDE panels of a strip. The sums of a tile take 8 x 3 = 24
 * of AVX-512's 32 registers, or 4 x 3 = 12 of 16 on other processors.
 *
 * An element is a word (gemm_vector.h): an f32, or two bf16 that are neighbours along the sum.
 */
#ifndef KERNELS_ATTENTION_ATTENTION_TILE_H
#define KERNELS_ATTENTION_ATTENTION_TILE_H

#include "kernels/dense/gemm_tile.h"

enum { LANES = VECTOR_LANES, STRIP = VECTOR_LANES == 16 ? 8 : 4, WIDE = 3 };

typedef struct Panels {
    float *at;
    int64_t stride; /* floats from a panel to the next */
} Panels;

/* c = a b, or c += a b, for one strip. Rows of c are written whole, whatever a holds. */
typedef struct StripProduct {
    Panels a, b, c;
    int64_t steps;  /* words along the sum */
    int64_t panels; /* panels of b and of c */
    bool pairs;     /* words are pairs of bf16 */
    bool add;
} StripProduct;

void strip_product(const StripProduct *t);
void strip_product_turned(const StripProduct *t);

/* The panels from panel `panel` and row `row` on. */
static inline Panels panels_at(Panels p, int64_t panel, int64_t row)
{
    return (Panels){ p.at + panel * p.stride + row * LANES, p.stride };
}

/* Copies rows of `elems` elements, `ld` elements apart, into panels. Rows that fill up the last
 * strip, and words after a row's end, become zero. */
void rows_load(Panels to, const void *from, Word word, int64_t ld, int64_t rows, int64_t elems);

typedef int32_t VectorInts __attribute__((vector_size(VECTOR_LANES * sizeof(int32_t))));

static inline Vector vector_load(const float *at) { return *(const VectorAt *)at; }
static inline void vector_store(float *at, Vector v) { *(VectorAt *)at = v; }
static inline Vector vector_of(float value) { return value - (Vector){ 0 }; }

/* a where the mask has all bits set, b where it has none. */
static inline Vector vector_choose(VectorInts mask, Vector a, Vector b)
{
    return (Vector)(((VectorInts)a & mask) | ((VectorInts)b & ~mask));
}

/* The larger; b where a is NaN. */
static inline Vector vector_larger(Vector a, Vector b) { return vector_choose(a > b, a, b); }

static inline Vector vector_least(Vector a, float limit)
{
    return vector_choose(a > limit, vector_of(limit), a);
}

/*
 * 2^x, for x below 126: 2^n 2^r with n = round(x), |r| <= 1/2, 2^r by its polynomial of degree 6 (Cephes' exp2f),
 * within 2 ulp. Below -126 it is 0, because subnormal factors slow every product down that they enter; NaN stays NaN.
 */
static inline __attribute__((always_inline)) Vector vector_exp2(Vector x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer in the low bits */
    VectorInts nothing = x < -126.0f;
    Vector shifted = x + shift, r = x - (shifted - shift);
    Vector p = 1.535336188319500e-4f * r + 1.339887440266574e-3f;
    p = p * r + 9.618437357674640e-3f;
    p = p * r + 5.550332471162809e-2f;
    p = p * r + 2.402264791363012e-1f;
    p = p * r + 6.931472028550421e-1f;
    p = p * r + 1.0f;
    VectorBits power = ((VectorBits)shifted - (0x4B400000u - 127u)) << 23;
    return (Vector)((VectorInts)(p * (Vector)power) & ~nothing);
}

/* p, from 0 to 1, as 8-bit attention multiplies it: 2^8 p rounded to e4m3, over 2^8. Its subnormals
 * are multiples of 2^-17, which are the steps of f32 between 2^6 and 2^7. Other numbers keep three
 * bits behind the first. NaN stays NaN: it counts as small. */
static inline __attribute__((always_inline)) Vector vector_e4m3(Vector p)
{
    const float shift = 96.0f;
    VectorBits bits = (VectorBits)p, odd = bits >> 20 & 1;
    Vector normal = (Vector)((bits + (0x7FFFFu + odd)) & 0xFFF00000u);
    Vector small = p + shift - shift;
    return vector_choose(p >= 0x1p-14f, normal, small);
}

enum { ROW_LANES = LANES / STRIP };

/* The sum, or the maximum, over the lanes of each of STRIP vectors; that of row r is at lane r *
 * ROW_LANES of the result. Each round interleaves two vectors and so folds both at once. */
static inline __attribute__((always_inline)) Vector rows_fold(Vector v[STRIP], bool sum)
{
#pragma GCC unroll 8
    for (int width = 1; width < LANES; width *= 2) {
        int half = STRIP / 2 / width, n = half > 0 ? half : 1;
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            Vector other = v[half > 0 ? i + n : i];
            Vector low = __builtin_shufflevector(v[i], other, VECTOR_LOW);
            Vector high = __builtin_shufflevector(v[i], other, VECTOR_HIGH);
            v[i] = sum ? low + high : vector_larger(low, high);
        }
    }
    return v[0];
}

#endif
