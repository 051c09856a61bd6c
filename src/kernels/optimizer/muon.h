/*
 * muon: the update of matrices by their orthogonalised momentum (Jordan et al., "Muon", 2024).
 *
 * For each of E equal matrices, with g' = clip * g:
 *   m = momentum m + g';   u = nesterov ? g' + momentum m : m
 *   X = u / (|u| + 1e-7), |u| the Frobenius norm
 *   steps times:  A = X X^T;  X = a X + (b A + c A^2) X      (tall ones: A = X^T X, X on the left)
 *   w -= lr (decay w + scale X)
 * a, b, c = 3.4445, -4.7750, 2.0315 bring singular values of X between about 0.7 and 1.2 in 5 steps.
 *
 * Products have operands of type `products` and f32 sums. The update reads m as it is stored, so a
 * bf16 m is rounded first. A clip that is not finite changes nothing (kernels/optimizer/optimizer.h).
 *
 * Products have no factors. So a step, of at most 10, is computed on Y = X / s, where s is known:
 *   P = Y Y^T;  Q = (b/a) s^2 P + (c/a) s^4 P P;  Y = Y + Q Y;  s = a s
 *
 * The bits of a matrix depend on neither E nor the number of threads. No matrix is padded.
 *
 * Ranks of tensor parallelism may split each matrix by rows or by columns, and ranks of mesh.etp each expert's. w, g, m
 * and w_low are then this rank's parts of E matrices, and all these ranks run the op on the same ones together:
 *
 *   1. each rank updates its part of m and makes its part of u, element by element;
 *   2. an all-to-all brings the parts of u of each matrix to one rank, its owner;
 *   3. the owner makes X of the whole matrix;
 *   4. another all-to-all returns the parts of X, and each rank updates its part of w.
 *
 * Rounds take as many matrices as ranks, or a multiple. A rank may own none of them: it only sends. On
 * a CPU parts travel in f32, and the bits are those of a whole matrix on one rank. On a GPU they travel
 * in the type of products, and |u| is that of the u that came: with bf16 products it differs a little
 * from that of u before rounding. clip must be the same on all ranks.
 */
#ifndef KERNELS_OPTIMIZER_MUON_H
#define KERNELS_OPTIMIZER_MUON_H

#include "engine/base/arena.h"
#include "engine/base/tensor.h"

#include <stdbool.h>

typedef struct Muon {
    Tensor w;       /* add (E, rows, cols) or (rows, cols) f32 */
    Tensor g;       /* in  as w */
    Tensor m;       /* add as w, f32 or bf16 */
    Tensor w_low;   /* out as w, bf16 or f16, optional: the rounded weights that compute reads */
    Tensor clip;    /* in  (1) f32 */
    Tensor hyper;   /* in  (1) f32: lr */
    Dtype products; /* f32 or bf16 */
    int steps;
    bool nesterov;
    float momentum, decay, scale;
    int64_t ranks;   /* ranks that hold parts of each matrix; 0 or 1: it is whole here */
    int64_t copies;  /* consecutive ranks that hold the same part; 0 is 1 */
    bool cols_split; /* a part has some of the columns, else some of the rows */
    bool of_experts; /* the ranks are those of GROUP_EXPERT_PARTS, else of GROUP_TP */
} Muon;

static const float MUON_EPS = 1e-7f;

/* One matrix: its sizes, and the side of A, which is the smaller one. */
typedef struct MuonShape {
    int64_t count, rows, cols, side;
    int64_t sent; /* elements that a rank sends to all ranks for each matrix of its own; 0: none */
} MuonShape;

/* How ranks split a matrix. A part of it lies in the whole as runs of neighbours: one run if rows are
 * split, else one a row. */
typedef struct MuonParts {
    int64_t ranks, copies;
    int64_t elems;       /* of a part */
    int64_t run, stride; /* elements of a run, and from one run to the next in the whole matrix */
} MuonParts;

static inline MuonShape muon_shape(const Tensor *w)
{
    int64_t cols = tensor_cols(w), rows = w->rank > 1 ? w->dim[w->rank - 2] : 1;
    return (MuonShape){ rows * cols > 0 ? tensor_elems(w) / (rows * cols) : 0, rows, cols,
                        rows < cols ? rows : cols, 0 };
}

static inline MuonParts muon_parts(const Muon *a)
{
    const MuonShape s = muon_shape(&a->w);
    MuonParts p = { a->ranks > 1 ? a->ranks : 1, a->copies > 1 ? a->copies : 1, 0, 0, 0 };
    p.elems = s.rows * s.cols;
    p.run = a->cols_split ? s.cols : p.elems;
    p.stride = p.run * (p.ranks / p.copies);
    return p;
}

/* The whole matrices. count: as many as one rank owns, at most. */
static inline MuonShape muon_owned(const Muon *a)
{
    const MuonParts p = muon_parts(a);
    MuonShape s = muon_shape(&a->w);
    *(a->cols_split ? &s.cols : &s.rows) *= p.ranks / p.copies;
    s.side = s.rows < s.cols ? s.rows : s.cols;
    s.count = (s.count + p.ranks - 1) / p.ranks;
    s.sent = p.ranks > 1 ? p.ranks * p.elems : 0;
    return s;
}

/* A GPU updates as many matrices at a time as fit this many bytes, but at least one. A launch costs
 * some microseconds, and each product of a group of 26 experts of 1408 x 2048 takes over 100. */
static const size_t MUON_GROUP_BYTES = (size_t)512 << 20;

/* Room for Y of one matrix. On a GPU its successor's is also what a rank sends. */
static inline int64_t muon_room(const MuonShape *s)
{
    return s->sent > s->rows * s->cols ? s->sent : s->rows * s->cols;
}

/* Bytes of Y, its successor, P and Q of one matrix, and of what comes from other ranks. */
static inline size_t muon_bytes(const MuonShape *s, Dtype products)
{
    return (size_t)(2 * (muon_room(s) + s->side * s->side) + s->sent) * dtype_bytes(products);
}

static inline int64_t muon_group(const MuonShape *s, Dtype products)
{
    int64_t most = (int64_t)(MUON_GROUP_BYTES / (muon_bytes(s, products) + 1));
    return s->count < most ? s->count : most > 1 ? most : 1;
}

/* The next bytes of a workspace. workspace NULL: they are only counted, in *at. */
static inline void *muon_take(void *workspace, size_t *at, size_t bytes)
{
    void *taken = workspace == NULL ? NULL : (char *)workspace + *at;
    *at += arena_rounded(bytes);
    return taken;
}

/* The factors of a step (from 0): Q = linear P + square P P. After n steps X = muon_size(n) Y. */
typedef struct MuonFactors {
    float linear, square;
} MuonFactors;

static inline double muon_size(int steps)
{
    double s = 1;
    for (int i = 0; i < steps; i++) s *= 3.4445;
    return s;
}

static inline MuonFactors muon_factors(int step)
{
    double s = muon_size(step), s2 = s * s;
    return (MuonFactors){ (float)(-4.7750 / 3.4445 * s2), (float)(2.0315 / 3.4445 * s2 * s2) };
}

struct Exec;
struct Comm;

#ifdef __cplusplus
extern "C" {
#endif

/* The ranks that split the matrices of `a`. ERR_ARG: the mesh of the Exec has others. */
Status muon_group_of(struct Exec *ex, const Muon *a, struct Comm **out);

#ifdef __cplusplus
}
#endif

#define OPS_MUON
#include "kernels/core/declare.h"
#undef OPS_MUON

#endif
