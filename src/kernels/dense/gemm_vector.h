/*
 * gemm_vector: what the tile needs to know of the machine: the width of a vector, how many vectors
 * fit into registers, and one multiply-add. It is fixed at compile time, so that loops have
 * constant bounds; each set of CPU ops (cpu_set.h) has its own.
 *
 * A word is what a lane multiplies in one step along k: an f32, or two neighbouring bf16 if the CPU
 * multiplies them in pairs and adds in f32 (AVX512-BF16).
 *
 * CPUs that also have AMX are slow at the pair instruction: attention reaches 82 GFLOP/s with it
 * and 150 in f32 (one thread of a Sapphire Rapids). There vectors work on bf16 widened to f32, and
 * products of gemm go to the matrix unit (gemm_amx.h).
 *
 * With AVX-512 a tile has 14 x 2 vectors of 16 lanes: 28 of 32 registers hold sums, one a value of
 * A and two a row of B. A step is 28 multiply-adds and 16 loads; the CPU can do equally many of
 * both in a cycle. With 16 registers a tile is 6 x 2 vectors of 8 lanes, or 4 x 2 of 4 lanes.
 */
#ifndef KERNELS_DENSE_GEMM_VECTOR_H
#define KERNELS_DENSE_GEMM_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VECTOR_LANES = 16, TILE_ROWS = 14 };
#define VECTOR_LOW  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define VECTOR_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX__)
enum { VECTOR_LANES = 8, TILE_ROWS = 6 };
#define VECTOR_LOW  0, 8, 1, 9, 2, 10, 3, 11
#define VECTOR_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
enum { VECTOR_LANES = 4, TILE_ROWS = 4 };
#define VECTOR_LOW  0, 4, 1, 5
#define VECTOR_HIGH 2, 6, 3, 7
#endif
enum { TILE_VECTORS = 2, TILE_COLS = TILE_VECTORS * VECTOR_LANES };

_Static_assert(TILE_ROWS <= VECTOR_LANES, "packing turns the rows of a panel in one square");

typedef float Vector __attribute__((vector_size(VECTOR_LANES * sizeof(float))));
typedef float VectorAt __attribute__((vector_size(VECTOR_LANES * sizeof(float)), aligned(4)));

typedef uint32_t VectorBits __attribute__((vector_size(VECTOR_LANES * sizeof(uint32_t))));

/* sum + a b for words of f32, rounded once if the machine can. The compiler must not decide: gcc 13
 * rounded twice in some tiles of one row and column, so bits depended on the number of rows. */
static inline __attribute__((always_inline)) Vector vector_add_product(Vector sum, float a,
                                                                       Vector b)
{
#if defined(__AVX512F__)
    return (Vector)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)sum);
#elif defined(__AVX2__) && defined(__FMA__)
    return (Vector)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)sum);
#else
    return sum + a * b;
#endif
}

/* The type's name differs between gcc and clang 14. */
#if (defined(__AMX_BF16__) || defined(__AMXBF16__)) && defined(__AVX512F__)
#define VECTOR_AMX 1
#else
#define VECTOR_AMX 0
#endif

#if defined(__AVX512F__) && defined(__AVX512BF16__)
enum { VECTOR_PAIRS = true };
/* sum + a0 b0 + a1 b1 for words of two bf16 */
static inline __attribute__((always_inline)) Vector vector_add_pairs(Vector sum, float a, Vector b)
{
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_ps(a), (__m512bh)b);
}
/* 32 consecutive f32, rounded to words of two neighbours */
static inline Vector vector_pairs_along(Vector first, Vector next)
{
    return (Vector)_mm512_cvtne2ps_pbh((__m512)next, (__m512)first);
}
/* words of lane i of two rows, rounded to bf16 */
static inline Vector vector_pairs_across(Vector even, Vector odd)
{
    typedef uint16_t Halves __attribute__((vector_size(64)));
    Halves h = (Halves)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    return (Vector)__builtin_shufflevector(h, h, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                           23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                           15, 31);
}
#else
enum { VECTOR_PAIRS = false };
static inline Vector vector_add_pairs(Vector sum, float a, Vector b)
{
    return vector_add_product(sum, a, b);
}
static inline Vector vector_pairs_along(Vector first, Vector next) { return first + next; }
static inline Vector vector_pairs_across(Vector even, Vector odd) { return even + odd; }
#endif

#endif
