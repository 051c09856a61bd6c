/* norm: y = norm(h), made again in backward if it was not kept. */
#include "engine/model/norm.h"

#include "kernels/norm/rmsnorm.h"

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

Status layer_norm_rows(LayerRun *r, NormState *n, Arena *arena)
{
    TRY(tensor_new2(arena, r->spec->act, r->rows, r->spec->hidden, &n->rows));
    return rmsnorm_fwd(r->ex, (RmsnormFwd){ .x = r->h,
                                            .w = r->weights->w[ROLE_NORM].data,
                                            .y = n->rows,
                                            .rstd = n->rstd,
                                            .eps = r->spec->eps });
}

/* rstd is kept in any case: it is one number a row, and backward needs it. */
Status layer_norm_forward(LayerRun *r, NormState *n, NormUse use)
{
    Arena *columns = use.columns_later ? NULL : recipe_keeps(r, RECOMPUTE_NORM);
    if (use.all_tokens && layer_splits(r))
        return recipe_operands(r, use.role, SIDE_FORWARD, n->y.x, r->scratch, columns, &n->y);
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
    if (layer_arena(r, RECOMPUTE_NORM) != r->ring) return OK;
    if (use.all_tokens && layer_splits(r))
        return recipe_operands(r, use.role, SIDE_FORWARD, n->y.x, NULL, at.columns, &n->y);
    return norm_into(r, n, use.role, at);
}

Status layer_norm_new_gradient(LayerRun *r, Tensor *dy)
{
    Arena *arena = layer_splits(r) ? r->ring : r->scratch;
    return tensor_new2(arena, r->spec->act, r->tokens, r->spec->hidden, dy);
}

Status layer_norm_rows_backward(LayerRun *r, const NormState *n, Tensor dy, Tensor dres)
{
    return rmsnorm_bwd(r->ex, (RmsnormBwd){ .dy = dy,
                                            .x = r->h,
                                            .w = r->weights->w[ROLE_NORM].data,
                                            .rstd = n->rstd,
                                            .dres = dres,
                                            .dx = r->dh,
                                            .dw = r->weights->dw[ROLE_NORM] });
}

/* forward: y = norm(h) w, and h is also passed on to h_out, so dh = dh_out + d norm. */
Status layer_norm_backward(LayerRun *r, NormState *n, Tensor dy)
{
    n->dy = dy;
    return layer_splits(r) ? OK : layer_norm_rows_backward(r, n, dy, r->dh_out);
}
