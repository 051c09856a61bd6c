/* operand: shapes of scales, and what checks and costs of products need of their operands. Making
 * and undoing scales is kernels/quant/quant.c. */
#include "kernels/core/operand.h"

#include "kernels/core/op.h"

#include <stdio.h>

/* n / each, rounded up. */
static int64_t pieces(int64_t n, int64_t each) { return (n + each - 1) / each; }

Operand operand_plain(Tensor t) { return (Operand){ .data = t }; }

/* The kinds of operand.h as sizes of a block. A matrix without elements gets blocks of one, so that
 * nothing divides by 0. */
OperandGrid operand_grid(OperandKind kind, int64_t n, int64_t d)
{
    OperandGrid g = { .matrices = 1, .n = n, .d = d, .height = 1, .width = d > 0 ? d : 1 };
    if (operand_step(kind) > 0) g.width = operand_step(kind);
    if (kind == OPERAND_128X128) g.height = OPERAND_BLOCK;
    if (kind == OPERAND_TENSOR) g.height = n > 0 ? n : 1;
    g.rows = kind == OPERAND_TENSOR ? 1 : pieces(n, g.height);
    g.cols = kind == OPERAND_TENSOR || kind == OPERAND_ROW ? 1 : pieces(d, g.width);
    if (kind == OPERAND_PLAIN) g.rows = g.cols = 0;
    return g;
}

OperandGrid operand_grid_of(const Operand *q)
{
    int64_t d = tensor_cols(&q->data), matrices = q->data.rank == 3 ? q->data.dim[0] : 1;
    bool empty = d == 0 || matrices == 0;
    OperandGrid g = operand_grid(q->kind, empty ? 0 : tensor_elems(&q->data) / d / matrices, d);
    g.matrices = matrices;
    return g;
}

OperandGrid operand_grid_groups(const Operand *q, int64_t groups)
{
    OperandGrid g = operand_grid_of(q);
    if (q->kind == OPERAND_ROW) g.cols = groups;
    return g;
}

static Tensor scale_shape(const OperandGrid *g)
{
    return (Tensor){ .dtype = DTYPE_F32, .rank = 2, .dim = { g->matrices * g->rows, g->cols } };
}

Operand operand_shape(OperandKind kind, Dtype type, int rank, const int64_t *dim)
{
    Operand q = { .data = { .dtype = type, .rank = rank }, .kind = kind };
    for (int i = 0; i < rank; i++) q.data.dim[i] = dim[i];
    OperandGrid g = operand_grid_of(&q);
    if (kind != OPERAND_PLAIN) q.scale = scale_shape(&g);
    return q;
}

Operand operand_shape_groups(OperandKind kind, Dtype type, int64_t d, int64_t rows, int64_t groups)
{
    const int64_t dim[] = { d, operand_group_columns(rows, groups) };
    Operand q = operand_shape(kind, type, 2, dim);
    OperandGrid g = operand_grid_groups(&q, groups);
    q.scale = scale_shape(&g);
    q.transposed = true;
    return q;
}

Status operand_alloc(Arena *a, Operand *q)
{
    TRY(arena_alloc(a, tensor_bytes(&q->data), &q->data.data));
    return q->kind == OPERAND_PLAIN ? OK : arena_alloc(a, tensor_bytes(&q->scale), &q->scale.data);
}

Status operand_new(Arena *a, OperandKind kind, Dtype type, int rank, const int64_t *dim,
                   Operand *out)
{
    *out = operand_shape(kind, type, rank, dim);
    return operand_alloc(a, out);
}

Status operand_new_groups(Arena *a, OperandKind kind, Dtype type, int64_t d, int64_t rows,
                          int64_t groups, Operand *out)
{
    *out = operand_shape_groups(kind, type, d, rows, groups);
    return operand_alloc(a, out);
}

int64_t operand_group_start(const int32_t *offsets, int64_t e, int64_t live)
{
    int64_t start = 0;
    for (int64_t i = 0; i < e; i++) {
        int64_t first = offsets[i] < live ? offsets[i] : live;
        int64_t end = offsets[i + 1] < live ? offsets[i + 1] : live;
        start += operand_whole_blocks(end - first);
    }
    return start;
}

static const char *const kind_names[OPERAND_KINDS] = {
    [OPERAND_PLAIN] = "plain",   [OPERAND_TENSOR] = "one scale",  [OPERAND_ROW] = "a scale a row",
    [OPERAND_1X128] = "1 x 128", [OPERAND_128X128] = "128 x 128", [OPERAND_1X32] = "1 x 32",
};

/* `takes` is a set of bits, one for each kind. The error lists what the op would accept. */
static Status refuse_kind(const char *op, const char *port, OperandKind kind, unsigned takes)
{
    char list[128] = "";
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
    if (!dtype_is_narrow(q->data.dtype)) {
        return FAIL(ERR_SHAPE, "%s: %s is %s, wanted e4m3 or e5m2 or an MX type", op, port,
                    dtype_name(q->data.dtype));
    }
    TRY(op_expect(op, port, &q->data, rows, cols, q->data.dtype));
    OperandGrid g = operand_grid_of(q);
    char scale[64];
    (void)snprintf(scale, sizeof scale, "%s.scale", port);
    return op_expect(op, scale, &q->scale, g.matrices * g.rows, g.cols, DTYPE_F32);
}

Status operand_expect(const char *op, const char *port, const Operand *q, int64_t rows,
                      int64_t cols, unsigned takes)
{
    if ((unsigned)q->kind >= OPERAND_KINDS || (takes >> q->kind & 1) == 0)
        return refuse_kind(op, port, q->kind, takes);
    if (q->kind != OPERAND_PLAIN) return expect_scaled(op, port, q, rows, cols);
    if (q->scale.data != NULL || q->transposed)
        return FAIL(ERR_ARG, "%s: %s is plain, but has scales or is transposed", op, port);
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
    double bytes = rows * (double)tensor_cols(&q->data) * dtype_bits(q->data.dtype) / 8;
    if (q->kind == OPERAND_PLAIN) return bytes;
    OperandGrid g = operand_grid_of(q);
    return bytes + rows / (double)(g.matrices * g.n) * operand_scale_bytes(q);
}

double operand_scale_bytes(const Operand *q)
{
    if (q->kind == OPERAND_PLAIN) return 0;
    return (double)tensor_elems(&q->scale) *
           (q->kind == OPERAND_1X32 ? 1.0 : (double)sizeof(float));
}

double operand_bytes(const Operand *q)
{
    return (double)tensor_elems(&q->data) * dtype_bits(q->data.dtype) / 8 + operand_scale_bytes(q);
}
