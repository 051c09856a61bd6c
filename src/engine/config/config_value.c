/* config_value: reads one value from a YAML node into a row's field, and checks its type and range. Rules
 * between settings are in config_check.c; writing is in config_print.c. */
#include "engine/base/synonym.h"
#include "engine/config/config_private.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WANTED_BYTES = 128, MEANT_BYTES = 160 };

/* The row that is read, and its name in messages: "train.steps", "data.sources[2].path". */
typedef struct Target {
    ConfigDoc *doc;
    const ConfigRow *row;
    const char *name;
} Target;

/* ---- describing nodes ---- */

/* NULL for a list, a mapping or a text with a NUL inside, which a C string cannot hold. */
const char *config_scalar_text(const yaml_node_t *n)
{
    if (n->type != YAML_SCALAR_NODE) return NULL;
    const char *text = (const char *)n->data.scalar.value;
    return strlen(text) == n->data.scalar.length ? text : NULL;
}

static bool is_plain(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* The text of an unquoted scalar; "" for anything else, because quoted numbers are texts. */
static const char *plain_text(const yaml_node_t *n)
{
    const char *text = is_plain(n) ? config_scalar_text(n) : NULL;
    return text == NULL ? "" : text;
}

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strcmp(word, *list) == 0) return true;
    }
    return false;
}

/* YAML 1.1's spellings of null. Only unquoted ones count. */
static bool is_null(const yaml_node_t *n)
{
    static const char *const nothing[] = { "", "~", "null", "Null", "NULL", NULL };
    return n == NULL || (is_plain(n) && is_one_of(plain_text(n), nothing));
}

/* Accepts only decimal numbers; strtod alone also accepts nan, inf and hexadecimal. */
static bool to_number(const char *text, double *out)
{
    char *end = NULL;
    if (*text == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

bool config_scalar_number(const yaml_node_t *n, double *out)
{
    return to_number(plain_text(n), out);
}

/* Describes a value for an error. A text is quoted so that "1" and 1 look different. */
const char *config_found(char out[CONFIG_FOUND_BYTES], const yaml_node_t *n)
{
    static const char *const bools[] = { "true", "false", NULL };
    double number = 0;
    if (n == NULL || is_null(n)) return "empty";
    if (n->type == YAML_SEQUENCE_NODE) return "a list";
    if (n->type == YAML_MAPPING_NODE) return "a mapping";
    const char *text = config_scalar_text(n);
    if (text == NULL) return "a text with a NUL in it";
    bool bare = is_plain(n) && (to_number(text, &number) || is_one_of(text, bools));
    (void)snprintf(out, CONFIG_FOUND_BYTES, bare ? "%.*s" : "the text \"%.*s\"", CONFIG_SHOWN_CHARS,
                   text);
    return out;
}

/* Ends the sentence about a value that another trainer or language writes so: ": write bf16". "": it is none. */
static const char *meant(const Target *t, const yaml_node_t *n, char out[MEANT_BYTES])
{
    const ConfigType type = t->row->type;
    const char *words = type == CONFIG_BOOL ? CONFIG_BOOL_WORDS : t->row->choices, *ours = NULL;
    const char *text = is_null(n) ? NULL : config_scalar_text(n);
    const Synonym *s = text == NULL || words == NULL ? NULL : synonym_of_value(text);
    const bool whole = t->doc->typed && type <= CONFIG_CHOICE;
    char number[SYNONYM_NUMBER_BYTES];
    double plain = 0;
    *out = '\0';
    if (s != NULL && *s->ours == '\0') (void)snprintf(out, MEANT_BYTES, "; %s", s->note);
    if (s != NULL && text_word_index(words, s->ours) >= 0) ours = s->ours;
    if (text != NULL && (type == CONFIG_INT || type == CONFIG_REAL || type == CONFIG_INTS) &&
        !config_scalar_number(n, &plain))
        ours = synonym_number(number, text);
    if (ours != NULL)
        (void)snprintf(out, MEANT_BYTES, ": write %s%s%s", whole ? t->name : "", whole ? "=" : "",
                       ours);
    return out;
}

static Status wrong_value(const Target *t, const yaml_node_t *n, const char *wanted)
{
    char more[WANTED_BYTES + MEANT_BYTES], means[MEANT_BYTES];
    (void)snprintf(more, sizeof more, "%s%s", wanted, meant(t, n, means));
    return config_wrong(t->doc, n, t->name, more);
}

/* ---- scalars ---- */

/* Reads a number within the row's range. `kind` names what is wanted, for the error. */
static Status read_number(const Target *t, const yaml_node_t *n, const char *kind, double *out)
{
    char wanted[WANTED_BYTES];
    double v = 0;
    bool number = !is_null(n) && config_scalar_number(n, &v);
    bool right = number && (t->row->type == CONFIG_REAL || v == nearbyint(v));
    (void)snprintf(wanted, sizeof wanted, "%sfrom %.15g to %.15g", right ? "" : kind, t->row->min,
                   t->row->max);
    if (!right || v < t->row->min || v > t->row->max) return wrong_value(t, n, wanted);
    *out = v;
    return OK;
}

/* Reads 5000 or 5e3. Plain digits are parsed as integers, because a double would round large ones. */
static Status read_int(const Target *t, const yaml_node_t *n, int64_t *out)
{
    double v = 0;
    char *end = NULL;
    TRY(read_number(t, n, "a whole number ", &v));
    errno = 0;
    long long exact = strtoll(plain_text(n), &end, 10);
    *out = *end == '\0' && errno == 0 ? exact : (int64_t)v;
    return OK;
}

/* Only true and false: YAML 1.1's yes, on and y are refused, because a text is often meant by
 * them. */
static Status read_bool(const Target *t, const yaml_node_t *n, bool *out)
{
    bool yes = n != NULL && strcmp(plain_text(n), "true") == 0;
    if (!yes && (n == NULL || strcmp(plain_text(n), "false") != 0))
        return wrong_value(t, n, "true or false");
    *out = yes;
    return OK;
}

static Status read_text(const Target *t, const yaml_node_t *n, const char **out)
{
    const char *text = is_null(n) ? NULL : config_scalar_text(n);
    if (text == NULL) return wrong_value(t, n, "a text");
    return arena_text(t->doc->arena, text, strlen(text), out);
}

/* A word that was removed gets its own sentence; any other gets the list of legal words. */
static Status refuse_choice(const Target *t, const yaml_node_t *n)
{
    char wanted[WANTED_BYTES];
    const char *text = is_null(n) ? NULL : config_scalar_text(n);
    (void)snprintf(wanted, sizeof wanted, "%s=%.40s", t->row->name, text == NULL ? "" : text);
    const Synonym *removed = synonym_of_value(wanted);
    if (removed != NULL) return FAIL(ERR_ARG, "%s %s", wanted, removed->note);
    (void)snprintf(wanted, sizeof wanted, "one of %s", t->row->choices);
    return wrong_value(t, n, wanted);
}

static Status read_choice(const Target *t, const yaml_node_t *n, int *out)
{
    const char *text = is_null(n) ? NULL : config_scalar_text(n);
    int index = text == NULL ? -1 : text_word_index(t->row->choices, text);
    if (index < 0) return refuse_choice(t, n);
    *out = index;
    return OK;
}

/* ---- lists ---- */

static const yaml_node_t *item_at(const Target *t, const yaml_node_t *list, int i)
{
    return yaml_document_get_node(&t->doc->yaml, list->data.sequence.items.start[i]);
}

static Status list_length(const Target *t, const yaml_node_t *n, int most, int *out)
{
    char place[CONFIG_PLACE_BYTES];
    if (n == NULL || n->type != YAML_SEQUENCE_NODE) return wrong_value(t, n, "a list: [a, b]");
    int64_t length = n->data.sequence.items.top - n->data.sequence.items.start;
    if (length > most)
        return FAIL(ERR_ARG, "%s: %s has %lld entries, at most %d fit",
                    config_place(place, t->doc, n->start_mark), t->name, (long long)length, most);
    *out = (int)length;
    return OK;
}

/* Reads an entry of numbers: 7, or a range, 0-60 or 0..60, with both ends. */
static Status read_range(const Target *t, const yaml_node_t *n, int64_t *first, int64_t *last)
{
    const char *text = n == NULL ? "" : plain_text(n);
    const size_t digits = strspn(text, "0123456789");
    const bool dots = text_starts(text + digits, "..");
    const char *end = text + digits + (dots ? 2 : text[digits] == '-');
    const bool range =
        digits > 0 && end > text + digits && *end != '\0' && end[strspn(end, "0123456789")] == '\0';
    if (!range) {
        TRY(read_int(t, n, first));
        *last = *first;
        return OK;
    }
    *first = strtoll(text, NULL, 10), *last = strtoll(end, NULL, 10);
    const bool inside = (double)*first >= t->row->min && (double)*last <= t->row->max;
    return inside && *first <= *last ? OK : wrong_value(t, n, "a range of numbers that rise: 0-60");
}

static Status read_ints(const Target *t, const yaml_node_t *n, ConfigInts *out)
{
    int entries = 0;
    TRY(list_length(t, n, CONFIG_LIST_MAX, &entries));
    out->n = 0;
    for (int i = 0; i < entries; i++) {
        int64_t first = 0, last = 0;
        TRY(read_range(t, item_at(t, n, i), &first, &last));
        if (last - first >= CONFIG_LIST_MAX - out->n)
            return wrong_value(t, n, "a list of at most 256 numbers");
        while (first <= last) out->at[out->n++] = first++;
    }
    return OK;
}

/* With choices each entry must be one of the words. Its text is kept, so that a Config shows what
 * was written. */
static Status read_texts(const Target *t, const yaml_node_t *n, ConfigTexts *out)
{
    TRY(list_length(t, n, (int)(sizeof out->at / sizeof *out->at), &out->n));
    for (int i = 0; i < out->n; i++) {
        int index = 0;
        if (t->row->choices != NULL) TRY(read_choice(t, item_at(t, n, i), &index));
        TRY(read_text(t, item_at(t, n, i), &out->at[i]));
    }
    return OK;
}

/* ---- sources ---- */

static Status read_value(const Target *t, const yaml_node_t *node, void *field);

static const ConfigRow SOURCE[] = {
    { .name = "name", .type = CONFIG_TEXT, .offset = offsetof(ConfigSource, name) },
    { .name = "path", .type = CONFIG_TEXT, .offset = offsetof(ConfigSource, path) },
    { .name = "weight", .type = CONFIG_REAL, .offset = offsetof(ConfigSource, weight), .max = 1e9 },
    { .name = "epochs", .type = CONFIG_REAL, .offset = offsetof(ConfigSource, epochs), .max = 1e6 },
};

enum { SOURCE_FIELDS = sizeof SOURCE / sizeof *SOURCE };

/* A source is read with rows of its own, so its fields have the same types and errors as
 * settings. */
static Status read_source_field(const Target *t, const yaml_node_t *key, const yaml_node_t *value,
                                ConfigSource *out)
{
    char place[CONFIG_PLACE_BYTES], name[CONFIG_FOUND_BYTES], hint[TEXT_HINT_BYTES];
    const char *text = config_scalar_text(key), *known[SOURCE_FIELDS];
    if (text == NULL) text = "";
    (void)snprintf(name, sizeof name, "%.60s.%.20s", t->name, text);
    for (int i = 0; i < SOURCE_FIELDS; i++) {
        Target field = { t->doc, &SOURCE[i], name };
        known[i] = SOURCE[i].name;
        if (strcmp(text, known[i]) != 0) continue;
        return read_value(&field, value, (char *)out + SOURCE[i].offset);
    }
    return FAIL(ERR_ARG, "%s: a source has name, path, weight and epochs, not %.*s%s",
                config_place(place, t->doc, key->start_mark), CONFIG_SHOWN_CHARS, text,
                text_hint(hint, text, known, SOURCE_FIELDS, ""));
}

static Status read_source(const Target *t, const yaml_node_t *n, ConfigSource *out)
{
    if (n->type != YAML_MAPPING_NODE) return wrong_value(t, n, "{name: NAME, path: PATH}");
    const yaml_node_pair_t *p = n->data.mapping.pairs.start;
    for (; p < n->data.mapping.pairs.top; p++)
        TRY(read_source_field(t, config_node(t->doc, p->key), config_node(t->doc, p->value), out));
    if (out->name != NULL && out->path != NULL) return OK;
    char place[CONFIG_PLACE_BYTES];
    return FAIL(ERR_ARG, "%s: %s has no %s, must be {name: NAME, path: PATH}",
                config_place(place, t->doc, n->start_mark), t->name,
                out->name == NULL ? "name" : "path");
}

/* Names must differ, because metrics and reports tell sources apart by name. */
static Status read_sources(const Target *t, const yaml_node_t *n, ConfigSources *out)
{
    char place[CONFIG_PLACE_BYTES], name[CONFIG_FOUND_BYTES];
    if (n == NULL || n->type != YAML_SEQUENCE_NODE)
        return wrong_value(t, n, "a list of shards: [{name: web, path: data/web}]");
    TRY(list_length(t, n, CONFIG_SOURCES_MAX, &out->n));
    for (int i = 0; i < out->n; i++) {
        const yaml_node_t *item = item_at(t, n, i);
        (void)snprintf(name, sizeof name, "%.60s[%d]", t->name, i);
        Target one = { t->doc, t->row, name };
        out->at[i] = (ConfigSource){ 0 };
        TRY(read_source(&one, item, &out->at[i]));
        for (int j = 0; j < i; j++) {
            assert(out->at[i].name != NULL && out->at[j].name != NULL); /* read_source checks it */
            if (strcmp(out->at[j].name, out->at[i].name) != 0) continue;
            return FAIL(ERR_ARG, "%s: %s and %s[%d] are both called %.*s",
                        config_place(place, t->doc, item->start_mark), name, t->name, j,
                        CONFIG_SHOWN_CHARS, out->at[i].name);
        }
    }
    return OK;
}

/* ---- one row ---- */

static Status read_value(const Target *t, const yaml_node_t *node, void *field)
{
    switch (t->row->type) {
    case CONFIG_INT: return read_int(t, node, field);
    case CONFIG_REAL: return read_number(t, node, "a number ", field);
    case CONFIG_BOOL: return read_bool(t, node, field);
    case CONFIG_TEXT: return read_text(t, node, field);
    case CONFIG_CHOICE: return read_choice(t, node, field);
    case CONFIG_INTS: return read_ints(t, node, field);
    case CONFIG_TEXTS: return read_texts(t, node, field);
    case CONFIG_SOURCES: return read_sources(t, node, field);
    }
    return OK;
}

Status config_value_read(ConfigDoc *d, const ConfigRow *row, const yaml_node_t *node, Config *c)
{
    Target t = { d, row, row->name };
    return read_value(&t, node, (char *)c + row->offset);
}

/* Takes the text as it is, even "true" or "[a]". Invalid UTF-8 could not be printed as YAML
 * again. */
Status config_value_literal(const ConfigDoc *d, const ConfigRow *row, const char *text, Config *c)
{
    char place[CONFIG_PLACE_BYTES];
    size_t n = strlen(text), bad = 0;
    if (!text_utf8_valid(text, n, &bad))
        return FAIL(ERR_ARG, "%s: byte %zu of the value is not UTF-8",
                    config_place(place, d, (yaml_mark_t){ 0 }), bad);
    return arena_text(d->arena, text, n, (const char **)(void *)((char *)c + row->offset));
}
