/* import: applies the table of foreign keys (import.def) to a Config, then what several keys decide together. The
 * files are read by import_read.c. */
#include "planner/stack/import.h"

#include "engine/base/text.h"
#include "engine/schedule/layout.h"
#include "engine/schedule/schedule.h"
#include "planner/stack/import_private.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A row of import.def. MAP: keys, our setting, words; NAMED: a model, our preset, changes. */
typedef struct Map {
    const char *theirs, *ours, *words;
    bool model;
} Map;

static const Map rows[] = {
#define MAP(theirs, row, words)        { theirs, row, words, false },
#define NAMED(theirs, preset, changes) { theirs, preset, changes, true },
#include "planner/stack/import.def"
#undef MAP
#undef NAMED
};

enum { ROWS = sizeof rows / sizeof *rows };
enum { NAME_BYTES = 64, SAYS_BYTES = 1024, NUMBER_MAX = 1000000 };

/* Defaults of these trainers that differ from ours. */
static const char megatron_defaults[] =
    "run.compute=bf16 moe.buffers=worst plan.counted_rows=true mesh.zero=1 mtp.loss=0.1";
static const char torchtitan_defaults[] =
    "run.compute=bf16 moe.buffers=worst plan.counted_rows=true data.sequence=2048 "
    "train.micro_batch=8";
static const char megatron_shape[] =
    "model.norm_eps=1e-5 model.dense_layers=0 attention.kind=gqa attention.rope_interleaved=false "
    "moe.shared=0 moe.normalise=true moe.aux_loss=0 moe.aux_scope=batch moe.top_k=2 "
    "moe.score=softmax moe.bias_rate=0.001 attention.rope_theta=10000 attention.q_rank=0 "
    "attention.kv_rank=32 attention.nope_dim=128 attention.rope_dim=64 attention.v_dim=128";

/* Sizes of vocabularies, by a part of the tokenizer's name. */
static const char vocabularies[] =
    "DeepSeek-V2=102400|DeepSeek-V3=129280|Mixtral=32000|Llama-2=32000|Llama-3=128256|"
    "Llama-4=202048|Qwen3=151936|Qwen2.5=152064|gpt-oss=201088|Kimi-K2=163840|MiniMax-M2=200064|"
    "glm-4=151552";

typedef struct Import {
    Settings settings;
    Arena *a;
    Config *c;
    PlanImport *more;
    const char *path;
    bool titan;    /* torchtitan; else Megatron */
    bool plain;    /* Megatron-LM itself, not Primus */
    bool narrow;   /* the model's name asks for products in 8 bits */
    bool latent;   /* the preset's attention is mla */
    Layout layout; /* of mesh.layout; no stages: there is none */
} Import;

/* ---- words and values ---- */

/* Looks up a word in "theirs=ours|..."; within: theirs may be a part of the word. False: not found. */
static bool find_word(const char *words, const char *word, bool within, char ours[NAME_BYTES])
{
    char theirs[NAME_BYTES];
    int n = 0;
    for (const char *w = import_next_word(&words, "|", &n); w != NULL;
         w = import_next_word(&words, "|", &n)) {
        int left = (int)strcspn(w, "=");
        (void)snprintf(theirs, sizeof theirs, "%.*s", left, w);
        (void)snprintf(ours, NAME_BYTES, "%.*s", n - left - 1, w + left + 1);
        if (within ? strstr(word, theirs) != NULL : strcasecmp(word, theirs) == 0) return true;
    }
    return false;
}

/* The value of a key, which then counts as read; NULL: it is missing or null. */
static const char *value_of(const Import *m, const char *key)
{
    Setting *s = settings_find(&m->settings, key);
    if (s == NULL) return NULL;
    s->read = true;
    return s->value;
}

/* Case does not matter: YAML files have true and True. */
static bool value_is(const Import *m, const char *key, const char *value)
{
    const char *text = value_of(m, key);
    return text != NULL && strcasecmp(text, value) == 0;
}

/* Puts the place of their key before the sentence of a failure: "FILE:LINE:COLUMN: KEY is VALUE: ". */
static Status fail_at_key(const Import *m, const char *key, Status status)
{
    const Setting *s = settings_find(&m->settings, key);
    char sentence[SAYS_BYTES];
    if (status == OK) return OK;
    status_sentence(sentence, sizeof sentence);
    const char *why =
        strstr(sentence, "override ") == sentence ? strstr(sentence, ": ") + 2 : sentence;
    if (s == NULL) return FAIL(status, "%s: %s", m->path, why);
    return FAIL(status, "%s: %s is %.100s: %s", s->place, key, s->value == NULL ? "null" : s->value,
                why);
}

/* Sets our row to the value; their key stands in the error. */
static Status set_row(Import *m, const char *key, const char *row, const char *value)
{
    Text t;
    TRY(text_init(&t, m->a));
    TRY(text_printf(&t, "%s=%s", row, value));
    return fail_at_key(m, key, config_override(m->c, m->a, t.data));
}

static Status set_whole(Import *m, const char *key, const char *row, int64_t value)
{
    char text[NAME_BYTES];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    return set_row(m, key, row, text);
}

/* "section.key=value section.key=value ..." */
static Status set_list(Import *m, const char *list)
{
    char one[NAME_BYTES];
    int n = 0;
    for (const char *w = import_next_word(&list, " ", &n); w != NULL;
         w = import_next_word(&list, " ", &n)) {
        (void)snprintf(one, sizeof one, "%.*s", n, w);
        TRY(config_override(m->c, m->a, one));
    }
    return OK;
}

/* -1 stands for "all" or "automatic" in these files, so it is legal here. */
static Status read_whole(const Import *m, const char *key, int64_t otherwise, int64_t *out)
{
    const char *text = value_of(m, key);
    char *end = NULL;
    *out = text == NULL ? otherwise : strtoll(text, &end, 10);
    if (text == NULL || (end != text && *end == '\0' && *out >= -1 && *out <= NUMBER_MAX))
        return OK;
    return fail_at_key(m, key, FAIL(ERR_ARG, "a whole number up to %d is expected", NUMBER_MAX));
}

static Status add_note(Import *m, const char *what, const char *value)
{
    Text t;
    TRY(text_init(&t, m->a));
    TRY(text_printf(&t, "%s %s", what, value));
    if (m->more->notes_n < IMPORT_NOTES_MAX) m->more->notes[m->more->notes_n++] = t.data;
    return OK;
}

/* ---- one key, one row ---- */

/* A missing or null key keeps our value. A word that maps to nothing ("theirs=") does so, too, but counts as read. */
static Status apply_row(Import *m, const char *key, const Map *r)
{
    char ours[NAME_BYTES] = "";
    const char *value = value_of(m, key);
    if (value == NULL) return OK;
    if (r->words == NULL) return set_row(m, key, r->ours, value);
    const bool found = find_word(r->words, value, false, ours);
    if (!found && strchr(r->ours, '.') == NULL)
        return fail_at_key(m, key, FAIL(ERR_UNSUPPORTED, "no setting of ours has %s", r->ours));
    if (!found)
        return fail_at_key(
            m, key,
            FAIL(ERR_ARG, "that is %s; understood are (theirs=ours) %s", r->ours, r->words));
    return *ours == '\0' ? OK : set_row(m, key, r->ours, ours);
}

/* In the order of import.def, so later rows win. */
static Status apply_rows(Import *m)
{
    for (const Map *r = rows; r < rows + ROWS && !r->model; r++) {
        const char *list = r->theirs;
        int n = 0;
        for (const char *w = import_next_word(&list, "|", &n); w != NULL;
             w = import_next_word(&list, "|", &n)) {
            char key[NAME_BYTES];
            (void)snprintf(key, sizeof key, "%.*s", n, w);
            TRY(apply_row(m, key, r));
        }
    }
    return OK;
}

/* ---- models by name ---- */

/* "deepseek_v2_lite.yaml" is deepseek-v2-lite. */
static Status take_preset(Import *m, const char *theirs)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s", theirs);
    if (text_ends(name, ".yaml")) name[strlen(name) - 5] = '\0';
    m->narrow = text_ends(name, "-fp8"); /* Primus' name for the same model with converters */
    if (m->narrow) name[strlen(name) - 4] = '\0';
    for (char *p = name; *p != '\0'; p++) *p = (char)(*p == '_' ? '-' : tolower((unsigned char)*p));
    const char *preset = name, *changes = "";
    for (const Map *r = rows; r < rows + ROWS; r++)
        if (r->model && strcmp(r->theirs, name) == 0 && (*r->words == '\0' || m->titan))
            preset = r->ours, changes = r->words;
    TRY(fail_at_key(m, "modules.pre_trainer.model", config_load(m->c, m->a, preset, NULL, 0)));
    TRY(arena_text(m->a, preset, strlen(preset), &m->more->preset));
    m->latent = m->c->attention_kind == ATTENTION_MLA;
    TRY(set_list(m, changes));
    TRY(set_row(m, "model", "model.name", name));
    return add_note(m, "the model's shape is that of our preset", preset);
}

/* A model's own file: Megatron's defaults, and the file's name. */
static Status take_shape(Import *m)
{
    const char *file = value_of(m, "modules.pre_trainer.model");
    char name[NAME_BYTES];
    TRY(set_list(m, megatron_shape));
    if (file == NULL) return OK;
    (void)snprintf(name, sizeof name, "%.*s",
                   (int)strlen(file) - (text_ends(file, ".yaml") ? 5 : 0), file);
    return set_row(m, "modules.pre_trainer.model", "model.name", name);
}

/* ---- Megatron ---- */

/* Megatron makes a vocabulary a multiple of this number and of the tensor ranks. */
static Status pad_vocabulary(Import *m)
{
    const char *key = "make_vocab_size_divisible_by";
    int64_t each = 1;
    TRY(read_whole(m, key, 1, &each));
    if (each < 1) return fail_at_key(m, key, FAIL(ERR_ARG, "a number above 0 is expected"));
    each *= m->c->mesh_tp;
    m->c->model_vocab = (m->c->model_vocab + each - 1) / each * each;
    return OK;
}

/* Megatron's defaults for keys that a model's file leaves out, which it computes from other keys. */
static Status fill_shape(Import *m)
{
    static const char *const need[] = { "num_layers", "hidden_size", "num_attention_heads" };
    Config *c = m->c;
    char ours[NAME_BYTES];
    for (int i = 0; i < 3; i++) {
        if (value_of(m, need[i]) != NULL) continue;
        return FAIL(ERR_ARG, "%s: neither it nor its model's file has %s", m->path, need[i]);
    }
    if (value_of(m, "kv_channels") == NULL)
        TRY(set_whole(m, "kv_channels", "attention.head_dim",
                      c->model_hidden / c->attention_heads));
    if (value_of(m, "num_query_groups") == NULL || value_is(m, "group_query_attention", "false"))
        c->attention_kv_heads = c->attention_heads;
    if (value_of(m, "ffn_hidden_size") == NULL)
        TRY(set_whole(m, "ffn_hidden_size", "model.ffn", (c->model_hidden * 8 / 3 + 63) / 64 * 64));
    if (value_of(m, "moe_ffn_hidden_size") == NULL) c->moe_ffn = c->model_ffn;
    if (value_of(m, "num_experts") == NULL) c->model_dense_layers = c->model_layers;
    if (value_of(m, "padded_vocab_size") != NULL) return OK;
    if (value_of(m, "vocab_size") != NULL) return pad_vocabulary(m);
    const char *tokenizer = value_of(m, "tokenizer_model");
    if (tokenizer == NULL || !find_word(vocabularies, tokenizer, true, ours)) {
        TRY(add_note(m, "vocab_size is not given, 100352 is taken; tokenizer_model is",
                     tokenizer == NULL ? "not given" : tokenizer));
        return set_whole(m, "vocab_size", "model.vocab", 100352);
    }
    return set_row(m, "tokenizer_model", "model.vocab", ours);
}

/* Shared experts, group-limited routing, and the pattern of dense layers. */
static Status fill_moe(Import *m)
{
    const char *key = "moe_shared_expert_intermediate_size", *freq = value_of(m, "moe_layer_freq");
    Config *c = m->c;
    int64_t shared = 0;
    TRY(read_whole(m, key, c->moe_shared * c->moe_ffn, &shared));
    if (shared % c->moe_ffn != 0)
        return fail_at_key(
            m, key, FAIL(ERR_UNSUPPORTED, "not a multiple of moe.ffn %lld", (long long)c->moe_ffn));
    TRY(set_whole(m, key, "moe.shared", shared / c->moe_ffn));
    if (m->more->preset == NULL && value_of(m, "moe_router_enable_expert_bias") == NULL &&
        c->moe_bias_rule == BIAS_SIGN)
        c->moe_bias_rate = 0;
    if (value_of(m, "moe_router_group_topk") != NULL && c->moe_top_k > c->moe_top_groups)
        c->moe_group_score_top = c->moe_top_k / c->moe_top_groups;
    if (freq == NULL || c->model_dense_layers == c->model_layers) return OK;
    const char *zeros = strstr(freq, "[0]*"), *ones = zeros == NULL ? NULL : strstr(zeros, "[1]*");
    int64_t dense = zeros == NULL ? 0 : strtol(zeros + 4, NULL, 10) % NUMBER_MAX;
    int64_t moe = ones == NULL ? 0 : strtol(ones + 4, NULL, 10) % NUMBER_MAX;
    if (strcmp(freq, "1") != 0 && (ones == NULL || dense + moe != c->model_layers))
        return fail_at_key(m, "moe_layer_freq",
                           FAIL(ERR_UNSUPPORTED,
                                "1 or ([0]*DENSE+[1]*MOE) is expected, %lld layers in all",
                                (long long)c->model_layers));
    return set_whole(m, "moe_layer_freq", "model.dense_layers", dense);
}

/* Megatron stretches latent attention by rope_type, other attention by position_embedding_type or, as
 * Llama 3.1 does, by use_rope_scaling. A factor alone says nothing. */
static Status fill_rope(Import *m)
{
    const bool latent = m->c->attention_kind == ATTENTION_MLA;
    const char *key = latent ? "rotary_scaling_factor" : "yarn_rotary_scaling_factor";
    const char *factor = value_of(m, key), *other = value_of(m, "rope_scaling_factor");
    const bool by_type = value_is(m, "rope_type", "yarn");
    const bool by_position = value_is(m, "position_embedding_type", "yarn");
    if (value_is(m, "use_rope_scaling", "true")) {
        TRY(set_list(m, "rope.scaling=llama3 rope.original=8192"));
        return set_row(m, "use_rope_scaling", "rope.factor", other == NULL ? "8" : other);
    }
    if (!(latent ? by_type : by_position)) return OK;
    TRY(set_list(m, "rope.scaling=yarn"));
    if (m->c->rope_original == 0) TRY(set_list(m, "rope.original=4096"));
    return factor == NULL ? set_list(m, "rope.factor=40") : set_row(m, key, "rope.factor", factor);
}

/* We have biases of experts, but no setting for biases of other MLPs. */
static Status fill_biases(Import *m)
{
    if (!value_is(m, "add_bias_linear", "true")) return OK;
    if (m->c->model_dense_layers > 0 || m->c->moe_shared > 0)
        TRY(add_note(m, "no setting has biases of MLPs other than experts; left out by",
                     "add_bias_linear"));
    return config_moe_layers(m->c) == 0 ? OK : set_list(m, "moe.expert_bias=true");
}

/* A period N as a number, or as the list of windowed layers [1, 1, ..., 0, 1, ...], whose every N-th is 0. */
static Status read_period(const Import *m, const char *key, int64_t *every)
{
    const char *list = value_of(m, key);
    int64_t place = 0;
    if (list == NULL || *list != '[') return read_whole(m, key, 0, every);
    *every = 0;
    for (const char *at = list + 1; (at = strpbrk(at, "01")) != NULL; at++) {
        place++;
        if (*at == '0' && *every == 0) *every = place;
        if (*every > 0 && (place % *every == 0) != (*at == '0'))
            return fail_at_key(m, key, FAIL(ERR_UNSUPPORTED, "every N-th 0 is expected"));
    }
    return OK;
}

/* Windows of all layers, or of every second one: of Primus-Turbo's attention with sinks, else of Megatron's, whose
 * window_size is [before, after]. */
static Status fill_window(Import *m)
{
    const char *key = "sink_sliding_window", *size = value_of(m, "window_size");
    int64_t window = 0, every = 0;
    TRY(read_whole(m, key, 0, &window));
    TRY(read_period(m, "window_attn_skip_freq", &every));
    const bool even = value_is(m, "sink_window_even_layers_only", "true");
    const bool said = value_of(m, key) != NULL || size != NULL;
    if (value_of(m, key) == NULL && size != NULL) {
        window = strtoll(size + strcspn(size, "0123456789"), NULL, 10);
        key = "window_size";
    }
    if (!said) return OK;
    TRY(set_whole(m, key, "attention.window", window));
    return set_whole(m, key, "attention.full_every", window <= 0 ? 0 : even ? 2 : every);
}

/* Bytes of gradients, main weights and both moments, which a precision-aware optimizer may keep in fewer bits. */
static Status fill_state_sizes(Import *m)
{
    static const struct {
        const char *key[2], *option; /* keys whose sizes add up */
    } states[] = { { { "main_grads_dtype" }, "grad_size" },
                   { { "main_params_dtype" }, "main_size" },
                   { { "exp_avg_dtype", "exp_avg_sq_dtype" }, "moment_size" } };
    if (!value_is(m, "use_precision_aware_optimizer", "true")) return OK;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        const char *bytes = NULL;
        char text[NAME_BYTES];
        int sum = 0, plain = 0;
        for (int k = 0; k < 2 && states[i].key[k] != NULL; k++, plain += 4) {
            const char *type = value_of(m, states[i].key[k]);
            sum += type == NULL ? 4 : strstr(type, "16") ? 2 : strstr(type, "8") ? 1 : 4;
        }
        if (sum == plain) continue;
        if (m->plain && i == 2) { /* that stack has no option of it */
            if (sum != 4)
                return fail_at_key(m, "exp_avg_dtype",
                                   FAIL(ERR_UNSUPPORTED, "bf16, as exp_avg_sq_dtype, is read"));
            TRY(set_list(m, "optimizer.moments=bf16"));
            continue;
        }
        (void)snprintf(text, sizeof text, "%d", sum);
        TRY(arena_text(m->a, text, strlen(text), &bytes));
        import_add_word(&m->more->options, states[i].option, bytes);
    }
    return OK;
}

/* ---- products in 8 bits ---- */

/* Of `delayed` scales the plan takes those of the current tensor. Grouped products of the legacy kind stay in bf16. */
static Status fill_megatron_fp8(Import *m)
{
    static const char recipes[] = "delayed=tensor|tensorwise=tensor|blockwise=block|mxfp8=mx";
    const char *format = value_of(m, "fp8"), *theirs = value_of(m, "fp8_recipe");
    if (value_of(m, "fp4") != NULL && value_is(m, "fp4_recipe", "mxfp4")) {
        m->more->fp4 = true;
        return set_list(m, "fp8.recipe=mx fp8.format=e2m1");
    }
    char recipe[NAME_BYTES] = "tensor";
    int64_t first = 1, last = 1;
    if (format == NULL || text_word_index("0|none|false", format) >= 0) return OK;
    if (theirs != NULL && !find_word(recipes, theirs, false, recipe))
        return fail_at_key(m, "fp8_recipe",
                           FAIL(ERR_UNSUPPORTED, "understood are (theirs=fp8.recipe) %s", recipes));
    TRY(set_row(m, "fp8", "fp8.recipe", recipe));
    if (strcmp(recipe, "tensor") == 0) TRY(set_row(m, "fp8", "fp8.format", format));
    if (value_is(m, "moe_use_legacy_grouped_gemm", "true") && config_moe_layers(m->c) > 0)
        TRY(set_list(m, "fp8.products=dense"));
    if (!value_is(m, "first_last_layers_bf16", "true")) return OK;
    TRY(read_whole(m, "num_layers_at_start_in_bf16", 1, &first));
    TRY(read_whole(m, "num_layers_at_end_in_bf16", 1, &last));
    m->c->fp8_layers.n = 0;
    for (int64_t l = first; l < m->c->model_layers - last && m->c->fp8_layers.n < CONFIG_LIST_MAX;)
        m->c->fp8_layers.at[m->c->fp8_layers.n++] = l++;
    return OK;
}

/* Converters of torchtitan, or Primus-Turbo's own switches. Experts are in 8 bits only if a switch says so. */
static Status fill_titan_fp8(Import *m)
{
    const char *converters = value_of(m, "model.converters");
    const char *name = value_of(m, "quantize.linear.float8.recipe_name");
    const bool turbo = !value_is(m, "primus_turbo.enable_primus_turbo", "false");
    const bool listed = m->narrow || (converters != NULL && strstr(converters, "float8") != NULL);
    const bool mx = (turbo && value_is(m, "primus_turbo.use_turbo_mx_linear", "true")) ||
                    (converters != NULL && strstr(converters, "mx") != NULL);
    if (!mx && !listed && !(turbo && value_is(m, "primus_turbo.use_turbo_float8_linear", "true")))
        return OK;
    TRY(set_list(m, mx ? "fp8.recipe=mx" : "fp8.recipe=tensor"));
    if (!mx && name != NULL && strcmp(name, "rowwise") == 0) TRY(set_list(m, "fp8.recipe=row"));
    const bool experts = value_is(m, "primus_turbo.use_moe_fp8", "true") ||
                         (converters != NULL && strstr(converters, "grouped") != NULL);
    if (config_moe_layers(m->c) > 0 && !experts) TRY(set_list(m, "fp8.products=dense"));
    if (turbo && value_is(m, "primus_turbo.enable_attention_float8", "true"))
        TRY(set_list(m, "fp8.attention=true"));
    return OK;
}

/* ---- pipelines and recomputing ---- */

/* Number of layers before this one on its stage. */
static int64_t place_in_stage(const Import *m, int64_t layer)
{
    int64_t stages = m->c->mesh_pp * m->c->mesh_vpp, layers = m->c->model_layers;
    const LayoutStage *s = m->layout.stage;
    if (s == NULL) return layer - ((layer + 1) * stages - 1) / layers * layers / stages;
    while (layer >= s->first + s->layers) s++;
    return layer - s->first;
}

/* Recomputes every `every`-th layer, if it is one of the first `most` of its stage. Modules of multi-token
 * prediction are recomputed only if all layers are. */
static Status set_recomputed(Import *m, const char *key, int64_t every, int64_t most,
                             const char *pieces)
{
    Text t;
    int64_t layers = m->c->model_layers, modules = most == NUMBER_MAX ? m->c->mtp_layers : 0;
    TRY(text_init(&t, m->a));
    for (int64_t l = 0; l < layers + modules; l++) {
        if ((l + 1) % every != 0 || (l < layers && place_in_stage(m, l) >= most)) continue;
        TRY(text_printf(&t, "%s%lld", t.used == 0 ? "[" : ", ", (long long)l));
    }
    TRY(text_printf(&t, t.used == 0 ? "[]" : "]"));
    TRY(set_row(m, key, "recompute.layers", t.data));
    return set_row(m, key, "recompute.pieces", pieces);
}

/* Layers of the first and of the last pipeline rank; the others have equally many. Each rank's are spread evenly over
 * its chunks. */
static Status set_uneven_ranks(Import *m)
{
    static const char *const keys[] = { "decoder_first_pipeline_num_layers",
                                        "decoder_last_pipeline_num_layers" };
    Config *c = m->c;
    int64_t given[2] = { 0 }, pp = c->mesh_pp, vpp = c->mesh_vpp, left = c->model_layers;
    for (int i = 0; i < 2; i++) TRY(read_whole(m, keys[i], 0, &given[i]));
    if (given[0] + given[1] <= 0 || pp == 1 || *c->mesh_layout != '\0') return OK;
    int64_t others = pp;
    for (int i = 0; i < 2; i++) {
        if (given[i] <= 0) continue;
        left -= given[i];
        others--;
    }
    const char *key = keys[given[0] > 0 ? 0 : 1];
    if (left < 0 || (others > 0 ? left % (others * vpp) != 0 : left != 0) || given[0] % vpp != 0 ||
        given[1] % vpp != 0)
        return fail_at_key(
            m, key,
            FAIL(ERR_ARG, "%lld layers do not spread evenly over %lld chunks of each of %lld ranks",
                 (long long)c->model_layers, (long long)vpp, (long long)pp));
    Text t;
    TRY(text_init(&t, m->a));
    for (int64_t stage = 0; stage < pp * vpp; stage++) {
        const int64_t rank = stage % pp;
        const int64_t own = rank == 0 && given[0] > 0        ? given[0]
                            : rank == pp - 1 && given[1] > 0 ? given[1]
                                                             : left / (others > 0 ? others : 1);
        TRY(text_printf(&t, "%st*%lld%s", stage == 0 ? "E" : "|", (long long)(own / vpp),
                        stage == pp * vpp - 1 ? ",L" : ""));
    }
    return set_row(m, key, "mesh.layout", t.data);
}

/* Makes pp, vpp, layout and schedule fit each other: files of Megatron leave some of them out. */
static Status fix_pipeline(Import *m, const char *per_stage)
{
    Config *c = m->c;
    const ScheduleDesc *d = NULL;
    const char *key = "pipeline_model_parallel_layout";
    int64_t layers = 0, pp = c->mesh_pp;
    TRY(read_whole(m, per_stage, 0, &layers));
    if (layers > 0)
        TRY(set_whole(m, per_stage, "mesh.vpp", (c->model_layers - 1) / (layers * pp) + 1));
    TRY(set_uneven_ranks(m));
    if (*c->mesh_layout != '\0') {
        int stages = c->mesh_vpp > 1 ? (int)(pp * c->mesh_vpp) : 0;
        TRY(fail_at_key(
            m, key, layout_parse(c->mesh_layout, stages, (int)c->model_layers, m->a, &m->layout)));
        TRY(set_whole(m, key, "mesh.vpp", m->layout.stages % pp == 0 ? m->layout.stages / pp : 0));
    }
    TRY(fail_at_key(m, "pp_algorithm", schedule_find(c->mesh_schedule, &d)));
    if (pp == 1) {
        c->mesh_vpp = 1;
        c->mesh_layout = "";
        m->layout.stage = NULL;
    }
    if (pp > 1 && c->mesh_vpp < d->chunks_least) c->mesh_vpp = d->chunks_least;
    if (pp == 1 && !d->phases) c->mesh_schedule = "1f1b";
    if (d->order == schedule_1f1b && c->mesh_vpp > 1) c->mesh_schedule = "interleaved";
    return OK;
}

/* A number of replicas leaves the number of shards to the GPUs. */
static Status read_replicas(Import *m, const char *key)
{
    TRY(read_whole(m, key, 1, &m->more->replicas));
    if (m->more->replicas < 1)
        return fail_at_key(m, key, FAIL(ERR_ARG, "a number above 0 is expected"));
    const Setting *s = settings_find(&m->settings, key);
    m->more->replicas_key = key;
    m->more->replicas_place = s == NULL ? m->path : s->place;
    return OK;
}

/* Options that the stack of Megatron-LM follows, and that of Primus does not. */
static void read_overlaps(Import *m)
{
    static const char *const keys[] = { "moe_token_dispatcher_type", "cuda_graph_impl",
                                        "overlap_grad_reduce", "attention_backend" };
    static const char *const ours[][2] = { { "dispatcher", "deepep" },
                                           { "cuda_graphs", "graphs" },
                                           { "overlap_grad_reduce", "grad_overlap" },
                                           { "attention_backend", "flash" } };
    for (int i = 0; i < 4; i++) {
        const char *value = value_of(m, keys[i]);
        if (value == NULL || (!m->plain && strcasecmp(value, "false") == 0)) continue;
        const bool on = text_word_index("flex|transformer_engine|true|True|local", value) >= 0;
        const int kernel = text_word_index("unfused|local|flash", value);
        if (m->plain) value = i == 3 ? kernel == 2 ? "2" : kernel < 0 ? "3" : "0" : on ? "1" : "0";
        import_add_word(&m->more->options, ours[i][m->plain], value);
    }
}

/* What Megatron does where its options are not given, and the plan does not. */
static Status note_differences(Import *m)
{
    const bool wide = m->c->mesh_tp > 1;
    if (wide && m->plain && value_of(m, "sequence_parallel") == NULL)
        TRY(add_note(m, "tensor ranks share out the stream's rows, as with", "sequence_parallel"));
    if (wide && config_moe_layers(m->c) > 0 && value_of(m, "expert_tensor_parallel_size") == NULL)
        TRY(add_note(m, "experts are whole, as with", "expert_tensor_parallel_size 1"));
    if (m->c->mesh_ep > 1 && value_is(m, "moe_token_dispatcher_type", "allgather"))
        TRY(add_note(m, "the exchange is all-to-all, and not as in", "allgather"));
    return OK;
}

/* Modules of every layer: a list, also as words with blanks or commas. Megatron's default is the core of attention. */
static Status recompute_modules(Import *m)
{
    static const char
        ends[] = "[], \t\"'",
        words[] =
            "core_attn=core_attn|moe_act=act|layernorm=norm|mla_up_proj=attn_up|mlp=mlp|moe=moe|"
            "shared_experts=shared";
    const char *key = "recompute_modules", *list = value_of(m, key);
    Text t;
    TRY(text_init(&t, m->a));
    for (const char *at = list == NULL ? "core_attn" : list;; at += strcspn(at, ends)) {
        char word[NAME_BYTES], ours[NAME_BYTES];
        at += strspn(at, ends);
        if (*at == '\0') break;
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ends), at);
        if (!find_word(words, word, false, ours))
            return fail_at_key(m, key, FAIL(ERR_UNSUPPORTED, "%s: understood are %s", word, words));
        TRY(text_printf(&t, "%s%s", t.used == 0 ? "[" : ", ", ours));
    }
    if (t.used == 0) return OK;
    TRY(text_printf(&t, "]"));
    return set_recomputed(m, list == NULL ? "recompute_granularity" : key, 1, NUMBER_MAX, t.data);
}

/* Settings of Megatron that several keys decide together. */
static Status read_megatron(Import *m)
{
    Config *c = m->c;
    int64_t n = 0;
    TRY(m->more->preset == NULL ? fill_shape(m) : OK);
    if (m->latent && c->attention_kind == ATTENTION_GQA) {
        c->attention_kv_heads = c->attention_heads;
        c->attention_head_dim = c->attention_nope_dim;
        c->attention_qk_norm = QK_NORM_RMS;
    }
    if (c->attention_kind == ATTENTION_MLA) c->attention_qk_norm = QK_NORM_NONE;
    TRY(fill_moe(m));
    TRY(fill_rope(m));
    TRY(fill_biases(m));
    TRY(fill_window(m));
    TRY(fill_megatron_fp8(m));
    TRY(fill_state_sizes(m));
    TRY(read_replicas(m, "num_distributed_optimizer_instances"));
    read_overlaps(m);
    if (c->mesh_tp > 1 && value_is(m, "sequence_parallel", "false"))
        return fail_at_key(m, "sequence_parallel",
                           FAIL(ERR_UNSUPPORTED, "our tensor ranks share out the stream's rows"));
    TRY(note_differences(m));
    /* FSDP shares out weights, which the stack's own distributed optimizer does not. */
    if (c->mesh_zero > 1) import_add_word(&m->more->options, "zero_most", "3");
    TRY(fix_pipeline(m, "num_layers_per_virtual_pipeline_stage"));
    m->more->per_replica = value_of(m, "global_batch_size") == NULL;
    if (m->more->per_replica) c->train_batch = c->train_micro_batch;
    if (value_is(m, "recompute_granularity", "selective")) return recompute_modules(m);
    if (!value_is(m, "recompute_granularity", "full")) return OK;
    const char *ids = value_of(m, "recompute_layer_ids");
    if (ids != NULL) { /* a list, also as the text "0,3,4" */
        Text t;
        TRY(text_init(&t, m->a));
        TRY(text_printf(&t, *ids == '[' ? "%s" : "[%s]", ids));
        return set_row(m, "recompute_layer_ids", "recompute.layers", t.data);
    }
    TRY(read_whole(m, "recompute_num_layers", NUMBER_MAX, &n));
    if (!value_is(m, "recompute_method", "block")) n = NUMBER_MAX;
    return set_recomputed(m, "recompute_granularity", 1, n, "[layer]");
}

/* ---- torchtitan ---- */

/* torchtitan recomputes all layers, every n-th, or all of them by ops. */
static Status titan_recompute(Import *m)
{
    const char *key = "activation_checkpoint.mode";
    const char *option = value_of(m, "activation_checkpoint.selective_ac_option");
    if (value_is(m, key, "full")) return set_recomputed(m, key, 1, NUMBER_MAX, "[layer]");
    if (!value_is(m, key, "selective")) return OK;
    int64_t every = option == NULL ? 2 : strtoll(option, NULL, 10);
    if (every <= 0) import_add_word(&m->more->options, "op_ac", "2");
    return set_recomputed(m, key, every > 0 ? every : 1, NUMBER_MAX, "[layer]");
}

/* Settings of torchtitan: FSDP degrees become ZeRO stage, shard and number of GPUs. Without a global batch it trains on
 * one local batch for each data-parallel rank. */
static Status read_titan(Import *m)
{
    const char *reshard = "parallelism.fsdp_reshard_after_forward";
    const char *shards = "parallelism.data_parallel_shard_degree";
    Config *c = m->c;
    int64_t shard = 0, batch = 0, micro = 0;
    TRY(read_whole(m, shards, -1, &shard));
    TRY(read_replicas(m, "parallelism.data_parallel_replicate_degree"));
    const int64_t replicas = m->more->replicas;
    const char *exchange = value_of(m, "parallelism.expert_parallel_comm_backend");
    if (shard == 0 || shard * replicas > NUMBER_MAX)
        return fail_at_key(
            m, shards, FAIL(ERR_ARG, "-1 or 1 to %d over all replicas is expected", NUMBER_MAX));
    if (exchange != NULL && strcasecmp(exchange, "standard") != 0)
        import_add_word(&m->more->options, "deepep", "1");
    TRY(read_whole(m, "training.global_batch_size", -1, &batch));
    TRY(read_whole(m, "parallelism.pipeline_parallel_microbatch_size", 1, &micro));
    TRY(fix_pipeline(m, "parallelism.pipeline_parallel_layers_per_stage"));
    TRY(fill_titan_fp8(m));
    c->mesh_zero = shard == 1 ? 0 : value_is(m, reshard, "always") ? 3 : c->mesh_pp > 1 ? 2 : 3;
    if (value_is(m, reshard, "never") && shard != 1) c->mesh_zero = 2;
    if (replicas > 1 && shard > 0) TRY(set_whole(m, shards, "mesh.shard", shard));
    if (shard > 0) { /* all is known */
        TRY(import_check_shards(c, shard, settings_find(&m->settings, shards)->place));
        m->more->replicas = 0;
        m->more->gpus = c->mesh_pp * c->mesh_cp * c->mesh_tp * shard * replicas;
    }
    m->more->per_replica = batch < 0 && shard < 0;
    if (batch < 0) batch = c->train_micro_batch * (shard < 0 ? 1 : shard * replicas);
    TRY(set_whole(m, "training.global_batch_size", "train.batch", batch));
    if (c->mesh_pp > 1)
        TRY(set_whole(m, "parallelism.pipeline_parallel_microbatch_size", "train.micro_batch",
                      micro));
    return titan_recompute(m);
}

/* ---- all together ---- */

/* Later steps win: defaults of our program, the model, defaults of theirs, single keys, then what
 * several keys decide together. */
static Status import_settings(Import *m)
{
    const char *name = value_of(m, "model.name"), *flavour = value_of(m, "model.flavor");
    char model[NAME_BYTES];
    (void)snprintf(model, sizeof model, "%s", m->settings.model == NULL ? "" : m->settings.model);
    if (m->titan && name != NULL)
        (void)snprintf(model, sizeof model, "%s-%s", name, flavour == NULL ? "" : flavour);
    if (m->settings.module != NULL)
        TRY(add_note(m, "defaults are Primus', there is no file", m->settings.module));
    TRY(config_default(m->c, m->a));
    if (*model == '\0' && m->titan)
        return FAIL(ERR_ARG, "%s: model.name and model.flavor are missing", m->path);
    TRY(*model == '\0' ? take_shape(m) : take_preset(m, model));
    TRY(set_list(m, m->titan ? torchtitan_defaults : megatron_defaults));
    TRY(apply_rows(m));
    TRY(m->titan ? read_titan(m) : read_megatron(m));
    TRY(import_sort_others(&m->settings, m->more));
    return fail_at_key(m, "", config_check(m->c));
}

/* *out and *more change only if the whole file was understood. */
Status plan_import(const char *from, const char *path, Arena *a, Config *out, PlanImport *more)
{
    static const char *const known[] = { "megatron", "primus", "torchtitan" };
    Config next;
    PlanImport said = { 0 };
    Import m = { .a = a, .c = &next, .more = &said, .path = path };
    char hint[TEXT_HINT_BYTES];
    const int format = text_word_index("megatron|primus|torchtitan", from);
    if (format < 0)
        return FAIL(
            ERR_ARG, "there is no format %s%s", from,
            text_hint(hint, from, known, 3, ", did you mean megatron, primus or torchtitan?"));
    m.plain = format == 0;
    TRY(format == 0   ? settings_read_megatron(&m.settings, a, path)
        : format == 1 ? settings_read_primus(&m.settings, a, path)
                      : settings_read_torchtitan(&m.settings, a, path));
    m.titan = strcmp(m.settings.framework, "torchtitan") == 0;
    said.stack = m.titan ? "torchtitan" : m.plain ? "megatron" : "primus";
    TRY(import_settings(&m));
    *out = next;
    *more = said;
    return OK;
}
