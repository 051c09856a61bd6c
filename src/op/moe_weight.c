/*
 * The weight gradients of both products, which are one sum seen from two sides. One operand has
 * width D and is read by token (x for dW1, dy for dW2), the other has a row for each routed row
 * (dpre, wact):
 *
 *   dW1_e (2F, D) += sum over r of dpre_r^T x[row_token[r]]        D: columns of the result
 *   dW2_e (D, F)  += sum over r of dy[row_token[r]]^T wact_r       D: its rows
 *
 * A tile is some of the D, so each thread gathers only the columns that it multiplies. Rows are
 * summed in chunks that stay in the cache, in their order.
 */
#include "op/gemm.h"
#include "op/moe.h"
#include "op/moe_tiles.h"
#include "op/op.h"

typedef struct Sum {
    const char *op;
    const Tensor *by_token, *by_row, *offsets, *row_token, *dw;
    const Rows *rows;
    bool token_first; /* by_token is the transposed operand: dW2 */
} Sum;

static Sum up_sum(const MoeUpBwdWeight *a)
{
    return (Sum){ "moe_up_bwd_weight", &a->x,  &a->dpre, &a->offsets,
                  &a->row_token,       &a->dw, &a->rows, false };
}

static Sum down_sum(const MoeDownBwdWeight *a)
{
    return (Sum){ "moe_down_bwd_weight", &a->dy, &a->wact, &a->offsets,
                  &a->row_token,         &a->dw, &a->rows, true };
}

/* The product of `rows` rows and `cols` of the D columns. */
static GemmArgs product(const Sum *s, int64_t cols, int64_t rows)
{
    int64_t D = tensor_cols(s->by_token), F = tensor_cols(s->by_row); /* 2F for dW1 */
    GemmArgs g = { .k = rows, .trans_a = true, .beta = 1 };
    g.m = s->token_first ? cols : F, g.lda = g.m;
    g.n = s->token_first ? F : cols, g.ldb = g.n;
    g.ldc = s->token_first ? F : D;
    g.a_type = g.b_type = s->by_row->dtype, g.c_type = DTYPE_F32;
    return g;
}

/* The gathered rows; behind them stands what the product wants. */
static size_t gather_bytes(const Sum *s)
{
    int64_t elems = moe_tile_cols(tensor_cols(s->by_token)) * moe_chunk_rows(s->rows);
    size_t bytes = (size_t)elems * dtype_bytes(s->by_token->dtype);
    return s->row_token->data == NULL ? 0 : arena_rounded(bytes);
}

static size_t space_bytes(const Exec *ex, const Sum *s)
{
    int64_t cols = moe_tile_cols(tensor_cols(s->by_token));
    GemmArgs g = product(s, cols, moe_chunk_rows(s->rows));
    return gather_bytes(s) + arena_rounded(gemm_workspace(ex, &g));
}

static Status tile_run(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    const Sum *s = args;
    int64_t D = tensor_cols(s->by_token), F = tensor_cols(s->by_row);
    int64_t most = moe_chunk_rows(s->rows), end = tile->first + tile->n;
    int64_t column = s->token_first ? tile->col * F : tile->col;
    MoeTile chunk = *tile;
    for (; chunk.first < end; chunk.first += most) {
        chunk.n = end - chunk.first < most ? end - chunk.first : most;
        GemmArgs g = product(s, tile->cols, chunk.n);
        const void *by_row = tensor_at(s->by_row, chunk.first * F);
        MoeRead by_token;
        TRY(moe_gather(s->op, s->by_token, s->row_token, &chunk, space, &by_token));
        g.a = s->token_first ? by_token.data : by_row;
        g.b = s->token_first ? by_row : by_token.data;
        *(s->token_first ? &g.lda : &g.ldb) = by_token.ld;
        g.c = tensor_at(s->dw, tile->expert * F * D + column);
        TRY(gemm_run(ex, &g, space + gather_bytes(s)));
    }
    return OK;
}

static Status sum_run(Exec *ex, const Sum *s)
{
    int64_t D = tensor_cols(s->by_token);
    MoeTiles t = { s->op, s, s->offsets, s->rows, D, tile_run, space_bytes(ex, s) };
    TRY(moe_tiles_run(ex, &t));
    return OK;
}

static OpCost sum_cost(const Sum *s)
{
    double rows = moe_rows_expected(s->rows);
    double D = (double)tensor_cols(s->by_token), F = (double)tensor_cols(s->by_row);
    return moe_product_cost(rows, s->by_row->dtype, D, F,
                            moe_rows_bytes(s->by_row, rows) + (double)tensor_bytes(s->by_token) +
                                2 * (double)tensor_bytes(s->dw));
}

/* The shapes that both have in common; dw's depends on the side. */
static Status sum_check(const Sum *s, const char *by_token, const char *by_row)
{
    int64_t D = tensor_cols(s->by_token), F = tensor_cols(s->by_row);
    TRY(moe_dims_check(s->op, tensor_elems(s->offsets) - 1, F, D));
    int64_t R = tensor_elems(s->by_row) / F, N = tensor_elems(s->by_token) / D;
    TRY(op_expect_act(s->op, by_token, s->by_token, N, D));
    TRY(op_expect(s->op, by_row, s->by_row, R, F, s->by_token->dtype));
    return moe_rows_check(s->op, s->offsets, s->row_token, s->rows, R, N);
}

static Status up_cpu(Exec *ex, const void *args)
{
    Sum s = up_sum(args);
    return sum_run(ex, &s);
}

static size_t up_workspace(const Exec *ex, const void *args)
{
    Sum s = up_sum(args);
    return (size_t)ex->threads * space_bytes(ex, &s);
}

static Status up_check(const void *args)
{
    const MoeUpBwdWeight *a = args;
    Sum s = up_sum(a);
    TRY(sum_check(&s, "x", "dpre"));
    int64_t E = tensor_elems(&a->offsets) - 1, two_F = tensor_cols(&a->dpre);
    return op_expect(s.op, "dw", &a->dw, E * two_F, tensor_cols(&a->x), DTYPE_F32);
}

static OpCost up_cost(const void *args)
{
    Sum s = up_sum(args);
    return sum_cost(&s);
}

static Status down_cpu(Exec *ex, const void *args)
{
    Sum s = down_sum(args);
    return sum_run(ex, &s);
}

static size_t down_workspace(const Exec *ex, const void *args)
{
    Sum s = down_sum(args);
    return (size_t)ex->threads * space_bytes(ex, &s);
}

static Status down_check(const void *args)
{
    const MoeDownBwdWeight *a = args;
    Sum s = down_sum(a);
    TRY(sum_check(&s, "dy", "wact"));
    int64_t E = tensor_elems(&a->offsets) - 1, D = tensor_cols(&a->dy);
    return op_expect(s.op, "dw", &a->dw, E * D, tensor_cols(&a->wact), DTYPE_F32);
}

static OpCost down_cost(const void *args)
{
    Sum s = down_sum(args);
    return sum_cost(&s);
}

static const OpPort up_ports[] = {
    PORT(MoeUpBwdWeight, dpre, PORT_IN),
    PORT(MoeUpBwdWeight, x, PORT_IN),
    PORT(MoeUpBwdWeight, offsets, PORT_IN),
    PORT(MoeUpBwdWeight, row_token, PORT_IN_OPT),
    PORT(MoeUpBwdWeight, dw, PORT_ADD),
    PORT(MoeUpBwdWeight, rows, PORT_ROWS),
    PORTS_END,
};

static const OpPort down_ports[] = {
    PORT(MoeDownBwdWeight, dy, PORT_IN),
    PORT(MoeDownBwdWeight, wact, PORT_IN),
    PORT(MoeDownBwdWeight, offsets, PORT_IN),
    PORT(MoeDownBwdWeight, row_token, PORT_IN_OPT),
    PORT(MoeDownBwdWeight, dw, PORT_ADD),
    PORT(MoeDownBwdWeight, rows, PORT_ROWS),
    PORTS_END,
};

#ifdef HAVE_CUDA
Status moe_up_bwd_weight_cuda(Exec *ex, const void *args);
Status moe_down_bwd_weight_cuda(Exec *ex, const void *args);
#endif

extern const OpDesc moe_up_bwd_weight_desc, moe_down_bwd_weight_desc;

const OpDesc moe_up_bwd_weight_desc = {
    .name = "moe_up_bwd_weight",
    .args_bytes = sizeof(MoeUpBwdWeight),
    .ports = up_ports,
    .check = up_check,
    .cost = up_cost,
    .workspace = up_workspace,
    .cpu = up_cpu,
    .cuda = CUDA_OP(moe_up_bwd_weight_cuda),
};

const OpDesc moe_down_bwd_weight_desc = {
    .name = "moe_down_bwd_weight",
    .args_bytes = sizeof(MoeDownBwdWeight),
    .ports = down_ports,
    .check = down_check,
    .cost = down_cost,
    .workspace = down_workspace,
    .cpu = down_cpu,
    .cuda = CUDA_OP(moe_down_bwd_weight_cuda),
};
