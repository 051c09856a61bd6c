/* norm: y = norm(h), made again in backward if it was not kept. */
#include "model/norm.h"

#include "op/rmsnorm.h"

static Status norm_into(LayerRun *r, NormState *n, ParamRole role, ActivationArenas at)
{
    TRY(recipe_new(r, role, SIDE_FORWARD, r->rows, r->spec->hidden, at, &n->y));
    return rmsnorm_fwd(r->ex, (RmsnormFwd){ .x = r->h,
                                            .w = r->weights->w[ROLE_NORM].data,
                                            .y = n->y.x,
                                            .rstd = n->rstd,
                                            .eps = r->spec->eps,
                                            .quant = recipe_output(r, role, SIDE_FORWARD, &n->y) });
}

/* rstd is kept in any case: it is one number a row, and backward needs it. */
Status layer_norm_forward(LayerRun *r, NormState *n, NormUse use)
{
    Arena *columns = use.columns_later ? NULL : recipe_keeps(r, RECOMPUTE_NORM);
    TRY(tensor_new2(r->keep, DTYPE_F32, r->rows, 1, &n->rstd));
    return norm_into(r, n, use.role,
                     (ActivationArenas){ .x = layer_arena(r, RECOMPUTE_NORM),
                                         .rows = use.rows_later ? r->ring : r->scratch,
                                         .columns = columns,
                                         .plain = use.plain });
}

Status layer_norm_recompute(LayerRun *r, NormState *n, NormUse use)
{
    const ActivationArenas at = { .x = r->ring,
                                  .columns = use.columns_later ? NULL : r->ring,
                                  .plain = use.plain };
    return layer_arena(r, RECOMPUTE_NORM) == r->ring ? norm_into(r, n, use.role, at) : OK;
}

/* forward: y = norm(h) w, and h is also passed on to h_out, so dh = dh_out + d norm. */
Status layer_norm_backward(LayerRun *r, const NormState *n, Tensor dy)
{
    return rmsnorm_bwd(r->ex, (RmsnormBwd){ .dy = dy,
                                            .x = r->h,
                                            .w = r->weights->w[ROLE_NORM].data,
                                            .rstd = n->rstd,
                                            .dres = r->dh_out,
                                            .dx = r->dh,
                                            .dw = r->weights->dw[ROLE_NORM] });
}
