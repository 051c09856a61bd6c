/* layouts: the tables of names. Sources: the state dict adapters of TorchTitan 0.3.0, and the
 * sharded_state_dict functions of Megatron-Core 0.16. */
#include "dcp/layouts.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS  "layers."
#define OURS    "model." LAYERS "#."
#define EXPERT  OURS "mlp.experts.#."
#define DECODER "decoder." LAYERS
#define MODULES "mtp." LAYERS

/* ---- TorchTitan ---- */

#define TITAN(ours, theirs)                                                                        \
    {                                                                                              \
        1, OURS ours, "layers.#." theirs, 0                                                        \
    }
#define TITAN_EXPERT(matrix, old, new)                                                             \
    { 1, EXPERT matrix "_proj.weight", "layers.#.moe.routed_experts.inner_experts." new,           \
      LAYOUT_STACKED },                                                                            \
    {                                                                                              \
        1, EXPERT matrix "_proj.weight", "layers.#.moe.experts." old, LAYOUT_STACKED               \
    }

/* Of two names for a parameter the second is the one before 0.3.0. */
static const TensorRule titan[] = {
    { 1, "model.embed_tokens.weight", "tok_embeddings.weight", 0 },
    { 1, "model.norm.weight", "norm.weight", 0 },
    { 1, "lm_head.weight", "lm_head.weight", 0 },
    { 1, "lm_head.weight", "output.weight", 0 },
    TITAN("input_layernorm.weight", "attention_norm.weight"),
    TITAN("post_attention_layernorm.weight", "ffn_norm.weight"),
    TITAN("self_attn.q_proj.weight", "attention.qkv_linear.wq.weight"),
    TITAN("self_attn.q_proj.weight", "attention.wq.weight"),
    TITAN("self_attn.k_proj.weight", "attention.qkv_linear.wk.weight"),
    TITAN("self_attn.k_proj.weight", "attention.wk.weight"),
    TITAN("self_attn.v_proj.weight", "attention.qkv_linear.wv.weight"),
    TITAN("self_attn.v_proj.weight", "attention.wv.weight"),
    TITAN("self_attn.o_proj.weight", "attention.wo.weight"),
    TITAN("self_attn.q_norm.weight", "attention.q_norm.weight"),
    TITAN("self_attn.k_norm.weight", "attention.k_norm.weight"),
    TITAN("self_attn.q_a_proj.weight", "attention.wq_a.weight"),
    TITAN("self_attn.q_a_layernorm.weight", "attention.q_norm.weight"),
    TITAN("self_attn.q_b_proj.weight", "attention.wq_b.weight"),
    TITAN("self_attn.kv_a_proj_with_mqa.weight", "attention.wkv_a.weight"),
    TITAN("self_attn.kv_a_layernorm.weight", "attention.kv_norm.weight"),
    TITAN("self_attn.kv_b_proj.weight", "attention.wkv_b.weight"),
    TITAN("mlp.gate_proj.weight", "feed_forward.w1.weight"),
    TITAN("mlp.up_proj.weight", "feed_forward.w3.weight"),
    TITAN("mlp.down_proj.weight", "feed_forward.w2.weight"),
    TITAN("mlp.gate.weight", "moe.router.gate.weight"),
    TITAN("mlp.gate.e_score_correction_bias", "moe.expert_bias_E"),
    TITAN("mlp.gate.e_score_correction_bias", "moe.expert_bias"),
    TITAN("mlp.shared_experts.gate_proj.weight", "moe.shared_experts.w1.weight"),
    TITAN("mlp.shared_experts.up_proj.weight", "moe.shared_experts.w3.weight"),
    TITAN("mlp.shared_experts.down_proj.weight", "moe.shared_experts.w2.weight"),
    TITAN_EXPERT("gate", "w1", "w1_EFD"),
    TITAN_EXPERT("up", "w3", "w3_EFD"),
    TITAN_EXPERT("down", "w2", "w2_EDF"),
    TITAN("enorm.weight", "enorm.weight"),
    TITAN("hnorm.weight", "hnorm.weight"),
    TITAN("eh_proj.weight", "eh_proj.weight"),
    TITAN("shared_head.norm.weight", "mtp_norm.weight"),
};

/* ---- Megatron-Core ---- */

/* Layers that are all alike lie in one tensor; others have their numbers. */
#define MEGATRON(ours, theirs, layout)                                                             \
    { 1, OURS ours, DECODER theirs, LAYOUT_LAYERS | (layout) },                                    \
    {                                                                                              \
        1, OURS ours, DECODER "#." theirs, layout                                                  \
    }
#define MEGATRON_MLP(ours, theirs, layout)                                                         \
    MEGATRON(ours "gate_proj.weight", theirs "linear_fc1.weight", LAYOUT_GATE | (layout)),         \
        MEGATRON(ours "up_proj.weight", theirs "linear_fc1.weight", LAYOUT_UP | (layout)),         \
        MEGATRON(ours "down_proj.weight", theirs "linear_fc2.weight", layout)

/* Only modules of multi-token prediction have it. */
#define MEGATRON_MODULE(ours, theirs)                                                              \
    {                                                                                              \
        1, OURS ours, MODULES "#." theirs, 0                                                       \
    }

/* Norms lie in the product behind them where Transformer Engine computes both. */
static const TensorRule megatron[] = {
    { 1, "model.embed_tokens.weight", "embedding.word_embeddings.weight", 0 },
    { 1, "model.norm.weight", "decoder.final_layernorm.weight", 0 },
    { 1, "lm_head.weight", "output_layer.weight", 0 },
    MEGATRON("input_layernorm.weight", "input_layernorm.weight", 0),
    MEGATRON("input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight", 0),
    MEGATRON("post_attention_layernorm.weight", "pre_mlp_layernorm.weight", 0),
    MEGATRON("post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight", 0),
    MEGATRON("self_attn.q_proj.weight", "self_attention.linear_qkv.weight", LAYOUT_QUERY),
    MEGATRON("self_attn.k_proj.weight", "self_attention.linear_qkv.weight", LAYOUT_KEY),
    MEGATRON("self_attn.v_proj.weight", "self_attention.linear_qkv.weight", LAYOUT_VALUE),
    MEGATRON("self_attn.q_proj.bias", "self_attention.linear_qkv.bias", LAYOUT_QUERY),
    MEGATRON("self_attn.k_proj.bias", "self_attention.linear_qkv.bias", LAYOUT_KEY),
    MEGATRON("self_attn.v_proj.bias", "self_attention.linear_qkv.bias", LAYOUT_VALUE),
    MEGATRON("self_attn.o_proj.weight", "self_attention.linear_proj.weight", 0),
    MEGATRON("self_attn.q_norm.weight", "self_attention.q_layernorm.weight", 0),
    MEGATRON("self_attn.k_norm.weight", "self_attention.k_layernorm.weight", 0),
    MEGATRON("self_attn.q_proj.weight", "self_attention.linear_q_proj.weight", 0),
    MEGATRON("self_attn.q_a_proj.weight", "self_attention.linear_q_down_proj.weight", 0),
    MEGATRON("self_attn.q_a_layernorm.weight", "self_attention.linear_q_up_proj.layer_norm_weight",
             0),
    MEGATRON("self_attn.q_a_layernorm.weight", "self_attention.q_layernorm.weight", 0),
    MEGATRON("self_attn.q_b_proj.weight", "self_attention.linear_q_up_proj.weight", 0),
    MEGATRON("self_attn.kv_a_proj_with_mqa.weight", "self_attention.linear_kv_down_proj.weight", 0),
    MEGATRON("self_attn.kv_a_layernorm.weight",
             "self_attention.linear_kv_up_proj.layer_norm_weight", 0),
    MEGATRON("self_attn.kv_a_layernorm.weight", "self_attention.kv_layernorm.weight", 0),
    MEGATRON("self_attn.kv_b_proj.weight", "self_attention.linear_kv_up_proj.weight", 0),
    MEGATRON_MLP("mlp.", "mlp.", 0),
    MEGATRON("mlp.gate.weight", "mlp.router.weight", 0),
    MEGATRON("mlp.gate.e_score_correction_bias", "mlp.router.expert_bias", 0),
    MEGATRON_MLP("mlp.shared_experts.", "mlp.shared_experts.", 0),
    MEGATRON("mlp.shared_expert_gate.weight", "mlp.shared_experts.gate_weight", 0),
    MEGATRON_MLP("mlp.experts.#.", "mlp.experts.experts.", LAYOUT_STACKED),
    MEGATRON_MODULE("enorm.weight", "enorm.weight"),
    MEGATRON_MODULE("hnorm.weight", "hnorm.weight"),
    MEGATRON_MODULE("eh_proj.weight", "eh_proj.weight"),
    MEGATRON_MODULE("shared_head.norm.weight", "final_layernorm.weight"),
};

const DcpLayout dcp_layouts[] = {
    { "TorchTitan", "tok_embeddings.weight", titan, sizeof titan / sizeof *titan, false },
    { "Megatron-Core", "embedding.word_embeddings.weight", megatron,
      sizeof megatron / sizeof *megatron, true },
    { "transformers", "model.embed_tokens.weight", NULL, 0, false },
};
const int dcp_layout_count = sizeof dcp_layouts / sizeof *dcp_layouts;

/* TorchTitan rotates neighbours in Llama and DeepSeek, and halves in Qwen3, whose heads alone are normed.
 * Megatron-Core rotates neighbours in latent attention, and halves elsewhere. */
bool dcp_layout_pairs(const DcpLayout *l, const Config *c, bool hf_pairs)
{
    const bool latent = c->attention_kind == ATTENTION_MLA;
    if (l->rule == NULL) return hf_pairs;
    return latent || (l->rule == titan && c->attention_qk_norm == QK_NORM_NONE);
}

/* Modules of multi-token prediction have numbers of their own. `before` becomes `after`, and `inner` follows the
 * number. */
static void number_module(int64_t layers, const char *before, const char *after, const char *inner,
                          FamilyTensor *t)
{
    char rest[PARAM_NAME_MAX], *end = NULL;
    if (!text_starts(t->name, before)) return;
    const int64_t layer = strtoll(t->name + strlen(before), &end, 10);
    if (layer < layers) return;
    (void)snprintf(rest, sizeof rest, "%s", end);
    (void)text_add(t->name, sizeof t->name, 0, "%s%lld%s%s", after, (long long)(layer - layers),
                   inner, rest);
}

/* Modules are never stacked. Of two names for the layer inside the second is that of versions after 0.16. */
static bool megatron_module(const DcpLayout *l, const Param *p, const Config *c, int choice,
                            FamilyTensor *out)
{
    int left = choice / 2, i = 0;
    for (;; i++) {
        if (family_rule(l->rule, l->rules, 1, p, c->moe_experts, i, out) <= i) return false;
        if ((out->layout & LAYOUT_LAYERS) == 0 && left-- == 0) break;
    }
    number_module(c->model_layers, DECODER, MODULES,
                  choice % 2 == 0 ? ".transformer_layer" : ".mtp_model_layer", out);
    number_module(c->model_layers, MODULES, MODULES, "", out);
    return true;
}

/* The rows of all heads are one tensor; a view of it is made by the caller. */
static void fuse_heads(const Config *c, FamilyTensor *t)
{
    const int64_t heads = c->attention_heads + 2 * c->attention_kv_heads;
    t->dim[0] = heads * c->attention_head_dim;
}

static void stack_layers(const Config *c, int64_t block, FamilyTensor *t)
{
    const int64_t parts = (t->layout & LAYOUT_STACKED) != 0 ? t->dim[0] : 1;
    for (int i = t->rank; i > 0; i--) t->dim[i] = t->dim[i - 1];
    t->dim[0] = c->model_layers;
    t->rank++;
    t->expert += block * parts;
}

bool dcp_layout_tensor(const DcpLayout *l, unsigned family, const Param *p, const Config *c,
                       int choice, FamilyTensor *out)
{
    const int64_t block = param_block(p->name);
    if (l->rule == NULL) return family_tensor(family, p, c->moe_experts, choice, out);
    if (l->rule == megatron && block >= c->model_layers) {
        if (!megatron_module(l, p, c, choice, out)) return false;
    } else if (family_rule(l->rule, l->rules, 1, p, c->moe_experts, choice, out) <= choice) {
        return false;
    }
    if ((out->layout & (LAYOUT_QUERY | LAYOUT_KEY | LAYOUT_VALUE)) != 0) fuse_heads(c, out);
    if ((out->layout & LAYOUT_LAYERS) != 0) stack_layers(c, block, out);
    if (l->rule == titan) number_module(c->model_layers, LAYERS, "mtp_" LAYERS, "", out);
    return true;
}

bool dcp_layout_leaves_out(const char *key)
{
    static const char *const parts[] = { "optimizer.",
                                         "optim.",
                                         "state.",
                                         "param_groups.",
                                         "lr_scheduler",
                                         "dataloader",
                                         "train_state",
                                         "rng_state",
                                         "rerun_state_machine_state",
                                         "opt_param_scheduler",
                                         "checkpoint_version",
                                         "iteration" };
    if (text_starts(key, "chained_")) key += strcspn(key, ".") + 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (text_starts(key, parts[i])) return true;
    return strstr(key, "_extra_state") != NULL || text_ends(key, "tokens_per_expert") ||
           text_ends(key, "tokens_per_expert_E") || text_ends(key, "freqs_cis") ||
           text_ends(key, "rotary_emb.inv_freq");
}
