/*
 * operand: what a matrix product reads. A plain operand is a tensor. Others hold 8-bit numbers, and
 * scales that turn them back into numbers of the model: x = data * scale.
 *
 * Dense products (op/linear.h, op/head.h) and grouped ones (op/moe.h) take the same type, so a layer
 * passes what its weights are and need not know in which form they lie. Each op says which kinds it
 * takes, in its check (operand_expect). So far all products take plain operands alone.
 *
 * A scale belongs to the whole tensor, to a row, to each 1 x 128 piece of a row (activations), or to
 * each 128 x 128 block (weights): DeepSeek-V3, arXiv:2412.19437 section 3.3. The last pieces of a row
 * or column may be smaller. op/quant.h makes scaled operands of plain tensors and back.
 */
#ifndef OP_OPERAND_H
#define OP_OPERAND_H

#include "base/tensor.h"

typedef enum OperandKind {
    OPERAND_PLAIN,
    OPERAND_TENSOR,
    OPERAND_ROW,
    OPERAND_1X128,
    OPERAND_128X128,
    OPERAND_KINDS
} OperandKind;

/* Sets of kinds. */
enum {
    OPERANDS_PLAIN = 1 << OPERAND_PLAIN,
    OPERANDS_SCALED = (1 << OPERAND_KINDS) - 1 - OPERANDS_PLAIN
};

typedef struct Operand {
    Tensor data;  /* comes first: ports rely on it. Plain: f32 or bf16; others: e4m3 or e5m2 */
    Tensor scale; /* f32, (rows, cols) of operand_grid; plain: absent */
    OperandKind kind;
} Operand;

/* How scales divide a matrix: blocks of height x width elements have one each. */
typedef struct OperandGrid {
    int64_t n, d;          /* the matrix */
    int64_t height, width; /* of a block */
    int64_t rows, cols;    /* of the scales; 0 and 0 if the operand is plain */
} OperandGrid;

#ifdef __cplusplus
extern "C" {
#endif

Operand operand_plain(Tensor t); /* the tensor as it is */

OperandGrid operand_grid(OperandKind kind, int64_t n, int64_t d); /* of an (n, d) matrix */
OperandGrid operand_grid_of(const Operand *q);

/* For check functions: FAIL unless the kind is one of the set `takes`, data is (rows, cols), -1:
 * any, and the scales fit them. A plain operand is f32 or bf16. */
Status operand_expect(const char *op, const char *port, const Operand *q, int64_t rows,
                      int64_t cols, unsigned takes);
/* The same, and a plain operand has the type `plain`. */
Status operand_expect_type(const char *op, const char *port, const Operand *q, int64_t rows,
                           int64_t cols, Dtype plain, unsigned takes);

/* For costs: bytes of the first `rows` rows of data and of the scales that go with them. */
double operand_rows_bytes(const Operand *q, double rows);
double operand_bytes(const Operand *q); /* of all rows */

#ifdef __cplusplus
}
#endif

#endif
