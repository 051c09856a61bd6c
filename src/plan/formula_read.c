/* formula_read: a YAML text into a FormulaSheet, and the sheets that the program carries. */
#include "config/config_doc.h"
#include "plan/formula_private.h"

#include <string.h>

enum { FORMULAS_MAX = 64 };

typedef enum Key { TITLE, SOURCE, EXTENDS, DEFINE, KEYS } Key;

static const char *const keys[KEYS] = { "title", "source", "extends", "define" };

static Status wrong(const ConfigDoc *doc, const yaml_node_t *n, const char *what,
                    const char *wanted)
{
    char place[CONFIG_PLACE_BYTES], found[CONFIG_FOUND_BYTES];
    return FAIL(ERR_ARG, "%s: %.60s is %s, must be %s", config_place(place, doc, n->start_mark),
                what, config_found(found, n), wanted);
}

static Status read_text(const ConfigDoc *doc, const yaml_node_t *n, const char *what,
                        const char **out)
{
    const char *text = config_scalar_text(n);
    if (text == NULL) return wrong(doc, n, what, "a text");
    return arena_text(doc->arena, text, strlen(text), out);
}

/* EXPRESSION or [EXPRESSION, UNIT, SOURCE], of which the last ones may be missing. */
static Status read_def(ConfigDoc *doc, const yaml_node_t *n, FormulaDef *d)
{
    const char **const part[] = { &d->text, &d->unit, &d->source };
    if (n->type == YAML_SEQUENCE_NODE) {
        const yaml_node_item_t *item = n->data.sequence.items.start;
        int parts = (int)(n->data.sequence.items.top - item);
        if (parts < 1 || parts > 3)
            return wrong(doc, n, d->name, "an expression or [expression, unit, source]");
        for (int i = 1; i < parts; i++)
            TRY(read_text(doc, config_node(doc, item[i]), d->name, part[i]));
        n = config_node(doc, item[0]);
    }
    TRY(read_text(doc, n, d->name, &d->text));
    d->line = (int)n->start_mark.line + 1;
    d->column = (int)n->start_mark.column + 1;
    d->one_line = n->start_mark.line == n->end_mark.line;
    if (n->type == YAML_SCALAR_NODE && n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) d->column++;
    return formula_check(d);
}

static Status read_defs(ConfigDoc *doc, const yaml_node_t *map, FormulaSheet *s)
{
    TRY(config_need_mapping(doc, map, keys[DEFINE]));
    const yaml_node_pair_t *p = map->data.mapping.pairs.start;
    for (; p < map->data.mapping.pairs.top; p++) {
        const char *name = NULL;
        int i = 0;
        FormulaDef next = { .unit = "", .source = "", .file = s->name };
        TRY(config_key_text(doc, map, p, &name));
        if (!formula_is_name(name)) {
            return wrong(doc, config_node(doc, p->key), "the name of a definition",
                         "at most 63 of a-z, A-Z, 0-9 and _, no digit first, no function's name");
        }
        TRY(arena_text(doc->arena, name, strlen(name), &next.name));
        TRY(read_def(doc, config_node(doc, p->value), &next));
        while (i < s->n && strcmp(s->def[i].name, name) != 0) i++;
        if (i == FORMULA_DEFS_MAX)
            return FAIL(ERR_ARG, "formula %.64s: more than %d definitions", s->name, i);
        if (i == s->n) s->n++;
        s->def[i] = next;
    }
    return OK;
}

/* Where each key's value stands; NULL if it is not there. */
static Status read_keys(ConfigDoc *doc, const yaml_node_t *root, const yaml_node_t *value[KEYS])
{
    TRY(config_need_mapping(doc, root, "a formula sheet"));
    const yaml_node_pair_t *p = root->data.mapping.pairs.start;
    for (; p < root->data.mapping.pairs.top; p++) {
        char place[CONFIG_PLACE_BYTES];
        const char *key = NULL;
        int k = 0;
        TRY(config_key_text(doc, root, p, &key));
        while (k < KEYS && strcmp(key, keys[k]) != 0) k++;
        if (k == KEYS) {
            return FAIL(ERR_ARG,
                        "%s: %.60s is no part of a formula sheet: title, source, "
                        "extends and define are",
                        config_place(place, doc, config_node(doc, p->key)->start_mark), key);
        }
        value[k] = config_node(doc, p->value);
    }
    return OK;
}

static Status read_sheet(ConfigDoc *doc, FormulaSheet *s)
{
    const yaml_node_t *root = yaml_document_get_root_node(&doc->yaml), *value[KEYS] = { NULL };
    const char *base = NULL;
    if (!config_is_nothing(root)) TRY(read_keys(doc, root, value));
    if (value[DEFINE] == NULL) return FAIL(ERR_ARG, "%.120s: define is missing", doc->name);
    if (value[EXTENDS] != NULL) {
        TRY(read_text(doc, value[EXTENDS], keys[EXTENDS], &base));
        TRY(formula_load(s, doc->arena, base));
    } else {
        *s = (FormulaSheet){ 0 };
        TRY(ARENA_NEW(doc->arena, FORMULA_DEFS_MAX, &s->def));
    }
    s->title = s->source = "";
    TRY(arena_text(doc->arena, doc->name, strlen(doc->name), &s->name));
    if (value[TITLE] != NULL) TRY(read_text(doc, value[TITLE], keys[TITLE], &s->title));
    if (value[SOURCE] != NULL) TRY(read_text(doc, value[SOURCE], keys[SOURCE], &s->source));
    return read_defs(doc, value[DEFINE], s);
}

Status formula_parse(FormulaSheet *s, Arena *a, const char *name, const char *yaml,
                     size_t yaml_bytes)
{
    FormulaSheet next = { 0 };
    ConfigDoc doc = { .name = name, .arena = a };
    Status status = config_doc_open(&doc, yaml, yaml_bytes);
    if (status == OK) status = read_sheet(&doc, &next);
    config_doc_close(&doc);
    if (status == OK) *s = next;
    return status;
}

int formula_count(void) { return formula_presets_n; }

const char *formula_name(int i) { return formula_presets[i].name; }

Status formula_load(FormulaSheet *s, Arena *a, const char *name)
{
    const char *names[FORMULAS_MAX];
    int n = formula_presets_n < FORMULAS_MAX ? formula_presets_n : FORMULAS_MAX;
    for (int i = 0; i < n; i++) {
        const ConfigPreset *p = &formula_presets[i];
        names[i] = p->name;
        if (strcmp(p->name, name) == 0) return formula_parse(s, a, name, p->yaml, strlen(p->yaml));
    }
    char hint[TEXT_HINT_BYTES];
    return FAIL(ERR_ARG, "there is no formula %.60s%s", name, text_hint(hint, name, names, n, ""));
}
