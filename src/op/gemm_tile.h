/*
 * gemm_tile: the inside of a matrix product, on one thread: operands copied ("packed") into the
 * order in which the registers want them, and the tile of C that stays in registers for a whole
 * walk along k. After K. Goto, R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
 * (ACM TOMS 34, 2008). For gemm.c; attention, which has a tile of its own, packs with it too.
 *
 * A panel is TILE_ROWS rows of op(A), or TILE_COLS columns of op(B): for each step along k, one
 * word of each, next to one another.
 */
#ifndef OP_GEMM_TILE_H
#define OP_GEMM_TILE_H

#include "base/tensor.h"

#include "op/gemm_vector.h"

#include <string.h>

typedef enum Word { WORD_F32, WORD_BF16_PAIR, WORD_BF16_WIDENED } Word;

Word word_of(Dtype type);

static inline int64_t word_elems(Word w) { return w == WORD_BF16_PAIR ? 2 : 1; }

static inline size_t word_elem_bytes(Word w)
{
    return w == WORD_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* VECTOR_LANES bf16 as f32 */
static inline Vector widened(const void *at)
{
    typedef uint16_t Halves __attribute__((vector_size(VECTOR_LANES * sizeof(uint16_t))));
    Halves h;
    memcpy(&h, at, sizeof h);
    return (Vector)(__builtin_convertvector(h, VectorBits) << 16);
}

/* The next VECTOR_LANES words of a line, with zeros beyond its last element. */
static inline Vector line_words(const char *at, Word word, int64_t elems)
{
    Vector v = { 0 };
    int64_t most = VECTOR_LANES * word_elems(word);
    if (word == WORD_BF16_WIDENED && elems >= most) {
        v = widened(at);
    } else if (word == WORD_BF16_WIDENED) {
        float wide[VECTOR_LANES] = { 0 };
        dtype_to_f32(wide, at, DTYPE_BF16, elems);
        memcpy(&v, wide, sizeof v);
    } else if (elems >= most) {
        memcpy(&v, at, sizeof v);
    } else {
        memcpy(&v, at, (size_t)elems * word_elem_bytes(word));
    }
    return v;
}

/* Rows of op(A) or columns of op(B), `lines` of them, and their elements along k. */
typedef struct Operand {
    const void *data;
    int64_t ld, lines, elems;
    Word word;
    bool along_k; /* neighbours in memory are neighbours along k */
} Operand;

/* All panels of the operand, `width` lines each; writes VECTOR_LANES floats beyond the last. */
void panels_pack(float *to, const Operand *from, int64_t width);

/* The (rows, cols) of C that one panel of A and one of B give. */
typedef struct Tile {
    const float *a, *b;
    int64_t words, rows, cols;
    Word word;
    void *c;
    int64_t ldc;
    Dtype c_type; /* f32, or bf16 rounded once */
    bool add;     /* to what stands there */
} Tile;

void tile_run(const Tile *t);

/* c = from + what stands there if add, rounded once. */
void row_narrow(uint16_t *c, const float *from, int64_t n, bool add);

#endif
