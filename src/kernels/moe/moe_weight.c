/*
 * moe_weight: check, cost and CPU version of the experts' weight gradients (MoeSum, moe_product.h).
 * A tile is a range of the D columns, so each thread gathers only the columns that it multiplies.
 * Rows are summed in order, in chunks that stay in the cache.
 */
#include "kernels/dense/gemm.h"
#include "kernels/dense/scaled.h"
#include "kernels/moe/moe_product.h"
#include "kernels/moe/moe_tiles.h"

#include <string.h>

MoeSum moe_up_bwd_weight_view(const MoeUpBwdWeight *a)
{
    return (MoeSum){ "moe_up_bwd_weight", "x",    "dpre",   &a->x,         &a->dpre, &a->offsets,
                     &a->row_token,       &a->dw, &a->rows, a->rows.first, false,    a->overwrite };
}

MoeSum moe_down_bwd_weight_view(const MoeDownBwdWeight *a)
{
    return (MoeSum){ "moe_down_bwd_weight", "dy",   "wact",   &a->dy, &a->wact, &a->offsets,
                     &a->row_token,         &a->dw, &a->rows, NULL,   true,     a->overwrite };
}

static bool is_scaled(const MoeSum *s) { return s->by_row->kind != OPERAND_PLAIN; }

/* Rows of by_token's and by_row's matrices are their columns if they are transposed (8-bit). */
static int64_t width_of(const MoeSum *s, const Operand *q)
{
    return is_scaled(s) ? q->data.dim[0] : tensor_cols(&q->data);
}

static int64_t token_width(const MoeSum *s) { return width_of(s, s->by_token); }
static int64_t row_width(const MoeSum *s) { return width_of(s, s->by_row); }

/* The product of `rows` rows and `cols` of the D columns. */
static GemmArgs sum_gemm(const MoeSum *s, int64_t cols, int64_t rows)
{
    int64_t D = token_width(s), F = row_width(s); /* 2F for dW1 */
    int64_t m = s->token_first ? cols : F, n = s->token_first ? F : cols;
    Dtype act = s->by_row->data.dtype;
    return (GemmArgs){ .m = m,
                       .n = n,
                       .k = rows,
                       .a = { NULL, act, m, true },
                       .b = { NULL, act, n, false },
                       .c = { NULL, DTYPE_F32, s->token_first ? F : D },
                       .beta = 1 };
}

/* The same for 8-bit operands, which are gathered already: rows of group e are columns of theirs. */
static ScaledArgs sum_scaled(const MoeSum *s, const MoeTile *tile, int64_t column)
{
    GemmArgs g = sum_gemm(s, tile->cols, tile->n);
    ScaledSide token = {
        .q = s->by_token, .first = tile->col, .column = column, .group = tile->expert
    };
    ScaledSide row = { .q = s->by_row, .column = column, .group = tile->expert };
    return (ScaledArgs){ .m = g.m,
                         .n = g.n,
                         .k = g.k,
                         .a = s->token_first ? token : row,
                         .b = s->token_first ? row : token,
                         .c = g.c };
}

/* Bytes of the gathered rows; the product's scratch follows them. */
static size_t gather_bytes(const MoeSum *s)
{
    int64_t elems = moe_tile_cols(token_width(s)) * moe_chunk_rows(s->rows);
    size_t bytes = (size_t)elems * dtype_bytes(s->by_token->data.dtype);
    return s->row_token->data == NULL || is_scaled(s) ? 0 : arena_rounded(bytes);
}

static size_t space_bytes(const Exec *ex, const MoeSum *s)
{
    int64_t cols = moe_tile_cols(token_width(s));
    MoeTile tile = { .n = s->rows->bound, .cols = cols };
    ScaledArgs scaled = sum_scaled(s, &tile, 0);
    if (is_scaled(s)) return arena_rounded(scaled_workspace(ex, &scaled));
    GemmArgs g = sum_gemm(s, cols, moe_chunk_rows(s->rows));
    return gather_bytes(s) + arena_rounded(gemm_workspace(ex, &g));
}

/* The rows of all groups are in use up to here. */
static int64_t rows_in_use(const MoeSum *s)
{
    int64_t bound = s->rows->bound;
    bool fewer = s->rows->device != NULL && *s->rows->device < bound;
    return fewer ? *s->rows->device : bound;
}

static Status scaled_tile_run(Exec *ex, const MoeSum *s, const MoeTile *tile, char *space)
{
    int64_t start = operand_group_start(s->offsets->data, tile->expert, rows_in_use(s));
    int64_t D = token_width(s), F = row_width(s);
    ScaledArgs scaled = sum_scaled(s, tile, start);
    scaled.c.at = tensor_at(s->dw, tile->expert * F * D + tile->col * (s->token_first ? F : 1));
    scaled.r = scaled.c.at;
    return tile->n == 0 ? OK : scaled_run(ex, &scaled, space);
}

/* A column range of D is rows of dW2 and columns of dW1. `column` is where it begins in both cases. */
static Status sum_tile_run(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    const MoeSum *s = args;
    if (is_scaled(s)) return scaled_tile_run(ex, s, tile, space);
    int64_t D = token_width(s), F = row_width(s);
    int64_t most = moe_chunk_rows(s->rows), end = tile->first + tile->n;
    int64_t column = s->token_first ? tile->col * F : tile->col;
    MoeTile chunk = *tile;
    for (; chunk.first < end; chunk.first += most) {
        chunk.n = end - chunk.first < most ? end - chunk.first : most;
        GemmArgs g = sum_gemm(s, tile->cols, chunk.n);
        const void *by_row = tensor_at(&s->by_row->data, (chunk.first + moe_first(s->first)) * F);
        MoeRead by_token;
        TRY(moe_gather(s->op, &s->by_token->data, s->row_token, &chunk, space, &by_token));
        g.a.at = s->token_first ? by_token.data : by_row;
        g.b.at = s->token_first ? by_row : by_token.data;
        *(s->token_first ? &g.a.ld : &g.b.ld) = by_token.ld;
        g.c.at = tensor_at(s->dw, tile->expert * F * D + column);
        TRY(gemm_run(ex, &g, space + gather_bytes(s)));
    }
    return OK;
}

/* Chunks add to dw (beta 1), so an overwriting call clears it first; experts without rows are then 0 as well. */
Status moe_weight_cpu(Exec *ex, const MoeSum *s)
{
    int64_t D = token_width(s);
    if (s->overwrite) memset(s->dw->data, 0, tensor_bytes(s->dw));
    MoeTiles t = {
        s->op,           s, s->offsets, s->rows, D, sum_tile_run, space_bytes(ex, s), s->first,
        &s->by_row->data
    };
    return moe_tiles_run(ex, &t);
}

size_t moe_weight_workspace(const Exec *ex, const MoeSum *s)
{
    return (size_t)ex->threads * space_bytes(ex, s);
}

/* The operand by token is counted once, whole: rows that experts share come from the cache. */
OpCost moe_weight_cost(const MoeSum *s)
{
    double rows = moe_rows_expected(s->rows);
    double D = (double)token_width(s), F = (double)row_width(s);
    double read = is_scaled(s) ? rows * (D + F) *
                                     operand_element_bytes(s->by_row->kind, s->by_row->data.dtype)
                               : operand_rows_bytes(s->by_row, rows) + operand_bytes(s->by_token);
    double sums = (double)tensor_bytes(s->dw), added_to = s->overwrite ? 0 : sums;
    OpCost c = moe_rows_cost(WORK_GROUPED_WEIGHT, rows, s->by_row, D, F, read + sums + added_to);
    c.sum_bytes = added_to;
    return c;
}

/* Both operands are transposed, with the rows of all groups as operand_group_columns has them. */
static Status check_scaled(const MoeSum *s)
{
    const Operand *const both[] = { s->by_token, s->by_row };
    const char *const port[] = { s->token_port, s->row_port };
    int64_t D = token_width(s), F = row_width(s), E = tensor_elems(s->offsets) - 1;
    int64_t columns = operand_group_columns(s->rows->bound, E);
    TRY(moe_dims_check(s->op, E, F, D));
    if (s->first != NULL)
        return FAIL(ERR_ARG, "%s: %s with scales cannot lie in a pool", s->op, s->row_port);
    for (int i = 0; i < 2; i++) {
        const Operand *q = both[i];
        if (q->kind == OPERAND_PLAIN || q->kind == OPERAND_128X128 || !q->transposed)
            return FAIL(ERR_ARG, "%s: %s must be transposed, with scales of its rows", s->op,
                        port[i]);
        OperandGrid g = operand_grid_groups(q, E);
        TRY(op_expect(s->op, port[i], &q->data, -1, columns, q->data.dtype));
        TRY(op_expect(s->op, port[i], &q->scale, g.rows, g.cols, DTYPE_F32));
    }
    int64_t rows = s->token_first ? D : F;
    TRY(op_expect(s->op, "offsets", s->offsets, 1, -1, DTYPE_I32));
    return op_expect(s->op, "dw", s->dw, E * rows, D + F - rows, DTYPE_F32);
}

Status moe_weight_check(const MoeSum *s)
{
    if (is_scaled(s)) return check_scaled(s);
    const Tensor *by_token = &s->by_token->data, *by_row = &s->by_row->data;
    int64_t D = tensor_cols(by_token), F = tensor_cols(by_row), E = tensor_elems(s->offsets) - 1;
    TRY(moe_dims_check(s->op, E, F, D));
    int64_t R = tensor_elems(by_row) / F, N = tensor_elems(by_token) / D;
    TRY(operand_expect_type(s->op, s->token_port, s->by_token, N, D, by_token->dtype,
                            OPERANDS_PLAIN));
    TRY(operand_expect_type(s->op, s->row_port, s->by_row, R, F, by_token->dtype, OPERANDS_PLAIN));
    TRY(moe_rows_check(s->op, s->offsets, s->row_token, s->rows,
                       s->first == NULL ? R : s->rows->bound, N));
    int64_t rows = s->token_first ? D : F;
    return op_expect(s->op, "dw", s->dw, E * rows, D + F - rows, DTYPE_F32);
}

OP_PORTS(moe_up_bwd_weight, IN_OPERAND(MoeUpBwdWeight, dpre), IN_OPERAND(MoeUpBwdWeight, x),
         IN(MoeUpBwdWeight, offsets), IN_OPT(MoeUpBwdWeight, row_token),
         ADD_OPT(MoeUpBwdWeight, dw), ROWS(MoeUpBwdWeight, rows));

OP_PORTS(moe_down_bwd_weight, IN_OPERAND(MoeDownBwdWeight, dy), IN_OPERAND(MoeDownBwdWeight, wact),
         IN(MoeDownBwdWeight, offsets), IN_OPT(MoeDownBwdWeight, row_token),
         ADD_OPT(MoeDownBwdWeight, dw), ROWS(MoeDownBwdWeight, rows));
