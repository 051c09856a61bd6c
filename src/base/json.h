/*
 * json: a small JSON file as a tree in an arena, read, built and written.
 *
 * For files whose members are looked up by name: config.json, tokenizer.json, a line of documents.
 * A file that is read once from front to back needs no tree: base/scan.h reads it in place. Traces
 * of many megabytes have a reader of their own (analyze/kineto_scan.h).
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/text.h"

typedef enum JsonType {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_TEXT,
    JSON_ARRAY,
    JSON_OBJECT
} JsonType;

/* Everything lies in the arena that json_parse or json_add was given. */
typedef struct Json {
    JsonType type;
    bool truth;
    double number;
    const char *text; /* decoded; of a number that was built: how it is written, NULL: shortest */
    const char *name; /* of an object's member, else NULL */
    struct Json *next, *child, *last; /* the next in the same list; the first and the last in it */
} Json;

/* Reads one value with nothing but blanks around it. *out is NULL if the text is not that, and *bad
 * is then the byte at which it ceases to be. A lone surrogate is no character, so it is bad; \u0000
 * becomes U+FFFD. Of several members of one name json_get finds the first. */
Status json_parse(const char *text, size_t n, Arena *a, Json **out, size_t *bad);

/* These take NULL for a value that is not there. */
static inline bool json_is(const Json *v, JsonType type) { return v != NULL && v->type == type; }
Json *json_get(const Json *object, const char *name); /* NULL: no object, or no such member */
const char *json_string(const Json *v);               /* NULL: no text */
const Json *json_first(const Json *list);             /* for walks along `next` */
int64_t json_count(const Json *list);

/* Values to be added. A text or name is copied when it is added. */
static inline Json json_of(JsonType type) { return (Json){ .type = type }; }
static inline Json json_of_bool(bool x) { return (Json){ .type = JSON_BOOL, .truth = x }; }
static inline Json json_of_number(double x) { return (Json){ .type = JSON_NUMBER, .number = x }; }
static inline Json json_of_text(const char *s) { return (Json){ .type = JSON_TEXT, .text = s }; }
/* Appends a copy of the value; its children are shared. name: NULL in an array. */
Status json_add(Arena *a, Json *list, const char *name, Json value);
/* The same, and a member of that name is taken out before. */
Status json_put(Arena *a, Json *object, const char *name, Json value);

/* Appends it to `out`: in one line, or with a line for each member of an object. */
Status json_print(const Json *v, bool lines, Text *out);

#endif
