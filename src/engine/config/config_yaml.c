/* config_yaml: parses a YAML text into libyaml's document tree and walks over its sections. Each node of
 * the tree has a mark, so every message can name line and column. Values are read in config_value.c. */
#include "engine/base/synonym.h"
#include "engine/config/config_private.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { SECTIONS_MAX = 64, SECTION_BYTES = 32, PRESETS_MAX = 64, DEPTH_MAX = 64 };

/* FILE:LINE:COLUMN of a file, counted from 1 as editors do. An override has no lines, so its text
 * is the place. */
const char *config_place(char out[CONFIG_PLACE_BYTES], const ConfigDoc *d, yaml_mark_t at)
{
    if (d->typed) {
        (void)snprintf(out, CONFIG_PLACE_BYTES, "override %.*s", CONFIG_SHOWN_CHARS, d->name);
    } else {
        (void)snprintf(out, CONFIG_PLACE_BYTES, "%.120s:%zu:%zu", d->name, at.line + 1,
                       at.column + 1);
    }
    return out;
}

/* The one sentence for a wrong value: place, setting, what was found, what is legal. The place of an override is the
 * setting itself. */
Status config_wrong(const ConfigDoc *d, const yaml_node_t *n, const char *name, const char *wanted)
{
    char place[CONFIG_PLACE_BYTES] = "", found[CONFIG_FOUND_BYTES];
    if (!d->typed) config_place(place, d, n == NULL ? (yaml_mark_t){ 0 } : n->start_mark);
    return FAIL(ERR_ARG, "%s%s%s is %s, must be %s", place, d->typed ? "" : ": ", name,
                config_found(found, n), wanted);
}

/* Used for presets of settings and of GPUs, hence `what` and `otherwise`. Capitals do not
 * matter. */
Status config_preset_find(const ConfigPreset *presets, int n, const char *name, const char *what,
                          const char *otherwise, const ConfigPreset **out)
{
    const char *names[PRESETS_MAX];
    char hint[TEXT_HINT_BYTES];
    assert(n <= PRESETS_MAX);
    for (int i = 0; i < n; i++) {
        names[i] = presets[i].name;
        if (strcasecmp(names[i], name) != 0) continue;
        *out = &presets[i];
        return OK;
    }
    const char *slash = strrchr(name, '/'), *model = slash == NULL ? name : slash + 1;
    return FAIL(ERR_ARG, "%s %s%s", what, name, text_hint(hint, model, names, n, otherwise));
}

/* ---- documents ---- */

/* libyaml reports broken UTF-8 by a byte offset and everything else by a mark. Where it cannot copy a tag for lack of
 * memory, it sets no error. */
static Status syntax_error(const ConfigDoc *d, const yaml_parser_t *p)
{
    char place[CONFIG_PLACE_BYTES];
    if (p->error == YAML_MEMORY_ERROR || p->error == YAML_NO_ERROR)
        return FAIL(ERR_MEMORY, "%s: no memory left to read YAML", d->name);
    const char *problem = p->problem == NULL ? "unknown reason" : p->problem;
    if (p->error == YAML_READER_ERROR)
        return FAIL(ERR_FORMAT, "%.120s: not YAML at byte %zu: %s", d->name, p->problem_offset,
                    problem);
    return FAIL(ERR_FORMAT, "%s: not YAML: %s%s%s", config_place(place, d, p->problem_mark),
                problem, p->context == NULL ? "" : " ", p->context == NULL ? "" : p->context);
}

/* libyaml reads one document at a time; a second one in a configuration is an error. */
static Status refuse_second(const ConfigDoc *d, yaml_parser_t *p)
{
    char place[CONFIG_PLACE_BYTES];
    yaml_document_t second;
    if (!yaml_parser_load(p, &second)) return syntax_error(d, p);
    const yaml_node_t *root = yaml_document_get_root_node(&second);
    Status s = OK;
    if (root != NULL)
        s = FAIL(ERR_FORMAT, "%s: a second YAML document begins, there must be one",
                 config_place(place, d, root->start_mark));
    yaml_document_delete(&second);
    return s;
}

/* Goes over the events until the text ends or is too deep. An error of syntax is left to the second pass. */
static Status check_depth(const ConfigDoc *d, yaml_parser_t *p)
{
    yaml_event_t e;
    char place[CONFIG_PLACE_BYTES];
    int depth = 0;
    for (bool more = true; more;) {
        if (!yaml_parser_parse(p, &e)) return OK;
        depth += e.type == YAML_SEQUENCE_START_EVENT || e.type == YAML_MAPPING_START_EVENT;
        depth -= e.type == YAML_SEQUENCE_END_EVENT || e.type == YAML_MAPPING_END_EVENT;
        more = e.type != YAML_STREAM_END_EVENT;
        yaml_mark_t at = e.start_mark;
        yaml_event_delete(&e);
        if (depth <= DEPTH_MAX) continue;
        return FAIL(ERR_FORMAT, "%s: lists and mappings lie more than %d levels deep here",
                    config_place(place, d, at), DEPTH_MAX);
    }
    return OK;
}

/* Every level begins with one of these. Most overrides have none, and need no second parser. */
static bool may_be_deep(const char *yaml, size_t bytes)
{
    int begins = 0;
    for (size_t i = 0; i < bytes; i++)
        begins += yaml[i] != '\0' && strchr("[{-:?", yaml[i]) != NULL;
    return begins > DEPTH_MAX;
}

/* libyaml takes time in proportion to the depth for every token: 100 kB of `[` took 15 s. */
static Status refuse_depth(const ConfigDoc *d, const char *yaml, size_t yaml_bytes)
{
    yaml_parser_t p;
    if (!may_be_deep(yaml, yaml_bytes)) return OK;
    if (!yaml_parser_initialize(&p)) return FAIL(ERR_MEMORY, "no memory left to read YAML");
    yaml_parser_set_input_string(&p, (const unsigned char *)yaml, yaml_bytes);
    Status s = check_depth(d, &p);
    yaml_parser_delete(&p);
    return s;
}

/* On failure the document is zeroed, so config_doc_close is always safe. */
Status config_doc_open(ConfigDoc *d, const char *yaml, size_t yaml_bytes)
{
    yaml_parser_t p;
    TRY(refuse_depth(d, yaml, yaml_bytes));
    if (!yaml_parser_initialize(&p)) return FAIL(ERR_MEMORY, "no memory left to read YAML");
    yaml_parser_set_input_string(&p, (const unsigned char *)yaml, yaml_bytes);
    Status s = OK;
    if (!yaml_parser_load(&p, &d->yaml)) {
        memset(&d->yaml, 0, sizeof d->yaml);
        s = syntax_error(d, &p);
    }
    if (s == OK && yaml_document_get_root_node(&d->yaml) != NULL) s = refuse_second(d, &p);
    yaml_parser_delete(&p);
    return s;
}

void config_doc_close(ConfigDoc *d) { yaml_document_delete(&d->yaml); }

/* ---- mappings ---- */

const yaml_node_t *config_node(ConfigDoc *d, int index)
{
    return yaml_document_get_node(&d->yaml, index);
}

/* An empty file, an empty section ("train:") or an empty value. An empty text in quotes is a
 * value. */
bool config_is_nothing(const yaml_node_t *n)
{
    return n == NULL || (n->type == YAML_SCALAR_NODE && n->data.scalar.length == 0 &&
                         n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
}

Status config_need_mapping(const ConfigDoc *d, const yaml_node_t *n, const char *what)
{
    char place[CONFIG_PLACE_BYTES];
    if (n->type == YAML_MAPPING_NODE) return OK;
    return FAIL(ERR_ARG, "%s: %s must be a mapping of names to values",
                config_place(place, d, n->start_mark), what);
}

/* YAML forbids a key twice, but libyaml does not check it. The earlier one would silently lose, so
 * it is an error. */
Status config_key_text(ConfigDoc *d, const yaml_node_t *map, const yaml_node_pair_t *pair,
                       const char **out)
{
    char place[CONFIG_PLACE_BYTES];
    const yaml_node_t *key = config_node(d, pair->key);
    config_place(place, d, key->start_mark);
    if (key->type != YAML_SCALAR_NODE || config_scalar_text(key) == NULL)
        return FAIL(ERR_ARG, "%s: a name of a setting is expected here", place);
    const char *text = config_scalar_text(key);
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++) {
        const yaml_node_t *earlier = config_node(d, p->key);
        if (strcmp((const char *)earlier->data.scalar.value, text) == 0)
            return FAIL(ERR_ARG, "%s: %.*s is here a second time, first in line %zu", place,
                        CONFIG_SHOWN_CHARS, text, earlier->start_mark.line + 1);
    }
    *out = text;
    return OK;
}

/* ---- sections ---- */

/* A section is any name that some row has before its dot. There is no list of sections. Returns the first row, or
 * NULL. */
static const ConfigRow *section_of(const char *name)
{
    size_t n = strlen(name);
    for (int i = 0; i < config_row_count; i++) {
        if (strncmp(config_rows[i].name, name, n) == 0 && config_rows[i].name[n] == '.')
            return &config_rows[i];
    }
    return NULL;
}

/* Up to version 0.9.0 a run's config.yaml had all arguments of plan: at least so many. A person writes a few. */
enum { ARGUMENTS_WRITTEN = 13 };

static bool was_written(ConfigDoc *d, const yaml_node_t *root)
{
    int64_t n = 0;
    const yaml_node_pair_t *p = root->data.mapping.pairs.start;
    for (; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *map = config_node(d, p->value);
        const char *key = config_scalar_text(config_node(d, p->key));
        const ConfigRow *row = key == NULL ? NULL : section_of(key);
        if (row != NULL && row->level == CONFIG_PLAN && map->type == YAML_MAPPING_NODE)
            n += map->data.mapping.pairs.top - map->data.mapping.pairs.start;
    }
    return n >= ARGUMENTS_WRITTEN;
}

/* Does the mapping begin with a name of another trainer, as parallelism: {tensor_parallel_degree: 2} does? */
static bool is_foreign(ConfigDoc *d, const char *section, const yaml_node_t *map)
{
    char name[CONFIG_PLACE_BYTES];
    if (map->type != YAML_MAPPING_NODE) return false;
    const yaml_node_pair_t *first = map->data.mapping.pairs.start;
    if (first == map->data.mapping.pairs.top) return false;
    const char *key = config_scalar_text(config_node(d, first->key));
    (void)snprintf(name, sizeof name, "%.60s.%.60s", section, key == NULL ? "" : key);
    return synonym_of(name) != NULL;
}

static Status unknown_section(const char *place, const char *name)
{
    char section[SECTIONS_MAX][SECTION_BYTES];
    const char *known[SECTIONS_MAX] = { "preset" };
    int n = 1;
    for (int i = 0; i < config_row_count && n < SECTIONS_MAX; i++) {
        (void)snprintf(section[n], SECTION_BYTES, "%.*s", (int)strcspn(config_rows[i].name, "."),
                       config_rows[i].name);
        known[n] = section[n];
        n += strcmp(known[n], known[n - 1]) != 0; /* rows of a section are adjacent */
    }
    int near = synonym_of(name) == NULL ? text_nearest(name, known, n) : -1;
    if (near >= 0)
        return FAIL(ERR_ARG, "%s: there is no section %.*s, did you mean %s?", place,
                    CONFIG_SHOWN_CHARS, name, known[near]);
    const ConfigRow *row = NULL;
    return config_row_find(place, name, NULL, false,
                           &row); /* `lr: 1` at the top level belongs in a section */
}

static Status read_section(ConfigDoc *d, const char *section, const yaml_node_t *map, bool run,
                           Config *c)
{
    if (config_is_nothing(map)) return OK;
    TRY(config_need_mapping(d, map, section));
    const yaml_node_pair_t *p = map->data.mapping.pairs.start;
    for (; p < map->data.mapping.pairs.top; p++) {
        char place[CONFIG_PLACE_BYTES], name[CONFIG_PLACE_BYTES];
        const char *key = NULL;
        const ConfigRow *row = NULL;
        TRY(config_key_text(d, map, p, &key));
        (void)snprintf(name, sizeof name, "%s.%.*s", section, CONFIG_SHOWN_CHARS, key);
        if (config_row_was(name, config_node(d, p->value))) continue;
        TRY(config_row_find(config_place(place, d, config_node(d, p->key)->start_mark), name, NULL,
                            run, &row));
        TRY(config_value_read(d, row, config_node(d, p->value), c));
    }
    return OK;
}

static const yaml_node_t *root_of(ConfigDoc *d) { return yaml_document_get_root_node(&d->yaml); }

/* The top-level key `preset` has been read before (config_doc_preset) and is skipped here. */
Status config_doc_read(ConfigDoc *d, Config *c, bool run)
{
    const yaml_node_t *root = root_of(d);
    if (config_is_nothing(root)) return OK;
    TRY(config_need_mapping(d, root, "the configuration"));
    const bool written = run && was_written(d, root);
    const yaml_node_pair_t *p = root->data.mapping.pairs.start;
    for (; p < root->data.mapping.pairs.top; p++) {
        char place[CONFIG_PLACE_BYTES];
        const char *key = NULL;
        TRY(config_key_text(d, root, p, &key));
        if (strcmp(key, "preset") == 0) continue;
        const ConfigRow *row = section_of(key);
        if (row == NULL && !is_foreign(d, key, config_node(d, p->value)))
            return unknown_section(config_place(place, d, config_node(d, p->key)->start_mark), key);
        if (written && row != NULL && row->level == CONFIG_PLAN) continue;
        TRY(read_section(d, key, config_node(d, p->value), run, c));
    }
    return OK;
}

/* Leaves *name alone if the document names no preset. Errors of structure are left to
 * config_doc_read. */
Status config_doc_preset(ConfigDoc *d, const char **name, char place[CONFIG_PLACE_BYTES])
{
    const yaml_node_t *root = root_of(d);
    if (root == NULL || root->type != YAML_MAPPING_NODE) return OK;
    const yaml_node_pair_t *p = root->data.mapping.pairs.start;
    for (; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = config_node(d, p->key), *value = config_node(d, p->value);
        const char *text = config_scalar_text(key);
        if (text == NULL || strcmp(text, "preset") != 0) continue;
        config_place(place, d, value->start_mark);
        *name = config_scalar_text(value);
        if (*name == NULL) return FAIL(ERR_ARG, "%s: preset must be a preset's name", place);
    }
    return OK;
}
