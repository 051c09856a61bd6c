/* operand: shapes of scales, and what checks and costs of products need of their operands. Making
 * and undoing scales is op/quant.c. */
#include "op/operand.h"

#include "op/op.h"

#include <stdio.h>

enum { BLOCK = 128 };

/* n / each, rounded up. */
static int64_t pieces(int64_t n, int64_t each) { return (n + each - 1) / each; }

Operand operand_plain(Tensor t) { return (Operand){ .data = t }; }

/* The kinds of operand.h as sizes of a block. A matrix without elements gets blocks of one, so that
 * nothing divides by 0. */
OperandGrid operand_grid(OperandKind kind, int64_t n, int64_t d)
{
    OperandGrid g = { .n = n, .d = d, .height = 1, .width = d > 0 ? d : 1 };
    if (kind == OPERAND_1X128 || kind == OPERAND_128X128) g.width = BLOCK;
    if (kind == OPERAND_128X128) g.height = BLOCK;
    if (kind == OPERAND_TENSOR) g.height = n > 0 ? n : 1;
    g.rows = kind == OPERAND_TENSOR ? 1 : pieces(n, g.height);
    g.cols = kind == OPERAND_TENSOR || kind == OPERAND_ROW ? 1 : pieces(d, g.width);
    if (kind == OPERAND_PLAIN) g.rows = g.cols = 0;
    return g;
}

OperandGrid operand_grid_of(const Operand *q)
{
    int64_t d = tensor_cols(&q->data);
    return operand_grid(q->kind, d == 0 ? 0 : tensor_elems(&q->data) / d, d);
}

static const char *const kind_names[OPERAND_KINDS] = {
    [OPERAND_PLAIN] = "plain",   [OPERAND_TENSOR] = "one scale",  [OPERAND_ROW] = "a scale a row",
    [OPERAND_1X128] = "1 x 128", [OPERAND_128X128] = "128 x 128",
};

/* `takes` is a set of bits, one for each kind. The error lists what the op would accept. */
static Status refuse_kind(const char *op, const char *port, OperandKind kind, unsigned takes)
{
    char list[96] = "";
    size_t used = 0;
    for (int k = 0; k < OPERAND_KINDS; k++) {
        if ((takes >> k & 1) == 0) continue;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "",
                                 kind_names[k]);
    }
    bool known = (unsigned)kind < OPERAND_KINDS;
    return FAIL(ERR_UNSUPPORTED, "%s: %s is of kind %d (%s), the op takes: %s", op, port, (int)kind,
                known ? kind_names[kind] : "there is no such kind", list);
}

/* A scaled operand is right if its data is 8-bit and its scales have the shape of the grid. */
static Status expect_scaled(const char *op, const char *port, const Operand *q, int64_t rows,
                            int64_t cols)
{
    if (q->data.dtype != DTYPE_E4M3 && q->data.dtype != DTYPE_E5M2) {
        return FAIL(ERR_SHAPE, "%s: %s is %s, wanted e4m3 or e5m2", op, port,
                    dtype_name(q->data.dtype));
    }
    TRY(op_expect(op, port, &q->data, rows, cols, q->data.dtype));
    OperandGrid g = operand_grid_of(q);
    char scale[64];
    (void)snprintf(scale, sizeof scale, "%s.scale", port);
    return op_expect(op, scale, &q->scale, g.rows, g.cols, DTYPE_F32);
}

Status operand_expect(const char *op, const char *port, const Operand *q, int64_t rows,
                      int64_t cols, unsigned takes)
{
    if ((unsigned)q->kind >= OPERAND_KINDS || (takes >> q->kind & 1) == 0)
        return refuse_kind(op, port, q->kind, takes);
    if (q->kind != OPERAND_PLAIN) return expect_scaled(op, port, q, rows, cols);
    if (q->scale.data != NULL) return FAIL(ERR_ARG, "%s: %s is plain, but has scales", op, port);
    return op_expect_act(op, port, &q->data, rows, cols);
}

Status operand_expect_type(const char *op, const char *port, const Operand *q, int64_t rows,
                           int64_t cols, Dtype plain, unsigned takes)
{
    TRY(operand_expect(op, port, q, rows, cols, takes));
    return q->kind == OPERAND_PLAIN ? op_expect(op, port, &q->data, rows, cols, plain) : OK;
}

/* The share is exact for row scales, and a mean where a block of scales covers several rows. */
double operand_rows_bytes(const Operand *q, double rows)
{
    double bytes = rows * (double)tensor_cols(&q->data) * (double)dtype_bytes(q->data.dtype);
    if (q->kind == OPERAND_PLAIN) return bytes;
    OperandGrid g = operand_grid_of(q);
    return bytes + rows / (double)g.n * (double)tensor_bytes(&q->scale);
}

double operand_bytes(const Operand *q)
{
    return (double)tensor_bytes(&q->data) +
           (q->kind == OPERAND_PLAIN ? 0 : (double)tensor_bytes(&q->scale));
}
