/* family: the table of families, and the tables of the names and layouts of their tensors. The settings
 * of config.json are in fields.c. */
#include "convert/family.h"

#include "convert/weights.h"
#include "engine/base/text.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* to-hf tries them in this order, so simpler models stand first. */
const Family families[] = {
    { "llama", "LlamaForCausalLM", LLAMA },
    { "qwen3", "Qwen3ForCausalLM", QWEN3 },
    { "mixtral", "MixtralForCausalLM", MIXTRAL },
    { "qwen3_moe", "Qwen3MoeForCausalLM", QWEN3_MOE },
    { "olmoe", "OlmoeForCausalLM", OLMOE },
    { "qwen2_moe", "Qwen2MoeForCausalLM", QWEN2_MOE },
    { "qwen3_next", "Qwen3NextForCausalLM", QWEN3_NEXT },
    { "deepseek_v2", "DeepseekV2ForCausalLM", DEEPSEEK_V2 },
    { "deepseek_v3", "DeepseekV3ForCausalLM", DEEPSEEK_V3 },
    { "kimi_k2", NULL, DEEPSEEK_V3 },
    { "glm4_moe", "Glm4MoeForCausalLM", GLM4_MOE },
    { "llama4_text", "Llama4ForCausalLM", LLAMA4 },
    { "gpt_oss", "GptOssForCausalLM", GPT_OSS },
};
const int family_count = sizeof families / sizeof *families;

#define LAYER  "model.layers.#."
#define EXPERT LAYER "mlp.experts.#."

/* Rules for the three matrices of an MLP, each in a tensor of its own. */
#define MLP(families, ours, theirs)                                                                \
    { families, ours "gate_proj.weight", theirs "gate_proj.weight", 0 },                           \
        { families, ours "up_proj.weight", theirs "up_proj.weight", 0 },                           \
    {                                                                                              \
        families, ours "down_proj.weight", theirs "down_proj.weight", 0                            \
    }
/* Rules for the MLPs of all experts in two tensors, where gate and up are one. Names of ours end in
 * `end`, of theirs in `their_end`. `fused` has more layout bits of the first tensor, `both` of both. */
#define STACKED(families, end, their, their_end, fused, both)                                      \
    { families, EXPERT "gate_proj." end, LAYER their "gate_up_proj" their_end,                     \
      LAYOUT_STACKED | LAYOUT_GATE | (fused) | (both) },                                           \
        { families, EXPERT "up_proj." end, LAYER their "gate_up_proj" their_end,                   \
          LAYOUT_STACKED | LAYOUT_UP | (fused) | (both) },                                         \
    {                                                                                              \
        families, EXPERT "down_proj." end, LAYER their "down_proj" their_end,                      \
            LAYOUT_STACKED | (both)                                                                \
    }

#define CENTRED(name)                                                                              \
    {                                                                                              \
        QWEN3_NEXT, name ".weight", name ".weight", LAYOUT_CENTRED                                 \
    }

/* A reader tries a parameter's rules in this order; to-hf writes the first. The stacked rules of the
 * last block are how transformers 5 holds experts in memory. */
static const TensorRule rules[] = {
    { MIXTRAL, LAYER "mlp.gate.weight", LAYER "block_sparse_moe.gate.weight", 0 },
    { MIXTRAL, EXPERT "gate_proj.weight", LAYER "block_sparse_moe.experts.#.w1.weight", 0 },
    { MIXTRAL, EXPERT "up_proj.weight", LAYER "block_sparse_moe.experts.#.w3.weight", 0 },
    { MIXTRAL, EXPERT "down_proj.weight", LAYER "block_sparse_moe.experts.#.w2.weight", 0 },
    { LLAMA4, LAYER "mlp.gate.weight", LAYER "feed_forward.router.weight", 0 },
    STACKED(LLAMA4, "weight", "feed_forward.experts.", "", 0, LAYOUT_TRANSPOSED),
    MLP(LLAMA4, LAYER "mlp.shared_experts.", LAYER "feed_forward.shared_expert."),
    MLP(LLAMA4, LAYER "mlp.", LAYER "feed_forward."),
    MLP(QWEN2_MOE | QWEN3_NEXT, LAYER "mlp.shared_experts.", LAYER "mlp.shared_expert."),
    { GPT_OSS, LAYER "mlp.gate.weight", LAYER "mlp.router.weight", 0 },
    STACKED(GPT_OSS, "weight", "mlp.experts.", "", LAYOUT_ALTERNATE, LAYOUT_TRANSPOSED),
    STACKED(GPT_OSS, "weight", "mlp.experts.", "_blocks", LAYOUT_ALTERNATE, LAYOUT_MXFP4),
    STACKED(GPT_OSS, "bias", "mlp.experts.", "_bias", LAYOUT_ALTERNATE, 0),
    MLP(FAMILY_MOE & ~(MIXTRAL | LLAMA4 | GPT_OSS), EXPERT, EXPERT),
    STACKED(FAMILY_MOE & ~(LLAMA4 | GPT_OSS), "weight", "mlp.experts.", "", 0, 0),
    { MIXTRAL, LAYER "mlp.gate.weight", LAYER "mlp.gate.weight", 0 },
    CENTRED(LAYER "input_layernorm"),
    CENTRED(LAYER "post_attention_layernorm"),
    CENTRED(LAYER "self_attn.q_norm"),
    CENTRED(LAYER "self_attn.k_norm"),
    CENTRED("model.norm"),
    { QWEN3_NEXT, LAYER "linear_attn.conv1d.weight", LAYER "linear_attn.conv1d.weight",
      LAYOUT_CHANNELS },
};

enum { RULES = sizeof rules / sizeof *rules };

/* Tensors that are left out. A * at an end stands for any text. */
static const struct {
    unsigned families;
    const char *name;
} left_out[] = {
    { FAMILY_ALL, "*.rotary_emb.inv_freq" },
    { LLAMA4, "vision_model.*" },
    { QWEN3_NEXT, "mtp.*" },
    { LLAMA4, "multi_modal_projector.*" },
};

/* ---- patterns ---- */

/* Does the name match the pattern? number: the numbers that the name has in place of #. */
static bool match_pattern(const char *pattern, const char *name, long number[2])
{
    int n = 0;
    for (; *pattern != '\0'; pattern++) {
        char *end = NULL;
        if (*pattern != '#') {
            if (*pattern != *name++) return false;
            continue;
        }
        if (!isdigit((unsigned char)*name) || n == 2) return false;
        number[n++] = strtol(name, &end, 10);
        name = end;
    }
    return *name == '\0';
}

/* The reverse: writes the pattern with the numbers in place of #. */
static void fill_pattern(char out[PARAM_NAME_MAX], const char *pattern, const long number[2])
{
    int used = 0, n = 0;
    for (; *pattern != '\0' && used < PARAM_NAME_MAX - 1; pattern++) {
        assert(*pattern != '#' || n < 2);
        if (*pattern == '#')
            used += snprintf(out + used, (size_t)(PARAM_NAME_MAX - used), "%ld", number[n++]);
        else
            out[used++] = *pattern;
    }
    out[used < PARAM_NAME_MAX ? used : PARAM_NAME_MAX - 1] = '\0';
}

/* ---- layouts ---- */

/* Computes the tensor's shape, and where in it the parameter's elements are. `outputs` counts the rows
 * of the tensor for one expert: twice the parameter's if gate and up are fused. */
static void set_layout(const Param *p, unsigned layout, int64_t experts, long expert,
                       FamilyTensor *t)
{
    bool fused = (layout & (LAYOUT_GATE | LAYOUT_UP)) != 0;
    bool matrix = p->rank == 2, flipped = matrix && (layout & LAYOUT_TRANSPOSED) != 0;
    t->layout = layout;
    t->rows = p->dim[0];
    t->cols = matrix ? p->dim[1] : 1;
    int64_t outputs = fused ? 2 * t->rows : t->rows;
    t->row_step = flipped ? 1 : t->cols;
    t->col_step = flipped ? outputs : 1;
    if (layout & LAYOUT_UP) t->first = t->row_step * (layout & LAYOUT_ALTERNATE ? 1 : t->rows);
    if (layout & LAYOUT_ALTERNATE) t->row_step *= 2;
    if (layout & LAYOUT_STACKED) {
        t->dim[t->rank++] = experts;
        t->expert = expert;
    }
    t->dim[t->rank++] = flipped ? t->cols : outputs;
    if (layout & LAYOUT_CHANNELS) t->dim[t->rank++] = 1;
    if (matrix) t->dim[t->rank++] = flipped ? outputs : t->cols;
    if ((layout & LAYOUT_MXFP4) == 0) return;
    t->dim[t->rank - 1] = t->cols / WEIGHTS_GROUP;
    t->dim[t->rank++] = WEIGHTS_GROUP / 2;
}

/* MXFP4 needs whole groups of 32 along a row, so its rules do not apply to other widths. */
int family_rule(const TensorRule *rule, int n, unsigned family, const Param *p, int64_t experts,
                int choice, FamilyTensor *out)
{
    int seen = 0;
    *out = (FamilyTensor){ 0 };
    for (int i = 0; i < n; i++) {
        long number[2] = { 0, 0 };
        bool whole = (rule[i].layout & LAYOUT_MXFP4) == 0 || p->dim[1] % WEIGHTS_GROUP == 0;
        if ((rule[i].families & family) == 0 || !whole) continue;
        if (!match_pattern(rule[i].ours, p->name, number)) continue;
        if (seen++ < choice) continue;
        fill_pattern(out->name, rule[i].theirs, number);
        set_layout(p, rule[i].layout, experts, number[1], out);
        break;
    }
    return seen;
}

/* Without any rule the name is the same on both sides. */
bool family_tensor(unsigned family, const Param *p, int64_t experts, int choice, FamilyTensor *out)
{
    const int seen = family_rule(rules, RULES, family, p, experts, choice, out);
    if (seen > choice) return true;
    if (seen > 0 || choice > 0) return false;
    (void)snprintf(out->name, sizeof out->name, "%s", p->name);
    set_layout(p, 0, experts, 0, out);
    return true;
}

bool family_copy(const Config *c, int i, char name[PARAM_NAME_MAX], const char **of)
{
    static const char *const copies[] = { "embed_tokens.weight", "shared_head.head.weight" };
    if (i >= 2 * c->mtp_layers) return false;
    (void)snprintf(name, PARAM_NAME_MAX, "model.layers.%lld.%s", (long long)c->model_layers + i / 2,
                   copies[i % 2]);
    *of = i % 2 == 0 || c->model_tied ? "model.embed_tokens.weight" : "lm_head.weight";
    return true;
}

/* Modules of multi-token prediction that config.json does not count have block numbers behind the
 * model's layers. */
bool family_leaves_out(unsigned family, const Config *c, const char *name)
{
    if (param_block(name) >= c->model_layers + c->mtp_layers)
        return (family & (DEEPSEEK_V3 | GLM4_MOE)) != 0;
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        const char *pattern = left_out[i].name;
        char part[64];
        if ((left_out[i].families & family) == 0) continue;
        if (*pattern == '*' && text_ends(name, pattern + 1)) return true;
        (void)snprintf(part, sizeof part, "%.*s", (int)strlen(pattern) - 1, pattern);
        if (*pattern != '*' && text_starts(name, part)) return true;
    }
    return false;
}
