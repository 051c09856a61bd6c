/*
 * product: dense matrix products as both backends run them, and the view of linear's ops. Products
 * of head_loss are in head_private.h, grouped products of experts in moe_product.h.
 *
 * Pointers are the tensors' own; nothing here reads through them. The operands of linear may differ
 * in type (gemm's A and B); each backend then converts one of them.
 */
#ifndef KERNELS_DENSE_PRODUCT_H
#define KERNELS_DENSE_PRODUCT_H

#include "kernels/core/operand.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/scaled.h"

#include <stdbool.h>

/* Which of its three matrices a linear op writes. */
typedef enum LinearKind { LINEAR_WRITES_Y, LINEAR_WRITES_X, LINEAR_ADDS_W } LinearKind;

/* The three linear ops as one: x with I columns, y with O columns, and w between them. Two of the
 * three are read; the third, a plain tensor, is written or added to. */
typedef struct Linear {
    const char *op, *x_port, *y_port, *w_port;
    Operand x, y, w; /* (N, I), (N, O), (O, I) */
    const Tensor *r; /* added to the side that is written; NULL: nothing */
    LinearKind kind;
    int64_t col, cols; /* the window of w; cols 0: all of it */
} Linear;

/* Do the operands that are read have scales? Then all do. */
static inline bool linear_is_scaled(const Linear *l)
{
    return (l->kind == LINEAR_WRITES_Y ? l->x : l->y).kind != OPERAND_PLAIN;
}

/* The product of a linear op: gemm's A is the operand with N rows, B the other. N is gemm's m, or
 * its k if rows are summed over (the weight gradient). */
typedef struct Product {
    GemmArgs g;
    const void *r; /* added if beta is 1, with c's layout; NULL: c itself */
    bool sum_over_rows;
} Product;

/* A weight gradient (m, n) of k tokens is the sum of so many parts of tokens where our kernels make it: their tiles of
 * 128 x 256 are for 128 multiprocessors. Fewer than 4 parts gain nothing. A part has 8 blocks of 128 tokens or more, and
 * none is empty if all but the last are equal. Parts depend on the shape alone, so the bits are the same on any GPU. */
static inline int64_t weight_parts(int64_t m, int64_t n, int64_t k)
{
    const int64_t halves = ((m + 127) / 128) * ((n + 127) / 128), blocks = (k + 127) / 128;
    int64_t parts = halves > 0 ? 256 / halves : 0;
    if (parts > 32) parts = 32;
    if (parts > blocks / 8) parts = blocks / 8;
    if (parts < 4) return 1;
    const int64_t each = (blocks + parts - 1) / parts;
    return (blocks + each - 1) / each;
}

/* A dense product on a GPU. r: the matrix that is added if g->beta is 1, of c's type and layout.
 * workspace: DENSE_WORKSPACE bytes. The types of a and b are equal.
 * count: of equal products, whose matrices lie one behind the other; g and r are the first one's. */
typedef struct DenseCall {
    const GemmArgs *g;
    const void *r;
    void *workspace;
    int64_t count;
} DenseCall;

#define DENSE_WORKSPACE ((size_t)32 << 20)

/* A dense product of 8-bit operands on a GPU. Rows are data's own, from the first on. workspace:
 * scaled_dense_workspace bytes. */
typedef struct ScaledCall {
    const ScaledArgs *s;
    void *workspace;
} ScaledCall;

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a dense product on a GPU by the first candidate that can. r NULL: c itself is added. */
Status dense_run(struct Exec *ex, const GemmArgs *g, const void *r, void *workspace);

/* The terms that dense_run adds before it rounds to f32: those of a part, if the kernel makes parts, or all k. */
int64_t dense_part_terms(const struct Exec *ex, const GemmArgs *g);

/* Runs `count` equal products (DenseCall). The bits of one do not depend on the others. */
Status dense_run_each(struct Exec *ex, const GemmArgs *g, const void *r, int64_t count,
                      void *workspace);

/* The same for 8-bit operands. op: its name, for notes. */
Status scaled_dense_run(struct Exec *ex, const char *op, const ScaledArgs *s, void *workspace);
size_t scaled_dense_workspace(const ScaledArgs *s);
size_t scaled_scales_bytes(const Operand *q); /* of a copy of the scales in another layout */

Product linear_product(const Linear *l);
ScaledArgs linear_scaled_args(const Linear *l); /* of linear_is_scaled */

/* Does the product mix f32 and bf16, as the router's do? */
static inline bool product_mixed(const GemmArgs *g)
{
    return g->a.type != g->b.type || (g->a.type == DTYPE_F32 && g->c.type != DTYPE_F32);
}

/* Elements from the first row of a matrix to the end of its last row. */
static inline int64_t product_a_elems(const GemmArgs *g)
{
    return (g->a.turned ? g->k : g->m) * g->a.ld;
}
static inline int64_t product_b_elems(const GemmArgs *g)
{
    return (g->b.turned ? g->n : g->k) * g->b.ld;
}
static inline int64_t product_c_elems(const GemmArgs *g) { return g->m * g->c.ld; }

/* The part of the product for rows [first, first + n) of N. */
Product product_rows(const Product *p, int64_t first, int64_t n);
static inline int64_t product_row_count(const Product *p)
{
    return p->sum_over_rows ? p->g.k : p->g.m;
}

#ifdef __cplusplus
}
#endif

#endif
