/* fields_read: reads a config.json into settings, as the family's class of transformers reads it. What the
 * class reads otherwise than any setting says is refused by the member's name. */
#include "convert/fields.h"

#include "engine/base/text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reading {
    const char *path;
    const Json *top, *json, *rope; /* the file, its text part, the object of rotary positions */
    const Family *family;
    Arena *arena;
    Config *c;
} Reading;

/* A value as it is written in the file, for messages: "64" for a text, 64 for a number. */
static const char *shown_value(const Reading *r, const Json *v, FieldValue out)
{
    ArenaMark mark = arena_mark(r->arena);
    Text text = { 0 };
    bool shown = text_init(&text, r->arena) == OK && json_print(v, false, &text) == OK;
    (void)snprintf(out, FIELD_VALUE_BYTES, "%s", shown ? text.data : "?");
    arena_release(r->arena, mark);
    return out;
}

static bool may_be_null(const Field *f)
{
    return f->kind == TRAIN || (f->words != NULL && strstr(f->words, "null=") != NULL);
}

static Json *member_of(const Reading *r, const Field *f)
{
    return field_member(r->json, r->rope, f->key);
}

/* Describes the type that a member should have; NULL: it has the right type. */
static const char *wrong_type(const Field *f, const Json *v)
{
    const bool truth = f->words != NULL && text_starts(f->words, "true=");
    const double x = v->number;
    if (v->type == JSON_NULL && may_be_null(f)) return NULL;
    if (f->words != NULL && strcmp(f->words, "null=0") == 0 && v->type == JSON_NUMBER && x == 0)
        return "1 or more, or null"; /* 0 is none in our settings alone */
    switch (truth ? CONFIG_BOOL : field_row(f->setting)->type) {
    case CONFIG_INT: return v->type == JSON_NUMBER && x == floor(x) ? NULL : "a whole number";
    case CONFIG_REAL: return v->type == JSON_NUMBER && isfinite(x) ? NULL : "a number";
    case CONFIG_BOOL: return v->type == JSON_BOOL ? NULL : "true or false";
    default: return v->type == JSON_TEXT ? NULL : "a text";
    }
}

/* The text of a JSON value, as config_override accepts it. */
static void value_text(const Json *v, FieldValue out)
{
    const double x = v->number;
    const char *word = v->type == JSON_NULL ? "null" : v->truth ? "true" : "false";
    if (v->type != JSON_NUMBER || v->text != NULL)
        (void)snprintf(out, FIELD_VALUE_BYTES, "%s", v->text != NULL ? v->text : word);
    else
        (void)snprintf(out, FIELD_VALUE_BYTES, x == floor(x) && fabs(x) < 1e15 ? "%.0f" : "%.17g",
                       x);
}

/* The text to use for an absent member. *there false: the setting keeps its default. */
static Status absent_text(const Reading *r, const Field *f, FieldValue out, bool *there)
{
    FieldValue name;
    *there = f->absent != NULL;
    if (f->absent == NULL) return OK;
    if (strcmp(f->absent, FIELD_REQUIRED) == 0) {
        assert(f->key != NULL);
        (void)field_written(f->key, name);
        return FAIL(ERR_FORMAT, "%s has no %s, which %s models need", r->path, name,
                    r->family->type);
    }
    if (strcmp(f->absent, FIELD_HEAD) == 0) {
        TRY(config_divides("num_attention_heads", r->c->attention_heads, "hidden_size",
                           r->c->model_hidden));
        (void)snprintf(out, FIELD_VALUE_BYTES, "%lld",
                       (long long)(r->c->model_hidden / r->c->attention_heads));
        return OK;
    }
    if (f->absent[0] == '@') return field_setting_text(r->c, f->absent + 1, r->arena, out);
    (void)snprintf(out, FIELD_VALUE_BYTES, "%s", f->absent);
    return OK;
}

/* The value of a member as a setting's text. */
static Status member_text(const Reading *r, const Field *f, FieldValue out, bool *there)
{
    const Json *v = f->key == NULL ? NULL : member_of(r, f);
    const char *wanted = v == NULL ? NULL : wrong_type(f, v);
    FieldValue value;
    if (wanted != NULL)
        return FAIL(ERR_FORMAT, "%s: %s is %s; it must be %s", r->path, v->name,
                    shown_value(r, v, value), wanted);
    if (v != NULL) {
        value_text(v, out);
        field_translate(f->words, true, out);
        *there = strcmp(out, "null") != 0;
        if (*there) return OK;
    }
    TRY(absent_text(r, f, out, there));
    if (*there) field_translate(f->words, true, out);
    return OK;
}

/* Goes through config_override, so ranges and words are checked by the row itself. The error has the
 * member and its value in place of the override. */
static Status assign_setting(const Reading *r, const Field *f, const char *setting,
                             const char *value)
{
    char text[2 * FIELD_VALUE_BYTES], why[512];
    FieldValue shown;
    (void)snprintf(text, sizeof text, "%s=%s", setting, value);
    Status s = config_override(r->c, r->arena, text);
    if (s == OK) return OK;
    status_sentence(why, sizeof why);
    const Json *v = f->key == NULL ? NULL : member_of(r, f);
    const char *end = text_starts(why, "override ") ? strstr(why, ": ") : NULL;
    if (v == NULL) return FAIL(s, "%s: %s: %s", r->path, r->family->type, why);
    return FAIL(s, "%s: %s is %s: %s", r->path, v->name, shown_value(r, v, shown),
                end == NULL ? why : end + 2);
}

static Status assign_number(const Reading *r, const Field *f, const char *setting, int64_t value)
{
    FieldValue text;
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return assign_setting(r, f, setting, text);
}

static bool is_absent(const Json *v) { return v == NULL || v->type == JSON_NULL; }

/* A member that is absent and has no default leaves the setting as config_default made it. */
static Status read_value(const Reading *r, const Field *f)
{
    FieldValue text = "";
    bool there = false;
    TRY(member_text(r, f, text, &there));
    return there ? assign_setting(r, f, f->setting, text) : OK;
}

/* The family supports only one value of this member; an absent member is right, too. */
static Status read_is(const Reading *r, const Field *f)
{
    FieldValue text, value;
    bool there = false;
    const Json *v = member_of(r, f);
    if (is_absent(v)) return OK;
    TRY(absent_text(r, f, text, &there));
    const Json only = field_json(text, false, value);
    bool same = v->type == only.type && v->truth == only.truth && v->number == only.number;
    if (same && v->type == JSON_TEXT) same = strcmp(v->text, only.text) == 0;
    if (same) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: %s is %s; %s models are supported with %s alone", r->path,
                v->name, shown_value(r, v, value), r->family->type, text);
}

/* Without tuning floor_scale has no effect. With it a floor of 0 would divide by 0. */
static Status read_temper(const Reading *r, const Field *f)
{
    FieldValue tuning;
    bool there = false;
    TRY(member_text(r, f, tuning, &there));
    if (strcmp(tuning, "true") != 0) return assign_setting(r, f, f->setting, "0");
    if (r->c->attention_temper_floor > 0) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: floor_scale is 0; it must be 1 or more, or %s false", r->path,
                f->key);
}

/* As Python sees it: what is no number counts, too. */
static bool is_true(const Json *v)
{
    if (json_is(v, JSON_NUMBER)) return v->number != 0;
    return !is_absent(v) && (v->type != JSON_BOOL || v->truth);
}

/* YaRN multiplies rotated columns by m(mscale) / m(mscale_all_dim) if both are there and not 0, else by
 * m(1). DeepSeek's attention multiplies scores by m(mscale_all_dim) squared, with any kind of scaling. */
static Status read_mscale(const Reading *r, const Field *f)
{
    FieldValue value;
    const bool latent = (r->family->bit & FAMILY_MLA) != 0;
    const bool yarn = r->c->rope_scaling == SCALING_YARN;
    const bool both = yarn && r->c->rope_mscale != 0 && r->c->rope_mscale_all_dim != 0;
    const Json *all = member_of(r, f);
    if (yarn && r->family->bit == LLAMA4 && r->c->attention_qk_norm == QK_NORM_L2)
        return FAIL(
            ERR_UNSUPPORTED,
            "%s: rope_type is yarn with use_qk_norm true: in this class the norm follows the "
            "rotation and undoes YaRN's factor",
            r->path);
    if (both ? latent : !latent || !is_true(all)) {
        if (both || !yarn) return OK;
        TRY(assign_setting(r, f, "rope.mscale", "1"));
        return assign_setting(r, f, "rope.mscale_all_dim", "0");
    }
    return FAIL(ERR_UNSUPPORTED, "%s: mscale_all_dim is %s; %s", r->path,
                shown_value(r, all, value),
                latent ? "it is supported with rope_type yarn and an mscale that is not 0"
                       : "it is supported in deepseek_v2 and deepseek_v3 models alone");
}

/* The list's length becomes model.dense_layers, so only 0, 1, 2, ... can be expressed. */
static Status read_first(const Reading *r, const Field *f)
{
    int n = 0;
    const Json *list = member_of(r, f);
    if (is_absent(list)) return assign_setting(r, f, f->setting, "0");
    bool first = list->type == JSON_ARRAY;
    for (const Json *at = list->child; at != NULL; at = at->next)
        first = first && at->type == JSON_NUMBER && at->number == n++;
    if (first) return assign_number(r, f, f->setting, n);
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s must list the first layers in order: a layer without experts after one "
                "with experts is not supported",
                r->path, f->key);
}

/* An interval of layers: those i >= first for which `every` divides i + 1. */
typedef struct LayersList {
    int64_t every, first;
} LayersList;

static bool at_interval(const bool *has, int64_t layers, int64_t first, int64_t every)
{
    int64_t i = 0;
    while (i < layers && has[i] == (i >= first && (i + 1) % every == 0)) i++;
    return i == layers;
}

/* "full_attention" (true), or "linear_attention". */
static bool read_word(const Json *v, bool *has)
{
    const char *word = json_string(v);
    *has = word != NULL && strcmp(word, "full_attention") == 0;
    return *has || (word != NULL && strcmp(word, "linear_attention") == 0);
}

/* has[i]: does the list name layer i? each: the list says it of each layer, by 0 and 1 or by words. */
static Status read_layer_list(const char *path, const Json *list, bool each, bool words,
                              int64_t layers, bool *has)
{
    int64_t n = 0;
    bool good = json_is(list, JSON_ARRAY);
    for (const Json *at = json_first(list); at != NULL && good; at = at->next, n++) {
        const double x = at->number;
        bool named = x == 0;
        good = words ? read_word(at, &named)
                     : at->type == JSON_NUMBER && x == floor(x) && x >= 0 && (!each || x <= 1);
        if (good && !each && x < (double)layers) has[(int64_t)x] = true;
        if (good && each && n < layers) has[n] = named;
    }
    if (!good)
        return FAIL(ERR_FORMAT, "%s: %s must be a list of %s", path, list->name,
                    words  ? "full_attention and linear_attention"
                    : each ? "0 and 1"
                           : "layer numbers");
    if (!each || n >= layers) return OK;
    return FAIL(ERR_FORMAT, "%s: %s has %lld entries for %lld layers", path, list->name,
                (long long)n, (long long)layers);
}

/* Finds the interval of a list of layer numbers, or with `each` of a list that says it of each layer. out->every: an
 * interval that is tried first. An empty list gives `layers` + 1. Numbers from `layers` on are ignored. ERR_FORMAT: not
 * such a list. ERR_UNSUPPORTED: the layers have no interval. The sentence begins with the path and the list's name. */
static Status layers_list(const char *path, const Json *list, bool each, bool words, int64_t layers,
                          Arena *a, LayersList *out)
{
    int64_t every = out->every, first = 0;
    bool *has = NULL;
    TRY(ARENA_ZEROED(a, layers + 1, &has));
    TRY(read_layer_list(path, list, each, words, layers, has));
    if (at_interval(has, layers, 0, every)) {
        out->first = 0;
        return OK;
    }
    for (every = 1; every <= layers && !at_interval(has, layers, 0, every);) every++;
    if (!each && !at_interval(has, layers, 0, every)) {
        while (first < layers && !has[first]) first++;
        for (every = 1; every <= layers && !at_interval(has, layers, first, every);) every++;
    }
    *out = (LayersList){ every, first };
    if (at_interval(has, layers, first, every)) return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s is not supported: its layers do not follow at one interval", path,
                list->name);
}

/* A list of layers overrides the interval that the file also gives, unless they agree. Layers without
 * experts may come first. */
static Status read_layers(const Reading *r, const Field *f)
{
    const bool zeros = f->kind == NOPES, words = f->kind == LINEARS;
    const Json *list = member_of(r, f);
    LayersList l = { .every = zeros ? r->c->attention_nope_every : r->c->moe_every };
    if (words) l.every = r->c->delta_full_every > 0 ? r->c->delta_full_every : 1;
    if (l.every < 1)
        return FAIL(ERR_UNSUPPORTED, "%s: no_rope_layer_interval is 0; it must be 1 or more",
                    r->path);
    if (is_absent(list) || (zeros && list->type == JSON_ARRAY && list->child == NULL)) return OK;
    TRY(layers_list(r->path, list, zeros || words, words, r->c->model_layers, r->arena, &l));
    if (words) return assign_number(r, f, f->setting, l.every == 1 ? 0 : l.every);
    TRY(assign_number(r, f, f->setting, l.every));
    if (zeros) return assign_number(r, f, "attention.full_every", l.every);
    return assign_number(r, f, "model.dense_layers", l.first);
}

/* noaux_tc: the router's bias steers which experts are chosen, and the two best experts of a group
 * are its score (DeepSeek-V3, arXiv:2412.19437). */
static Status read_topk(const Reading *r, const Field *f)
{
    FieldValue value;
    const Json *v = member_of(r, f);
    const char *word = v == NULL ? "greedy" : json_string(v);
    if (word != NULL && strcmp(word, "group_limited_greedy") == 0) return OK;
    if (word != NULL && strcmp(word, "noaux_tc") == 0) {
        TRY(assign_setting(r, f, "moe.bias_rate", "0.001"));
        return assign_setting(r, f, "moe.group_score_top", "2");
    }
    if (word == NULL || strcmp(word, "greedy") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: %s is %s; it must be greedy, group_limited_greedy or noaux_tc", r->path,
                    f->key, shown_value(r, v, value));
    TRY(assign_setting(r, f, "moe.groups", "1"));
    return assign_setting(r, f, "moe.top_groups", "1");
}

/* The file gives the width of all shared experts together; we count shared experts of width moe.ffn. */
static Status read_width(const Reading *r, const Field *f)
{
    FieldValue width;
    bool there = false;
    TRY(member_text(r, f, width, &there));
    int64_t n = strtoll(width, NULL, 10);
    if (n >= 1 && n % r->c->moe_ffn == 0) return assign_number(r, f, f->setting, n / r->c->moe_ffn);
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s is %s; it must be a multiple of moe_intermediate_size, %lld", r->path,
                f->key, width, (long long)r->c->moe_ffn);
}

/* Checks that layer_types agrees with the other members. Every full_every-th layer sees all keys; so do
 * all layers if there is neither a window nor chunks. */
static Status read_types(const Reading *r, const Field *f)
{
    const bool part = r->c->attention_chunk > 0 || r->c->attention_window > 0;
    const Json *list = member_of(r, f);
    int64_t every = r->c->attention_full_every, i = 0;
    for (const Json *at = json_first(list); at != NULL; at = at->next) {
        const char *word = json_string(at);
        bool full = word != NULL && strcmp(word, "full_attention") == 0;
        bool expected = !part || (every > 0 && (i + 1) % every == 0);
        if (full != expected)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: %s gives layer %lld the type %s; the other members make it %s",
                        r->path, f->key, (long long)i, word == NULL ? "null" : word,
                        expected ? "full_attention" : "a layer that sees part of the keys");
        i++;
    }
    return OK;
}

/* Blocks are 128 x 128, which is also the default of transformers. */
static bool has_blocks(const Json *q)
{
    const Json *size = json_get(q, "weight_block_size"), *at = json_first(size);
    if (size == NULL) return true;
    for (; json_is(at, JSON_NUMBER) && at->number == 128;) at = at->next;
    return json_count(size) == 2 && at == NULL;
}

/* Absent: plain weights. Scales of fp8 are found by name (weights_scale); here only the kind and
 * the block are checked. A model of images and text may have the member beside its text part. */
static Status read_quant(const Reading *r, const Field *f)
{
    FieldValue value;
    const Json *q = json_get(r->json, f->key);
    if (is_absent(q)) q = json_get(r->top, f->key);
    if (is_absent(q)) return OK;
    const char *method = json_string(json_get(q, "quant_method"));
    if (r->family->bit == GPT_OSS && method != NULL && strcmp(method, "mxfp4") == 0) return OK;
    if (method == NULL || strcmp(method, "fp8") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: quantization_config has quant_method %s; supported are fp8 with block "
                    "scales, mxfp4 in gpt_oss models, and weights that are not quantized",
                    r->path, method == NULL ? "null" : method);
    if (has_blocks(q)) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: weight_block_size is %s; it must be [128, 128]", r->path,
                shown_value(r, json_get(q, "weight_block_size"), value));
}

static Status read_field(const Reading *r, const Field *f)
{
    FieldValue scaling;
    TRY(field_setting_text(r->c, "rope.scaling", r->arena, scaling));
    if (!field_applies(f, scaling)) return OK;
    switch (f->kind) {
    case WRITE: return OK;
    case IS:
    case NEUTER: return read_is(r, f);
    case MSCALE: return read_mscale(r, f);
    case FIRST: return read_first(r, f);
    case TOPK: return read_topk(r, f);
    case WIDTH: return read_width(r, f);
    case TYPES: return read_types(r, f);
    case TEMPER: return read_temper(r, f);
    case QUANT: return read_quant(r, f);
    case MOES:
    case LINEARS:
    case NOPES: return read_layers(r, f);
    case SET:
    case TRAIN:
    case CONST: return read_value(r, f);
    }
    return OK;
}

/* model_type chooses the family. The class name (architectures) differs between versions and is not
 * read. */
static Status find_family(const char *path, const Json *json, const Family **out)
{
    const char *type = json_string(json_get(json, "model_type"));
    const char *names[32];
    char hint[TEXT_HINT_BYTES];
    if (type == NULL) return FAIL(ERR_FORMAT, "%s has no model_type, or it is not a text", path);
    for (int i = 0; i < family_count; i++) {
        names[i] = families[i].type;
        *out = &families[i];
        if (strcmp(type, families[i].type) == 0) return OK;
    }
    return FAIL(ERR_UNSUPPORTED, "%s: model_type %.60s is not supported%s", path, type,
                text_hint(hint, type, names, family_count, ""));
}

static bool is_empty(const Json *v)
{
    return is_absent(v) || (v->type == JSON_OBJECT && v->child == NULL);
}

/* Chooses the object of rotary positions as transformers does: rope_scaling, if it says anything. */
static Status find_rope(Reading *r)
{
    FieldValue value;
    size_t bad = 0;
    const Json *scaling = json_get(r->json, "rope_scaling");
    const Json *v = is_empty(scaling) ? json_get(r->json, "rope_parameters") : scaling;
    const char *text = field_rope_absent(r->family->bit);
    Json *made = NULL;
    if (is_absent(v) && text != NULL) TRY(json_parse(text, strlen(text), r->arena, &made, &bad));
    r->rope = is_absent(v) ? made : v;
    if (r->rope == NULL) return OK;
    if (r->rope->type != JSON_OBJECT)
        return FAIL(ERR_FORMAT, "%s: %s is %s; it must be an object", r->path, v->name,
                    shown_value(r, v, value));
    for (const Json *at = r->rope->child; at != NULL; at = at->next) {
        if (at->type == JSON_OBJECT)
            return FAIL(ERR_UNSUPPORTED,
                        "%s: %s.%s is an object: rotary positions that differ between layers are "
                        "not supported",
                        r->path, v->name, at->name);
    }
    return OK;
}

/* The text part of a model of images and text. A family of the table has no such part: its class reads
 * the members beside it. */
static Status find_text(const char *path, const Json *json, const Json **out)
{
    const char *type = json_string(json_get(json, "model_type"));
    const Json *text = json_get(json, "text_config");
    *out = json_is(text, JSON_OBJECT) ? text : json;
    if (!json_is(json, JSON_OBJECT)) return FAIL(ERR_FORMAT, "%s is not a JSON object", path);
    for (int i = 0; i < family_count && *out == text && type != NULL; i++) {
        if (strcmp(type, families[i].type) == 0)
            return FAIL(ERR_FORMAT, "%s: text_config is in the file of a %s model, which has none",
                        path, type);
    }
    return OK;
}

Status family_read_on(const char *path, const Json *json, Arena *a, Config *c,
                      const Family **family, Refusals *refused)
{
    Reading r = { .path = path, .top = json, .arena = a, .c = c };
    TRY(find_text(path, json, &r.json));
    TRY(find_family(path, r.json, family));
    r.family = *family;
    TRY(find_rope(&r));
    for (int i = 0; i < field_count; i++) {
        if ((fields[i].families & (*family)->bit) == 0) continue;
        Status s = read_field(&r, &fields[i]);
        if (s != OK && refused == NULL) return s;
        if (s != OK && refused->n++ == 0) status_sentence(refused->why, sizeof refused->why);
        if (s != OK) status_clear();
    }
    return OK;
}

Status family_read(const char *path, const Json *json, Arena *a, Config *c, const Family **family)
{
    return family_read_on(path, json, a, c, family, NULL);
}
