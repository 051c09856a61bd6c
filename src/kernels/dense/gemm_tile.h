/*
 * gemm_tile: the inside of a matrix product, on one thread. Operands are copied ("packed") into the order in which
 * registers read them. A tile of C stays in registers for the whole walk along k. After K. Goto, R. van de Geijn,
 * "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34, 2008).
 *
 * A panel is TILE_ROWS rows of op(A), or TILE_COLS columns of op(B). For each step along k it holds one word of each of
 * these lines, next to one another. AMX needs rows in another order (gemm_amx.h).
 *
 * Used by gemm.c. Attention has tiles of its own (attention_tile.h) and uses the packing only.
 */
#ifndef KERNELS_DENSE_GEMM_TILE_H
#define KERNELS_DENSE_GEMM_TILE_H

#include "engine/base/tensor.h"

#include "kernels/dense/gemm_vector.h"

#include <string.h>

typedef enum Word {
    WORD_F32,
    WORD_BF16_PAIR,    /* two bf16 that are neighbours along k */
    WORD_BF16_AMX,     /* pairs for gemm_amx.h: panels are whole squares */
    WORD_BF16_WIDENED, /* bf16 in memory, f32 in panels */
    WORD_F16_WIDENED   /* f16 in memory, f32 in panels */
} Word;

enum { AMX_PANEL_ROWS = 16, AMX_TILE_ROWS = 2 * AMX_PANEL_ROWS };

/* The word that vectors multiply; pairs: the CPU multiplies two bf16 at a time. */
Word word_of(Dtype type, bool pairs);

static inline int64_t word_elems(Word w)
{
    return w == WORD_BF16_PAIR || w == WORD_BF16_AMX ? 2 : 1;
}

/* Words that a line of `elems` elements along k takes in a panel. */
static inline int64_t panel_words(Word w, int64_t elems)
{
    int64_t words = (elems + word_elems(w) - 1) / word_elems(w);
    if (w != WORD_BF16_AMX) return words;
    return (words + AMX_PANEL_ROWS - 1) / AMX_PANEL_ROWS * AMX_PANEL_ROWS;
}

/* Rows of A in a panel, and of C in a tile. */
static inline int64_t panel_rows(Word w) { return w == WORD_BF16_AMX ? AMX_PANEL_ROWS : TILE_ROWS; }
static inline int64_t tile_rows(Word w) { return w == WORD_BF16_AMX ? AMX_TILE_ROWS : TILE_ROWS; }

static inline size_t word_elem_bytes(Word w)
{
    return w == WORD_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Are elements converted to f32 when they are packed? */
static inline bool word_widens(Word w) { return w >= WORD_BF16_WIDENED; }

static inline Dtype word_type(Word w)
{
    return w == WORD_F32 ? DTYPE_F32 : w == WORD_F16_WIDENED ? DTYPE_F16 : DTYPE_BF16;
}

typedef uint16_t VectorHalves __attribute__((vector_size(VECTOR_LANES * sizeof(uint16_t))));

/* Loads VECTOR_LANES bf16 as f32. */
static inline Vector widened(const void *at)
{
    VectorHalves h;
    memcpy(&h, at, sizeof h);
    return (Vector)(__builtin_convertvector(h, VectorBits) << 16);
}

/* Stores v as bf16, rounded to nearest, ties to even, with the bits of bf16_from_f32. */
static inline void narrowed_store(uint16_t *to, Vector v)
{
    VectorBits bits = (VectorBits)v, upper = bits >> 16;
    VectorBits nan = (VectorBits)((bits & 0x7FFFFFFFu) > 0x7F800000u);
    VectorBits rounded = (bits + 0x7FFFu + (upper & 1u)) >> 16;
    rounded = (nan & (upper | 0x40u)) | (~nan & rounded);
    VectorHalves h = __builtin_convertvector(rounded, VectorHalves);
    memcpy(to, &h, sizeof h);
}

/* Loads VECTOR_LANES words of a line that has `elems` elements left; zeros after its end. */
static inline Vector line_words(const char *at, Word word, int64_t elems)
{
    Vector v = { 0 };
    int64_t most = VECTOR_LANES * word_elems(word);
    if (word == WORD_BF16_WIDENED && elems >= most) {
        v = widened(at);
    } else if (word_widens(word)) {
        float wide[VECTOR_LANES] = { 0 };
        dtype_to_f32(wide, at, word_type(word), elems < most ? elems : most);
        memcpy(&v, wide, sizeof v);
    } else if (elems >= most) {
        memcpy(&v, at, sizeof v);
    } else {
        memcpy(&v, at, (size_t)elems * word_elem_bytes(word));
    }
    return v;
}

/* Transposes a square of words by perfect shuffles: each round interleaves row i with row i +
 * lanes/2. That moves the top bit of the row number to the bottom of the column number. After
 * log2(lanes) rounds rows and columns have changed places. */
static inline __attribute__((always_inline)) void square_turn(Vector v[VECTOR_LANES])
{
    Vector w[VECTOR_LANES];
#pragma GCC unroll 4
    for (int round = 1; round < VECTOR_LANES; round *= 2) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < VECTOR_LANES / 2; i++) {
            w[2 * i] = __builtin_shufflevector(v[i], v[i + VECTOR_LANES / 2], VECTOR_LOW);
            w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + VECTOR_LANES / 2], VECTOR_HIGH);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VECTOR_LANES; i++) v[i] = w[i];
    }
}

/* Rows of op(A) or columns of op(B), `lines` of them, and their elements along k. */
typedef struct PackSource {
    const void *data;
    int64_t ld, lines, elems;
    Word word;
    bool along_k; /* neighbours in memory are neighbours along k */
} PackSource;

/* Packs the operand into panels of `width` lines: TILE_COLS, VECTOR_LANES or TILE_ROWS. Writes up
 * to VECTOR_LANES floats past the last panel, for which `to` must have room. */
void panels_pack(float *to, const PackSource *from, int64_t width);

/* A tile: the part of C, (rows, cols), that one panel of A (two for AMX) times one panel of B gives. */
typedef struct Tile {
    const float *a, *b;
    int64_t words, rows, cols;
    Word word;
    void *c;
    int64_t ldc;
    Dtype c_type; /* f32, or bf16 or f16 rounded once */
    bool add;     /* the product is added to C */
} Tile;

/* Multiplies one row of f32, t->a, by an op(B) that is not packed. False: it cannot, as op(B) does not lie along k, or
 * not in whole squares of vectors. */
bool row_run(const Tile *t, const PackSource *b);

/* Multiplies on vectors; gemm_amx.h has tiles of WORD_BF16_AMX. */
void tile_run(const Tile *t);

/* Prefetches C, which is used only after the walk along k. */
void tile_fetch(const Tile *t);
/* Stores sums, whose rows are TILE_COLS apart, to C: rounds to its type, cuts off columns that C lacks. */
void tile_store(const Tile *t, const float *sums);

/* c = from, or c += from if add; rounded once to `type`, bf16 or f16. */
void row_narrow(uint16_t *c, Dtype type, const float *from, int64_t n, bool add);

#endif
