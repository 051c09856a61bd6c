/*
 * moe: h_out = h + shared(y) + sum over the chosen experts of weight * expert(y),  y = norm(h).
 *
 * Kept for backward: y, the router's logits and choice, and each routed row's pre-activation; never
 * an expert's output (op/moe.h). The logits and the choice are kept even under RECOMPUTE_LAYER:
 * they are small, and a second decision could differ.
 */
#include "model/layer.h"

typedef struct MoeState {
    NormState norm;
    MlpState shared;
    Tensor logits, index, weight, seq_count;       /* routing: always kept */
    Tensor offsets, row_token, row_slot, slot_row; /* sorting: always kept */
    Tensor pre;                                    /* (R, 2F) */
    Tensor shared_out, rows_out;                   /* ring, from their phases to combine */
    Tensor dy_shared, wact, dweight, dx_rows;      /* ring, backward */
} MoeState;

static Status params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const MoeSpec *m = &l->as.moe;
    int64_t d = s->hidden, f = m->ffn;
    int i = l->block;
    TRY(params_add(out, (ParamAdd){ ROLE_NORM, -1, 0, d, INIT_ONE, .keep_f32 = true },
                   "model.layers.%d.post_attention_layernorm.weight", i));
    TRY(params_add(
        out,
        (ParamAdd){ ROLE_ROUTER, -1, m->experts, d, INIT_NORMAL, .decay = true, .keep_f32 = true },
        "model.layers.%d.mlp.gate.weight", i));
    if (m->bias) {
        TRY(params_add(out,
                       (ParamAdd){ ROLE_ROUTER_BIAS, -1, 0, m->experts, INIT_ZERO, .state = true },
                       "model.layers.%d.mlp.gate.e_score_correction_bias", i));
    }
    for (int e = 0; e < m->experts; e++) {
        ParamAdd half = { ROLE_EXPERT_GATE_UP, e, f, d, INIT_NORMAL, .decay = true };
        TRY(params_add(out, half, "model.layers.%d.mlp.experts.%d.gate_proj.weight", i, e));
        TRY(params_add(out, half, "model.layers.%d.mlp.experts.%d.up_proj.weight", i, e));
    }
    for (int e = 0; e < m->experts; e++) {
        TRY(params_add(out, (ParamAdd){ ROLE_EXPERT_DOWN, e, d, f, INIT_NORMAL, .decay = true },
                       "model.layers.%d.mlp.experts.%d.down_proj.weight", i, e));
    }
    if (m->shared_ffn == 0) return OK;
    ParamAdd half = { ROLE_GATE_UP, -1, m->shared_ffn, d, INIT_NORMAL, .decay = true };
    TRY(params_add(out, half, "model.layers.%d.mlp.shared_experts.gate_proj.weight", i));
    TRY(params_add(out, half, "model.layers.%d.mlp.shared_experts.up_proj.weight", i));
    return params_add(out,
                      (ParamAdd){ ROLE_DOWN, -1, d, m->shared_ffn, INIT_NORMAL, .decay = true },
                      "model.layers.%d.mlp.shared_experts.down_proj.weight", i);
}

static Status prepare(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    int64_t n = layer_tokens(r), k = m->rule.top_k, e = m->experts;
    TRY(tensor_new2(r->keep, DTYPE_F32, n, e, &s->logits));
    TRY(tensor_new2(r->keep, DTYPE_I32, n, k, &s->index));
    TRY(tensor_new2(r->keep, DTYPE_F32, n, k, &s->weight));
    TRY(tensor_new2(r->keep, DTYPE_I32, r->batch->b, e, &s->seq_count));
    TRY(tensor_new2(r->keep, DTYPE_I32, 1, e + 1, &s->offsets));
    TRY(tensor_new1(r->keep, DTYPE_I32, n * k, &s->row_token));
    TRY(tensor_new1(r->keep, DTYPE_I32, n * k, &s->row_slot));
    return tensor_new2(r->keep, DTYPE_I32, n, k, &s->slot_row);
}

/* On one rank every routed row is here: tokens x top-k of them, exactly. */
static Rows rows_of(const MoeState *s)
{
    int64_t n = tensor_elems(&s->row_token);
    return (Rows){ .bound = n, .expected = (double)n };
}

static Status route_forward(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    TRY(layer_norm_forward(r, &s->norm));
    if (r->again) return OK;
    TRY(linear_fwd(r->ex,
                   (LinearFwd){ .x = s->norm.y, .w = r->weights->w[ROLE_ROUTER], .y = s->logits }));
    TRY(route_fwd(r->ex, (RouteFwd){ .logits = s->logits,
                                     .bias = r->weights->w[ROLE_ROUTER_BIAS],
                                     .domain = r->batch->domain,
                                     .index = s->index,
                                     .weight = s->weight,
                                     .seq_count = s->seq_count,
                                     .load = tensor_rows(&r->record->load, m->index, 1),
                                     .aux_loss = r->record->aux_loss,
                                     .rule = m->rule }));
    return moe_sort(r->ex, (MoeSort){ .index = s->index,
                                      .offsets = s->offsets,
                                      .row_token = s->row_token,
                                      .row_slot = s->row_slot,
                                      .slot_row = s->slot_row });
}

static Status shared_forward(LayerRun *r)
{
    MoeState *s = r->state;
    if (r->layer->as.moe.shared_ffn == 0) return OK;
    TRY(tensor_new2(r->ring, r->spec->act, layer_tokens(r), r->spec->hidden, &s->shared_out));
    return layer_mlp_forward(r, &s->shared, s->norm.y, (Tensor){ 0 }, s->shared_out,
                             RECOMPUTE_SHARED);
}

static Status experts_forward(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    Rows rows = rows_of(s);
    Tensor act;
    TRY(tensor_new2(r->keep, r->spec->act, rows.bound, 2 * m->ffn, &s->pre));
    TRY(tensor_new2(r->scratch, r->spec->act, rows.bound, m->ffn, &act));
    TRY(moe_up_fwd(r->ex, (MoeUpFwd){ .x = s->norm.y,
                                      .w = r->weights->w[ROLE_EXPERT_GATE_UP],
                                      .offsets = s->offsets,
                                      .row_token = s->row_token,
                                      .pre = s->pre,
                                      .act = act,
                                      .rows = rows }));
    if (r->again) return OK;
    TRY(tensor_new2(r->ring, r->spec->act, rows.bound, r->spec->hidden, &s->rows_out));
    return moe_down_fwd(r->ex, (MoeDownFwd){ .act = act,
                                             .w = r->weights->w[ROLE_EXPERT_DOWN],
                                             .offsets = s->offsets,
                                             .out = s->rows_out,
                                             .rows = rows });
}

static Status combine_forward(LayerRun *r)
{
    MoeState *s = r->state;
    if (r->again) return OK;
    return moe_combine(r->ex, (MoeCombine){ .out = s->rows_out,
                                            .slot_row = s->slot_row,
                                            .weight = s->weight,
                                            .shared = s->shared_out,
                                            .residual = r->h,
                                            .y = r->h_out });
}

static Status experts_backward_input(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    Rows rows = rows_of(s);
    TRY(layer_norm_again(r, &s->norm));
    TRY(tensor_new2(r->ring, r->spec->act, rows.bound, m->ffn, &s->wact));
    TRY(tensor_new2(r->ring, DTYPE_F32, layer_tokens(r), m->rule.top_k, &s->dweight));
    TRY(moe_down_bwd_input(r->ex, (MoeDownBwdInput){ .dy = r->dh_out,
                                                     .w = r->weights->w[ROLE_EXPERT_DOWN],
                                                     .pre = s->pre,
                                                     .offsets = s->offsets,
                                                     .row_token = s->row_token,
                                                     .row_slot = s->row_slot,
                                                     .weight = s->weight,
                                                     .dpre = s->pre,
                                                     .wact = s->wact,
                                                     .dweight = s->dweight,
                                                     .rows = rows }));
    TRY(tensor_new2(r->ring, r->spec->act, rows.bound, r->spec->hidden, &s->dx_rows));
    return moe_up_bwd_input(r->ex, (MoeUpBwdInput){ .dpre = s->pre,
                                                    .w = r->weights->w[ROLE_EXPERT_GATE_UP],
                                                    .offsets = s->offsets,
                                                    .dx = s->dx_rows,
                                                    .rows = rows });
}

static Status experts_backward_weight(LayerRun *r)
{
    MoeState *s = r->state;
    Rows rows = rows_of(s);
    TRY(moe_down_bwd_weight(r->ex, (MoeDownBwdWeight){ .dy = r->dh_out,
                                                       .wact = s->wact,
                                                       .offsets = s->offsets,
                                                       .row_token = s->row_token,
                                                       .dw = r->weights->dw[ROLE_EXPERT_DOWN],
                                                       .rows = rows }));
    return moe_up_bwd_weight(r->ex, (MoeUpBwdWeight){ .dpre = s->pre,
                                                      .x = s->norm.y,
                                                      .offsets = s->offsets,
                                                      .row_token = s->row_token,
                                                      .dw = r->weights->dw[ROLE_EXPERT_GATE_UP],
                                                      .rows = rows });
}

static Status shared_backward_input(LayerRun *r)
{
    MoeState *s = r->state;
    if (r->layer->as.moe.shared_ffn == 0) return OK;
    TRY(tensor_new2(r->ring, r->spec->act, layer_tokens(r), r->spec->hidden, &s->dy_shared));
    return layer_mlp_backward_input(r, &s->shared, s->norm.y, r->dh_out, s->dy_shared,
                                    RECOMPUTE_SHARED);
}

static Status shared_backward_weight(LayerRun *r)
{
    MoeState *s = r->state;
    if (r->layer->as.moe.shared_ffn == 0) return OK;
    return layer_mlp_backward_weight(r, &s->shared, s->norm.y, r->dh_out);
}

/* All ways into y meet here: routed rows, shared experts, router. */
static Status route_backward_input(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    Tensor dy;
    TRY(tensor_new2(r->scratch, r->spec->act, layer_tokens(r), r->spec->hidden, &dy));
    TRY(moe_combine(
        r->ex, (MoeCombine){
                   .out = s->dx_rows, .slot_row = s->slot_row, .shared = s->dy_shared, .y = dy }));
    /* The logits' last reader: their gradient takes their place. */
    TRY(route_bwd(r->ex, (RouteBwd){ .logits = s->logits,
                                     .index = s->index,
                                     .seq_count = s->seq_count,
                                     .dweight = s->dweight,
                                     .dlogits = s->logits,
                                     .rule = m->rule }));
    TRY(linear_bwd_input(
        r->ex,
        (LinearBwdInput){ .dy = s->logits, .w = r->weights->w[ROLE_ROUTER], .r = dy, .dx = dy }));
    return layer_norm_backward(r, &s->norm, dy);
}

static Status route_backward_weight(LayerRun *r)
{
    MoeState *s = r->state;
    return linear_bwd_weight(
        r->ex,
        (LinearBwdWeight){ .dy = s->logits, .x = s->norm.y, .dw = r->weights->dw[ROLE_ROUTER] });
}

static const Phase phases[] = {
    { "route", LANE_COMPUTE, route_forward, route_backward_input, route_backward_weight },
    { "shared", LANE_COMPUTE, shared_forward, shared_backward_input, shared_backward_weight },
    { "experts", LANE_COMPUTE, experts_forward, experts_backward_input, experts_backward_weight },
    { "combine", LANE_COMPUTE, combine_forward, NULL, NULL },
};

const LayerDesc layer_moe = {
    .name = "moe",
    .state_bytes = sizeof(MoeState),
    .params = params,
    .prepare = prepare,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
};
