/*
 * The weight gradients (moe_product.h). A tile is some of the D, so each thread gathers only the
 * columns that it multiplies. Rows are summed in chunks that stay in the cache, in their order.
 */
#include "op/gemm.h"
#include "op/moe_product.h"
#include "op/moe_tiles.h"

MoeSum moe_up_bwd_weight_sum(const MoeUpBwdWeight *a)
{
    return (MoeSum){ "moe_up_bwd_weight", &a->x,  &a->dpre, &a->offsets,
                     &a->row_token,       &a->dw, &a->rows, false };
}

MoeSum moe_down_bwd_weight_sum(const MoeDownBwdWeight *a)
{
    return (MoeSum){ "moe_down_bwd_weight", &a->dy, &a->wact, &a->offsets,
                     &a->row_token,         &a->dw, &a->rows, true };
}

/* The product of `rows` rows and `cols` of the D columns. */
static GemmArgs product(const MoeSum *s, int64_t cols, int64_t rows)
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
static size_t gather_bytes(const MoeSum *s)
{
    int64_t elems = moe_tile_cols(tensor_cols(s->by_token)) * moe_chunk_rows(s->rows);
    size_t bytes = (size_t)elems * dtype_bytes(s->by_token->dtype);
    return s->row_token->data == NULL ? 0 : arena_rounded(bytes);
}

static size_t space_bytes(const Exec *ex, const MoeSum *s)
{
    int64_t cols = moe_tile_cols(tensor_cols(s->by_token));
    GemmArgs g = product(s, cols, moe_chunk_rows(s->rows));
    return gather_bytes(s) + arena_rounded(gemm_workspace(ex, &g));
}

static Status tile_run(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    const MoeSum *s = args;
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

static Status run(Exec *ex, MoeSum s)
{
    MoeTiles t = {
        s.op, &s, s.offsets, s.rows, tensor_cols(s.by_token), tile_run, space_bytes(ex, &s)
    };
    return moe_tiles_run(ex, &t);
}

static size_t workspace(const Exec *ex, MoeSum s)
{
    return (size_t)ex->threads * space_bytes(ex, &s);
}

static OpCost cost(MoeSum s)
{
    double rows = moe_rows_expected(s.rows);
    double D = (double)tensor_cols(s.by_token), F = (double)tensor_cols(s.by_row);
    return moe_product_cost(rows, s.by_row->dtype, D, F,
                            moe_rows_bytes(s.by_row, rows) + (double)tensor_bytes(s.by_token) +
                                2 * (double)tensor_bytes(s.dw));
}

static Status check(MoeSum s, const char *by_token, const char *by_row)
{
    int64_t D = tensor_cols(s.by_token), F = tensor_cols(s.by_row), E = tensor_elems(s.offsets) - 1;
    TRY(moe_dims_check(s.op, E, F, D));
    int64_t R = tensor_elems(s.by_row) / F, N = tensor_elems(s.by_token) / D;
    TRY(op_expect_act(s.op, by_token, s.by_token, N, D));
    TRY(op_expect(s.op, by_row, s.by_row, R, F, s.by_token->dtype));
    TRY(moe_rows_check(s.op, s.offsets, s.row_token, s.rows, R, N));
    int64_t rows = s.token_first ? D : F;
    return op_expect(s.op, "dw", s.dw, E * rows, D + F - rows, DTYPE_F32);
}

Status moe_up_bwd_weight_check(const void *args)
{
    return check(moe_up_bwd_weight_sum(args), "x", "dpre");
}

Status moe_down_bwd_weight_check(const void *args)
{
    return check(moe_down_bwd_weight_sum(args), "dy", "wact");
}

OpCost moe_up_bwd_weight_cost(const void *args) { return cost(moe_up_bwd_weight_sum(args)); }

size_t moe_up_bwd_weight_workspace(const Exec *ex, const void *args)
{
    return workspace(ex, moe_up_bwd_weight_sum(args));
}

Status moe_up_bwd_weight_cpu(Exec *ex, const void *args)
{
    return run(ex, moe_up_bwd_weight_sum(args));
}

OpCost moe_down_bwd_weight_cost(const void *args) { return cost(moe_down_bwd_weight_sum(args)); }

size_t moe_down_bwd_weight_workspace(const Exec *ex, const void *args)
{
    return workspace(ex, moe_down_bwd_weight_sum(args));
}

Status moe_down_bwd_weight_cpu(Exec *ex, const void *args)
{
    return run(ex, moe_down_bwd_weight_sum(args));
}

OP_PORTS(moe_up_bwd_weight, IN(MoeUpBwdWeight, dpre), IN(MoeUpBwdWeight, x),
         IN(MoeUpBwdWeight, offsets), IN_OPT(MoeUpBwdWeight, row_token), ADD(MoeUpBwdWeight, dw),
         ROWS(MoeUpBwdWeight, rows));

OP_PORTS(moe_down_bwd_weight, IN(MoeDownBwdWeight, dy), IN(MoeDownBwdWeight, wact),
         IN(MoeDownBwdWeight, offsets), IN_OPT(MoeDownBwdWeight, row_token),
         ADD(MoeDownBwdWeight, dw), ROWS(MoeDownBwdWeight, rows));
