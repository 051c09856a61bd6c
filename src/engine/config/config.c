/* config: the table of settings, their order of precedence, overrides and presets. Values are read in
 * config_value.c, YAML in config_yaml.c; rules that involve several settings are in config_check.c. */
#include "engine/config/config.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/synonym.h"
#include "engine/config/config_private.h"
#include "kernels/core/kinds.h"

#include <stdio.h>
#include <string.h>

const ConfigRow config_rows[] = {
#define ROW(section, name, TYPE, MARK, LEVEL, fallback, min, max, choices, help)                   \
    { #section "." #name,                                                                          \
      fallback,                                                                                    \
      choices,                                                                                     \
      help,                                                                                        \
      CONFIG_##TYPE,                                                                               \
      CONFIG_##MARK,                                                                               \
      CONFIG_##LEVEL,                                                                              \
      offsetof(Config, section##_##name),                                                          \
      min,                                                                                         \
      max },
#include "engine/config/rows.def"
#undef ROW
};

enum { ROW_COUNT = sizeof config_rows / sizeof *config_rows, NAME_BYTES = 64 };

const int config_row_count = ROW_COUNT;

/* ---- rows by name ---- */

/* The name within its section: every row's name has exactly one dot. */
static const char *key_of(const ConfigRow *row) { return strchr(row->name, '.') + 1; }

#define GRADIENTS_IN_ONE_ORDER "gradients of attention always have one order now"

/* Settings that were removed, a value that changed nothing, and what to use instead. */
static const struct {
    const char *name, *fallback, *instead;
    bool warns; /* of such a value: somebody meant it */
} removed[] = {
    { "run.loss_scale", "0", "with run.compute=f16 the scale always follows the gradients", false },
    { "mesh.tp_direct", "true",
      "GPUs of mesh.tp store into each other's memory wherever they reach it", false },
    { "optimizer.muon_factor", "1",
      "optimizer.muon_scale chooses the factor, and optimizer.lr multiplies it", false },
    { "attention.deterministic", "true", GRADIENTS_IN_ONE_ORDER, false },
    { "attention.deterministic", "false", GRADIENTS_IN_ONE_ORDER, true },
    { "moe.jitter", "0", "logits have no noise now; moe.z_loss keeps them small", false },
    { "comm.null", "[]", "bench step --exposed runs steps without each kind of traffic", false },
    { "data.on_bad_line", "fail", "data prepare --on-bad-line", false },
    { "data.on_bad_line", "skip", "data prepare --on-bad-line skip", true },
};

/* A checkpoint or config.yaml of an older version contains all settings, removed ones too. Those are
 * ignored as long as they have a value that changed nothing. */
bool config_row_was(const char *name, const yaml_node_t *value)
{
    bool none = value->type == YAML_SEQUENCE_NODE &&
                value->data.sequence.items.start == value->data.sequence.items.top;
    const char *text = none ? "[]" : config_scalar_text(value);
    for (size_t i = 0; text != NULL && i < sizeof removed / sizeof *removed; i++) {
        if (strcmp(removed[i].name, name) != 0 || strcmp(removed[i].fallback, text) != 0) continue;
        if (removed[i].warns) log_warn("%s=%s has no effect: %s", name, text, removed[i].instead);
        return true;
    }
    return false;
}

/* Always fails. Suggests the row that a wrong name most likely means: what another trainer calls so, the same key in
 * another section (train.lr is optimizer.lr), else the nearest spelling. */
static Status unknown_row(const char *place, const char *name, const char *value)
{
    const char *dot = strchr(name, '.'), *key = dot == NULL ? name : dot + 1, *names[ROW_COUNT],
               *meant = name;
    char hint[TEXT_HINT_BYTES], answer[SYNONYM_BYTES];
    int n = 0;
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        if (strcmp(removed[i].name, name) == 0)
            return FAIL(ERR_ARG, "%s: %s was removed after 0.9.0: %s", place, name,
                        removed[i].instead);
    const Synonym *known = synonym_of(name);
    if (known != NULL)
        return FAIL(ERR_ARG, "%s: there is no setting %.*s: %s", place, CONFIG_SHOWN_CHARS, name,
                    synonym_answer(answer, known, value));
    for (int i = 0; i < ROW_COUNT; i++) names[n++] = config_rows[i].name;
    for (int i = 0; i < ROW_COUNT && n > 1; i++) {
        if (strcmp(key_of(&config_rows[i]), key) != 0) continue;
        meant = names[0] = config_rows[i].name;
        n = 1;
    }
    return FAIL(ERR_ARG, "%s: there is no setting %.*s%s", place, CONFIG_SHOWN_CHARS, name,
                text_hint(hint, meant, names, n, " (`switchyard train --settings` lists them)"));
}

Status config_row_find(const char *place, const char *name, const char *value, bool run,
                       const ConfigRow **out)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        if (strcmp(config_rows[i].name, name) != 0) continue;
        if (run && config_rows[i].level == CONFIG_PLAN)
            return FAIL(ERR_ARG,
                        "%s: %s is an argument of `switchyard plan`, not of a training run", place,
                        name);
        *out = &config_rows[i];
        return OK;
    }
    return unknown_row(place, name, value);
}

bool config_has_int(const ConfigInts *list, int64_t value)
{
    for (int i = 0; i < list->n; i++) {
        if (list->at[i] == value) return true;
    }
    return false;
}

bool config_has_text(const ConfigTexts *list, const char *word)
{
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->at[i], word) == 0) return true;
    }
    return false;
}

/* ---- values from texts ---- */

enum { WORD_BYTES = 64 }; /* longer words go through YAML */

/* Is it a value that YAML reads as one unquoted scalar of the same text? */
static bool is_word(const char *value)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    const size_t sign = *value == '-', n = strspn(value + sign, letters);
    return n > 0 && value[sign + n + strspn(value + sign + n, "0123456789.e+-")] == '\0';
}

/* A TEXT is taken literally, so that no path on a command line needs YAML quotes. Other types are
 * parsed as YAML. Words, numbers and [] need no parser for that: a parser for each row made most of the
 * time of config_default. */
static Status set_row(ConfigDoc *d, const ConfigRow *row, const char *value, Config *c)
{
    if (row->type == CONFIG_TEXT) return config_value_literal(d, row, value, c);
    yaml_node_t node = { .type = YAML_SEQUENCE_NODE };
    if (strcmp(value, "[]") == 0) return config_value_read(d, row, &node, c);
    unsigned char text[WORD_BYTES];
    const size_t n = strlen(value);
    if (n < sizeof text && is_word(value)) {
        memcpy(text, value, n + 1);
        node = (yaml_node_t){ .type = YAML_SCALAR_NODE,
                              .data.scalar = { text, n, YAML_PLAIN_SCALAR_STYLE } };
        return config_value_read(d, row, &node, c);
    }
    Status s = config_doc_open(d, value, n);
    if (s == OK) s = config_value_read(d, row, yaml_document_get_root_node(&d->yaml), c);
    config_doc_close(d);
    return s;
}

Status config_default(Config *c, Arena *a)
{
    Config next = { 0 };
    for (int i = 0; i < ROW_COUNT; i++) {
        ConfigDoc d = { .name = config_rows[i].name, .typed = true, .arena = a };
        TRY(set_row(&d, &config_rows[i], config_rows[i].fallback, &next));
    }
    *c = next;
    return OK;
}

/* Works on a copy, so a wrong override leaves *c as it was. */
static Status override_row(Config *c, Arena *a, const char *assignment, bool run)
{
    ConfigDoc d = { .name = assignment, .typed = true, .arena = a };
    char place[CONFIG_PLACE_BYTES], name[NAME_BYTES];
    config_place(place, &d, (yaml_mark_t){ 0 });
    size_t n = strcspn(assignment, "=");
    if (assignment[n] == '\0' || n == 0)
        return FAIL(ERR_ARG, "%s: must be section.key=value", place);
    (void)snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1,
                   assignment);
    const ConfigRow *row = NULL;
    TRY(config_row_find(place, name, assignment + n + 1, run, &row));
    Config next = *c;
    TRY(set_row(&d, row, assignment + n + 1, &next));
    *c = next;
    return OK;
}

Status config_override(Config *c, Arena *a, const char *assignment)
{
    return override_row(c, a, assignment, false);
}

/* ---- whole texts ---- */

static Status apply_yaml(Config *c, Arena *a, const char *name, const char *yaml, size_t yaml_bytes,
                         bool run);

/* `what` begins the error: "quick.yaml:1:9: there is no preset". */
static Status apply_preset(Config *c, Arena *a, const char *preset, const char *what)
{
    const ConfigPreset *p = NULL;
    TRY(config_preset_find(config_presets, config_presets_n, preset, what,
                           " (`switchyard train --settings` lists the presets)", &p));
    return apply_yaml(c, a, p->name, p->yaml, strlen(p->yaml), true);
}

/* Applies the document's preset, if it names one, then the document's own settings. A preset may name
 * another preset. */
static Status apply_yaml(Config *c, Arena *a, const char *name, const char *yaml, size_t yaml_bytes,
                         bool run)
{
    ConfigDoc d = { .name = name, .arena = a };
    char place[CONFIG_PLACE_BYTES], what[CONFIG_PLACE_BYTES + 32];
    const char *preset = NULL;
    Status s = config_doc_open(&d, yaml, yaml_bytes);
    if (s == OK) s = config_doc_preset(&d, &preset, place);
    if (s == OK && preset != NULL) {
        (void)snprintf(what, sizeof what, "%s: there is no preset", place);
        s = apply_preset(c, a, preset, what);
    }
    if (s == OK) s = config_doc_read(&d, c, run);
    config_doc_close(&d);
    return s;
}

Status config_parse(Config *c, Arena *a, const char *name, const char *yaml, size_t yaml_bytes)
{
    Config next;
    TRY(config_default(&next, a));
    TRY(apply_yaml(&next, a, name, yaml, yaml_bytes, false));
    *c = next;
    return OK;
}

/* `source` is no file. A folder is a common mistake and gets its own sentence. A path is near other files first. */
static Status load_preset(Config *c, Arena *a, const char *source)
{
    char near[FILE_HINT_BYTES], inside[FILE_PATH_MAX];
    if (strpbrk(source, "./") != NULL && !file_exists(source) && *file_hint(near, source) != '\0')
        return FAIL(ERR_ARG, "there is neither a file nor a preset %s%s", source, near);
    if (file_join(inside, source, "config.json") == OK && file_exists(inside))
        return FAIL(ERR_ARG,
                    "CONFIG is a Hugging Face folder: `switchyard convert from-hf %.200s OUT` "
                    "writes OUT/config.yaml, and train --init OUT begins with its weights",
                    source);
    return apply_preset(c, a, source,
                        file_exists(source)
                            ? "CONFIG is a folder: give a YAML file, such as config.yaml in "
                              "it; and there is no preset"
                            : "there is neither a file nor a preset");
}

/* A file wins over a preset of the same name. */
static Status load_source(Config *c, Arena *a, const char *source, bool run)
{
    FileMap map = { 0 };
    if (!file_is_file(source)) return load_preset(c, a, source);
    TRY(file_map_input(source, &map));
    if (map.bytes == 0)
        return FAIL(ERR_FORMAT, "%s is empty: give a file with at least one setting, or a preset",
                    source);
    Status s = apply_yaml(c, a, source, (const char *)map.data, map.bytes, run);
    file_unmap(&map);
    return s;
}

/* The order of precedence: defaults, the source, overrides. *c changes only if all of them are valid. */
Status config_load_as(Config *c, Arena *a, int flags, const char *source,
                      const char *const *overrides, int n_overrides)
{
    const bool run = (flags & CONFIG_RUN) != 0;
    Config next;
    TRY(config_default(&next, a));
    if (source != NULL) TRY(load_source(&next, a, source, run));
    if ((flags & CONFIG_SMALL) != 0) config_shrink(&next);
    for (int i = 0; i < n_overrides; i++) TRY(override_row(&next, a, overrides[i], run));
    TRY(config_check(&next));
    *c = next;
    return OK;
}

Status config_load(Config *c, Arena *a, const char *source, const char *const *overrides,
                   int n_overrides)
{
    return config_load_as(c, a, 0, source, overrides, n_overrides);
}
