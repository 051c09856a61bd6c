/* Products of the rows of each expert that go from a tensor to a tensor, with nothing around them.
 */
#include "op/moe_product.h"
#include "op/gemm.h"
#include "op/moe_tiles.h"

MoeProduct moe_down_fwd_product(const MoeDownFwd *a)
{
    return (MoeProduct){ "moe_down_fwd", &a->act, &a->w, &a->offsets, &a->out, &a->rows, true };
}

MoeProduct moe_up_bwd_input_product(const MoeUpBwdInput *a)
{
    return (
        MoeProduct){ "moe_up_bwd_input", &a->dpre, &a->w, &a->offsets, &a->dx, &a->rows, false };
}

static GemmArgs gemm_of(const MoeProduct *p, int64_t rows)
{
    int64_t I = tensor_cols(p->in), O = tensor_cols(p->out);
    GemmArgs g = { .m = rows, .n = O, .k = I, .lda = I, .ldb = p->turned ? I : O, .ldc = O };
    g.trans_b = p->turned;
    g.a_type = g.b_type = g.c_type = p->in->dtype;
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
    g.a = tensor_at(p->in, tile->first * g.k);
    g.b = tensor_at(p->w, tile->expert * g.k * g.n);
    g.c = tensor_at(p->out, tile->first * g.n);
    return gemm_run(ex, &g, space);
}

static Status run(Exec *ex, MoeProduct p)
{
    MoeTiles t = { p.op, &p, p.offsets, p.rows, 0, tile_run, space_bytes(ex, &p) };
    return moe_tiles_run(ex, &t);
}

static size_t workspace(const Exec *ex, MoeProduct p)
{
    return (size_t)ex->threads * space_bytes(ex, &p);
}

/* in's rows are `wide` times F columns wide. */
static Status check(MoeProduct p, const char *in, const char *out, int64_t wide)
{
    const Tensor none = { 0 };
    int64_t E = tensor_elems(p.offsets) - 1, D = tensor_cols(p.out), F = tensor_cols(p.in) / wide;
    TRY(moe_dims_check(p.op, E, F, D));
    int64_t I = wide * F, R = tensor_elems(p.in) / I;
    TRY(op_expect_act(p.op, in, p.in, R, I));
    TRY(op_expect(p.op, "w", p.w, E * (p.turned ? D : I), p.turned ? I : D, p.in->dtype));
    TRY(op_expect(p.op, out, p.out, R, D, p.in->dtype));
    return moe_rows_check(p.op, p.offsets, &none, p.rows, R, R);
}

static OpCost cost(MoeProduct p)
{
    double rows = moe_rows_expected(p.rows);
    return moe_product_cost(rows, p.w->dtype, (double)tensor_cols(p.in), (double)tensor_cols(p.out),
                            (double)tensor_bytes(p.w) + moe_rows_bytes(p.in, rows) +
                                moe_rows_bytes(p.out, rows));
}

Status moe_down_fwd_check(const void *args)
{
    return check(moe_down_fwd_product(args), "act", "out", 1);
}

Status moe_up_bwd_input_check(const void *args)
{
    return check(moe_up_bwd_input_product(args), "dpre", "dx", 2);
}

OpCost moe_down_fwd_cost(const void *args) { return cost(moe_down_fwd_product(args)); }

size_t moe_down_fwd_workspace(const Exec *ex, const void *args)
{
    return workspace(ex, moe_down_fwd_product(args));
}

Status moe_down_fwd_cpu(Exec *ex, const void *args) { return run(ex, moe_down_fwd_product(args)); }

OpCost moe_up_bwd_input_cost(const void *args) { return cost(moe_up_bwd_input_product(args)); }

size_t moe_up_bwd_input_workspace(const Exec *ex, const void *args)
{
    return workspace(ex, moe_up_bwd_input_product(args));
}

Status moe_up_bwd_input_cpu(Exec *ex, const void *args)
{
    return run(ex, moe_up_bwd_input_product(args));
}

OP_PORTS(moe_down_fwd, IN(MoeDownFwd, act), IN(MoeDownFwd, w), IN(MoeDownFwd, offsets),
         OUT(MoeDownFwd, out), ROWS(MoeDownFwd, rows));

OP_PORTS(moe_up_bwd_input, IN(MoeUpBwdInput, dpre), IN(MoeUpBwdInput, w),
         IN(MoeUpBwdInput, offsets), OUT(MoeUpBwdInput, dx), ROWS(MoeUpBwdInput, rows));
