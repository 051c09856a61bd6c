/*
 * json: a small JSON file as a tree in an arena, read, built and written.
 *
 * For files whose members are looked up by name: config.json, tokenizer.json, a line of documents.
 * A file that is read once from front to back needs no tree: engine/base/scan.h reads it in place. Traces
 * of many megabytes have a reader of their own (traces/read/kineto_scan.h).
 */
#ifndef ENGINE_BASE_JSON_H
#define ENGINE_BASE_JSON_H

#include "engine/base/text.h"

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
    double number;     /* of an object or array that was read: how many it has */
    const char *text;  /* decoded. In a number to be written: its spelling; NULL: the shortest */
    const char *name;  /* key of an object's member, else NULL */
    struct Json *next; /* next element of the list that contains this value */
    struct Json *child, *last; /* first and last element, if this value is an array or object */
} Json;

/* Parses one value that has only white space around it. If the text is not valid, *out is NULL and *bad
 * is the offset of the first wrong byte. A lone surrogate is invalid; \u0000 becomes U+FFFD. If a key
 * is repeated, json_get finds the last, as Python does. */
Status json_parse(const char *text, size_t n, Arena *a, Json **out, size_t *bad);

/* These take NULL for a value that is not there. */
static inline bool json_is(const Json *v, JsonType type) { return v != NULL && v->type == type; }
/* Linear in the number of members, so walks over large objects use json_first and `next`. */
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
/* Like json_add, but first removes all members of that name. */
Status json_put(Arena *a, Json *object, const char *name, Json value);

/* Appends the value as text to `out`: on one line, or with one line per member of an object. */
Status json_print(const Json *v, bool lines, Text *out);

#endif
