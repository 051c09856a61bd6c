/* moe_params: the parameters of a MoE layer under their names in the whole model. Nothing here computes. The order
 * matters: parameters of one role must follow each other, because they form one fused matrix (matrix_grow). */
#include "engine/model/moe.h"

/* The shared experts of a layer are one MLP, as wide as all of them together. */
static Status shared_params(const MoeSpec *m, int64_t d, int i, ParamList *out)
{
    ParamAdd half = { ROLE_GATE_UP, -1, m->shared_ffn, d, INIT_NORMAL, .decay = true };
    TRY(params_add(out, half, "model.layers.%d.mlp.shared_experts.gate_proj.weight", i));
    TRY(params_add(out, half, "model.layers.%d.mlp.shared_experts.up_proj.weight", i));
    TRY(params_add(out, (ParamAdd){ ROLE_DOWN, -1, d, m->shared_ffn, INIT_NORMAL, .decay = true },
                   "model.layers.%d.mlp.shared_experts.down_proj.weight", i));
    if (!m->shared_gate) return OK;
    return params_add(out, (ParamAdd){ ROLE_SHARED_GATE, -1, 1, d, INIT_NORMAL, .decay = true },
                      "model.layers.%d.mlp.shared_expert_gate.weight", i);
}

/* gate and up of an expert follow each other, like the rows of its matrix. Biases have no weight
 * decay. Of ranks that share an expert the first adds its bias to the sum. */
static Status expert_bias_params(const ModelSpec *s, const MoeSpec *m, int i, ParamList *out)
{
    const int here = (int)spec_experts_here(&s->ranks, m->experts);
    const int first = (int)spec_first_expert(&s->ranks, m->experts);
    const int64_t f = m->ffn * s->ranks.etp;
    for (int e = 0; e < here; e++) {
        ParamAdd half = { ROLE_EXPERT_GATE_UP_BIAS, e, 0, f, INIT_ZERO, .split = SPLIT_ROWS };
        TRY(params_add(out, half, "model.layers.%d.mlp.experts.%d.gate_proj.bias", i, first + e));
        TRY(params_add(out, half, "model.layers.%d.mlp.experts.%d.up_proj.bias", i, first + e));
    }
    for (int e = 0; e < here && s->ranks.ep_rank % s->ranks.etp == 0; e++) {
        TRY(params_add(
            out, (ParamAdd){ ROLE_EXPERT_DOWN_BIAS, e, 0, s->hidden, INIT_ZERO, .state = false },
            "model.layers.%d.mlp.experts.%d.down_proj.bias", i, first + e));
    }
    return OK;
}

/* The parameters of this rank's experts, under their names in the whole model. They come last in
 * the layer because their shard group is another one. */
static Status expert_params(const ModelSpec *s, const MoeSpec *m, int i, ParamList *out)
{
    int64_t d = s->hidden, f = m->ffn * s->ranks.etp;
    const int here = (int)spec_experts_here(&s->ranks, m->experts);
    const int first = (int)spec_first_expert(&s->ranks, m->experts);
    for (int e = 0; e < here; e++) {
        ParamAdd half = { ROLE_EXPERT_GATE_UP, e, f, d, INIT_NORMAL, .decay = true,
                          .split = SPLIT_ROWS };
        TRY(params_add(out, half, "model.layers.%d.mlp.experts.%d.gate_proj.weight", i, first + e));
        TRY(params_add(out, half, "model.layers.%d.mlp.experts.%d.up_proj.weight", i, first + e));
    }
    for (int e = 0; e < here; e++) {
        TRY(params_add(out,
                       (ParamAdd){ ROLE_EXPERT_DOWN, e, d, f, INIT_NORMAL, .decay = true,
                                   .split = SPLIT_COLS },
                       "model.layers.%d.mlp.experts.%d.down_proj.weight", i, first + e));
    }
    return m->expert_bias ? expert_bias_params(s, m, i, out) : OK;
}

/* The router stays in f32: its logits decide, and small differences between them matter. */
Status moe_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const MoeSpec *m = &l->as.moe;
    int64_t d = s->hidden;
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
    if (m->shift)
        TRY(params_add(
            out, (ParamAdd){ ROLE_ROUTER_SHIFT, -1, 0, m->experts, INIT_ZERO, .keep_f32 = true },
            "model.layers.%d.mlp.router.bias", i));
    if (m->shared_ffn > 0) TRY(shared_params(m, d, i, out));
    return expert_params(s, m, i, out);
}
