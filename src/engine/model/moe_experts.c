/* moe_experts: the phases of the routed experts. Their rows are sorted by expert (kernels/moe/moe.h). */
#include "engine/model/moe.h"

/* What a product of experts reads: rows of x, and the row_token that says which. Blocks of received
 * rows have gaps that hold no numbers. So what is quantised here of received rows are only those of
 * this rank's experts, gathered: no scale depends on a gap. */
static Status routed_operand(LayerRun *r, ParamRole role, RecipeSide side, Operand x,
                             Tensor *row_token, Operand *out)
{
    const MoeState *s = r->state;
    RecipeGroups routed = { .row_token = s->order.row_token, .rows = moe_routed_rows(r) };
    bool came_so = x.kind != OPERAND_PLAIN;
    bool gathers = moe_spread(r) && recipe_quantises(r->spec, r->layer, role) && !came_so;
    routed.rows.first = NULL; /* x lies in no pool */
    *row_token = gathers ? (Tensor){ 0 } : s->order.row_token;
    *out = x;
    return came_so ? OK : recipe_rows(r, role, side, x.data, gathers ? &routed : NULL, out);
}

static bool is_narrow(const LayerRun *r) { return recipe_narrow(r->spec, r->layer); }

/* Rows of `cols` columns that an expert's product makes and the next one reads. */
static Status new_rows(LayerRun *r, Arena *a, int64_t cols, Operand *out)
{
    bool narrow = is_narrow(r);
    const int64_t dim[] = { moe_routed_rows(r).bound, cols };
    return operand_new(a, narrow ? OPERAND_1X128 : OPERAND_PLAIN,
                       narrow ? r->spec->recipe.forward : r->spec->act, 2, dim, out);
}

/* What a weight gradient reads of such rows: in 8 bits their columns. */
static Status new_columns(LayerRun *r, int64_t cols, Operand *out)
{
    const MoeState *s = r->state;
    if (!is_narrow(r)) return new_rows(r, r->ring, cols, out);
    return operand_new_groups(r->ring, OPERAND_1X128, r->spec->recipe.forward, cols,
                              moe_routed_rows(r).bound, tensor_elems(&s->order.offsets) - 1, out);
}

/* forward: pre = W_gate_up x,  act = swiglu(pre),  out = W_down act, rows grouped by expert. `act`
 * is scratch: backward makes it again from pre. */
Status moe_experts_forward(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    Rows rows = moe_routed_rows(r);
    Operand x, w, down, act;
    if (moe_pooled(r))
        s->experts.pre = r->pool->rows;
    else
        TRY(new_rows(r, r->keep, 2 * m->ffn, &s->experts.pre));
    TRY(new_rows(r, r->scratch, m->ffn, &act));
    Tensor row_token;
    TRY(routed_operand(r, ROLE_EXPERT_GATE_UP, SIDE_FORWARD, s->experts.x, &row_token, &x));
    TRY(recipe_weight(r, ROLE_EXPERT_GATE_UP, false, &w));
    TRY(moe_up_fwd(r->ex, (MoeUpFwd){ .x = x,
                                      .w = w,
                                      .offsets = s->order.offsets,
                                      .row_token = row_token,
                                      .pre = s->experts.pre,
                                      .act = act,
                                      .bias = r->weights->w[ROLE_EXPERT_GATE_UP_BIAS].data,
                                      .rows = rows,
                                      .glu = m->glu,
                                      .pow2 = r->spec->recipe.pow2,
                                      .f32 = r->spec->act == DTYPE_F32 }));
    if (r->recomputing) return OK;
    TRY(tensor_new2(r->ring, r->spec->act, rows.bound, r->spec->hidden, &s->experts.out));
    RecipeGroups own = { .rows = rows };
    own.rows.first = NULL; /* act lies in no pool */
    if (!is_narrow(r)) TRY(recipe_rows(r, ROLE_EXPERT_DOWN, SIDE_FORWARD, act.data, &own, &act));
    TRY(recipe_weight(r, ROLE_EXPERT_DOWN, false, &down));
    return moe_down_fwd(r->ex, (MoeDownFwd){ .act = act,
                                             .w = down,
                                             .offsets = s->order.offsets,
                                             .out = s->experts.out,
                                             .bias = r->weights->w[ROLE_EXPERT_DOWN_BIAS].data,
                                             .rows = rows });
}

/* The gradient of pre overwrites pre, which nothing reads afterwards. wact is weight * act, which
 * the weight gradient of W_down needs, and dweight the gradient of the routing weight. */
Status moe_experts_backward_input(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    Rows rows = moe_routed_rows(r);
    TRY(new_columns(r, m->ffn, &s->experts.wact));
    s->experts.dpre = s->experts.pre;
    if (is_narrow(r)) TRY(new_columns(r, 2 * m->ffn, &s->experts.dpre));
    TRY(tensor_new2(r->ring, DTYPE_F32, s->experts.weight.dim[0], moe_parts_taken(r),
                    &s->experts.dweight));
    Operand dy, down, dpre, up, none = { 0 };
    Tensor row_token;
    TRY(routed_operand(r, ROLE_EXPERT_DOWN, SIDE_GRADIENT, s->experts.dout, &row_token, &dy));
    TRY(recipe_weight(r, ROLE_EXPERT_DOWN, true, &down));
    TRY(moe_down_bwd_input(r->ex,
                           (MoeDownBwdInput){ .dy = dy,
                                              .w = down,
                                              .pre = s->experts.pre,
                                              .offsets = s->order.offsets,
                                              .row_token = row_token,
                                              .row_slot = s->order.row_slot,
                                              .weight = s->experts.weight,
                                              .dpre = s->experts.pre,
                                              .wact = s->experts.wact,
                                              .dweight = s->experts.dweight,
                                              .bias = r->weights->w[ROLE_EXPERT_DOWN_BIAS].data,
                                              .dpre_columns = is_narrow(r) ? s->experts.dpre : none,
                                              .rows = rows,
                                              .glu = m->glu,
                                              .pow2 = r->spec->recipe.pow2,
                                              .f32 = r->spec->act == DTYPE_F32 }));
    TRY(tensor_new2(r->ring, r->spec->act, rows.bound, r->spec->hidden, &s->experts.dx));
    RecipeGroups own = { .rows = rows };
    dpre = s->experts.pre;
    if (!is_narrow(r))
        TRY(recipe_rows(r, ROLE_EXPERT_GATE_UP, SIDE_GRADIENT, dpre.data, &own, &dpre));
    TRY(recipe_weight(r, ROLE_EXPERT_GATE_UP, true, &up));
    if (dpre.data.data != s->experts.pre.data.data) rows.first = NULL; /* no longer in the pool */
    return moe_up_bwd_input(r->ex, (MoeUpBwdInput){ .dpre = dpre,
                                                    .w = up,
                                                    .offsets = s->order.offsets,
                                                    .dx = s->experts.dx,
                                                    .rows = rows });
}

/* Rows of experts.dout lie in the order of tokens, never in a pool. Of ranks that share experts one has the bias of
 * the second product. */
static Status biases_backward(LayerRun *r, bool overwrite)
{
    MoeState *s = r->state;
    Rows rows = moe_routed_rows(r), gathered = rows;
    Tensor dout;
    gathered.first = NULL;
    TRY(recipe_undispatched(r, s->experts.dout, &dout));
    if (r->weights->dw[ROLE_EXPERT_DOWN_BIAS].data != NULL)
        TRY(moe_bias_bwd(r->ex, (MoeBiasBwd){ .dy = dout,
                                              .offsets = s->order.offsets,
                                              .row_token = s->order.row_token,
                                              .row_slot = s->order.row_slot,
                                              .weight = s->experts.weight,
                                              .db = r->weights->dw[ROLE_EXPERT_DOWN_BIAS],
                                              .rows = gathered,
                                              .overwrite = overwrite }));
    return moe_bias_bwd(r->ex, (MoeBiasBwd){ .dy = s->experts.dpre.data,
                                             .offsets = s->order.offsets,
                                             .db = r->weights->dw[ROLE_EXPERT_GATE_UP_BIAS],
                                             .rows = rows,
                                             .overwrite = overwrite });
}

/* The first micro-batch of a step overwrites dw and later ones add, which saves zeroing the largest
 * buffer. Columns of the first product give their memory to those of the second. */
Status moe_experts_backward_weight(LayerRun *r)
{
    MoeState *s = r->state;
    Rows rows = moe_routed_rows(r);
    bool first = r->written != NULL && !*r->written;
    if (first) *r->written = true;
    if (r->layer->as.moe.expert_bias) TRY(biases_backward(r, first));
    RecipeGroups by_token = { s->order.offsets, s->order.row_token, rows };
    RecipeGroups by_row = { .offsets = s->order.offsets, .rows = rows };
    Operand dy, wact, dpre, x;
    ArenaMark mark = arena_mark(r->scratch);
    by_token.rows.first = by_row.rows.first = NULL;
    TRY(recipe_columns(r, ROLE_EXPERT_DOWN, SIDE_GRADIENT, s->experts.dout, &by_token, &dy));
    wact = s->experts.wact, dpre = s->experts.dpre;
    if (!is_narrow(r)) TRY(recipe_columns(r, ROLE_EXPERT_DOWN, SIDE_FORWARD, wact, &by_row, &wact));
    TRY(moe_down_bwd_weight(r->ex, (MoeDownBwdWeight){ .dy = dy,
                                                       .wact = wact,
                                                       .offsets = s->order.offsets,
                                                       .row_token = s->order.row_token,
                                                       .dw = r->weights->dw[ROLE_EXPERT_DOWN],
                                                       .rows = rows,
                                                       .overwrite = first }));
    arena_release(r->scratch, mark);
    by_row.rows.first = rows.first;
    if (!is_narrow(r))
        TRY(recipe_columns(r, ROLE_EXPERT_GATE_UP, SIDE_GRADIENT, dpre, &by_row, &dpre));
    TRY(recipe_columns(r, ROLE_EXPERT_GATE_UP, SIDE_FORWARD, s->experts.x, &by_token, &x));
    if (dpre.kind != OPERAND_PLAIN) rows.first = NULL;
    return moe_up_bwd_weight(r->ex, (MoeUpBwdWeight){ .dpre = dpre,
                                                      .x = x,
                                                      .offsets = s->order.offsets,
                                                      .row_token = s->order.row_token,
                                                      .dw = r->weights->dw[ROLE_EXPERT_GATE_UP],
                                                      .rows = rows,
                                                      .overwrite = first });
}
