/*
 * fields: what members of config.json mean in our settings.
 *
 * One table is read in both directions. Keys with | between are alternatives; ~KEY lies in
 * rope_scaling or rope_parameters, by the generation of the file. `words`: pairs THEIRS=OURS, or the
 * kinds of rope.scaling that the member is written for.
 *
 * A row whose setting rows.def lacks is a feature that is not there yet: the family is refused by
 * its name unless the member says that it is not used. When the setting appears, the row is in
 * force.
 *
 * Values are texts in between, as config_override takes them. A member that is absent, or null where
 * no word says what null is, has the row's text `absent`; NULL: the setting keeps its fallback;
 * REQUIRED: it must be there; @NAME: the value of another setting, which stands earlier in the table.
 */
#include "base/text.h"
#include "convert/family.h"
#include "convert/layers.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum FieldKind {
    SET,   /* the setting's value */
    TRAIN, /* the same, but it changes only how a model is trained */
    CONST, /* no member: the setting has this value in the family */
    IS,    /* the family is supported with this value alone, while there is no such setting */
    WRITE, /* written, never read */
    FIRST, /* a list of layers, which are the first ones: their number */
    TOPK,  /* DeepSeek-V2's topk_method: with "greedy" groups do not count */
    TYPES, /* the list layer_types, which settings say, too */
    QUANT, /* quantization_config: fp8 in blocks of 128 x 128 and MXFP4 are read, nothing is written */
    MOES, /* the list of layers with experts */
    NOPES /* a list with 0 for layers without positions */
} FieldKind;

#define REQUIRED   "!"
#define HEAD       "@head" /* model.hidden / attention.heads */
#define LATENT_EPS "attention.latent_eps"

#define BIASED (LLAMA | QWEN3 | QWEN3_MOE | GPT_OSS | LLAMA4)
#define SHARES (DEEPSEEK_V2 | DEEPSEEK_V3 | GLM4_MOE)

static const struct Field {
    unsigned families;
    FieldKind kind;
    const char *key, *setting, *absent, *words;
} fields[] = {
    { FAMILY_ALL, QUANT, "quantization_config", NULL, NULL, NULL },
    { FAMILY_ALL, IS, "hidden_act", NULL, "silu", NULL },
    { FAMILY_ALL, SET, "vocab_size", "model.vocab", REQUIRED, NULL },
    { FAMILY_ALL, SET, "hidden_size", "model.hidden", REQUIRED, NULL },
    { FAMILY_ALL, SET, "num_hidden_layers", "model.layers", REQUIRED, NULL },
    { FAMILY_ALL & ~LLAMA4, SET, "intermediate_size", "model.ffn", REQUIRED, NULL },
    { LLAMA4, SET, "intermediate_size_mlp", "model.ffn", REQUIRED, NULL },
    { FAMILY_ALL, SET, "rms_norm_eps", "model.norm_eps", REQUIRED, NULL },
    { FAMILY_MLA, IS, "rms_norm_eps", LATENT_EPS, "1e-6", NULL }, /* until there is the setting */
    { FAMILY_MLA, CONST, NULL, LATENT_EPS, "1e-6", NULL },
    { FAMILY_ALL, SET, "tie_word_embeddings", "model.tied", "false", NULL },
    { FAMILY_ALL, TRAIN, "initializer_range", "model.init_std", NULL, NULL },

    { FAMILY_MLA, CONST, NULL, "attention.kind", "mla", NULL },
    { FAMILY_GQA, CONST, NULL, "attention.kind", "gqa", NULL },
    { FAMILY_ALL, SET, "num_attention_heads", "attention.heads", REQUIRED, NULL },
    { FAMILY_GQA, SET, "num_key_value_heads", "attention.kv_heads", "@attention.heads", NULL },
    { FAMILY_MLA, WRITE, "num_key_value_heads", "attention.heads", NULL, NULL },
    { LLAMA | MIXTRAL | QWEN3_MOE | GLM4_MOE, SET, "head_dim", "attention.head_dim", HEAD, NULL },
    { QWEN3 | LLAMA4, SET, "head_dim", "attention.head_dim", "128", NULL },
    { GPT_OSS, SET, "head_dim", "attention.head_dim", "64", NULL },
    { FAMILY_MLA, SET, "q_lora_rank", "attention.q_rank", "0", "null=0" },
    { FAMILY_MLA, SET, "kv_lora_rank", "attention.kv_rank", REQUIRED, NULL },
    { FAMILY_MLA, SET, "qk_nope_head_dim", "attention.nope_dim", REQUIRED, NULL },
    { FAMILY_MLA, SET, "qk_rope_head_dim", "attention.rope_dim", REQUIRED, NULL },
    { FAMILY_MLA, SET, "v_head_dim", "attention.v_dim", REQUIRED, NULL },
    { BIASED & ~GPT_OSS, SET, "attention_bias", "attention.bias", "false", NULL },
    { BIASED & ~GPT_OSS, SET, "attention_bias", "attention.out_bias", "false", NULL },
    { GPT_OSS, SET, "attention_bias", "attention.bias", "true", NULL },
    { GPT_OSS, SET, "attention_bias", "attention.out_bias", "true", NULL },
    { GLM4_MOE, SET, "attention_bias", "attention.bias", "false", NULL },
    { FAMILY_MLA, SET, "attention_bias", "attention.bias", "false", NULL },
    { FAMILY_MLA, SET, "attention_bias", "attention.out_bias", "false", NULL },
    { LLAMA | DEEPSEEK_V2, IS, "mlp_bias", NULL, "false", NULL },
    { QWEN3 | QWEN3_MOE, CONST, NULL, "attention.qk_norm", "rms", NULL },
    { GLM4_MOE, SET, "use_qk_norm", "attention.qk_norm", "false", "true=rms|false=none" },
    { LLAMA4, SET, "use_qk_norm", "attention.qk_norm", "true", "true=l2|false=none" },
    { MIXTRAL, SET, "sliding_window", "attention.window", "0", "null=0" },
    { GPT_OSS, SET, "sliding_window", "attention.window", "128", "null=0" },
    { GPT_OSS, CONST, NULL, "attention.full_every", "2", NULL },
    { QWEN3 | QWEN3_MOE, IS, "use_sliding_window", NULL, "false", NULL },
    { LLAMA4, SET, "attention_chunk_size", "attention.chunk", "8192", "null=0" },
    { LLAMA4, SET, "no_rope_layer_interval", "attention.full_every", "4", NULL },
    { LLAMA4, SET, "no_rope_layer_interval", "attention.nope_every", "4", NULL },
    { LLAMA4, NOPES, "no_rope_layers", "attention.nope_every", NULL, NULL },
    { LLAMA4, SET, "floor_scale", "attention.temper_floor", "8192", NULL },
    { LLAMA4, SET, "attn_scale", "attention.temper_scale", "0.1", NULL },
    { LLAMA4, IS, "attn_temperature_tuning", NULL, "true", NULL },
    { QWEN3 | GPT_OSS | LLAMA4, TYPES, "layer_types", NULL, NULL, NULL },
    { GPT_OSS, CONST, NULL, "attention.sinks", "true", NULL },

    { FAMILY_ALL & ~(MIXTRAL | LLAMA4 | GPT_OSS), SET, "rope_theta|~rope_theta",
      "attention.rope_theta", "10000", NULL },
    { MIXTRAL, SET, "rope_theta|~rope_theta", "attention.rope_theta", "1000000", NULL },
    { LLAMA4, SET, "rope_theta|~rope_theta", "attention.rope_theta", "500000", NULL },
    { GPT_OSS, SET, "rope_theta|~rope_theta", "attention.rope_theta", "150000", NULL },
    { DEEPSEEK_V2 | LLAMA4, CONST, NULL, "attention.rope_interleaved", "true", NULL },
    { DEEPSEEK_V3, SET, "rope_interleave", "attention.rope_interleaved", "true", NULL },
    { FAMILY_GQA & ~LLAMA4, CONST, NULL, "attention.rope_interleaved", "false", NULL },
    { GLM4_MOE, SET, "partial_rotary_factor|~partial_rotary_factor", "attention.rotary", "0.5",
      NULL },
    { FAMILY_ALL & ~GLM4_MOE, IS, "~partial_rotary_factor|partial_rotary_factor", NULL, "1", NULL },
    { FAMILY_ALL, SET, "~rope_type|~type", "rope.scaling", "none", "default=none|null=none" },
    { FAMILY_ALL, SET, "~factor", "rope.factor", NULL, NULL },
    { FAMILY_ALL, SET, "~original_max_position_embeddings", "rope.original", NULL, "yarn|llama3" },
    { FAMILY_ALL, SET, "~beta_fast", "rope.beta_fast", NULL, "yarn" },
    { FAMILY_ALL, SET, "~beta_slow", "rope.beta_slow", NULL, "yarn" },
    { FAMILY_ALL, SET, "~mscale", "rope.mscale", NULL, "yarn" },
    { FAMILY_ALL, SET, "~mscale_all_dim", "rope.mscale_all_dim", NULL, "yarn" },
    { FAMILY_ALL, SET, "~low_freq_factor", "rope.low_freq", NULL, "llama3" },
    { FAMILY_ALL, SET, "~high_freq_factor", "rope.high_freq", NULL, "llama3" },
    { FAMILY_ALL, SET, "~truncate", "rope.truncate", NULL, "yarn" },
    { FAMILY_ALL, IS, "~attention_factor", NULL, "null", NULL },

    { FAMILY_DENSE, CONST, NULL, "model.dense_layers", "@model.layers", NULL },
    { MIXTRAL | LLAMA4 | GPT_OSS, CONST, NULL, "model.dense_layers", "0", NULL },
    { SHARES, SET, "first_k_dense_replace", "model.dense_layers", "0", NULL },
    { FAMILY_MLA, SET, "moe_layer_freq", "moe.every", "1", NULL },
    { QWEN3_MOE, SET, "decoder_sparse_step", "moe.every", "1", NULL },
    { QWEN3_MOE, FIRST, "mlp_only_layers", "model.dense_layers", NULL, NULL },
    { LLAMA4, SET, "interleave_moe_layer_step", "moe.every", "1", NULL },
    { LLAMA4, MOES, "moe_layers", "moe.every", NULL, NULL },
    { SHARES, SET, "n_routed_experts|num_local_experts|num_experts", "moe.experts", REQUIRED,
      NULL },
    { QWEN3_MOE, SET, "num_experts|num_local_experts", "moe.experts", REQUIRED, NULL },
    { MIXTRAL | LLAMA4 | GPT_OSS, SET, "num_local_experts|num_experts", "moe.experts", REQUIRED,
      NULL },
    { SHARES, SET, "n_shared_experts", "moe.shared", "0", NULL },
    { LLAMA4, CONST, NULL, "moe.shared", "1", NULL },
    { QWEN3_MOE | MIXTRAL | GPT_OSS, CONST, NULL, "moe.shared", "0", NULL },
    { FAMILY_MOE, SET, "num_experts_per_tok", "moe.top_k", REQUIRED, NULL },
    { SHARES | QWEN3_MOE, SET, "moe_intermediate_size", "moe.ffn", REQUIRED, NULL },
    { MIXTRAL | LLAMA4 | GPT_OSS, SET, "intermediate_size", "moe.ffn", REQUIRED, NULL },
    { DEEPSEEK_V2, IS, "scoring_func", NULL, "softmax", NULL },
    { DEEPSEEK_V3, IS, "scoring_func", NULL, "sigmoid", NULL },
    { DEEPSEEK_V3, IS, "topk_method", NULL, "noaux_tc", NULL },
    { DEEPSEEK_V3 | GLM4_MOE | LLAMA4, CONST, NULL, "moe.score", "sigmoid", NULL },
    { SHARES, SET, "n_group", "moe.groups", "1", NULL },
    { SHARES, SET, "topk_group", "moe.top_groups", "1", NULL },
    { DEEPSEEK_V2, TOPK, "topk_method", NULL, NULL, NULL },
    { DEEPSEEK_V3 | GLM4_MOE, CONST, NULL, "moe.group_score_top", "2", NULL },
    { DEEPSEEK_V2, IS, "norm_topk_prob", NULL, "false", NULL },
    { DEEPSEEK_V3 | GLM4_MOE, SET, "norm_topk_prob", "moe.normalise", "true", NULL },
    { QWEN3_MOE, SET, "norm_topk_prob", "moe.normalise", "false", NULL },
    { MIXTRAL | GPT_OSS, CONST, NULL, "moe.normalise", "true", NULL },
    { SHARES, SET, "routed_scaling_factor", "moe.scaling", "1", NULL },
    { DEEPSEEK_V3 | GLM4_MOE, CONST, NULL, "moe.bias_rate", "0.001", NULL },
    { LLAMA4, CONST, NULL, "moe.score_input", "true", NULL },
    { GPT_OSS, CONST, NULL, "moe.router_bias", "true", NULL },
    { GPT_OSS, CONST, NULL, "moe.expert_bias", "true", NULL },
    { GPT_OSS, CONST, NULL, "moe.activation", "clamped", NULL },
    { GPT_OSS, SET, "swiglu_limit", "moe.limit", "7", NULL },
    { GPT_OSS, IS, "swiglu_alpha", NULL, "1.702", NULL },
    { DEEPSEEK_V2, TRAIN, "aux_loss_alpha", "moe.aux_loss", NULL, NULL },
    { QWEN3_MOE | MIXTRAL | LLAMA4 | GPT_OSS, TRAIN, "router_aux_loss_coef", "moe.aux_loss", NULL,
      NULL },
    { MIXTRAL | LLAMA4, TRAIN, "router_jitter_noise", "moe.jitter", NULL, NULL },
    { DEEPSEEK_V3 | GLM4_MOE, SET, "num_nextn_predict_layers", "mtp.layers", "0", NULL },
};

enum { FIELDS = sizeof fields / sizeof *fields, VALUE_BYTES = 64 };
typedef struct Field Field;

/* Settings that change only how a model is trained. moe.bias_rate: whether there is a bias. */
static const char *const training[] = { "moe.aux_loss",   "moe.aux_scope",
                                        "moe.bias_rule",  "moe.z_loss",
                                        "moe.jitter",     "moe.capacity",
                                        "moe.bias_rate",  "moe.forced_balance",
                                        "model.init_std", "attention.document_mask" };

/* What a setting says where its feature is not used: a row of `fields` whose setting rows.def lacks
 * refuses all other values. Settings that matter with another one of these alone are left out. */
static const struct {
    const char *setting, *value;
} unused[] = {
    { LATENT_EPS, "1e-6" },
    { "attention.bias", "false" },
    { "attention.out_bias", "false" },
    { "attention.window", "0" },
    { "attention.sinks", "false" },
    { "attention.nope_every", "0" },
    { "attention.rotary", "1.0" },
    { "rope.scaling", "none" },
    { "moe.every", "1" },
    { "moe.score_input", "false" },
    { "moe.router_bias", "false" },
    { "moe.expert_bias", "false" },
    { "moe.activation", "swiglu" },
};

/* A field's first key, for "%.*s" of a message. */
#define KEY(f) (int)strcspn((f)->key + ((f)->key[0] == '~'), "|"), (f)->key + ((f)->key[0] == '~')

/* ---- texts ---- */

static const ConfigRow *row_of(const char *setting)
{
    for (int i = 0; i < config_row_count; i++) {
        if (strcmp(config_rows[i].name, setting) == 0) return &config_rows[i];
    }
    return NULL;
}

/* The value of a setting as text; of one that rows.def lacks "". */
static Status value_text(const Config *c, const char *setting, Arena *a, char out[VALUE_BYTES])
{
    const ConfigRow *row = row_of(setting);
    ArenaMark mark = arena_mark(a);
    Text text = { 0 };
    TRY(text_init(&text, a));
    if (row != NULL) TRY(config_print_value(row, c, &text));
    (void)snprintf(out, VALUE_BYTES, "%s", text.data);
    arena_release(a, mark);
    return OK;
}

/* The word behind or before the = of a pair; the text itself if no pair has it. */
static void translate(const char *words, bool out_of_json, char text[VALUE_BYTES])
{
    for (int i = 0, n = 0; words != NULL; i++) {
        const char *pair = text_word(words, i, &n);
        if (pair == NULL) return;
        int key = (int)strcspn(pair, "="), value = n - key - 1;
        if (value < 0) continue; /* no pair */
        const char *from = out_of_json ? pair : pair + key + 1;
        int from_n = out_of_json ? key : value;
        if ((int)strlen(text) != from_n || strncmp(text, from, (size_t)from_n) != 0) continue;
        (void)snprintf(text, VALUE_BYTES, "%.*s", out_of_json ? value : key,
                       out_of_json ? pair + key + 1 : pair);
        return;
    }
}

static bool same_value(const char *a, const char *b)
{
    char *end_a = NULL, *end_b = NULL;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    bool numbers = end_a != a && end_b != b && *end_a == '\0' && *end_b == '\0';
    return numbers ? x == y : strcmp(a, b) == 0;
}

/* ---- JSON ---- */

/* Where members of rotary positions lie. */
static const char *const rope_objects[] = { "rope_scaling", "rope_parameters" };

/* The i-th place of a key: the object's name ("": the whole file) and the member's. */
static bool split_key(const char *keys, int i, const char **object, char name[VALUE_BYTES])
{
    int n = 0;
    const char *key = NULL;
    for (int k = 0; (key = text_word(keys, k, &n)) != NULL; k++) {
        bool rope = key[0] == '~';
        int places = rope ? 2 : 1;
        *object = rope && i < places ? rope_objects[i] : "";
        (void)snprintf(name, VALUE_BYTES, "%.*s", n - rope, key + rope);
        if (i < places) return true;
        i -= places;
    }
    return false;
}

static cJSON *object_of(cJSON *json, const char *name)
{
    return name[0] == '\0' ? json : cJSON_GetObjectItemCaseSensitive(json, name);
}

/* The member that one of the alternatives names; NULL: there is none. */
static cJSON *member(cJSON *json, const char *keys)
{
    const char *object = "";
    char name[VALUE_BYTES];
    for (int i = 0; split_key(keys, i, &object, name); i++) {
        const cJSON *at = object_of(json, object);
        cJSON *found = cJSON_IsObject(at) ? cJSON_GetObjectItemCaseSensitive(at, name) : NULL;
        if (found != NULL) return found;
    }
    return NULL;
}

/* A number, a word or null. ERR_FORMAT: something else. */
static Status json_text(const char *path, const char *key, const cJSON *v, char out[VALUE_BYTES])
{
    double x = v->valuedouble;
    if (cJSON_IsNumber(v) && isfinite(x) && x == floor(x) && fabs(x) < 1e15) {
        (void)snprintf(out, VALUE_BYTES, "%.0f", x);
    } else if (cJSON_IsNumber(v)) {
        (void)snprintf(out, VALUE_BYTES, "%.17g", x);
    } else if ((cJSON_IsString(v) || cJSON_IsRaw(v)) && strlen(v->valuestring) < VALUE_BYTES) {
        (void)snprintf(out, VALUE_BYTES, "%s", v->valuestring);
    } else if (cJSON_IsBool(v) || cJSON_IsNull(v)) {
        (void)snprintf(out, VALUE_BYTES, "%s",
                       cJSON_IsNull(v) ? "null" : (cJSON_IsTrue(v) ? "true" : "false"));
    } else {
        return FAIL(ERR_FORMAT, "%s: %s is no number, word or null", path, key);
    }
    return OK;
}

/* A setting of type REAL stays a number with a point: classes with typed members ask for it. */
static cJSON *json_value(const char *text, bool real)
{
    char *end = NULL, point[VALUE_BYTES + 2];
    double x = strtod(text, &end);
    if (strcmp(text, "null") == 0) return cJSON_CreateNull();
    if (strcmp(text, "true") == 0) return cJSON_CreateTrue();
    if (strcmp(text, "false") == 0) return cJSON_CreateFalse();
    if (end == text || *end != '\0') return cJSON_CreateString(text);
    if (!real) return cJSON_CreateNumber(x);
    (void)snprintf(point, sizeof point, "%s%s", text,
                   text[strcspn(text, ".e")] == '\0' ? ".0" : "");
    return cJSON_CreateRaw(point);
}

Status family_put(cJSON *json, const char *keys, cJSON *value)
{
    const char *object = "";
    char name[VALUE_BYTES];
    cJSON *at = NULL;
    for (int i = 0; at == NULL && split_key(keys, i, &object, name); i++) {
        at = object_of(json, object);
        if (!cJSON_IsObject(at) || !cJSON_HasObjectItem(at, name)) at = NULL;
    }
    if (at == NULL) {
        (void)split_key(keys, 0, &object, name);
        at = object_of(json, object);
        if (!cJSON_IsObject(at)) {
            cJSON_DeleteItemFromObjectCaseSensitive(json, object);
            at = cJSON_AddObjectToObject(json, object);
        }
    }
    if (value != NULL && at != NULL) {
        cJSON_DeleteItemFromObjectCaseSensitive(at, name);
        if (cJSON_AddItemToObject(at, name, value)) return OK;
    }
    cJSON_Delete(value);
    return FAIL(ERR_MEMORY, "%s cannot be written: no memory", keys);
}

/* ---- reading ---- */

typedef struct Reading {
    const char *path;
    cJSON *json;
    const Family *family;
    Arena *arena;
    Config *c;
} Reading;

/* What stands for a member that is absent. False: the setting keeps its fallback. */
static Status absent_text(const Reading *r, const Field *f, char out[VALUE_BYTES], bool *there)
{
    *there = f->absent != NULL;
    if (f->absent == NULL) return OK;
    assert(f->key != NULL);
    if (strcmp(f->absent, REQUIRED) == 0)
        return FAIL(ERR_FORMAT, "%s has no %.*s, which %s models need", r->path, KEY(f),
                    r->family->type);
    if (strcmp(f->absent, HEAD) == 0) {
        TRY(config_divides("num_attention_heads", r->c->attention_heads, "hidden_size",
                           r->c->model_hidden));
        (void)snprintf(out, VALUE_BYTES, "%lld",
                       (long long)(r->c->model_hidden / r->c->attention_heads));
        return OK;
    }
    if (f->absent[0] == '@') return value_text(r->c, f->absent + 1, r->arena, out);
    (void)snprintf(out, VALUE_BYTES, "%s", f->absent);
    return OK;
}

/* A member's value in our words. */
static Status member_text(const Reading *r, const Field *f, char out[VALUE_BYTES], bool *there)
{
    const cJSON *v = f->key == NULL ? NULL : member(r->json, f->key);
    if (v != NULL) {
        TRY(json_text(r->path, v->string, v, out));
        translate(f->words, true, out);
        *there = strcmp(out, "null") != 0 || f->kind == IS;
        if (*there) return OK;
    }
    TRY(absent_text(r, f, out, there));
    if (*there) translate(f->words, true, out);
    return OK;
}

static Status assign(const Reading *r, const char *key, const char *setting, const char *value)
{
    char text[2 * VALUE_BYTES], why[512];
    (void)snprintf(text, sizeof text, "%s=%s", setting, value);
    Status s = config_override(r->c, r->arena, text);
    if (s == OK) return OK;
    status_sentence(why, sizeof why);
    return FAIL(s, "%s: %s: %s", r->path, key == NULL ? r->family->type : key, why);
}

/* NULL: nothing is known of the setting. */
static const char *unused_value(const char *setting)
{
    for (size_t i = 0; setting != NULL && i < sizeof unused / sizeof *unused; i++) {
        if (strcmp(unused[i].setting, setting) == 0) return unused[i].value;
    }
    return NULL;
}

/* The setting of the row is not in rows.def: OK if the value says that its feature is not used. */
static Status refuse_feature(const Reading *r, const Field *f, const char *value)
{
    const char *plain = unused_value(f->setting);
    if (plain != NULL ? same_value(plain, value) : f->kind != CONST) return OK;
    if (f->kind != CONST)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: %.*s is %s: it needs %s, which this program does not have yet", r->path,
                    KEY(f), value, f->setting);
    return FAIL(ERR_UNSUPPORTED, "%s: %s models have %s %s, which this program does not have yet",
                r->path, r->family->type, f->setting, value);
}

static Status read_is(const Reading *r, const Field *f)
{
    char text[VALUE_BYTES];
    bool there = false;
    if (f->setting != NULL && row_of(f->setting) != NULL) return OK;
    TRY(member_text(r, f, text, &there));
    if (same_value(text, f->absent) || strcmp(text, "null") == 0) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: %.*s is %s; %s models are supported with %s alone", r->path,
                KEY(f), text, r->family->type, f->absent);
}

static Status read_first(const Reading *r, const Field *f)
{
    char text[VALUE_BYTES];
    int n = 0;
    const cJSON *list = member(r->json, f->key), *at = NULL;
    if (list == NULL || cJSON_IsNull(list)) return assign(r, f->key, f->setting, "0");
    bool first = cJSON_IsArray(list);
    cJSON_ArrayForEach(at, list) first = first && cJSON_IsNumber(at) && at->valuedouble == n++;
    (void)snprintf(text, sizeof text, "%d", n);
    if (first) return assign(r, f->key, f->setting, text);
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s is no list of the first layers in order: layers without experts between "
                "others are not supported",
                r->path, f->key);
}

/* A list of layers stands above the interval of the file, which stays where both say the same. Layers
 * without experts may come first. */
static Status read_layers(const Reading *r, const Field *f)
{
    const bool zeros = f->kind == NOPES;
    const cJSON *list = member(r->json, f->key);
    LayersList l = { .every = zeros ? r->c->attention_nope_every : r->c->moe_every };
    char text[VALUE_BYTES];
    if (l.every < 1)
        return FAIL(ERR_UNSUPPORTED, "%s: no_rope_layer_interval is 0: wanted 1 or more", r->path);
    if (list == NULL || cJSON_IsNull(list) || (zeros && cJSON_IsArray(list) && !list->child))
        return OK;
    TRY(layers_list(r->path, list, zeros, r->c->model_layers, r->arena, &l));
    (void)snprintf(text, sizeof text, "%lld", (long long)l.every);
    TRY(assign(r, f->key, f->setting, text));
    if (zeros) return assign(r, f->key, "attention.full_every", text);
    (void)snprintf(text, sizeof text, "%lld", (long long)l.first);
    return assign(r, f->key, "model.dense_layers", text);
}

static Status read_topk(const Reading *r, const Field *f)
{
    const cJSON *v = member(r->json, f->key);
    const char *word = v == NULL ? "greedy" : cJSON_GetStringValue(v);
    if (word != NULL && strcmp(word, "group_limited_greedy") == 0) return OK;
    if (word == NULL || strcmp(word, "greedy") != 0)
        return FAIL(ERR_UNSUPPORTED, "%s: %s is neither greedy nor group_limited_greedy", r->path,
                    f->key);
    TRY(assign(r, f->key, "moe.groups", "1"));
    return assign(r, f->key, "moe.top_groups", "1");
}

/* Every full_every-th layer sees all keys, as does every one without a window or chunks. */
static Status read_types(const Reading *r, const Field *f)
{
    char window[VALUE_BYTES];
    const cJSON *list = member(r->json, f->key), *at = NULL;
    TRY(value_text(r->c, "attention.window", r->arena, window));
    bool part = r->c->attention_chunk > 0 || strtod(window, NULL) > 0;
    int64_t every = r->c->attention_full_every, i = 0;
    cJSON_ArrayForEach(at, list)
    {
        const char *word = cJSON_GetStringValue(at);
        bool full = word != NULL && strcmp(word, "full_attention") == 0;
        bool expected = !part || (every > 0 && (i + 1) % every == 0);
        if (full != expected)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: %s says that layer %lld has %s, other members that it "
                        "has %s",
                        r->path, f->key, (long long)i, word == NULL ? "no type" : word,
                        expected ? "full_attention" : "another");
        i++;
    }
    return OK;
}

static Status read_quant(const Reading *r, const Field *f)
{
    cJSON *q = member(r->json, f->key);
    if (q == NULL || cJSON_IsNull(q)) return OK;
    const char *method = cJSON_GetStringValue(member(q, "quant_method"));
    if (r->family->bit == GPT_OSS && method != NULL && strcmp(method, "mxfp4") == 0) return OK;
    if (method == NULL || strcmp(method, "fp8") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: weights are quantized by quant_method %s; fp8 with scales of blocks is "
                    "read, mxfp4 of gpt_oss, and what is not quantized",
                    r->path, method == NULL ? "null" : method);
    const cJSON *size = member(q, "weight_block_size"), *at = NULL;
    cJSON_ArrayForEach(at, size)
    {
        if (!cJSON_IsNumber(at) || at->valuedouble != 128)
            return FAIL(ERR_UNSUPPORTED, "%s: weight_block_size is not 128 x 128", r->path);
    }
    return OK;
}

static Status read_value(const Reading *r, const Field *f)
{
    char text[VALUE_BYTES] = "";
    bool there = false;
    TRY(member_text(r, f, text, &there));
    if (!there) return OK;
    if (row_of(f->setting) == NULL) return refuse_feature(r, f, text);
    return assign(r, f->key, f->setting, text);
}

static Status read_field(const Reading *r, const Field *f)
{
    switch (f->kind) {
    case WRITE: return OK;
    case IS: return read_is(r, f);
    case FIRST: return read_first(r, f);
    case TOPK: return read_topk(r, f);
    case TYPES: return read_types(r, f);
    case QUANT: return read_quant(r, f);
    case MOES:
    case NOPES: return read_layers(r, f);
    case SET:
    case TRAIN:
    case CONST: return read_value(r, f);
    }
    return OK;
}

static Status find_family(const char *path, const cJSON *json, const Family **out)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "model_type"));
    const char *names[32];
    char hint[TEXT_HINT_BYTES];
    if (type == NULL) return FAIL(ERR_FORMAT, "%s has no model_type", path);
    for (int i = 0; i < family_count; i++) {
        names[i] = families[i].type;
        *out = &families[i];
        if (strcmp(type, families[i].type) == 0) return OK;
    }
    return FAIL(ERR_UNSUPPORTED, "%s: model_type %.60s is no family that is known%s", path, type,
                text_hint(hint, type, names, family_count, ""));
}

Status family_read(const char *path, cJSON *json, Arena *a, Config *c, const Family **family)
{
    cJSON *text = cJSON_GetObjectItemCaseSensitive(json, "text_config");
    if (cJSON_IsObject(text)) json = text; /* a model of images and text */
    if (!cJSON_IsObject(json)) return FAIL(ERR_FORMAT, "%s is no JSON object", path);
    TRY(find_family(path, json, family));
    const Reading r = { path, json, *family, a, c };
    for (int i = 0; i < FIELDS; i++) {
        if (fields[i].families & (*family)->bit) TRY(read_field(&r, &fields[i]));
    }
    return OK;
}

/* ---- writing ---- */

/* Members of another config.json beside the same tokenizer that are kept: no setting has them. */
static const char *const kept[] = { "bos_token_id", "eos_token_id", "pad_token_id",
                                    "max_position_embeddings" };

/* Numbers of the layers that have experts, or of the first ones that have not. */
static Status write_list(const Config *c, const char *key, bool experts, cJSON *json)
{
    const int64_t n = experts ? c->model_layers : c->model_dense_layers;
    cJSON *list = cJSON_CreateArray();
    for (int64_t i = 0; i < n; i++) {
        if (experts && !config_has_experts(c, i)) continue;
        (void)cJSON_AddItemToArray(list, cJSON_CreateNumber((double)i));
    }
    return family_put(json, key, list);
}

/* Members of an object that is not there are left out unless rotary positions are scaled. */
static Status write_value(const Config *c, const Field *f, Arena *a, cJSON *json)
{
    char text[VALUE_BYTES] = "";
    const bool known = f->setting != NULL && row_of(f->setting) != NULL;
    const char *plain =
        f->kind == SET && unused_value(f->setting) ? unused_value(f->setting) : f->absent;
    if (known)
        TRY(value_text(c, f->setting, a, text));
    else if (plain != NULL && plain[0] != '@')
        (void)snprintf(text, sizeof text, "%s", plain);
    else
        return OK;
    const char *object = "";
    char name[VALUE_BYTES], scaling[VALUE_BYTES];
    (void)split_key(f->key, 0, &object, name);
    TRY(value_text(c, "rope.scaling", a, scaling));
    bool scaled = scaling[0] != '\0' && strcmp(scaling, "none") != 0;
    bool kinds = f->words != NULL && strchr(f->words, '=') == NULL;
    if (object[0] != '\0' && (f->kind == IS || !scaled)) return OK;
    if (kinds && text_word_index(f->words, scaling) < 0) return OK;
    /* what another row has written is left: a value that is not the family's is found by reading */
    if (f->kind == IS && member(json, f->key) != NULL) return OK;
    translate(f->words, false, text);
    bool real = known && row_of(f->setting)->type == CONFIG_REAL;
    return family_put(json, f->key, json_value(text, real || strchr(text, '.') != NULL));
}

static Status write_field(const Config *c, const Field *f, Arena *a, cJSON *json)
{
    switch (f->kind) {
    case CONST:
    case TYPES:
    case NOPES:
    case QUANT: return OK;
    case FIRST: return write_list(c, f->key, false, json);
    case MOES: return c->model_dense_layers > 0 ? write_list(c, f->key, true, json) : OK;
    case TOPK:
        return family_put(
            json, f->key,
            cJSON_CreateString(c->moe_groups > 1 ? "group_limited_greedy" : "greedy"));
    case SET:
    case TRAIN:
    case IS:
    case WRITE: break;
    }
    return write_value(c, f, a, json);
}
static Status write_family(const Config *c, const Family *f, const cJSON *like, Arena *a,
                           cJSON **out)
{
    cJSON *json = cJSON_CreateObject(), *names = cJSON_CreateArray();
    *out = json;
    if (!cJSON_AddItemToArray(names, cJSON_CreateString(f->architecture)))
        return FAIL(ERR_MEMORY, "config.json cannot be made: no memory");
    TRY(family_put(json, "architectures", names));
    TRY(family_put(json, "model_type", cJSON_CreateString(f->type)));
    for (size_t i = 0; like != NULL && i < sizeof kept / sizeof *kept; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(like, kept[i]);
        if (v != NULL) TRY(family_put(json, kept[i], cJSON_Duplicate(v, true)));
    }
    for (int i = 0; i < FIELDS; i++) {
        if (fields[i].families & f->bit) TRY(write_field(c, &fields[i], a, json));
    }
    return OK;
}

/* Settings that say nothing where others have the values that these have. */
static void forget(Config *c)
{
    if (c->attention_kind == ATTENTION_MLA) {
        c->attention_kv_heads = c->attention_head_dim = 0;
        c->attention_qk_norm = QK_NORM_NONE;
    } else {
        c->attention_q_rank = c->attention_kv_rank = c->attention_nope_dim = 0;
        c->attention_rope_dim = c->attention_v_dim = 0;
    }
    if (c->model_dense_layers == 0) c->model_ffn = 0;
    if (c->moe_groups == 1) c->moe_top_groups = c->moe_group_score_top = 1;
    c->attention_rope_interleaved = false;
}

/* Settings whose 0 stands for another one's value. */
static Status spell_out(Config *c, Arena *a)
{
    char value[VALUE_BYTES], text[2 * VALUE_BYTES];
    TRY(value_text(c, LATENT_EPS, a, value));
    if (c->attention_kind != ATTENTION_MLA || strcmp(value, "0") != 0) return OK;
    (void)snprintf(text, sizeof text, LATENT_EPS "=%.17g", c->model_norm_eps);
    return config_override(c, a, text);
}

/* Does the change of a row make another model? */
static bool matters(const ConfigRow *row, bool dense)
{
    if (row->mark != CONFIG_MATH) return false;
    for (size_t i = 0; i < sizeof training / sizeof *training; i++) {
        if (strcmp(row->name, training[i]) == 0) return false;
    }
    return text_starts(row->name, "model.") || text_starts(row->name, "attention.") ||
           text_starts(row->name, "rope.") || (!dense && text_starts(row->name, "moe."));
}

/* How many settings differ in what the model computes; a sentence on the first. A bias of the router
 * that a family has and the model lacks is zero. */
static Status count_differences(const Config *ours, const Config *theirs, Arena *a, int *count,
                                char why[256])
{
    Config x = *ours, y = *theirs;
    const ConfigChange *change = NULL;
    int n = 0;
    *count = 0;
    forget(&x), forget(&y);
    TRY(spell_out(&x, a));
    TRY(spell_out(&y, a));
    TRY(config_changes(&x, &y, a, &change, &n));
    for (int i = 0; i < n; i++) {
        if (!matters(change[i].row, config_moe_layers(&x) == 0)) continue;
        if ((*count)++ == 0)
            (void)snprintf(why, 256, "%s is %.60s, there it is %.60s", change[i].row->name,
                           change[i].then, change[i].now);
    }
    bool dense = config_moe_layers(&x) == 0;
    if (dense || x.moe_bias_rate == 0 || y.moe_bias_rate > 0) return OK;
    if ((*count)++ == 0)
        (void)snprintf(why, 256, "moe.bias_rate is %g, there the router has no bias",
                       x.moe_bias_rate);
    return OK;
}

/* A family's config.json, read again. */
typedef struct Attempt {
    cJSON *json;
    Config *theirs;
    int differ;
    char why[256];
} Attempt;

/* A family that cannot be read again differs in more than settings. */
static Status try_family(const Config *c, const Family *f, const cJSON *like, Arena *a,
                         Attempt *out)
{
    const Family *read = NULL;
    TRY(config_default(out->theirs, a));
    TRY(write_family(c, f, like, a, &out->json));
    Status s = family_read("config.json", out->json, a, out->theirs, &read);
    if (s == OK) return count_differences(c, out->theirs, a, &out->differ, out->why);
    status_sentence(out->why, sizeof out->why);
    status_clear();
    out->differ = FIELDS;
    return OK;
}

/* Is `like` of the family? */
static bool is_of(const cJSON *like, const Family *f)
{
    const char *type =
        like == NULL ? NULL
                     : cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(like, "model_type"));
    return type != NULL && strcmp(type, f->type) == 0;
}

Status family_write(const Config *c, const cJSON *like, Arena *a, cJSON **json,
                    const Family **family, Config *theirs)
{
    int least = FIELDS + 1;
    char nearest[256] = "";
    for (int i = 0; i < 2 * family_count; i++) {
        const Family *f = &families[i % family_count];
        if (f->architecture == NULL || (i < family_count) != is_of(like, f)) continue;
        Attempt now = { .theirs = theirs };
        Status s = try_family(c, f, like, a, &now);
        *family = f;
        *json = now.json;
        if (s == OK && now.differ == 0) return OK;
        cJSON_Delete(now.json);
        *json = NULL;
        if (s != OK) return s;
        if (now.differ >= least) continue;
        least = now.differ;
        (void)snprintf(nearest, sizeof nearest, "the nearest is %s, but %.200s", f->type, now.why);
    }
    return FAIL(ERR_UNSUPPORTED, "no family of Hugging Face's has this model: %s", nearest);
}
