/*
 * fields_write: writes settings as a config.json, and finds the family that can express them.
 *
 * A family can express a model if its config.json, read again, gives settings that compute the same in
 * evaluation. Writing and reading again means that no rule is stated twice. Settings that affect only
 * training never prevent an export: family_not_carried names those for which the file has no member.
 */
#include "convert/fields.h"
#include "engine/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Settings that affect only training. moe.bias_rate moves the router's bias; whether there is a bias is
 * part of the model, and same_router checks that. */
static const char *const training[] = { "model.init_std", "attention.document_mask",
                                        "moe.bias_rate",  "moe.bias_rule",
                                        "moe.z_loss",     "moe.capacity",
                                        "moe.aux_loss",   "moe.aux_scope",
                                        "mtp.loss" };

enum { TRAINING = sizeof training / sizeof *training };

/* ---- members ---- */

/* Members without a setting. They are copied from a config.json in the tokenizer's folder. */
static const char *const kept[] = { "bos_token_id", "eos_token_id", "pad_token_id",
                                    "max_position_embeddings" };

/* The object of rotary positions that is written: versions 4 and 5 of transformers both read it. */
#define ROPE "rope_scaling"

Status family_put(Arena *a, Json *json, const char *keys, Json value)
{
    FieldValue name;
    const bool rope = field_written(keys, name);
    if (rope && json_get(json, ROPE) == NULL) TRY(json_put(a, json, ROPE, json_of(JSON_OBJECT)));
    return json_put(a, rope ? json_get(json, ROPE) : json, name, value);
}

/* Writes the numbers of the layers with experts, or of the leading layers without. */
static Status write_list(const Config *c, const char *key, bool experts, Arena *a, Json *json)
{
    const int64_t n = experts ? c->model_layers : c->model_dense_layers;
    Json list = json_of(JSON_ARRAY);
    for (int64_t i = 0; i < n; i++) {
        if (experts && !config_has_experts(c, i)) continue;
        TRY(json_add(a, &list, NULL, json_of_number((double)i)));
    }
    return family_put(a, json, key, list);
}

/* Writes the only value that the family supports, unless another row has written the member. A model
 * with another value is detected when the file is read again. */
static Status write_only_value(const Field *f, Arena *a, Json *json)
{
    FieldValue room;
    bool rope = f->key[0] == '~';
    if (f->absent[0] == '@' || rope || field_member(json, NULL, f->key) != NULL) return OK;
    const bool real = strchr(f->absent, '.') != NULL;
    return family_put(a, json, f->key, field_json(f->absent, real, room));
}

/* Members of rotary positions are written for the kinds of scaling that have them. Where nothing is
 * scaled, the kind itself is written only if the family's class would scale without it. */
static Status write_value(const Config *c, const Field *f, unsigned family, Arena *a, Json *json)
{
    FieldValue text, scaling, room;
    TRY(field_setting_text(c, f->setting, a, text));
    TRY(field_setting_text(c, "rope.scaling", a, scaling));
    if (!field_applies(f, scaling)) return OK;
    if (strcmp(f->setting, "rope.scaling") == 0 && c->rope_scaling == SCALING_NONE &&
        field_rope_absent(family) == NULL)
        return OK;
    field_translate(f->words, false, text);
    bool real = field_row(f->setting)->type == CONFIG_REAL;
    return family_put(a, json, f->key, field_json(text, real, room));
}

static const char *topk_method(const Config *c)
{
    if (c->moe_bias_rate > 0) return "noaux_tc";
    return c->moe_groups > 1 ? "group_limited_greedy" : "greedy";
}

static Status write_field(const Config *c, const Field *f, unsigned family, Arena *a, Json *json)
{
    switch (f->kind) {
    case NEUTER:
    case MSCALE:
    case CONST:
    case TYPES:
    case NOPES:
    case LINEARS:
    case QUANT: return OK;
    case FIRST: return write_list(c, f->key, false, a, json);
    case MOES: return c->model_dense_layers > 0 ? write_list(c, f->key, true, a, json) : OK;
    case TOPK: return family_put(a, json, f->key, json_of_text(topk_method(c)));
    case WIDTH:
        return family_put(a, json, f->key, json_of_number((double)(c->moe_shared * c->moe_ffn)));
    case IS: return write_only_value(f, a, json);
    case TEMPER: return family_put(a, json, f->key, json_of_bool(c->attention_temper_floor > 0));
    case SET:
    case TRAIN:
    case WRITE: break;
    }
    return write_value(c, f, family, a, json);
}

static Status write_family(const Config *c, const Family *f, const Json *like, Arena *a, Json *json)
{
    Json names = json_of(JSON_ARRAY);
    TRY(json_add(a, &names, NULL, json_of_text(f->architecture)));
    TRY(json_add(a, json, "architectures", names));
    TRY(json_add(a, json, "model_type", json_of_text(f->type)));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const Json *v = json_get(like, kept[i]);
        if (v != NULL) TRY(json_add(a, json, kept[i], *v));
    }
    for (int i = 0; i < field_count; i++) {
        if (fields[i].families & f->bit) TRY(write_field(c, &fields[i], f->bit, a, json));
    }
    return OK;
}

/* ---- which family ---- */

/* Resets settings of attention that have no effect with its kind. */
static void forget_attention(Config *c)
{
    if (c->attention_kind == ATTENTION_MLA) {
        c->attention_kv_heads = c->attention_head_dim = 0;
        if (c->attention_latent_eps == 0) c->attention_latent_eps = c->model_norm_eps;
    } else {
        c->attention_q_rank = c->attention_kv_rank = c->attention_nope_dim = 0;
        c->attention_rope_dim = c->attention_v_dim = 0;
        c->attention_latent_eps = 0;
    }
    c->attention_rope_interleaved = false; /* rows of matrices are reordered */
    if (c->attention_temper_floor == 0) c->attention_temper_scale = 0;
}

static void forget_rope(Config *c)
{
    const bool yarn = c->rope_scaling == SCALING_YARN, llama3 = c->rope_scaling == SCALING_LLAMA3;
    if (!yarn && !llama3) c->rope_original = 0;
    if (!llama3) c->rope_low_freq = c->rope_high_freq = 0;
    if (yarn) return;
    c->rope_beta_fast = c->rope_beta_slow = c->rope_mscale = c->rope_mscale_all_dim = 0;
    c->rope_truncate = false;
}

/* Some settings have no effect, given the values of others. Sets each of these to a fixed value, so that
 * they do not count as differences. */
static void forget_idle_settings(Config *c)
{
    forget_attention(c);
    forget_rope(c);
    if (c->delta_full_every == 0)
        c->delta_key_heads = c->delta_heads = c->delta_key_dim = c->delta_value_dim =
            c->delta_taps = 0;
    if (c->moe_groups == 1) c->moe_top_groups = c->moe_group_score_top = 1;
    if (c->moe_activation != ACTIVATION_CLAMPED) c->moe_limit = 0;
}

/* Does another value of the row make another model? model.loss_chunk only says how the loss is
 * computed. */
static bool makes_the_model(const ConfigRow *row, bool dense)
{
    if (row->mark != CONFIG_MATH || strcmp(row->name, "model.loss_chunk") == 0) return false;
    for (int i = 0; i < TRAINING; i++) {
        if (strcmp(row->name, training[i]) == 0) return false;
    }
    return text_starts(row->name, "model.") || text_starts(row->name, "attention.") ||
           text_starts(row->name, "rope.") || text_starts(row->name, "delta.") ||
           (!dense && text_starts(row->name, "moe."));
}

/* If only the family has a router bias, zeros are written. If only the model has one, it would be
 * lost. */
static bool same_router(const Config *ours, const Config *theirs)
{
    return config_moe_layers(ours) == 0 || ours->moe_bias_rate == 0 || theirs->moe_bias_rate > 0;
}

/* The result of writing a family's config.json and reading it again. */
typedef struct Attempt {
    Json *json;
    Config *theirs;
    int differ; /* settings that differ in what the model computes */
    char why[256];
} Attempt;

/* `all`: settings of experts count even if the model has none. */
static Status count_differences(const Config *ours, bool all, Arena *a, Attempt *out)
{
    Config x = *ours, y = *out->theirs;
    const ConfigChange *change = NULL;
    const bool dense = !all && config_moe_layers(&x) == 0;
    int n = 0;
    forget_idle_settings(&x);
    forget_idle_settings(&y);
    /* Without dense layers on one side the layers differ, too. */
    if (config_moe_layers(&x) == x.model_layers || config_moe_layers(&y) == y.model_layers)
        x.model_ffn = y.model_ffn;
    TRY(config_changes(&x, &y, a, &change, &n));
    for (int i = 0; i < n; i++) {
        if (!makes_the_model(change[i].row, dense)) continue;
        if (out->differ++ == 0)
            (void)snprintf(out->why, sizeof out->why, "%s is %.60s here and %.60s there",
                           change[i].row->name, change[i].then, change[i].now);
    }
    if (same_router(&x, &y)) return OK;
    if (out->differ++ == 0)
        (void)snprintf(out->why, sizeof out->why,
                       "its router has no bias, which moe.bias_rate %g moves here",
                       x.moe_bias_rate);
    return OK;
}

/* A member that the family's reader refuses is a difference. */
static Status try_family(const Config *c, const Family *f, const Json *like, bool all, Arena *a,
                         Attempt *out)
{
    const Family *read = NULL;
    Refusals refused = { 0 };
    TRY(config_default(out->theirs, a));
    TRY(ARENA_NEW(a, 1, &out->json));
    *out->json = json_of(JSON_OBJECT);
    TRY(write_family(c, f, like, a, out->json));
    TRY(family_read_on("its config.json", out->json, a, out->theirs, &read, &refused));
    out->differ = refused.n;
    (void)snprintf(out->why, sizeof out->why, "%s", refused.why);
    return count_differences(c, all, a, out);
}

static bool is_of_family(const Json *like, const Family *f)
{
    const char *type = json_string(json_get(like, "model_type"));
    return type != NULL && strcmp(type, f->type) == 0;
}

/* The families of one round, that of `like` first. *best: the attempt with the fewest differences. */
static Status try_families(const Config *c, const Json *like, bool all, Arena *a,
                           const Family **family, Attempt *best)
{
    for (int i = 0; i < 2 * family_count; i++) {
        const Family *f = &families[i % family_count];
        if (f->architecture == NULL || (i < family_count) != is_of_family(like, f)) continue;
        Attempt now = { .theirs = best->theirs };
        ArenaMark mark = arena_mark(a);
        TRY(try_family(c, f, like, all, a, &now));
        if (now.differ < best->differ) {
            *best = now;
            *family = f;
        }
        if (now.differ == 0) return OK;
        arena_release(a, mark);
    }
    return OK;
}

/* A model whose layers are all dense keeps its settings of experts if a family has members for them. */
Status family_write(const Config *c, const Json *like, Arena *a, Json **json, const Family **family,
                    Config *theirs)
{
    Attempt best = { .theirs = theirs, .differ = INT_MAX };
    *json = NULL;
    if (config_moe_layers(c) == 0) TRY(try_families(c, like, true, a, family, &best));
    if (best.differ > 0) {
        best.differ = INT_MAX;
        TRY(try_families(c, like, false, a, family, &best));
    }
    if (best.differ == 0) {
        *json = best.json;
        return OK;
    }
    return FAIL(ERR_UNSUPPORTED,
                "no Hugging Face family has this model: the nearest is %s, but %.200s",
                (*family)->type, best.why);
}

static bool has_member(const Family *f, const char *setting)
{
    for (int i = 0; i < field_count; i++) {
        const Field *row = &fields[i];
        bool carries = row->kind == SET || row->kind == TRAIN;
        if ((row->families & f->bit) == 0 || !carries) continue;
        if (strcmp(row->setting, setting) == 0) return true;
    }
    return false;
}

static bool applies(const Config *c, const char *setting)
{
    if (text_starts(setting, "moe.")) return config_moe_layers(c) > 0;
    return c->mtp_layers > 0 || !text_starts(setting, "mtp.");
}

Status family_not_carried(const Config *c, const Family *f, Arena *a, Text *out)
{
    Config plain;
    const size_t before = out->used;
    TRY(config_default(&plain, a));
    for (int i = 0; i < TRAINING; i++) {
        FieldValue ours, fallback;
        const char *part = out->used == before ? "not carried by the format: " : ", ";
        if (has_member(f, training[i]) || !applies(c, training[i])) continue;
        TRY(field_setting_text(c, training[i], a, ours));
        TRY(field_setting_text(&plain, training[i], a, fallback));
        if (strcmp(ours, fallback) == 0) continue;
        TRY(text_printf(out, "%s%s %s", part, training[i], ours));
    }
    return out->used == before ? OK : text_printf(out, "\n");
}
