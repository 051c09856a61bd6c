/* fields: the table of the members of config.json. fields_read.c reads a config.json into settings by it,
 * fields_write.c does the other direction. Rows are read in order, so a row may refer (@NAME) to a
 * setting of an earlier row. */
#include "convert/fields.h"

#include "engine/base/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRED   FIELD_REQUIRED
#define HEAD       FIELD_HEAD
#define NULLABLE   "null=null" /* null says the same as no member */
#define LATENT_EPS "attention.latent_eps"

#define THETA "~rope_theta|+rope_theta"
#define SHARE "~partial_rotary_factor|+partial_rotary_factor"
#define ORIGINAL                                                                                   \
    "original_max_position_embeddings|+~original_max_position_embeddings|max_position_embeddings"

#define BIASED      (LLAMA | QWEN3 | QWEN3_MOE | OLMOE | GPT_OSS | LLAMA4 | QWEN3_NEXT)
#define SHARES      (DEEPSEEK_V2 | DEEPSEEK_V3 | GLM4_MOE)
#define SPARSE_STEP (QWEN2_MOE | QWEN3_MOE | QWEN3_NEXT)
#define EPS_5       (OLMOE | MIXTRAL | GLM4_MOE | LLAMA4 | GPT_OSS)

const Field fields[] = {
    { FAMILY_ALL, QUANT, "quantization_config", NULL, NULL, NULL },
    { FAMILY_ALL, IS, "hidden_act", NULL, "silu", NULL },
    { FAMILY_ALL, SET, "vocab_size", "model.vocab", REQUIRED, NULL },
    { FAMILY_ALL, SET, "hidden_size", "model.hidden", REQUIRED, NULL },
    { FAMILY_ALL, SET, "num_hidden_layers", "model.layers", REQUIRED, NULL },
    { FAMILY_ALL & ~LLAMA4, SET, "intermediate_size", "model.ffn", REQUIRED, NULL },
    { LLAMA4, SET, "intermediate_size_mlp", "model.ffn", REQUIRED, NULL },
    { EPS_5, SET, "rms_norm_eps", "model.norm_eps", "1e-05", NULL },
    { FAMILY_ALL & ~(EPS_5), SET, "rms_norm_eps", "model.norm_eps", "1e-06", NULL },
    { FAMILY_MLA, CONST, NULL, LATENT_EPS, "1e-6", NULL },
    { FAMILY_ALL, SET, "tie_word_embeddings", "model.tied", "false", NULL },
    { FAMILY_ALL, TRAIN, "initializer_range", "model.init_std", NULL, NULL },

    { FAMILY_MLA, CONST, NULL, "attention.kind", "mla", NULL },
    { FAMILY_GQA, CONST, NULL, "attention.kind", "gqa", NULL },
    { FAMILY_ALL, SET, "num_attention_heads", "attention.heads", REQUIRED, NULL },
    { LLAMA | OLMOE, SET, "num_key_value_heads", "attention.kv_heads", "@attention.heads",
      NULLABLE },
    { MIXTRAL | GLM4_MOE | LLAMA4 | GPT_OSS, SET, "num_key_value_heads", "attention.kv_heads", "8",
      NULL },
    { QWEN3, SET, "num_key_value_heads", "attention.kv_heads", "32", NULL },
    { QWEN3_MOE, SET, "num_key_value_heads", "attention.kv_heads", "4", NULL },
    { QWEN2_MOE, SET, "num_key_value_heads", "attention.kv_heads", "16", NULL },
    { QWEN3_NEXT, SET, "num_key_value_heads", "attention.kv_heads", "2", NULL },
    { QWEN3_NEXT, SET, "head_dim", "attention.head_dim", "256", NULL },
    { FAMILY_MLA, WRITE, "num_key_value_heads", "attention.heads", NULL, NULL },
    { LLAMA | MIXTRAL | QWEN3_MOE | QWEN2_MOE | GLM4_MOE, SET, "head_dim", "attention.head_dim",
      HEAD, NULLABLE },
    { OLMOE, IS, "head_dim", NULL, HEAD, NULL },
    { OLMOE, CONST, NULL, "attention.head_dim", HEAD, NULL },
    { QWEN3 | LLAMA4, SET, "head_dim", "attention.head_dim", "128", NULLABLE },
    { GPT_OSS, SET, "head_dim", "attention.head_dim", "64", NULLABLE },
    { FAMILY_MLA, SET, "q_lora_rank", "attention.q_rank", "1536", "null=0" },
    { FAMILY_MLA, SET, "kv_lora_rank", "attention.kv_rank", REQUIRED, NULL },
    { FAMILY_MLA, SET, "qk_nope_head_dim", "attention.nope_dim", REQUIRED, NULL },
    { FAMILY_MLA, SET, "qk_rope_head_dim", "attention.rope_dim", REQUIRED, NULL },
    { FAMILY_MLA, SET, "v_head_dim", "attention.v_dim", REQUIRED, NULL },
    { DEEPSEEK_V3, IS, "head_dim", NULL, "@attention.rope_dim", NULL }, /* what is rotated */
    { BIASED & ~GPT_OSS, SET, "attention_bias", "attention.bias", "false", NULL },
    { BIASED & ~GPT_OSS, SET, "attention_bias", "attention.out_bias", "false", NULL },
    { GPT_OSS, SET, "attention_bias", "attention.bias", "true", NULL },
    { GPT_OSS, SET, "attention_bias", "attention.out_bias", "true", NULL },
    { GLM4_MOE, SET, "attention_bias", "attention.bias", "false", NULL },
    { FAMILY_MLA, SET, "attention_bias", "attention.bias", "false", NULL },
    { FAMILY_MLA, SET, "attention_bias", "attention.out_bias", "false", NULL },
    { QWEN2_MOE, SET, "qkv_bias", "attention.bias", "true", NULL },
    { LLAMA | DEEPSEEK_V2, IS, "mlp_bias", NULL, "false", NULL },
    { OLMOE, IS, "clip_qkv", NULL, "null", NULL },
    { OLMOE, CONST, NULL, "attention.qk_norm", "width", NULL },
    { QWEN3 | QWEN3_MOE | QWEN3_NEXT, CONST, NULL, "attention.qk_norm", "rms", NULL },
    { QWEN3_NEXT, CONST, NULL, "attention.gate", "true", NULL },
    { QWEN3_NEXT, SET, "full_attention_interval", "delta.full_every", "4", "1=0" },
    { QWEN3_NEXT, LINEARS, "layer_types", "delta.full_every", NULL, NULL },
    { QWEN3_NEXT, SET, "linear_num_key_heads", "delta.key_heads", "16", NULL },
    { QWEN3_NEXT, SET, "linear_num_value_heads", "delta.heads", "32", NULL },
    { QWEN3_NEXT, SET, "linear_key_head_dim", "delta.key_dim", "128", NULL },
    { QWEN3_NEXT, SET, "linear_value_head_dim", "delta.value_dim", "128", NULL },
    { QWEN3_NEXT, SET, "linear_conv_kernel_dim", "delta.taps", "4", NULL },
    { GLM4_MOE, SET, "use_qk_norm", "attention.qk_norm", "false", "true=rms|false=none" },
    { LLAMA4, SET, "use_qk_norm", "attention.qk_norm", "true", "true=l2|false=none" },
    { MIXTRAL, SET, "sliding_window", "attention.window", "0", "null=0" },
    { GPT_OSS, SET, "sliding_window", "attention.window", "128", "null=0" },
    { GPT_OSS, CONST, NULL, "attention.full_every", "2", NULL },
    { QWEN3 | SPARSE_STEP, IS, "use_sliding_window", NULL, "false", NULL },
    { LLAMA4, SET, "attention_chunk_size", "attention.chunk", "8192", "null=0" },
    { LLAMA4, SET, "no_rope_layer_interval", "attention.full_every", "4", NULL },
    { LLAMA4, SET, "no_rope_layer_interval", "attention.nope_every", "4", NULL },
    { LLAMA4, NOPES, "no_rope_layers", "attention.nope_every", NULL, NULL },
    { LLAMA4, SET, "floor_scale", "attention.temper_floor", "8192", NULL },
    { LLAMA4, SET, "attn_scale", "attention.temper_scale", "0.1", NULL },
    { LLAMA4, TEMPER, "attn_temperature_tuning", "attention.temper_floor", "true",
      "true=true|false=false" },
    { QWEN3 | QWEN2_MOE | GPT_OSS | LLAMA4, TYPES, "layer_types", NULL, NULL, NULL },
    { GPT_OSS, CONST, NULL, "attention.sinks", "true", NULL },

    { FAMILY_ALL & ~(MIXTRAL | LLAMA4 | GPT_OSS), SET, THETA, "attention.rope_theta", "10000",
      NULL },
    { MIXTRAL, SET, THETA, "attention.rope_theta", "1000000", NULL },
    { LLAMA4, SET, THETA, "attention.rope_theta", "500000", NULL },
    { GPT_OSS, SET, THETA, "attention.rope_theta", "150000", NULL },
    { DEEPSEEK_V2 | LLAMA4, CONST, NULL, "attention.rope_interleaved", "true", NULL },
    { DEEPSEEK_V3, SET, "rope_interleave", "attention.rope_interleaved", "true", NULL },
    { FAMILY_GQA & ~LLAMA4, CONST, NULL, "attention.rope_interleaved", "false", NULL },
    { GLM4_MOE, SET, SHARE, "attention.rotary", "0.5", "1=1|null=1" },
    { QWEN3_NEXT, SET, SHARE, "attention.rotary", "0.25", "1=1|null=1" },
    { FAMILY_ALL & ~(GLM4_MOE | QWEN3_NEXT), IS, SHARE, NULL, "1", NULL },
    { FAMILY_ALL, SET, "~rope_type|~type", "rope.scaling", "none", "default=none" },
    { FAMILY_ALL, SET, "~factor", "rope.factor", REQUIRED, "linear|yarn|llama3" },
    { FAMILY_ALL, SET, ORIGINAL, "rope.original", REQUIRED, "yarn|llama3" },
    { FAMILY_ALL, SET, "~beta_fast", "rope.beta_fast", "32", "yarn|" NULLABLE },
    { FAMILY_ALL, SET, "~beta_slow", "rope.beta_slow", "1", "yarn|" NULLABLE },
    { FAMILY_ALL, SET, "~mscale", "rope.mscale", "0", "yarn|" NULLABLE },
    { FAMILY_ALL, SET, "~mscale_all_dim", "rope.mscale_all_dim", "0", "yarn|" NULLABLE },
    { FAMILY_ALL, MSCALE, "~mscale_all_dim", NULL, NULL, "linear|yarn|llama3" },
    { FAMILY_ALL, SET, "~low_freq_factor", "rope.low_freq", REQUIRED, "llama3" },
    { FAMILY_ALL, SET, "~high_freq_factor", "rope.high_freq", REQUIRED, "llama3" },
    { FAMILY_ALL, SET, "~truncate", "rope.truncate", "true", "yarn|false=false|null=false" },
    { FAMILY_ALL, IS, "~attention_factor", NULL, "null", "yarn" },

    { FAMILY_DENSE, CONST, NULL, "model.dense_layers", "@model.layers", NULL },
    { MIXTRAL | OLMOE | LLAMA4 | GPT_OSS, CONST, NULL, "model.dense_layers", "0", NULL },
    { DEEPSEEK_V2, SET, "first_k_dense_replace", "model.dense_layers", "0", NULL },
    { DEEPSEEK_V3, SET, "first_k_dense_replace", "model.dense_layers", "3", NULL },
    { GLM4_MOE, SET, "first_k_dense_replace", "model.dense_layers", "1", NULL },
    { FAMILY_MLA, IS, "moe_layer_freq", NULL, "1", NULL },
    { SPARSE_STEP, SET, "decoder_sparse_step", "moe.every", "1", NULL },
    { SPARSE_STEP, FIRST, "mlp_only_layers", "model.dense_layers", NULL, NULL },
    { LLAMA4, SET, "interleave_moe_layer_step", "moe.every", "1", NULL },
    { LLAMA4, MOES, "moe_layers", "moe.every", NULL, NULL },
    { DEEPSEEK_V2, SET, "num_experts|+n_routed_experts", "moe.experts", REQUIRED, NULL },
    { DEEPSEEK_V3 | GLM4_MOE, SET, "num_local_experts|+n_routed_experts", "moe.experts", REQUIRED,
      NULL },
    { QWEN3_MOE | OLMOE, SET, "num_local_experts|+num_experts", "moe.experts", REQUIRED, NULL },
    { QWEN2_MOE | QWEN3_NEXT, SET, "num_experts", "moe.experts", REQUIRED, NULL },
    { MIXTRAL | GPT_OSS, SET, "num_experts|+num_local_experts", "moe.experts", REQUIRED, NULL },
    { LLAMA4, SET, "num_local_experts", "moe.experts", REQUIRED, NULL },
    { DEEPSEEK_V2, SET, "n_shared_experts", "moe.shared", "2", NULL },
    { DEEPSEEK_V3 | GLM4_MOE, SET, "n_shared_experts", "moe.shared", "1", NULL },
    { LLAMA4, CONST, NULL, "moe.shared", "1", NULL },
    { QWEN3_MOE | MIXTRAL | OLMOE | GPT_OSS, CONST, NULL, "moe.shared", "0", NULL },
    { FAMILY_MOE, SET, "num_experts_per_tok", "moe.top_k", REQUIRED, NULL },
    { SHARES | SPARSE_STEP, SET, "moe_intermediate_size", "moe.ffn", REQUIRED, NULL },
    { MIXTRAL | OLMOE | LLAMA4 | GPT_OSS, SET, "intermediate_size", "moe.ffn", REQUIRED, NULL },
    { QWEN2_MOE | QWEN3_NEXT, WIDTH, "shared_expert_intermediate_size", "moe.shared", REQUIRED,
      NULL },
    { QWEN2_MOE | QWEN3_NEXT, CONST, NULL, "moe.shared_gate", "true", NULL },
    { DEEPSEEK_V2, IS, "scoring_func", NULL, "softmax", NULL },
    { DEEPSEEK_V3, IS, "scoring_func", NULL, "sigmoid", NULL },
    { DEEPSEEK_V3, IS, "topk_method", NULL, "noaux_tc", NULL },
    { DEEPSEEK_V3 | GLM4_MOE | LLAMA4, CONST, NULL, "moe.score", "sigmoid", NULL },
    { DEEPSEEK_V2 | GLM4_MOE, SET, "n_group", "moe.groups", "1", NULLABLE },
    { DEEPSEEK_V2 | GLM4_MOE, SET, "topk_group", "moe.top_groups", "1", NULLABLE },
    { DEEPSEEK_V3, SET, "n_group", "moe.groups", "8", NULL },
    { DEEPSEEK_V3, SET, "topk_group", "moe.top_groups", "4", NULL },
    { DEEPSEEK_V2, TOPK, "topk_method", NULL, NULL, NULL },
    { DEEPSEEK_V3 | GLM4_MOE, CONST, NULL, "moe.group_score_top", "2", NULL },
    { DEEPSEEK_V2, IS, "norm_topk_prob", NULL, "false", NULL },
    { DEEPSEEK_V3 | GLM4_MOE, SET, "norm_topk_prob", "moe.normalise", "true", NULL },
    { QWEN2_MOE | QWEN3_MOE | OLMOE, SET, "norm_topk_prob", "moe.normalise", "false", NULL },
    { QWEN3_NEXT, SET, "norm_topk_prob", "moe.normalise", "true", NULL },
    { MIXTRAL | GPT_OSS, CONST, NULL, "moe.normalise", "true", NULL },
    { DEEPSEEK_V2 | GLM4_MOE, SET, "routed_scaling_factor", "moe.scaling", "1", NULL },
    { DEEPSEEK_V3, SET, "routed_scaling_factor", "moe.scaling", "2.5", NULL },
    { DEEPSEEK_V3 | GLM4_MOE, CONST, NULL, "moe.bias_rate", "0.001", NULL },
    { LLAMA4, CONST, NULL, "moe.score_input", "true", NULL },
    { GPT_OSS, CONST, NULL, "moe.router_bias", "true", NULL },
    { GPT_OSS, CONST, NULL, "moe.expert_bias", "true", NULL },
    { GPT_OSS, CONST, NULL, "moe.activation", "clamped", NULL },
    { GPT_OSS, SET, "swiglu_limit", "moe.limit", "7", NULL },
    { GPT_OSS, IS, "swiglu_alpha", NULL, "1.702", NULL },
    { DEEPSEEK_V2, TRAIN, "aux_loss_alpha", "moe.aux_loss", NULL, NULL },
    { SPARSE_STEP | OLMOE | MIXTRAL | LLAMA4 | GPT_OSS, TRAIN, "router_aux_loss_coef",
      "moe.aux_loss", NULL, NULL },
    { MIXTRAL | LLAMA4, IS, "router_jitter_noise", NULL, "0.0", NULL },
    { DEEPSEEK_V3 | GLM4_MOE, SET, "num_nextn_predict_layers|num_mtp_layers", "mtp.layers", "0",
      NULLABLE },

    { FAMILY_ALL, NEUTER, "transformers_weights", NULL, "null", NULL },
    { FAMILY_ALL, NEUTER, "per_layer_config", NULL, "null", NULL },
    { FAMILY_ALL, NEUTER, "attn_logit_softcapping", NULL, "null", NULL },
    { FAMILY_ALL, NEUTER, "final_logit_softcapping", NULL, "null", NULL },
    { FAMILY_ALL, NEUTER, "query_pre_attn_scalar", NULL, "null", NULL },
    { FAMILY_ALL, NEUTER, "attention_multiplier", NULL, "1", NULL },
    { FAMILY_ALL, NEUTER, "embedding_multiplier", NULL, "1", NULL },
    { FAMILY_ALL, NEUTER, "residual_multiplier", NULL, "1", NULL },
    { FAMILY_ALL, NEUTER, "logits_scaling", NULL, "1", NULL },
    { FAMILY_ALL & ~OLMOE, NEUTER, "clip_qkv", NULL, "null", NULL },
    { FAMILY_ALL & ~(LLAMA | DEEPSEEK_V2), NEUTER, "mlp_bias", NULL, "false", NULL },
    { MIXTRAL | QWEN2_MOE, NEUTER, "attention_bias", NULL, "false", NULL },
};

const int field_count = sizeof fields / sizeof *fields;

/* Classes that scale rotary positions if the file says nothing of them. */
const char *field_rope_absent(unsigned family)
{
    return family != GPT_OSS
               ? NULL
               : "{\"rope_type\":\"yarn\",\"factor\":32,\"beta_fast\":32,\"beta_slow\":1,"
                 "\"truncate\":false,\"original_max_position_embeddings\":4096}";
}

/* ---- texts ---- */

/* A name that is not in rows.def is a bug of the table, hence the assert. */
const ConfigRow *field_row(const char *setting)
{
    int i = 0;
    while (i < config_row_count && strcmp(config_rows[i].name, setting) != 0) i++;
    assert(i < config_row_count);
    return &config_rows[i];
}

Status field_setting_text(const Config *c, const char *setting, Arena *a, FieldValue out)
{
    ArenaMark mark = arena_mark(a);
    Text text = { 0 };
    TRY(text_init(&text, a));
    TRY(config_print_value(field_row(setting), c, &text));
    (void)snprintf(out, FIELD_VALUE_BYTES, "%s", text.data);
    arena_release(a, mark);
    return OK;
}

void field_translate(const char *words, bool to_ours, FieldValue text)
{
    for (int i = 0, n = 0; words != NULL; i++) {
        const char *pair = text_word(words, i, &n);
        if (pair == NULL) return;
        int key = (int)strcspn(pair, "="), value = n - key - 1;
        if (value < 0) continue; /* not a pair */
        const char *from = to_ours ? pair : pair + key + 1;
        int from_n = to_ours ? key : value;
        if ((int)strlen(text) != from_n || strncmp(text, from, (size_t)from_n) != 0) continue;
        (void)snprintf(text, FIELD_VALUE_BYTES, "%.*s", to_ours ? value : key,
                       to_ours ? pair + key + 1 : pair);
        return;
    }
}

/* ---- JSON ---- */

bool field_place(const char *keys, int i, FieldValue name, bool *rope, bool *written)
{
    int n = 0;
    const char *key = text_word(keys, i, &n);
    if (key == NULL) return false;
    *written = key[0] == '+' || (i == 0 && strchr(keys, '+') == NULL);
    n -= key[0] == '+';
    key += key[0] == '+';
    *rope = key[0] == '~';
    (void)snprintf(name, FIELD_VALUE_BYTES, "%.*s", n - *rope, key + *rope);
    return true;
}

bool field_written(const char *keys, FieldValue name)
{
    bool rope = false, written = false;
    for (int i = 0; !written && field_place(keys, i, name, &rope, &written);) i++;
    return rope;
}

Json *field_member(const Json *json, const Json *rope, const char *keys)
{
    bool inner = false, written = false;
    FieldValue name;
    Json *found = NULL;
    for (int i = 0; found == NULL && field_place(keys, i, name, &inner, &written); i++)
        found = json_get(inner ? rope : json, name);
    return found;
}

/* Words without = are kinds; a member without such words belongs to all. */
bool field_applies(const Field *f, const char *scaling)
{
    bool kinds = false;
    for (int i = 0, n = 0; f->words != NULL; i++) {
        const char *word = text_word(f->words, i, &n);
        if (word == NULL) break;
        kinds = kinds || memchr(word, '=', (size_t)n) == NULL;
    }
    return !kinds || text_word_index(f->words, scaling) >= 0;
}

/* A real number keeps a point: classes with typed members want 1.0 and not 1. */
Json field_json(const char *text, bool real, FieldValue room)
{
    char *end = NULL;
    Json number = json_of_number(strtod(text, &end));
    if (strcmp(text, "null") == 0) return json_of(JSON_NULL);
    if (strcmp(text, "true") == 0) return json_of_bool(true);
    if (strcmp(text, "false") == 0) return json_of_bool(false);
    if (end == text || *end != '\0') return json_of_text(text);
    if (!real) return number;
    (void)snprintf(room, FIELD_VALUE_BYTES, "%.60s%s", text,
                   text[strcspn(text, ".e")] == '\0' ? ".0" : "");
    number.text = room;
    return number;
}
