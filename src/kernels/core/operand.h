/*
 * operand: what a matrix product reads. A plain operand is a tensor. A scaled one holds 8-bit
 * numbers, and scales that turn them back into values: x = data * scale.
 *
 * Dense products (kernels/dense/linear.h, kernels/head/head.h) and grouped ones (kernels/moe/moe.h) take the same type. So a
 * layer passes its weights without knowing in which form they are stored. Each op's check says
 * which kinds it accepts (operand_expect).
 *
 * Products of 8-bit operands sum along rows of data of both sides, because Hopper's instructions take nothing else. So
 * an operand may be `transposed`: data holds (cols, rows) of the matrix, and its scales are those of data as it lies.
 *
 * A scale belongs to the whole tensor, to a row, to each 1 x 128 piece of a row (activations), or
 * to each 128 x 128 block (weights): DeepSeek-V3, arXiv:2412.19437 section 3.3. Or it belongs to each
 * 1 x 32 piece of a row: OCP Microscaling formats (MX) v1.0, on a CPU alone. The last pieces of
 * a row or column may be smaller. kernels/quant/quant.h converts plain tensors to scaled operands and back.
 */
#ifndef KERNELS_CORE_OPERAND_H
#define KERNELS_CORE_OPERAND_H

#include "engine/base/tensor.h"

#include <stdbool.h>

typedef enum OperandKind {
    OPERAND_PLAIN,
    OPERAND_TENSOR, /* one scale */
    OPERAND_ROW,    /* one scale a row */
    OPERAND_1X128,
    OPERAND_128X128,
    OPERAND_1X32,
    OPERAND_KINDS
} OperandKind;

/* Sets of kinds, as bit masks. */
enum {
    OPERANDS_PLAIN = 1 << OPERAND_PLAIN,
    OPERANDS_SCALED = (1 << OPERAND_KINDS) - 1 - OPERANDS_PLAIN
};

typedef struct Operand {
    Tensor
        data; /* must be first: ports rely on it. Plain: f32, bf16 or f16; scaled: of 8 bits, or emulated in them */
    Tensor scale; /* f32, (rows, cols) of operand_grid; plain: absent */
    OperandKind kind;
    bool transposed; /* data is (cols, rows) of the matrix that the op speaks of */
} Operand;

/* How scales divide data: blocks of height x width elements have one each. Data of three dimensions
 * is a row of matrices, and no block reaches into the next. */
typedef struct OperandGrid {
    int64_t matrices;
    int64_t n, d;          /* of one matrix */
    int64_t height, width; /* of a block */
    int64_t rows, cols;    /* scales of one matrix; 0 and 0 if the operand is plain */
} OperandGrid;

enum { OPERAND_BLOCK = 128, OPERAND_BLOCK_MX = 32 };

/* Elements of a row that share a scale, where a row has several; else 0. */
static inline int64_t operand_step(OperandKind kind)
{
    if (kind == OPERAND_1X32) return OPERAND_BLOCK_MX;
    return kind == OPERAND_1X128 || kind == OPERAND_128X128 ? OPERAND_BLOCK : 0;
}

/* n rounded up to whole blocks. */
static inline int64_t operand_whole_blocks(int64_t n)
{
    return (n + OPERAND_BLOCK - 1) / OPERAND_BLOCK * OPERAND_BLOCK;
}

/* A transposed operand of groups has `rows` columns of data in `groups` groups, each of which
 * begins at a multiple of 128. This many columns always suffice. */
static inline int64_t operand_group_columns(int64_t rows, int64_t groups)
{
    int64_t gaps = rows < groups ? rows : groups;
    return operand_whole_blocks(rows + gaps * (OPERAND_BLOCK - 1));
}

#ifdef __cplusplus
extern "C" {
#endif

Operand operand_plain(Tensor t); /* without scales */

OperandGrid operand_grid(OperandKind kind, int64_t n, int64_t d); /* of an (n, d) matrix */
OperandGrid operand_grid_of(const Operand *q);
/* Data of this type and shape (rank 2 or 3), and its scales, without memory. */
Operand operand_shape(OperandKind kind, Dtype type, int rank, const int64_t *dim);
/* The transposed operand of `groups` groups: (d, operand_group_columns(rows, groups)). With
 * OPERAND_ROW each row has a scale for each group. */
Operand operand_shape_groups(OperandKind kind, Dtype type, int64_t d, int64_t rows, int64_t groups);
/* Allocates data and scales of this shape, uninitialised. */
Status operand_alloc(Arena *a, Operand *q);
/* Both at once. */
Status operand_new(Arena *a, OperandKind kind, Dtype type, int rank, const int64_t *dim,
                   Operand *out);
Status operand_new_groups(Arena *a, OperandKind kind, Dtype type, int64_t d, int64_t rows,
                          int64_t groups, Operand *out);
OperandGrid operand_grid_groups(const Operand *q, int64_t groups);
/* The first column of group e, from the row offsets of all groups. Rows from `live` on do not exist. */
int64_t operand_group_start(const int32_t *offsets, int64_t e, int64_t live);

/* For check functions: fails unless the kind is in the set `takes`, data is (rows, cols) (-1: any),
 * and the scales fit. A plain operand must be f32, bf16 or f16. */
Status operand_expect(const char *op, const char *port, const Operand *q, int64_t rows,
                      int64_t cols, unsigned takes);
/* The same, and a plain operand must have the type `plain`. */
Status operand_expect_type(const char *op, const char *port, const Operand *q, int64_t rows,
                           int64_t cols, Dtype plain, unsigned takes);

/* For costs: bytes of `rows` rows of data, and their share of the scales, as hardware would hold them:
 * elements of 4 or 6 bits are packed, and a scale of 1 x 32 is an exponent of 8 bits (E8M0). */
double operand_rows_bytes(const Operand *q, double rows);
double operand_bytes(const Operand *q); /* of all rows */
/* Of an element, with its share of the scales of 1 x 32. */
static inline double operand_element_bytes(OperandKind kind, Dtype type)
{
    return dtype_bits(type) / 8.0 + (kind == OPERAND_1X32 ? 1.0 / OPERAND_BLOCK_MX : 0);
}
double operand_scale_bytes(const Operand *q);

#ifdef __cplusplus
}
#endif

#endif
