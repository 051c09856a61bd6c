/* json: builds the tree with the pull parser (engine/base/scan.h), from a copy of the text in the arena. The
 * parser decodes strings in place, so the nodes point into that copy. */
#include "engine/base/json.h"

#include "engine/base/scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* DEPTH_MAX bounds the stack that hostile input can use; real files are far below it. */
enum { DEPTH_MAX = 1000, POOL_NODES = 32 };
/* Members of an object that a later one may replace. Of larger objects json_get finds the last one. */
enum { REPEATS_MOST = 64 };

/* ---- reading ---- */

typedef struct Reader {
    Scan s;
    Arena *arena;
    Json *pool; /* next unused node of the last batch: arena blocks are 256 bytes, a node is less */
    int left;
} Reader;

static Status read_value(Reader *r, Json *v, int depth);

static void append_node(Json *list, Json *v)
{
    *(list->child == NULL ? &list->child : &list->last->next) = v;
    list->last = v;
}

/* The member of that name; NULL: none. An object's number counts its members here, so that large ones take no
 * search for each. */
static Json *find_repeated(const Json *list, const char *name)
{
    Json *v = name == NULL || list->number >= REPEATS_MOST ? NULL : list->child;
    while (v != NULL && strcmp(v->name, name) != 0) v = v->next;
    return v;
}

/* Nodes come in batches, because an arena rounds each allocation up to 256 bytes. A name that comes again
 * keeps its place and takes the later value, as in a dict of Python's. */
static Status append_new(Reader *r, Json *list, const char *name, Json **out)
{
    *out = find_repeated(list, name);
    if (*out != NULL) {
        **out = (Json){ .name = name, .next = (*out)->next };
        return OK;
    }
    if (r->left == 0) {
        TRY(ARENA_NEW(r->arena, POOL_NODES, &r->pool));
        r->left = POOL_NODES;
    }
    r->left--;
    *out = r->pool++;
    **out = (Json){ .name = name };
    append_node(list, *out);
    list->number++;
    return OK;
}

/* A list that is too deep makes the scan bad. Then every later call returns nothing, and the
 * recursion unwinds. */
static Status read_list(Reader *r, Json *list, int depth)
{
    const bool object = list->type == JSON_OBJECT;
    object ? scan_object(&r->s) : scan_array(&r->s);
    if (depth == DEPTH_MAX) r->s.bad = true;
    for (;;) {
        const char *name = object ? scan_key(&r->s) : NULL;
        Json *v = NULL;
        if (object ? name == NULL : !scan_item(&r->s)) return OK;
        TRY(append_new(r, list, name, &v));
        TRY(read_value(r, v, depth + 1));
    }
}

static Status read_value(Reader *r, Json *v, int depth)
{
    Scan *s = &r->s;
    switch (scan_peek(s)) {
    case '{': v->type = JSON_OBJECT; return read_list(r, v, depth);
    case '[': v->type = JSON_ARRAY; return read_list(r, v, depth);
    case '"':
        v->type = JSON_TEXT;
        v->text = scan_string(s);
        return OK;
    case 't':
    case 'f':
        v->type = JSON_BOOL;
        v->truth = *scan_skip(s) == 't';
        return OK;
    case 'n': scan_skip(s); return OK;
    default:
        v->type = JSON_NUMBER;
        v->number = scan_number(s);
        return OK;
    }
}

Status json_parse(const char *text, size_t n, Arena *a, Json **out, size_t *bad)
{
    static const char BOM[] = "\xEF\xBB\xBF";
    const char *copy = NULL;
    char *at = NULL;
    Json *root = NULL;
    *out = NULL;
    TRY(arena_text(a, text, n, &copy));
    /* Copies the pointer without its const: the scan decodes strings inside this copy of the
     * text. */
    memcpy(&at, &copy, sizeof at);
    if (text_starts(at, BOM)) at += sizeof BOM - 1;
    Reader r = { .s = scan_begin(at), .arena = a };
    r.s.strict = true;
    /* The root needs a list to be appended to; this temporary one is dropped. */
    TRY(append_new(&r, &(Json){ .type = JSON_ARRAY }, NULL, &root));
    TRY(read_value(&r, root, 0));
    /* A NUL inside the text also ends the scan, but not at byte n. */
    bool whole = scan_end(&r.s) && r.s.at == copy + n;
    *bad = (size_t)(r.s.at - copy);
    if (whole) *out = root;
    return OK;
}

/* ---- access ---- */

Json *json_get(const Json *object, const char *name)
{
    Json *found = NULL;
    if (!json_is(object, JSON_OBJECT)) return NULL;
    for (Json *v = object->child; v != NULL; v = v->next)
        if (strcmp(v->name, name) == 0) found = v;
    return found;
}

const char *json_string(const Json *v) { return json_is(v, JSON_TEXT) ? v->text : NULL; }
const Json *json_first(const Json *list) { return list == NULL ? NULL : list->child; }

int64_t json_count(const Json *list)
{
    int64_t n = 0;
    for (const Json *v = json_first(list); v != NULL; v = v->next) n++;
    return n;
}

/* ---- building ---- */

Status json_add(Arena *a, Json *list, const char *name, Json value)
{
    Json *v = NULL;
    TRY(ARENA_NEW(a, 1, &v));
    *v = value;
    v->name = NULL;
    v->next = NULL;
    if (name != NULL) TRY(arena_text(a, name, strlen(name), &v->name));
    if (value.text != NULL) TRY(arena_text(a, value.text, strlen(value.text), &v->text));
    append_node(list, v);
    return OK;
}

/* Takes all members off, appends those with other names again, then the new value at the end. */
Status json_put(Arena *a, Json *object, const char *name, Json value)
{
    Json *kept = object->child, *next = NULL;
    object->child = object->last = NULL;
    for (Json *v = kept; v != NULL; v = next) {
        next = v->next;
        v->next = NULL;
        if (strcmp(v->name, name) != 0) append_node(object, v);
    }
    return json_add(a, object, name, value);
}

/* ---- writing ---- */

/* 15 digits reproduce any number that people wrote with at most 15; otherwise 17 always read back to
 * the same double. */
static Status print_number(double x, Text *out)
{
    char digits[32];
    if (!isfinite(x)) return text_printf(out, "null");
    (void)snprintf(digits, sizeof digits, "%.15g", x);
    return text_printf(out, strtod(digits, NULL) == x ? "%.15g" : "%.17g", x);
}

static Status print_value(const Json *v, bool lines, int depth, Text *out);

/* Eight tabs are the deepest indentation; deeper members stay at that column. */
static Status print_list(const Json *list, bool lines, int depth, Text *out)
{
    static const char TABS[] = "\t\t\t\t\t\t\t\t";
    const bool object = list->type == JSON_OBJECT;
    const bool broken = object && lines; /* one member per line */
    TRY(text_printf(out, "%s%s", object ? "{" : "[", broken ? "\n" : ""));
    for (const Json *v = list->child; v != NULL; v = v->next) {
        if (broken) TRY(text_printf(out, "%.*s", depth + 1, TABS));
        if (object) TRY(text_json(out, "%s:", v->name));
        if (broken) TRY(text_printf(out, "\t"));
        TRY(print_value(v, lines, depth + 1, out));
        if (v->next != NULL) TRY(text_printf(out, lines && !object ? ", " : ","));
        if (broken) TRY(text_printf(out, "\n"));
    }
    return text_printf(out, "%.*s%s", broken ? depth : 0, TABS, object ? "}" : "]");
}

static Status print_value(const Json *v, bool lines, int depth, Text *out)
{
    switch (v->type) {
    case JSON_NULL: return text_printf(out, "null");
    case JSON_BOOL: return text_printf(out, v->truth ? "true" : "false");
    case JSON_NUMBER:
        return v->text != NULL ? text_printf(out, "%s", v->text) : print_number(v->number, out);
    case JSON_TEXT: return text_json(out, "%s", v->text);
    case JSON_ARRAY:
    case JSON_OBJECT: return print_list(v, lines, depth, out);
    }
    return OK;
}

Status json_print(const Json *v, bool lines, Text *out) { return print_value(v, lines, 0, out); }
