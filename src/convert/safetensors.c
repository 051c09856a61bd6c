/* safetensors: parses and checks headers, and writes them. Elements are read by weights.c and written by
 * the caller. */
#include "convert/safetensors.h"

#include "convert/names.h"
#include "engine/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int bits, dtype;
} types[] = {
    { "F32", 32, DTYPE_F32 },
    { "BF16", 16, DTYPE_BF16 },
    { "F16", 16, DTYPE_F16 },
    { "F8_E4M3", 8, DTYPE_E4M3 },
    { "F8_E5M2", 8, DTYPE_E5M2 },
    /* these have a size, but cannot be converted */
    { "F64", 64, -1 },
    { "F8_E8M0", 8, -1 },
    { "F4", 4, -1 },
    { "C64", 64, -1 },
    { "I64", 64, -1 },
    { "U64", 64, -1 },
    { "I32", 32, -1 },
    { "U32", 32, -1 },
    { "I16", 16, -1 },
    { "U16", 16, -1 },
    { "I8", 8, -1 },
    { "U8", 8, -1 },
    { "BOOL", 8, -1 },
};

enum { TYPES = sizeof types / sizeof *types };

/* Only for types that can be converted: one of the first rows must match. */
const char *safetensors_type(Dtype t)
{
    int i = 0;
    while (types[i].dtype != (int)t) i++;
    return types[i].name;
}

int64_t safetensors_elems(const SafeTensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

const char *safetensors_text(char out[SAFETENSORS_TEXT_BYTES], const SafeTensor *t)
{
    int used = snprintf(out, SAFETENSORS_TEXT_BYTES, "%s (", t->type);
    for (int i = 0; i < t->rank; i++) {
        used += snprintf(out + used, (size_t)(SAFETENSORS_TEXT_BYTES - used), "%s%" PRId64,
                         i == 0 ? "" : ", ", t->dim[i]);
    }
    (void)snprintf(out + used, (size_t)(SAFETENSORS_TEXT_BYTES - used), ")");
    return out;
}

/* ---- reading ---- */

/* Reads a list of at most `most` whole numbers from 0 to 2^53. Returns how many there are, or -1. */
static int read_whole_numbers(const Json *list, int64_t *out, int most)
{
    int n = 0;
    if (!json_is(list, JSON_ARRAY)) return -1;
    for (const Json *v = list->child; v != NULL; v = v->next) {
        bool whole = v->type == JSON_NUMBER && v->number == floor(v->number);
        if (n == most || !whole || v->number < 0 || v->number > 9007199254740992.0) return -1;
        out[n++] = (int64_t)v->number;
    }
    return n;
}

/* Bytes of a tensor by its shape and type; -1: they overflow, or are not a whole number of bytes. */
static int64_t tensor_bytes_of(const SafeTensor *t, int bits)
{
    int64_t n = bits;
    for (int i = 0; i < t->rank; i++) {
        if (__builtin_mul_overflow(n, t->dim[i], &n)) return -1;
    }
    return n % 8 == 0 ? n / 8 : -1;
}

/* Types without a Dtype are known by their size, so that a file that has them, too, can be
 * read. */
static Status set_type(const char *path, const char *word, SafeTensor *t, int *bits)
{
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, word) != 0) continue;
        t->type = types[i].name;
        t->dtype = types[i].dtype;
        *bits = types[i].bits;
        return OK;
    }
    return FAIL(ERR_FORMAT, "%s: %.200s has the unknown type \"%.40s\"", path, t->name, word);
}

/* Offsets in the header count from the first element; `begin` and `end` count from the first byte
 * of the file. */
static Status set_entry(const char *path, const Json *v, int64_t data_first, SafeTensor *t)
{
    int64_t at[2] = { 0, 0 };
    int bits = 0;
    const char *dtype = json_string(json_get(v, "dtype"));
    if (dtype == NULL) return FAIL(ERR_FORMAT, "%s: %.200s has no dtype", path, t->name);
    TRY(set_type(path, dtype, t, &bits));
    t->rank = read_whole_numbers(json_get(v, "shape"), t->dim, SAFETENSORS_RANK_MAX);
    if (t->rank < 0)
        return FAIL(ERR_FORMAT,
                    "%s: the shape of %.200s must be a list of at most %d whole numbers", path,
                    t->name, SAFETENSORS_RANK_MAX);
    if (read_whole_numbers(json_get(v, "data_offsets"), at, 2) != 2 || at[1] < at[0])
        return FAIL(ERR_FORMAT,
                    "%s: the data_offsets of %.200s must be two whole numbers in rising order",
                    path, t->name);
    int64_t bytes = tensor_bytes_of(t, bits);
    if (bytes != at[1] - at[0]) {
        char shown[SAFETENSORS_TEXT_BYTES];
        if (bytes < 0)
            return FAIL(ERR_FORMAT, "%s: %.200s is %s, which no whole number of bytes can hold",
                        path, t->name, safetensors_text(shown, t));
        return FAIL(ERR_FORMAT, "%s: %.200s has %" PRId64 " bytes, but %s has %" PRId64, path,
                    t->name, at[1] - at[0], safetensors_text(shown, t), bytes);
    }
    t->begin = data_first + at[0];
    t->end = data_first + at[1];
    return OK;
}

/* Tensors without elements share a begin, so the end decides: they come before the one that has
 * bytes there. */
static int compare_begins(const void *a, const void *b)
{
    const SafeTensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Sorts the tensors by offset and checks that there are no gaps or overlaps, up to the file's end. */
static Status check_places(const char *path, SafeTensor *t, int64_t n, int64_t data_first,
                           int64_t data_bytes)
{
    int64_t at = data_first, end = data_first + data_bytes;
    if (n > 0) qsort(t, (size_t)n, sizeof *t, compare_begins);
    for (int64_t i = 0; i < n; i++) {
        if (t[i].begin < at)
            return FAIL(ERR_FORMAT, "%s: %.200s and %.200s overlap", path, t[i - 1].name,
                        t[i].name);
        if (t[i].begin > at)
            return FAIL(ERR_FORMAT, "%s: the %" PRId64 " bytes before %.200s belong to no tensor",
                        path, t[i].begin - at, t[i].name);
        at = t[i].end;
        if (at > end)
            return FAIL(ERR_FORMAT,
                        "%s is truncated: %.200s ends at byte %" PRId64 ", the file at %" PRId64,
                        path, t[i].name, at, end);
    }
    if (at == end) return OK;
    return FAIL(ERR_FORMAT, "%s: the %" PRId64 " bytes after the last tensor belong to no tensor",
                path, end - at);
}

/* JSON allows a member twice. Which of two tensors is meant could only be guessed. */
static Status check_names(const char *path, const SafeTensor *t, int64_t n, Arena *a)
{
    Names names;
    ArenaMark mark = arena_mark(a);
    TRY(names_init(&names, n, a));
    for (int64_t i = 0; i < n; i++) {
        if (names_add(&names, t[i].name, i) < 0) continue;
        return FAIL(ERR_FORMAT, "%s: %.200s appears twice", path, t[i].name);
    }
    arena_release(a, mark);
    return OK;
}

/* The brace is tested on its own, because the format forbids even blanks before it. */
Status safetensors_parse(const char *path, const SafeHeader *h, Arena *a, SafeTensor **out,
                         int64_t *n)
{
    Json *json = NULL;
    size_t bad = 0;
    TRY(json_parse(h->text, h->bytes, a, &json, &bad));
    bool good = h->text[0] == '{' && json != NULL;
    *n = 0;
    TRY(ARENA_NEW(a, json_count(json), out));
    for (const Json *v = json_first(json); v != NULL && good; v = v->next) {
        SafeTensor *t = *out + *n;
        if (strcmp(v->name, "__metadata__") == 0) continue;
        good = v->type == JSON_OBJECT;
        *t = (SafeTensor){ .name = v->name };
        if (good) TRY(set_entry(path, v, h->data_first, t));
        *n += good;
    }
    if (!good)
        return FAIL(ERR_FORMAT,
                    "%s is not a safetensors file: its header is not a JSON object of tensors",
                    path);
    TRY(check_names(path, *out, *n, a));
    return check_places(path, *out, *n, h->data_first, h->data_bytes);
}

/* The announced length is compared with the file before memory of that size is asked for. */
static Status read_header(const File *f, const char *path, uint64_t file_bytes, Arena *a,
                          SafeTensor **out, int64_t *n)
{
    uint8_t length[8];
    uint64_t bytes = 0;
    SafeHeader h = { 0 };
    if (file_bytes < sizeof length)
        return FAIL(ERR_FORMAT, "%s is truncated: %" PRIu64 " bytes are too few for a header", path,
                    file_bytes);
    TRY(file_read(f, 0, length, sizeof length));
    for (int i = 7; i >= 0; i--) bytes = bytes << 8 | length[i];
    if (bytes > SAFETENSORS_HEADER_MAX)
        return FAIL(ERR_FORMAT,
                    "%s is not a safetensors file: its first 8 bytes announce a header of %" PRIu64
                    " bytes, and %d is the most",
                    path, bytes, SAFETENSORS_HEADER_MAX);
    if (bytes > file_bytes - sizeof length)
        return FAIL(ERR_FORMAT,
                    "%s is truncated: it has %" PRIu64
                    " bytes, and its header should have %" PRIu64,
                    path, file_bytes, bytes);
    h.bytes = bytes;
    h.data_first = (int64_t)(bytes + sizeof length);
    h.data_bytes = (int64_t)file_bytes - h.data_first;
    TRY(ARENA_NEW(a, bytes + 1, &h.text));
    TRY(file_read(f, sizeof length, h.text, bytes));
    h.text[bytes] = '\0';
    return safetensors_parse(path, &h, a, out, n);
}

Status safetensors_open(const char *path, Arena *a, SafeTensor **out, int64_t *n)
{
    File f = { 0 };
    uint64_t bytes = 0;
    TRY(file_open_read(&f, path));
    Status s = file_size(path, &bytes);
    if (s == OK) s = read_header(&f, path, bytes, a, out, n);
    file_close(&f);
    return s;
}

/* ---- writing ---- */

static Status header_text(SafeTensor *t, int64_t n, Text *out)
{
    int64_t at = 0;
    TRY(text_json(out, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int64_t i = 0; i < n; i++) {
        t[i].type = safetensors_type((Dtype)t[i].dtype);
        t[i].begin = at;
        at += safetensors_elems(&t[i]) * (int64_t)dtype_bytes((Dtype)t[i].dtype);
        t[i].end = at;
        TRY(text_json(out, ",%s:{\"dtype\":%s,\"shape\":[", t[i].name, t[i].type));
        for (int d = 0; d < t[i].rank; d++) {
            TRY(text_append(out, ",", d > 0));
            TRY(text_printf(out, "%" PRId64, t[i].dim[d]));
        }
        TRY(text_printf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", t[i].begin, at));
    }
    TRY(text_append(out, "}", 1));
    while (out->used % 8 != 0) TRY(text_append(out, " ", 1)); /* aligns the elements */
    return OK;
}

/* Offsets depend only on types and shapes, so the header is complete before any element is
 * known. */
Status safetensors_create(File *f, const char *path, SafeTensor *t, int64_t n, Arena *a)
{
    Text header = { 0 };
    uint8_t length[8];
    TRY(file_create_temp(f, path, a));
    TRY(text_init(&header, a));
    TRY(header_text(t, n, &header));
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)header.used >> (8 * i));
    TRY(file_write(f, length, sizeof length));
    return file_write(f, header.data, header.used);
}
