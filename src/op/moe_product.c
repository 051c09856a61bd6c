/* Products of the rows of each expert that go from a tensor to a tensor, with nothing around them.
 */
#include "op/moe_product.h"
#include "op/gemm.h"
#include "op/moe_tiles.h"

MoeProduct moe_down_fwd_view(const MoeDownFwd *a)
{
    return (MoeProduct){ .op = "moe_down_fwd",
                         .in_port = "act",
                         .in = &a->act,
                         .w = &a->w,
                         .offsets = &a->offsets,
                         .out_port = "out",
                         .out = &a->out,
                         .rows = &a->rows,
                         .wide = 1,
                         .turned = true };
}

MoeProduct moe_up_bwd_input_view(const MoeUpBwdInput *a)
{
    return (MoeProduct){ .op = "moe_up_bwd_input",
                         .in_port = "dpre",
                         .in = &a->dpre,
                         .w = &a->w,
                         .offsets = &a->offsets,
                         .out_port = "dx",
                         .out = &a->dx,
                         .rows = &a->rows,
                         .wide = 2 };
}

static GemmArgs gemm_of(const MoeProduct *p, int64_t rows)
{
    int64_t I = tensor_cols(&p->in->data), O = tensor_cols(p->out);
    GemmArgs g = { .m = rows, .n = O, .k = I, .lda = I, .ldb = p->turned ? I : O, .ldc = O };
    g.trans_b = p->turned;
    g.a_type = p->in->data.dtype, g.b_type = p->w->data.dtype, g.c_type = p->out->dtype;
    return g;
}

static size_t space_bytes(const Exec *ex, const MoeProduct *p)
{
    GemmArgs g = gemm_of(p, moe_tile_rows(p->rows));
    return arena_rounded(gemm_workspace(ex, &g));
}

static Status tile_run(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    const MoeProduct *p = args;
    GemmArgs g = gemm_of(p, tile->n);
    g.a = tensor_at(&p->in->data, tile->first * g.k);
    g.b = tensor_at(&p->w->data, tile->expert * g.k * g.n);
    g.c = tensor_at(p->out, tile->first * g.n);
    return gemm_run(ex, &g, space);
}

Status moe_product_cpu(Exec *ex, const MoeProduct *p)
{
    MoeTiles t = { p->op, p, p->offsets, p->rows, 0, tile_run, space_bytes(ex, p) };
    return moe_tiles_run(ex, &t);
}

size_t moe_product_workspace(const Exec *ex, const MoeProduct *p)
{
    return (size_t)ex->threads * space_bytes(ex, p);
}

Status moe_product_check(const MoeProduct *p)
{
    const Tensor none = { 0 };
    int64_t E = tensor_elems(p->offsets) - 1, D = tensor_cols(p->out);
    int64_t F = tensor_cols(&p->in->data) / p->wide;
    TRY(moe_dims_check(p->op, E, F, D));
    int64_t I = p->wide * F, R = tensor_elems(&p->in->data) / I;
    Dtype act = p->out->dtype;
    TRY(quant_expect(p->op, p->in_port, p->in, R, I, act, QUANT_PLAIN));
    TRY(quant_expect(p->op, "w", p->w, E * (p->turned ? D : I), p->turned ? I : D, act,
                     QUANT_PLAIN));
    TRY(op_expect_act(p->op, p->out_port, p->out, R, D));
    return moe_rows_check(p->op, p->offsets, &none, p->rows, R, R);
}

OpCost moe_product_cost(const MoeProduct *p)
{
    double rows = moe_rows_expected(p->rows);
    return moe_rows_cost(rows, p->w, (double)tensor_cols(&p->in->data), (double)tensor_cols(p->out),
                         quant_bytes(p->w) + quant_rows_bytes(p->in, rows) +
                             moe_rows_bytes(p->out, rows));
}

OP_PORTS(moe_down_fwd, IN_QUANT(MoeDownFwd, act), IN_QUANT(MoeDownFwd, w), IN(MoeDownFwd, offsets),
         OUT(MoeDownFwd, out), ROWS(MoeDownFwd, rows));

OP_PORTS(moe_up_bwd_input, IN_QUANT(MoeUpBwdInput, dpre), IN_QUANT(MoeUpBwdInput, w),
         IN(MoeUpBwdInput, offsets), OUT(MoeUpBwdInput, dx), ROWS(MoeUpBwdInput, rows));
