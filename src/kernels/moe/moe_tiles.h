/*
 * moe_tiles: what the expert ops on the CPU share. Work is cut into tiles. A tile belongs to one expert and runs on one
 * thread, with single-threaded matrix products. So no product waits for another thread. The cut depends on the groups
 * alone, so bits do not depend on the number of threads. Tiles go to threads in order, in equal shares of work:
 * neighbouring tiles share an expert's weights, and one huge expert spreads over all threads.
 *
 * There are two cuts. Ops that write rows cut each group into runs of rows. Weight gradients, which
 * sum over all rows of an expert, cut the columns of width D. In both cases a row is gathered just
 * before the product that reads it, into a buffer small enough for the cache.
 */
#ifndef KERNELS_MOE_MOE_TILES_H
#define KERNELS_MOE_MOE_TILES_H

#include "kernels/core/op.h"
#include "kernels/moe/moe.h"

typedef struct MoeTile {
    int64_t expert;
    int64_t first, n;  /* rows [first, first + n) */
    int64_t col, cols; /* weight gradients: columns of width D */
} MoeTile;

typedef struct MoeTiles {
    const char *op; /* for error sentences */
    const void *args;
    const Tensor *offsets;
    const Rows *rows;
    int64_t width; /* 0: rows are cut; D: columns of width D are */
    Status (*run)(Exec *ex, const void *args, const MoeTile *tile, char *space);
    size_t space_bytes;   /* of a thread's `space`, a multiple of ARENA_ALIGN */
    const int32_t *first; /* of a pool, or NULL */
    const Tensor *pool;   /* with first */
} MoeTiles;

/* Runs all tiles. The workspace holds space_bytes for each of ex->threads. */
Status moe_tiles_run(Exec *ex, const MoeTiles *tiles);

/* The most rows (rows cut) or columns (of `width`) that a tile has. */
int64_t moe_tile_rows(const Rows *rows);
int64_t moe_tile_cols(int64_t width);

/* The most rows that a weight gradient gathers and multiplies at a time. */
int64_t moe_chunk_rows(const Rows *rows);

/* Where to read rows of a tensor: in its own memory, or in a buffer of gathered rows. */
typedef struct MoeRead {
    const void *data;
    int64_t ld; /* elements between rows */
} MoeRead;

/* Rows [tile->first, + tile->n) of columns [tile->col, + tile->cols) of t (x, D), which row_token
 * names; without row_token (NULL, or no data), row r is t's own. `buffer` has n * cols elements. */
Status moe_gather(const char *op, const Tensor *t, const Tensor *row_token, const MoeTile *tile,
                  void *buffer, MoeRead *out);

/* Fails if one of the tile's rows has a token outside 0 .. tokens - 1. */
Status moe_tokens_check(const char *op, const Tensor *row_token, const MoeTile *tile,
                        int64_t tokens);

/* First row of a call in the pool; without a pool (NULL) 0. */
static inline int64_t moe_first(const int32_t *first) { return first == NULL ? 0 : *first; }

/* For checks, before anything is divided by them: E, F and D are at least 1. */
Status moe_dims_check(const char *op, int64_t E, int64_t F, int64_t D);

/* For checks: offsets (1, E+1), row_token if given, and rows fit R rows of every buffer and N rows
 * of what row_token points into. */
Status moe_rows_check(const char *op, const Tensor *offsets, const Tensor *row_token,
                      const Rows *rows, int64_t R, int64_t N);

/* For costs: the expected number of rows. */
static inline double moe_rows_expected(const Rows *rows)
{
    return rows->expected > 0 ? rows->expected : (double)rows->bound;
}

/* The cost of the products of all experts with matrices of I x O. `operand` is one of them. */
static inline OpCost moe_rows_cost(OpWork work, double rows, const Operand *operand, double I,
                                   double O, double bytes)
{
    return (OpCost){ .flops = rows * 2 * I * O,
                     .bytes = bytes,
                     .work = work,
                     .dtype = operand->data.dtype,
                     .size = I < O ? I : O };
}

/* Bytes of `rows` rows of t, a (R, x) buffer. */
static inline double moe_rows_bytes(const Tensor *t, double rows)
{
    return rows * (double)tensor_cols(t) * (double)dtype_bytes(t->dtype);
}

#endif
