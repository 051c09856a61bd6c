/* mlp: h_out = h + W_down swiglu(W_gate_up norm(h)): the dense layer. Kept for backward: y, the
 * pre-activation, the activation. The shared experts of a MoE layer use the MLP itself, too. */
#include "engine/model/mlp.h"

#include "kernels/moe/swiglu.h"

/* ---- the MLP: (N, D) to (N, D) ---- */

/* gu (tokens, 2F): gate in the first F columns, up in the others. */
static Status mlp_pre_activation(LayerRun *r, MlpState *m, Operand y, Arena *arena)
{
    Operand w = r->weights->w[ROLE_GATE_UP];
    TRY(tensor_new2(arena, r->spec->act, y.data.dim[0], w.data.dim[0], &m->gu));
    return recipe_forward(r, ROLE_GATE_UP, y, (Tensor){ 0 }, m->gu);
}

static Status mlp_activation(LayerRun *r, MlpState *m, ActivationArenas at)
{
    TRY(recipe_new(r, ROLE_DOWN, SIDE_FORWARD, m->gu.dim[0], m->gu.dim[1] / 2, at, &m->act));
    return swiglu_fwd(r->ex,
                      (SwigluFwd){ .gu = m->gu,
                                   .y = m->act.x,
                                   .glu = m->glu,
                                   .quant = recipe_output(r, ROLE_DOWN, SIDE_FORWARD, &m->act) });
}

/* forward:  gu = W_gate_up y,  act = silu(gate) * up,  out = W_down act + residual
 * A second forward (recomputing) stops at act, because backward does not read out. */
static Status mlp_from_pre_activation(LayerRun *r, MlpState *m, Tensor residual, Tensor out,
                                      unsigned piece)
{
    TRY(mlp_activation(r, m,
                       (ActivationArenas){ .x = layer_arena(r, piece),
                                           .rows = r->scratch,
                                           .columns = recipe_keeps(r, piece) }));
    if (r->recomputing) return OK;
    return recipe_forward(r, ROLE_DOWN, m->act.rows, residual, out);
}

Status mlp_forward(LayerRun *r, MlpState *m, Operand y, Tensor residual, Tensor out,
                   unsigned gu_piece)
{
    TRY(mlp_pre_activation(r, m, y, layer_arena(r, gu_piece)));
    return mlp_from_pre_activation(r, m, residual, out, gu_piece | RECOMPUTE_ACT);
}

Status mlp_backward_input(LayerRun *r, MlpState *m, Operand y, Tensor dout, Tensor dy,
                          unsigned gu_piece)
{
    const ActivationArenas ring = { .x = r->ring, .columns = r->ring };
    if (layer_arena(r, gu_piece) == r->ring) TRY(mlp_pre_activation(r, m, y, r->ring));
    if (layer_arena(r, gu_piece | RECOMPUTE_ACT) == r->ring) TRY(mlp_activation(r, m, ring));
    Activation out, dgu;
    Tensor dact;
    int64_t n = m->gu.dim[0], f = m->gu.dim[1] / 2;
    TRY(recipe_operands(r, ROLE_DOWN, SIDE_GRADIENT, dout, r->scratch, r->ring, &out));
    TRY(tensor_new2(r->scratch, r->spec->act, n, f, &dact));
    TRY(recipe_backward_input(r, ROLE_DOWN, out.rows, (Tensor){ 0 }, dact));
    /* Nothing reads the pre-activation after this op, so its gradient may overwrite it. */
    TRY(recipe_new(r, ROLE_GATE_UP, SIDE_GRADIENT, n, 2 * f,
                   (ActivationArenas){ .rows = r->scratch, .columns = r->ring, .over = m->gu },
                   &dgu));
    TRY(swiglu_bwd(r->ex,
                   (SwigluBwd){ .dy = dact,
                                .gu = m->gu,
                                .dgu = dgu.x,
                                .glu = m->glu,
                                .quant = recipe_output(r, ROLE_GATE_UP, SIDE_GRADIENT, &dgu) }));
    m->dout = out.columns, m->dgu = dgu.columns;
    return recipe_backward_input(r, ROLE_GATE_UP, dgu.rows, (Tensor){ 0 }, dy);
}

/* dW_down += dout^T act,  dW_gate_up += dgu^T y. */
Status mlp_backward_weight(LayerRun *r, const MlpState *m, Operand y)
{
    TRY(recipe_backward_weight(r, ROLE_DOWN, m->dout, m->act.columns));
    return recipe_backward_weight(r, ROLE_GATE_UP, m->dgu, y);
}

/* ---- the layer ---- */

typedef struct MlpLayerState {
    StreamState stream;
    MlpState mlp;
} MlpLayerState;

/* Gate before up, so that both are one fused matrix: gate | up. */
static Status mlp_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    int64_t d = s->hidden, f = l->as.ffn * s->ranks.tp;
    int i = l->block;
    TRY(params_add(out, (ParamAdd){ ROLE_NORM, -1, 0, d, INIT_ONE, .keep_f32 = true },
                   "model.layers.%d.post_attention_layernorm.weight", i));
    ParamAdd matrix = { ROLE_GATE_UP, -1, f, d, INIT_NORMAL, .decay = true, .split = SPLIT_ROWS };
    TRY(params_add(out, matrix, "model.layers.%d.mlp.gate_proj.weight", i));
    TRY(params_add(out, matrix, "model.layers.%d.mlp.up_proj.weight", i));
    return params_add(
        out, (ParamAdd){ ROLE_DOWN, -1, d, f, INIT_NORMAL, .decay = true, .split = SPLIT_COLS },
        "model.layers.%d.mlp.down_proj.weight", i);
}

static const NormUse norm_use = { .role = ROLE_GATE_UP, .all_tokens = true };

/* gu of this rank's rows, or of the others'. */
static Status mlp_pre_activation_runs(LayerRun *r, const MlpState *m, bool own)
{
    Operand x;
    Tensor gu;
    for (int64_t i = 0; stream_next_run(r, own, &i, m->gu, &x, &gu);)
        TRY(recipe_forward(r, ROLE_GATE_UP, x, (Tensor){ 0 }, gu));
    return OK;
}

static Status dense_own(LayerRun *r)
{
    MlpLayerState *s = r->state;
    const int64_t columns = r->weights->w[ROLE_GATE_UP].data.dim[0];
    if (!stream_begins(r, ROLE_GATE_UP)) return OK;
    TRY(tensor_new2(layer_arena(r, 0), r->spec->act, r->tokens, columns, &s->mlp.gu));
    return mlp_pre_activation_runs(r, &s->mlp, true);
}

static Status dense_forward(LayerRun *r)
{
    MlpLayerState *s = r->state;
    Tensor residual, out;
    TRY(layer_norm_forward(r, &s->stream.norm, norm_use));
    TRY(stream_out(r, &residual, &out));
    if (stream_begins(r, ROLE_GATE_UP)) {
        TRY(mlp_pre_activation_runs(r, &s->mlp, false));
        return mlp_from_pre_activation(r, &s->mlp, residual, out, RECOMPUTE_ACT);
    }
    return mlp_forward(r, &s->mlp, s->stream.norm.y.rows, residual, out, 0);
}

static Status dense_backward_input(LayerRun *r)
{
    MlpLayerState *s = r->state;
    TRY(layer_norm_recompute(r, &s->stream.norm, norm_use));
    Tensor dy;
    TRY(layer_norm_new_gradient(r, &dy));
    TRY(mlp_backward_input(r, &s->mlp, s->stream.norm.y.rows, stream_gradient(r), dy, 0));
    return layer_norm_backward(r, &s->stream.norm, dy);
}

/* Runs after backward_input, which left columns of gradients in s->mlp. */
static Status dense_backward_weight(LayerRun *r)
{
    MlpLayerState *s = r->state;
    return mlp_backward_weight(r, &s->mlp, s->stream.norm.y.columns);
}

static const Phase phases[] = {
    STREAM_NORM(PHASE_ATTENTION),
    STREAM_GATHER(PHASE_DISPATCH),
    STREAM_OWN(dense_own, PHASE_EXPERTS),
    { "mlp", LANE_COMPUTE, dense_forward, dense_backward_input, dense_backward_weight,
      .part = PHASE_EXPERTS },
    STREAM_SCATTER(PHASE_COMBINE),
};

const LayerDesc layer_mlp = {
    .name = "mlp",
    .title = "dense MLP",
    .state_bytes = sizeof(MlpLayerState),
    .params = mlp_params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
};
