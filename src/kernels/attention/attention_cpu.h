/*
 * attention_cpu: what forward and backward attention on the CPU share: a block of a call's queries,
 * and which keys they see. Nothing here is used on a GPU.
 *
 * Work is cut into heads: forward by (sequence, head), backward by (sequence, key/value head), so
 * that one thread adds up dk and dv of the query heads that share them, always in the same order.
 * Inside a head everything runs on one thread, so results do not depend on the number of threads.
 *
 * Keys and values of a head are packed once (attention_tile.h). Queries are cut into blocks of
 * BLOCK_Q, and a block into strips of STRIP rows. A strip is multiplied only with the panels of
 * LANES keys that at least one of its rows sees, so little is computed above the diagonal. In
 * panels that only some of its rows see, hidden keys get the score -infinity, so their probability
 * is 0.
 */
#ifndef KERNELS_ATTENTION_ATTENTION_CPU_H
#define KERNELS_ATTENTION_ATTENTION_CPU_H

#include "kernels/attention/attention_private.h"
#include "kernels/attention/attention_tile.h"
#include "kernels/core/op.h"
#include "kernels/dense/gemm.h"

#include <math.h>

enum { BLOCK_Q = 64, STRIPS = BLOCK_Q / STRIP };
static const float log2_e = 1.44269504088896341f;

/* Panels [first, end): at least one row of the strip sees a key in each. Panels [whole_first,
 * whole_end): all its rows see all keys, so nothing has to be hidden. */
typedef struct StripKeys {
    int64_t first, end, whole_first, whole_end;
} StripKeys;

/* Queries [i0, i0 + n) of one head. The last strip is filled up with copies of the last query. A
 * row that sees no key has last < first; a strip of such rows has no panels. */
typedef struct QueryBlock {
    int64_t i0, n, strips;
    int32_t first[BLOCK_Q], last[BLOCK_Q]; /* keys that a row sees, both included */
    StripKeys keys[STRIPS];
    int64_t panel_first, panel_end; /* the union of the strips' panels */
} QueryBlock;

void query_block(const Shape *s, int64_t b, int64_t i0, QueryBlock *out);

/* The scores of row r at the keys of `panel`; -infinity at keys that the row does not see. */
static inline Vector hide_keys(const QueryBlock *q, int64_t r, int64_t panel, Vector scores)
{
    VectorInts key = (VectorInts){ 0 } + (int32_t)(panel * LANES);
    for (int l = 0; l < LANES; l++) key[l] += l;
    VectorInts seen = (key >= q->first[r]) & (key <= q->last[r]);
    return vector_choose(seen, scores, vector_of(-INFINITY));
}

/* A cursor over one thread's part of the op's workspace. With `at` NULL it only counts bytes, so
 * the same code computes the size and lays the memory out. */
typedef struct Space {
    char *at;
    size_t used;
} Space;

float *space_take(Space *space, int64_t floats);
/* Panels of `rows` rows that hold `cols` columns. */
static inline Panels space_panels(Space *space, int64_t rows, int64_t cols)
{
    int64_t stride = rows * LANES;
    return (Panels){ space_take(space, (cols + LANES - 1) / LANES * stride), stride };
}

/* Element (sequence, row, head, 0) of a (B, T, heads, width) tensor. */
void *head_row(const Tensor *t, int64_t b, int64_t row, int64_t head);
static inline int64_t row_stride(const Tensor *t) { return t->dim[2] * t->dim[3]; }

/* Pack one head at `to`. pack_columns: its rows become columns, as k in q k^T. pack_steps: rows
 * [first, first + n) become steps of a sum over rows, as v in p v. */
Panels pack_columns(float *to, const Tensor *t, Word word, int64_t b, int64_t head);
Panels pack_steps(float *to, const Tensor *t, Word word, int64_t b, int64_t head, int64_t first,
                  int64_t n);

/* Strip i of a block of queries, and the panels of keys [first, end) that it works on now. Panels of scores and
 * probabilities hold one block of keys; their first panel is the block's panel `block`. */
typedef struct Span {
    const QueryBlock *queries;
    Word word;
    int64_t i, block, first, end;
} Span;

/* c = rows of queries times columns of keys (q k^T, do v^T); `width` elements a row. `rows` has the
 * whole block of queries, c only this strip. */
void span_by_keys(const Span *x, Panels rows, Panels keys, Panels c, int64_t width);
/* c += p times rows of keys (p v, ds k), `width` columns. c has the whole block of queries, p only
 * this strip. `room` takes p packed as words of two keys, where the CPU multiplies pairs. */
void span_by_steps(const Span *x, Panels p, Panels room, Panels steps, Panels c, int64_t width);

/* How rows are stored: to = before + factor * from. Without `before`, to = factor * from. */
typedef struct Sums {
    const Tensor *to, *before;
    float factor;
} Sums;

/* Stores one row of a head from panels; `room` is scratch for a row of whole panels. */
void row_unload(const Sums *x, int64_t b, int64_t row, int64_t head, Panels from, float *room);

/* Replaces q, k and v of a call by copies in `room` that are rounded to e4m3. Returns the bytes of
 * the copies; room NULL: no more than that. */
size_t attention_e4m3_round(const Exec *ex, AttentionFwd *a, char *room);

/* Prefetches rows that will soon be read, or written. A head's part of a row is short and rows are far apart, a walk
 * that the hardware does not predict. So a strip prefetches the next head's part of its own rows. */
typedef enum Use { USE_READ, USE_WRITE } Use;
void rows_fetch(const Tensor *t, int64_t b, int64_t head, int64_t first, Use use);

static inline int64_t words_of(Word word, int64_t elems)
{
    return (elems + word_elems(word) - 1) / word_elems(word);
}
static inline int64_t panels_of(int64_t columns) { return (columns + LANES - 1) / LANES; }

#endif
