/* mlp: h_out = h + W_down swiglu(W_gate_up norm(h)): the dense layer. Kept for backward: y, the
 * pre-activation, the activation. The MLP itself is layer.c's, which the shared experts of a MoE
 * layer use as well. */
#include "model/layer.h"

typedef struct MlpLayerState {
    NormState norm;
    MlpState mlp;
} MlpLayerState;

/* Gate before up, so that both are one fused matrix: gate | up. */
static Status mlp_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    int64_t d = s->hidden, f = l->as.ffn;
    int i = l->block;
    TRY(params_add(out, (ParamAdd){ ROLE_NORM, -1, 0, d, INIT_ONE, .keep_f32 = true },
                   "model.layers.%d.post_attention_layernorm.weight", i));
    ParamAdd matrix = { ROLE_GATE_UP, -1, f, d, INIT_NORMAL, .decay = true };
    TRY(params_add(out, matrix, "model.layers.%d.mlp.gate_proj.weight", i));
    TRY(params_add(out, matrix, "model.layers.%d.mlp.up_proj.weight", i));
    return params_add(out, (ParamAdd){ ROLE_DOWN, -1, d, f, INIT_NORMAL, .decay = true },
                      "model.layers.%d.mlp.down_proj.weight", i);
}

static Status mlp_forward(LayerRun *r)
{
    MlpLayerState *s = r->state;
    TRY(layer_norm_forward(r, &s->norm));
    return layer_mlp_forward(r, &s->mlp, s->norm.y, r->h, r->h_out, 0);
}

/* dy is needed only until the norm has read it, so it lies in scratch. */
static Status mlp_backward_input(LayerRun *r)
{
    MlpLayerState *s = r->state;
    TRY(layer_norm_recompute(r, &s->norm));
    Tensor dy;
    TRY(tensor_new2(r->scratch, r->spec->act, r->tokens, r->spec->hidden, &dy));
    TRY(layer_mlp_backward_input(r, &s->mlp, s->norm.y, r->dh_out, dy, 0));
    return layer_norm_backward(r, &s->norm, dy);
}

/* Runs after backward_input, which left the gradient of the pre-activation in s->mlp.gu. */
static Status mlp_backward_weight(LayerRun *r)
{
    MlpLayerState *s = r->state;
    return layer_mlp_backward_weight(r, &s->mlp, s->norm.y, r->dh_out);
}

static const Phase phases[] = {
    { "mlp", LANE_COMPUTE, mlp_forward, mlp_backward_input, mlp_backward_weight,
      .part = PHASE_EXPERTS },
};

const LayerDesc layer_mlp = {
    .name = "mlp",
    .title = "dense MLP",
    .state_bytes = sizeof(MlpLayerState),
    .params = mlp_params,
    .phases = phases,
    .n_phases = 1,
};
