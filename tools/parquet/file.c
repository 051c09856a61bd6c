/* file: finds the column and its chunks in the index at the end of a file, and writes rows as JSON. */
#include "parquet/private.h"

#include "engine/base/file.h"
#include "engine/base/file_changed.h"
#include "engine/base/out.h"

#include <stdio.h>
#include <string.h>

enum {
    MAGIC_BYTES = 4,
    LEVELS_MAX = 32, /* of groups in groups */
    NAMES_BYTES = 256,
    PIECE_BYTES = 1 << 16, /* of lines that are written together */
};
/* Of Parquet's ConvertedType. */
enum { CONVERTED_LIST = 3, DECIMAL = 5, UINT_8 = 11, UINT_64 = 14, INT_64 = 18, BSON = 20 };
/* Address space, not memory. */
static const size_t RESERVE_BYTES = (size_t)8 << 30;

Status parquet_damaged(const Parquet *p, const char *what)
{
    return FAIL(ERR_FORMAT, "%s is damaged: %s (before byte %zu): copy it again", p->path, what,
                (size_t)(p->pages.at - p->file.at));
}

/* ---- the schema: elements in the order of a walk through a tree ---- */

typedef struct Element {
    Bytes name;
    int64_t type, repetition, children, converted;
    bool logical; /* it has a LogicalType */
} Element;

typedef struct Walk {
    Parquet *p;
    Thrift *t;
    int64_t left;            /* elements */
    int leaves, found;       /* found: leaves below the field */
    bool meant;              /* its bytes or numbers stand for something else: dates, decimals */
    bool other;              /* what is below the field is no text, number or list of them */
    char names[NAMES_BYTES]; /* of the columns */
    size_t names_used;
} Walk;

/* Where a walk is. rest: of the field's name, what is not yet found; "" below the field; NULL beside it. */
typedef struct Place {
    const char *rest;
    int depth, below, def, rep, item_def;
} Place;

static Element read_element(Thrift *t)
{
    Element e = { .type = -1, .converted = -1 };
    for (int before = 0; thrift_field(t, before);) {
        before = t->id;
        if (t->id == 4 && t->type == THRIFT_BINARY) {
            e.name = thrift_bytes(t);
            continue;
        }
        int64_t *const to[] = {
            NULL, &e.type, NULL, &e.repetition, NULL, &e.children, &e.converted
        };
        const int id = t->id;
        const int64_t value = thrift_value(t);
        e.logical = e.logical || id == 10;
        if (id > 0 && id < 7 && to[id] != NULL) *to[id] = value;
    }
    return e;
}

/* A field's name may itself have dots. */
static const char *rest_after(const char *rest, Bytes name)
{
    const size_t n = (size_t)(name.end - name.at);
    if (rest == NULL || *rest == '\0' || n == 0) return rest;
    if (n > strlen(rest) || memcmp(rest, name.at, n) != 0) return NULL;
    return rest[n] == '.' ? rest + n + 1 : rest[n] == '\0' ? rest + n : NULL;
}

static void found_leaf(Walk *w, const Element *e, const Place *at)
{
    Parquet *p = w->p;
    w->found++;
    w->other = w->other || at->below > 2 || at->rep > 1 || (at->below > 0 && at->rep == 0);
    p->type = (int)e->type;
    p->is_unsigned = e->converted >= UINT_8 && e->converted <= UINT_64;
    const bool text = e->type == PARQUET_TEXT,
               integer = p->is_unsigned || (e->converted > UINT_64 && e->converted <= INT_64);
    w->meant = text ? e->converted == DECIMAL || e->converted == BSON
                    : !integer && (e->converted >= 0 || e->logical);
    p->leaf = w->leaves;
    p->max_def = at->def;
    p->max_rep = at->rep;
    p->item_def = at->item_def;
}

static void walk(Walk *w, Place at)
{
    const Element e = read_element(w->t);
    const bool inside = at.rest != NULL && *at.rest == '\0';
    if (at.depth == LEVELS_MAX || --w->left < 0) w->t->bad = true;
    if (w->t->bad) return;
    if (at.depth == 1)
        w->names_used = text_add(w->names, sizeof w->names, w->names_used, "%s%.*s",
                                 w->names_used > 0 ? ", " : "", (int)(e.name.end - e.name.at),
                                 (const char *)e.name.at);
    if (at.depth > 0) at.rest = rest_after(at.rest, e.name);
    if (inside) at.below++;
    if (at.depth > 0) at.def += e.repetition != 0, at.rep += e.repetition == 2;
    if (e.repetition == 2) at.item_def = at.def;
    const bool field = at.depth > 0 && at.rest != NULL && *at.rest == '\0';
    if (field && !inside && e.children > 0 && e.converted != CONVERTED_LIST) w->other = true;
    at.depth++;
    for (int64_t i = 0; i < e.children && !w->t->bad; i++) walk(w, at);
    if (e.children > 0) return;
    if (field) found_leaf(w, &e, &at);
    w->leaves++;
}

static const char *type_name(int type)
{
    static const char *const NAMES[] = {
        "BOOLEAN", "INT32",  "INT64",      "INT96",
        "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"
    };
    return type >= 0 && type < 8 ? NAMES[type] : "an unknown type";
}

static Status read_schema(Parquet *p, Thrift *t)
{
    Walk w = { .p = p, .t = t };
    w.left = thrift_list(t);
    walk(&w, (Place){ .rest = p->field });
    if (t->bad) return OK; /* read_index says so */
    if (w.found == 0)
        return FAIL(ERR_FORMAT, "%s has no column \"%s\": --field names one of %s", p->path,
                    p->field, w.names);
    const bool read =
        p->type == PARQUET_TEXT || p->type == PARQUET_INT32 || p->type == PARQUET_INT64;
    if (w.other || w.found > 1)
        return FAIL(
            ERR_UNSUPPORTED,
            "%s: column \"%s\" is a group of columns, and only text and lists of text or whole "
            "numbers are read: name one of them (\"%s.NAME\"), or write JSON lines",
            p->path, p->field, p->field);
    if (!read || w.meant)
        return FAIL(
            ERR_UNSUPPORTED,
            "%s: column \"%s\" holds %s%s, and only text and whole numbers are read: cast it to a "
            "string, or to int32 or int64",
            p->path, p->field, type_name(p->type),
            w.meant ? " that stands for something else" : "");
    return OK;
}

/* ---- row groups ---- */

static Status place_chunk(Parquet *p, const int64_t meta[THRIFT_FIELDS], Chunk *c)
{
    const int64_t size = p->file.end - p->file.at, bytes = meta[7];
    const bool dictionary = meta[11] > 0 && meta[11] < meta[9];
    const int64_t at = dictionary ? meta[11] : meta[9];
    *c = (Chunk){ .values = meta[5], .codec = (int)meta[4] };
    c->pages = (Bytes){ p->file.at, p->file.at };
    if (c->values == 0) return OK; /* of a table without rows */
    if (meta[1] != p->type) return parquet_damaged(p, "a chunk of the column has another type");
    if (at < MAGIC_BYTES || bytes < 0 || at > size || bytes > size - at || c->values < 0)
        return parquet_damaged(p, "a chunk of the column lies outside of the file");
    c->pages = (Bytes){ p->file.at + at, p->file.at + at + bytes };
    return OK;
}

/* One column of a row group; `c` is NULL for another column than ours. */
static Status read_chunk(Parquet *p, Thrift *t, Chunk *c)
{
    int64_t meta[THRIFT_FIELDS] = { 0 };
    bool elsewhere = false, secret = false;
    for (int before = 0; thrift_field(t, before);) {
        before = t->id;
        elsewhere = elsewhere || t->id == 1;
        secret = secret || t->id == 8 || t->id == 9;
        if (t->id == 3 && t->type == THRIFT_STRUCT)
            thrift_struct(t, meta);
        else
            (void)thrift_value(t);
    }
    if (c == NULL || t->bad) return OK;
    if (secret || elsewhere)
        return FAIL(ERR_UNSUPPORTED, "%s: column \"%s\" %s: write it again without that", p->path,
                    p->field, secret ? "is encrypted" : "lies in another file");
    return place_chunk(p, meta, c);
}

static Status read_row_group(Parquet *p, Thrift *t, Chunk *c)
{
    for (int before = 0; thrift_field(t, before);) {
        before = t->id;
        if (t->id == 1 && t->type == THRIFT_LIST) {
            const int64_t n = thrift_list(t);
            for (int64_t i = 0; i < n && !t->bad; i++)
                TRY(read_chunk(p, t, i == p->leaf ? c : NULL));
        } else {
            const int64_t value = thrift_value(t);
            if (before == 3) c->rows = value;
        }
    }
    if (c->pages.at == NULL && !t->bad) return parquet_damaged(p, "a row group lacks the column");
    return OK;
}

static Status read_row_groups(Parquet *p, Thrift *t, Arena *a)
{
    p->chunks = thrift_list(t);
    TRY(ARENA_ZEROED(a, p->chunks + 1, &p->chunk));
    for (int64_t i = 0; i < p->chunks && !t->bad; i++) TRY(read_row_group(p, t, &p->chunk[i]));
    return OK;
}

static Status read_index(Parquet *p, Thrift *t, Arena *a)
{
    bool schema = false;
    for (int before = 0; thrift_field(t, before);) {
        before = t->id;
        const bool list = t->type == THRIFT_LIST;
        if (t->id == 2 && list) {
            TRY(read_schema(p, t));
            schema = true;
        } else if (t->id == 4 && list && schema) {
            TRY(read_row_groups(p, t, a));
        } else {
            (void)thrift_value(t);
        }
    }
    if (t->bad || !schema) return parquet_damaged(p, "its index cannot be read");
    return OK;
}

/* The file ends with the index, its length, and the magic. */
static Status find_index(Parquet *p, size_t bytes, Thrift *out)
{
    const uint8_t *end = p->file.end;
    uint32_t n = 0;
    if (bytes >= 4 && memcmp(end - 4, "PARE", 4) == 0)
        return FAIL(ERR_UNSUPPORTED, "%s is encrypted Parquet: write it again without encryption",
                    p->path);
    if (bytes < 12 || memcmp(p->file.at, "PAR1", 4) != 0 || memcmp(end - 4, "PAR1", 4) != 0)
        return FAIL(ERR_FORMAT,
                    "%s is no whole Parquet file, which begins and ends with PAR1: copy it "
                    "again",
                    p->path);
    memcpy(&n, end - 8, sizeof n);
    if (n > bytes - 12) return parquet_damaged(p, "its index is longer than the file");
    *out = (Thrift){ .left = { end - 8 - n, end - 8 } };
    return OK;
}

Status parquet_open(const char *path, const char *field, const uint8_t *data, size_t bytes,
                    Arena *a, Parquet **out)
{
    Parquet *p = NULL;
    Thrift t = { 0 };
    TRY(ARENA_ZEROED(a, 1, &p));
    *out = p;
    p->path = path;
    p->field = field;
    p->file = (Bytes){ data, data + bytes };
    p->pages.at = p->file.end; /* for errors in the index */
    TRY(find_index(p, bytes, &t));
    TRY(read_index(p, &t, a));
    Arena *const arenas[] = { &p->page_arena, &p->word_arena, &p->number_arena };
    for (int i = 0; i < 3; i++) TRY(arena_reserve(arenas[i], "parquet", RESERVE_BYTES));
    return text_init(&p->page, &p->page_arena);
}

void parquet_close(Parquet *p)
{
    if (p == NULL) return;
    arena_free(&p->page_arena);
    arena_free(&p->word_arena);
    arena_free(&p->number_arena);
}

/* ---- rows ---- */

static Status add_text(Text *t, Bytes text)
{
    const uint8_t *from = text.at;
    TRY(text_append(t, "\"", 1));
    for (const uint8_t *s = text.at; s < text.end; s++) {
        if (*s >= ' ' && *s != '"' && *s != '\\') continue;
        TRY(text_append(t, (const char *)from, (size_t)(s - from)));
        TRY(text_printf(t, "\\u%04x", (unsigned)*s));
        from = s + 1;
    }
    TRY(text_append(t, (const char *)from, (size_t)(text.end - from)));
    return text_append(t, "\"", 1);
}

static Status add_value(Parquet *p, Text *out)
{
    Bytes v = { 0 };
    TRY(parquet_value(p, &v));
    if (p->type == PARQUET_TEXT) return add_text(out, v);
    uint32_t narrow = 0;
    int64_t wide = 0;
    if (v.end - v.at == 8) {
        memcpy(&wide, v.at, 8);
    } else {
        memcpy(&narrow, v.at, 4);
        wide = p->is_unsigned ? (int64_t)narrow : (int64_t)(int32_t)narrow;
    }
    if (p->is_unsigned) return text_printf(out, "%llu", (unsigned long long)wide);
    return text_printf(out, "%lld", (long long)wide);
}

/* The levels of the next value of the chunk. */
static Status take_levels(Parquet *p, uint32_t *rep, uint32_t *def)
{
    while (p->in_page == 0) TRY(parquet_page(p));
    *rep = 0;
    *def = (uint32_t)p->max_def;
    const bool there = (p->max_rep == 0 || parquet_run(&p->rep, rep)) &&
                       (p->max_def == 0 || parquet_run(&p->def, def));
    if (!there || *def > (uint32_t)p->max_def) return parquet_damaged(p, "a page lacks levels");
    p->in_page--;
    p->values--;
    return OK;
}

/* Is the next value of the chunk another element of the same row? */
static Status same_row(Parquet *p, bool *same)
{
    *same = false;
    if (p->values == 0) return OK;
    while (p->in_page == 0) TRY(parquet_page(p));
    Runs ahead = p->rep;
    uint32_t rep = 0;
    if (!parquet_run(&ahead, &rep)) return parquet_damaged(p, "a page lacks levels");
    *same = rep > 0;
    return OK;
}

/* An element of which only the place is there is null, which no list may hold. */
static Status add_list(Parquet *p, Text *out)
{
    bool more = true;
    TRY(text_append(out, "[", 1));
    for (int64_t i = 0; more; i++) {
        uint32_t rep = 0, def = 0;
        TRY(take_levels(p, &rep, &def));
        if ((i == 0) != (rep == 0)) return parquet_damaged(p, "a row begins inside another");
        if (i > 0) TRY(text_append(out, ",", 1));
        if (def == (uint32_t)p->max_def)
            TRY(add_value(p, out));
        else if (def >= (uint32_t)p->item_def)
            TRY(text_append(out, "null", 4));
        TRY(same_row(p, &more));
        if (def < (uint32_t)p->item_def && (i > 0 || more))
            return parquet_damaged(p, "a list that is empty has elements");
    }
    return text_append(out, "]", 1);
}

/* Goes on to the next chunk where the current one is at its end. */
static Status next_chunk(Parquet *p, bool *more)
{
    while (p->rows == 0) {
        if (p->values > 0) return parquet_damaged(p, "a chunk has more values than its rows");
        *more = p->next < p->chunks;
        if (!*more) return file_changed_check();
        const Chunk *c = &p->chunk[p->next++];
        p->pages = c->pages;
        p->rows = c->rows;
        p->values = c->values;
        p->codec = c->codec;
        p->in_page = p->n_words = 0;
    }
    return OK;
}

Status parquet_row(Parquet *p, Text *out, bool *more)
{
    uint32_t rep = 0, def = 0;
    *more = true;
    TRY(next_chunk(p, more));
    if (!*more) return OK;
    p->rows--;
    TRY(text_json(out, "%s: ", p->field));
    if (p->max_rep > 0) return add_list(p, out);
    TRY(take_levels(p, &rep, &def));
    return def == (uint32_t)p->max_def ? add_value(p, out) : text_append(out, "\"\"", 2);
}

/* ---- a file ---- */

/* The columns of one file have equally many rows, or it is damaged. */
static Status add_line(Parquet *const *column, int n, Text *out, bool *more)
{
    const size_t before = out->used;
    bool first = true;
    for (int i = 0; i < n; i++) {
        TRY(text_append(out, i == 0 ? "{" : ", ", i == 0 ? 1 : 2));
        TRY(parquet_row(column[i], out, more));
        if (i == 0) first = *more;
        if (*more != first)
            return parquet_damaged(column[i], "a column has more rows than another");
    }
    if (!first) out->used = before;
    return first ? text_append(out, "}\n", 2) : OK;
}

static Status print_lines(Parquet *const *column, int n, Text *out)
{
    for (bool more = true; more;) {
        TRY(add_line(column, n, out, &more));
        if (more && out->used < PIECE_BYTES) continue;
        TRY(out_text(out));
        out->used = 0;
    }
    return OK;
}

Status parquet_print(const char *path, const char *const *fields, int n, Arena *a)
{
    FileMap map = { 0 };
    Parquet **column = NULL;
    Text out = { 0 };
    TRY(ARENA_ZEROED(a, n, &column));
    TRY(file_map_input(path, &map));
    Status s = OK;
    for (int i = 0; s == OK && i < n; i++)
        s = parquet_open(path, fields[i], map.data, map.bytes, a, &column[i]);
    if (s == OK) s = text_init(&out, a);
    if (s == OK) s = print_lines(column, n, &out);
    for (int i = 0; i < n; i++) parquet_close(column[i]);
    file_unmap(&map);
    return s;
}
