/*
 * piece: a part of a tensor, counted in elements of the whole tensor, which is stored row by row.
 *
 * A piece is `rows` runs of n elements; runs start `stride` elements apart. A range of whole rows
 * is one run. Columns [c, c + n) of a matrix are one run a row: { c, n, columns, rows, 0, 0 }. ZeRO
 * cuts a rank's columns at any element. So a piece may lack elements at the start of its first run
 * (skip) and at the end of its last run (lack). The elements of a piece are numbered in the order of
 * the tensor; memory and files hold them in that order without gaps, so element i of a piece has
 * offset i.
 *
 * Not here: which piece a rank holds of a parameter (params.h: param_piece).
 */
#ifndef ENGINE_MODEL_PIECE_H
#define ENGINE_MODEL_PIECE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Piece {
    int64_t first, n;
    int64_t stride; /* at least n */
    int64_t rows;   /* 0: the piece has no elements */
    int64_t skip;   /* elements of the first run that are not in the piece, < n */
    int64_t lack;   /* elements of the last run that are not in the piece, < n */
} Piece;

/* The range [first, first + n). */
static inline Piece piece_range(int64_t first, int64_t n)
{
    return (Piece){ first, n, n, n > 0, 0, 0 };
}
static inline int64_t piece_elems(const Piece *p) { return p->n * p->rows - p->skip - p->lack; }

/* Does the piece have elements, and do its runs lie in a tensor of `elems` elements? The first and
 * the last run count whole, also where the piece has only a part of them. Numbers from a file may
 * be anything; the other functions take only pieces that fit, or have no elements. */
bool piece_fits(const Piece *p, int64_t elems);

/* Elements [first, first + n) of a piece. A part of one run is a plain range; whole runs that are
 * not in the part are not in its rows. */
Piece piece_part(const Piece *p, int64_t first, int64_t n);

/* The element of the tensor that is the piece's i-th. */
static inline int64_t piece_element(const Piece *p, int64_t i)
{
    int64_t at = i + p->skip;
    return p->first + at / p->n * p->stride + at % p->n;
}

/* Offset of the piece's first element that is `element` of the tensor or comes after it; the number
 * of elements in the piece if there is none. */
int64_t piece_seek(const Piece *p, int64_t element);

/* Elements from offset i to the end of its run, or of the piece. */
static inline int64_t piece_run(const Piece *p, int64_t i)
{
    int64_t run = p->n - (i + p->skip) % p->n, left = piece_elems(p) - i;
    return run < left ? run : left;
}

/* A span that two pieces have in common: n elements from offset a of the first piece and from
 * offset b of the second. Start from a zeroed span: each call of piece_meet finds the next one, in
 * the order of the tensor, and returns false after the last. */
typedef struct PieceSpan {
    int64_t a, b, n;
} PieceSpan;
bool piece_meet(const Piece *a, const Piece *b, PieceSpan *span);
/* How many elements two pieces have in common. */
int64_t piece_common(const Piece *a, const Piece *b);

#endif
