/* import_read: reads foreign files into one list of settings: finds the files, follows `extends`, replaces
 * variables, and keeps the value with the highest precedence. What keys mean is import.c's. */
#include "engine/base/file.h"
#include "engine/config/config_doc.h"
#include "planner/stack/import_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { SETTINGS_MAX = 4096, PAIRS_MAX = 65536, FILES_MAX = 64, NAME_BYTES = 128 };

/* A scan is enough: settings are few, and they are read once. */
Setting *settings_find(const Settings *s, const char *key)
{
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->at[i].key, key) == 0) return &s->at[i];
    }
    return NULL;
}

static const char *setting_text(const Settings *s, const char *key)
{
    const Setting *at = settings_find(s, key);
    return at == NULL ? NULL : at->value;
}

/* Adds a setting unless the key exists: files are read in the order of precedence. */
static Status settings_add(Settings *s, const char *key, const char *value, const char *place)
{
    static const char overrides[] = "modules.pre_trainer.overrides.";
    if (text_starts(key, overrides)) key += strlen(overrides);
    Setting next = { NULL, value, NULL, text_starts(key, "modules.") };
    if (settings_find(s, key) != NULL) return OK;
    if (s->n == SETTINGS_MAX)
        return FAIL(ERR_FORMAT, "%s: there are more than %d settings", place, SETTINGS_MAX);
    TRY(arena_text(s->arena, key, strlen(key), &next.key));
    TRY(arena_text(s->arena, place, strlen(place), &next.place));
    s->at[s->n++] = next;
    return OK;
}

/* ---- values ---- */

/* Replaces ${NAME} and ${NAME:default} from the environment. Without a value and a default the text stays. */
static Status expand_variables(Arena *a, const char *text, const char **out)
{
    Text t;
    TRY(text_init(&t, a));
    for (const char *open = text; (open = strstr(text, "${")) != NULL;) {
        char name[NAME_BYTES];
        size_t n = strcspn(open, ":}");
        const char *end = strchr(open, '}'), *otherwise = open[n] == ':' ? open + n + 1 : NULL;
        if (end == NULL) break;
        (void)snprintf(name, sizeof name, "%.*s", (int)n - 2, open + 2);
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in the program changes the environment */
        const char *value = getenv(name);
        TRY(text_append(&t, text, (size_t)(open - text)));
        if (value != NULL) TRY(text_append(&t, value, strlen(value)));
        if (value == NULL && otherwise == NULL) {
            otherwise = open;
            end++;
        }
        if (value == NULL) TRY(text_append(&t, otherwise, (size_t)(end - otherwise)));
        text = otherwise == open ? end : end + 1;
    }
    TRY(text_append(&t, text, strlen(text)));
    bool nothing = t.used == 0 || strcmp(t.data, "~") == 0 || strcasecmp(t.data, "null") == 0;
    *out = nothing ? NULL : t.data;
    return OK;
}

/* A scalar, or a list of scalars as "[a, b]"; other items of a list are left out. */
static Status node_text(ConfigDoc *d, const yaml_node_t *n, const char **out)
{
    const char *text = config_scalar_text(n);
    if (text != NULL && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        if (text_word_index("yes|Yes|YES|on|On|ON", text) >= 0) text = "true"; /* Python's YAML */
        if (text_word_index("no|No|NO|off|Off|OFF", text) >= 0) text = "false";
    }
    if (n->type == YAML_SEQUENCE_NODE) {
        Text t;
        TRY(text_init(&t, d->arena));
        const yaml_node_item_t *i = n->data.sequence.items.start;
        for (; i < n->data.sequence.items.top; i++) {
            const char *item = config_scalar_text(config_node(d, *i));
            TRY(text_printf(&t, "%s%s", t.used == 0 ? "[" : ", ", item == NULL ? "" : item));
        }
        TRY(text_printf(&t, t.used == 0 ? "[]" : "]"));
        text = t.data;
    }
    return expand_variables(d->arena, text == NULL ? "" : text, out);
}

/* ---- files ---- */

/* Searches `name` next to the file `from`; with a `kind` ("models/megatron/") also in folders of that name, here
 * and up to six folders above. */
static bool find_file(const char *from, const char *kind, const char *name, char *out)
{
    static const char up[] = "../../../../../../";
    static const char *const within[] = { "", "configs/", "primus/configs/" };
    const char *slash = strrchr(from, '/');
    int folder = slash == NULL ? 0 : (int)(slash - from) + 1;
    for (int i = -1; i < (*kind == '\0' ? 0 : 21); i++) {
        struct stat info = { 0 };
        int n = snprintf(out, FILE_PATH_MAX, "%.*s%.*s%s%s%s", folder, from, i < 0 ? 0 : i / 3 * 3,
                         up, i < 0 ? "" : within[i % 3], i < 0 ? "" : kind, name);
        if (n < FILE_PATH_MAX && stat(out, &info) == 0 && S_ISREG(info.st_mode)) return true;
    }
    return false;
}

/* Adds the values of a mapping; `prefix` is "" or "section.". `extends` goes into s->extends. */
static Status add_mapping(Settings *s, ConfigDoc *d, const char *prefix, const yaml_node_t *map)
{
    TRY(config_need_mapping(d, map, "a configuration"));
    const yaml_node_pair_t *p = map->data.mapping.pairs.start;
    for (; p < map->data.mapping.pairs.top; p++) {
        char key[NAME_BYTES], place[CONFIG_PLACE_BYTES];
        const char *name = NULL, *value = NULL;
        const yaml_node_t *v = config_node(d, p->value);
        TRY(config_key_text(d, map, p, &name));
        config_place(place, d, config_node(d, p->key)->start_mark);
        bool mapping = v->type == YAML_MAPPING_NODE;
        int n = snprintf(key, sizeof key, "%s%s%s", prefix, name, mapping ? "." : "");
        if (n >= NAME_BYTES || s->pairs++ == PAIRS_MAX)
            return FAIL(ERR_FORMAT, "%s: a key of more than %d bytes, or more than %d keys", place,
                        NAME_BYTES - 1, PAIRS_MAX);
        if (mapping) {
            TRY(add_mapping(s, d, key, v));
            continue;
        }
        TRY(node_text(d, v, &value));
        if (strcmp(key, "extends") == 0)
            s->extends = value;
        else
            TRY(settings_add(s, key, value, place));
    }
    return OK;
}

/* `extends` is reset first, because a nested file sets it again. */
static Status read_settings(Settings *s, const char *path, const char *text)
{
    ConfigDoc d = { .name = path, .arena = s->arena };
    Status status = config_doc_open(&d, text, strlen(text));
    const yaml_node_t *root = status == OK ? yaml_document_get_root_node(&d.yaml) : NULL;
    s->extends = NULL;
    if (root != NULL && !config_is_nothing(root)) status = add_mapping(s, &d, "", root);
    config_doc_close(&d);
    return status;
}

/* Reads a file, then those that it extends (a name or "[name, name]"), the last one first: it wins. */
static Status read_yaml(Settings *s, const char *path)
{
    char *text = NULL, name[NAME_BYTES], next[FILE_PATH_MAX];
    size_t bytes = 0;
    if (s->files++ == FILES_MAX)
        return FAIL(ERR_FORMAT, "%s: the files extend more than %d others", path, FILES_MAX);
    TRY(file_read_input(path, s->arena, &text, &bytes));
    TRY(read_settings(s, path, text));
    const char *list = s->extends == NULL ? "" : s->extends;
    for (size_t end = strlen(list); end > 0;) {
        size_t start = end--;
        if (strchr("[, ]", list[end]) != NULL) continue;
        end = start;
        while (start > 0 && strchr("[, ]", list[start - 1]) == NULL) start--;
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - start), list + start);
        end = start;
        if (!find_file(path, "", name, next))
            return FAIL(ERR_IO, "%s: there is no file %s to extend", path, name);
        TRY(read_yaml(s, next));
    }
    return OK;
}

/* ---- TOML ---- */

#define NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789.-"

/* The position after blanks (of these kinds) and comments. */
static const char *skip_blanks(const char *at, const char *blanks)
{
    for (at += strspn(at, blanks); *at == '#'; at += strspn(at, blanks)) at += strcspn(at, "\n");
    return at;
}

/* Length of a text in quotes, true, false or a number; 0: it is none of these. */
static size_t scalar_bytes(const char *at)
{
    size_t n = strspn(at, NAME "+");
    if (*at != '"' && *at != '\'') {
        bool word =
            (n == 4 && strncmp(at, "true", n) == 0) || (n == 5 && strncmp(at, "false", n) == 0);
        return word || n == strspn(at, "0123456789.-+eE") ? n : 0;
    }
    for (n = 1; at[n] != *at; n++) {
        n += *at == '"' && at[n] == '\\';
        if (at[n] == '\n' || at[n] == '\0') return 0;
    }
    return n + 1;
}

/* The end of a scalar, or of a list of scalars, which may span lines; `at` itself: it is neither. */
static const char *value_end(const char *at)
{
    const char *next = at;
    if (*at != '[') return at + scalar_bytes(at);
    do {
        next = skip_blanks(next + 1, " \t\r\n");
        size_t n = scalar_bytes(next);
        if (n == 0 && *next != ']') return at;
        next = skip_blanks(next + n, " \t\r\n");
    } while (*next == ',');
    return *next == ']' ? next + 1 : at;
}

/* Converts a job file to YAML with keys "section.key" and the same line numbers. Values look alike in both
 * formats, so they are copied. */
static Status toml_to_yaml(const char *path, const char *toml, Text *yaml)
{
    const char *section = "", *at = toml;
    for (int line = 1; *at != '\0'; at += *at == '\n') {
        const char *key = skip_blanks(at, " \t\r"), *end = skip_blanks(key, " \t\r");
        size_t n = strspn(key + (*key == '['), NAME), prefix = strspn(section, NAME);
        if (*key == '[' && n > 0 && key[n + 1] == ']') {
            section = key + 1;
            end = key + n + 2;
        } else if (n > 0 && *(at = skip_blanks(key + n, " \t\r")) == '=') {
            const char *value = skip_blanks(at + 1, " \t\r");
            end = value_end(value) == value ? key : value_end(value);
            TRY(text_printf(yaml, "%.*s%s%.*s: %.*s", (int)prefix, section, prefix == 0 ? "" : ".",
                            (int)n, key, (int)(end > value ? end - value : 0), value));
        }
        at = skip_blanks(end, " \t\r");
        if (*at != '\n' && *at != '\0')
            return FAIL(ERR_FORMAT,
                        "%s:%d: not TOML as in job files: [section], or key = a text in quotes, a "
                        "number, true, false or a list of these",
                        path, line);
        for (; key < end; key++) line += *key == '\n';
        TRY(text_append(yaml, "\n", 1));
        line++;
    }
    return OK;
}

/* ---- the two formats ---- */

/* Reads the file that the experiment names under `key`. If there is none, *missing becomes its name.
 * Names without a file are not an error: a model may be one of our presets. */
static Status read_named(Settings *s, const char *from, const char *key, const char *kind,
                         const char **missing)
{
    char sub[NAME_BYTES], path[FILE_PATH_MAX];
    const char *name = setting_text(s, key);
    if (name == NULL) return OK;
    (void)snprintf(sub, sizeof sub, "%s/%s/", kind, s->framework);
    if (find_file(from, sub, name, path)) return read_yaml(s, path);
    *missing = name;
    return OK;
}

/* The experiment comes first and wins, then its module's file, then its model's. */
Status settings_read_primus(Settings *s, Arena *a, const char *path)
{
    static const char *const known[] = { "megatron", "torchtitan" };
    *s = (Settings){ .arena = a };
    TRY(ARENA_ZEROED(a, SETTINGS_MAX, &s->at));
    TRY(read_yaml(s, path));
    const char *framework = setting_text(s, "modules.pre_trainer.framework");
    if (framework == NULL)
        return FAIL(ERR_FORMAT,
                    "%s: there is no modules.pre_trainer.framework, as experiments of Primus have",
                    path);
    s->framework = framework;
    char hint[TEXT_HINT_BYTES];
    if (text_word_index("megatron|torchtitan", framework) < 0)
        return FAIL(ERR_ARG, "%s: framework %s is not understood%s", path, framework,
                    text_hint(hint, framework, known, 2, ", there are megatron and torchtitan"));
    TRY(read_named(s, path, "modules.pre_trainer.config", "modules", &s->module));
    return read_named(s, path, "modules.pre_trainer.model", "models", &s->model);
}

/* Degrees stood in the sections experimental and training until 2025, and some keys had other names. */
static Status name_newly(Settings *s, Setting *x)
{
    const char *dot = strchr(x->key, '.'), *name = dot == NULL ? x->key : dot + 1;
    const bool degree = text_starts(name, "pipeline_parallel_") ||
                        text_ends(name, "parallel_degree") || text_starts(name, "data_parallel_") ||
                        text_starts(name, "context_parallel_");
    char key[NAME_BYTES];
    if (strcmp(x->key, "training.batch_size") == 0) x->key = "training.local_batch_size";
    if (strcmp(x->key, "float8.recipe_name") == 0) x->key = "quantize.linear.float8.recipe_name";
    if (!degree || !(text_starts(x->key, "experimental.") || text_starts(x->key, "training.")))
        return OK;
    (void)snprintf(key, sizeof key, "parallelism.%s", name);
    return arena_text(s->arena, key, strlen(key), &x->key);
}

/* TOML becomes YAML with the same lines, so errors name the line of the original. */
Status settings_read_torchtitan(Settings *s, Arena *a, const char *path)
{
    char *toml = NULL;
    size_t bytes = 0;
    Text yaml;
    *s = (Settings){ .arena = a };
    TRY(ARENA_ZEROED(a, SETTINGS_MAX, &s->at));
    s->framework = "torchtitan";
    TRY(file_read_input(path, a, &toml, &bytes));
    TRY(text_init(&yaml, a));
    TRY(toml_to_yaml(path, toml, &yaml));
    TRY(read_settings(s, path, yaml.data));
    for (int i = 0; i < s->n; i++) TRY(name_newly(s, &s->at[i]));
    return OK;
}

/* ---- Megatron-LM ---- */

/* What Megatron takes where an option is not given, if a plan would take another. */
static const char megatron_defaults[] =
    "{bf16: false, swiglu: false, normalization: LayerNorm, add_bias_linear: true, "
    "position_embedding_type: learned_absolute, untie_embeddings_and_output_weights: false, "
    "use_distributed_optimizer: false, cross_entropy_loss_fusion: false, "
    "overlap_grad_reduce: false, moe_token_dispatcher_type: allgather, "
    "make_vocab_size_divisible_by: 128, micro_batch_size: 1}";

/* Converts the words of a command line to a mapping in YAML's flow style, with the same line numbers. Each option is a
 * list of its words, which stand in quotes, or end at a blank; a backslash and comments are left out. */
static Status words_to_yaml(const char *path, const char *at, Text *yaml)
{
    int options = 0, line = 1;
    TRY(text_printf(yaml, "{"));
    for (size_t n = 0; *at != '\0'; at += n) {
        const bool quoted = strchr("\"'", *at) != NULL, option = text_starts(at, "--");
        const char ends[] = { *at, '\n', '\0' };
        n = *at == '#' ? strcspn(at, "\n") : strchr(" \t\r\n\\", *at) != NULL;
        if (*at == '\n') line++;
        if (*at == '\n') TRY(text_append(yaml, "\n", 1));
        if (n > 0) continue;
        n = quoted ? strcspn(at + 1, ends) + 1 : strcspn(at, option ? " \t\r\n=" : " \t\r\n");
        if ((!option && options == 0) || (quoted && at[n] != *at))
            return FAIL(ERR_FORMAT, "%s:%d: not a command line: --option and its words are wanted",
                        path, line);
        if (option)
            TRY(text_printf(yaml, "%s'%.*s': [", options++ > 0 ? "], " : "", (int)n, at));
        else
            TRY(text_printf(yaml, "'%.*s', ", (int)n - quoted, at + quoted));
        n += quoted || (option && at[n] == '=');
    }
    return text_printf(yaml, options > 0 ? "]}\n" : "}\n");
}

/* No word of an option means true, and one is no list. */
static Status end_words(Settings *s, Setting *x)
{
    const size_t n = x->value == NULL ? 0 : strlen(x->value);
    if (n < 2 || strcmp(x->value, "[]") == 0 || strchr(x->value, ',') != NULL) {
        if (n <= 2) x->value = "true";
        return OK;
    }
    return arena_text(s->arena, x->value + 1, n - 2, &x->value);
}

/* "MODEL_ARGS.--num-layers" becomes "num_layers"; variables of the environment set nothing. */
static Status name_plainly(Settings *s, Setting *x)
{
    static const char theirs[] = "fp8_format|fp4_format|num_moe_experts|layernorm_epsilon";
    static const char *const same[] = { "fp8", "fp4", "num_experts", "norm_epsilon" };
    const char *dot = strrchr(x->key, '.'), *name = dot == NULL ? x->key : dot + 1;
    char key[NAME_BYTES];
    x->read = dot != NULL && strncasecmp(x->key, "env", 3) == 0;
    (void)snprintf(key, sizeof key, "%s", name + strspn(name, "-"));
    for (char *c = key; *c != '\0'; c++) *c = (char)(*c == '-' ? '_' : *c);
    const int other = text_word_index(theirs, key);
    if (other >= 0) (void)snprintf(key, sizeof key, "%s", same[other]);
    if (strcmp(key, "disable_bias_linear") == 0) {
        (void)snprintf(key, sizeof key, "add_bias_linear");
        x->value = x->value != NULL && strcasecmp(x->value, "false") == 0 ? "true" : "false";
    }
    return arena_text(s->arena, key, strlen(key), &x->key);
}

Status settings_read_megatron(Settings *s, Arena *a, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    Text yaml;
    *s = (Settings){ .arena = a, .framework = "megatron" };
    TRY(ARENA_ZEROED(a, SETTINGS_MAX, &s->at));
    TRY(file_read_input(path, a, &text, &bytes));
    const char *first = skip_blanks(text, " \t\r\n");
    const bool words = text_starts(first, "--") && first[strcspn(first, ": \t\r\n=")] != ':';
    TRY(text_init(&yaml, a));
    if (words) TRY(words_to_yaml(path, text, &yaml));
    TRY(read_settings(s, path, words ? yaml.data : text));
    for (int i = 0; i < s->n; i++) {
        if (words) TRY(end_words(s, &s->at[i]));
        TRY(name_plainly(s, &s->at[i]));
    }
    if (s->n == 0) return FAIL(ERR_FORMAT, "%s: there is no option of Megatron-LM", path);
    return read_settings(s, "Megatron's defaults", megatron_defaults);
}
