/* documents: returns the next document of a mapped file: a line, a block, the whole file, or a string
 * field of a JSON line. */
#include "data/documents.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { WRONG_BYTES = 256 };
/* Address space (not memory) that is reserved for the JSON tree of a line. */
static const size_t LINE_BYTES = (size_t)64 << 30;

/* A range of bytes of the file. */
typedef struct Span {
    const char *s;
    size_t n;
} Span;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static bool is_blank(Span l)
{
    for (size_t i = 0; i < l.n; i++) {
        if (!is_space(l.s[i])) return false;
    }
    return true;
}

/* The name of a pipe (/dev/stdin) does not tell its format, so its first byte decides. */
Status documents_open(Documents *d, const char *path, const DocumentOptions *o)
{
    FileMap map = { 0 };
    *d = (Documents){ 0 };
    if (text_ends(path, ".json"))
        return FAIL(
            ERR_ARG,
            "%s: .json is not read as text; if it holds one document a line, call it .jsonl", path);
    TRY(file_map_input(path, &map));
    bool braces = file_is_pipe(path) && map.data[0] == '{';
    documents_from_memory(d, path, braces || text_ends(path, ".jsonl"), map, o);
    return OK;
}

void documents_from_memory(Documents *d, const char *name, bool jsonl, FileMap map,
                           const DocumentOptions *o)
{
    *d = (Documents){ .path = name, .options = *o, .jsonl = jsonl, .map = map };
}

void documents_close(Documents *d)
{
    arena_free(&d->arena);
    file_unmap(&d->map);
    *d = (Documents){ 0 };
}

static bool at_end(const Documents *d) { return d->at >= d->map.bytes; }

/* The next line, without its newline. */
static Span take_line(Documents *d)
{
    Span line = { (const char *)d->map.data + d->at, d->map.bytes - d->at };
    const char *newline = memchr(line.s, '\n', line.n);
    if (newline != NULL) line.n = (size_t)(newline - line.s);
    d->at += line.n + (newline != NULL);
    d->line++;
    return line;
}

/* ---- text files ---- */

/* The next line that is not blank, without a carriage return. n = 0: no more. Windows files end
 * lines with \r\n. */
static Span take_text_line(Documents *d)
{
    Span line = { 0 };
    while (!at_end(d) && is_blank(line)) line = take_line(d);
    if (line.n == 0 || is_blank(line)) return (Span){ 0 };
    if (line.s[line.n - 1] == '\r') line.n--;
    return line;
}

/* A block begins with a line that is not blank and ends before the next blank one. */
static Span take_block(Documents *d)
{
    Span block = take_text_line(d);
    while (block.n > 0 && !at_end(d)) {
        Span line = take_line(d);
        if (is_blank(line)) break;
        if (line.s[line.n - 1] == '\r') line.n--;
        block.n = (size_t)(line.s + line.n - block.s);
    }
    return block;
}

static Span take_text(Documents *d)
{
    if (d->options.split == SPLIT_BLANK) return take_block(d);
    if (d->options.split == SPLIT_LINE) return take_text_line(d);
    d->at = d->map.bytes;
    return (Span){ (const char *)d->map.data, d->map.bytes };
}

/* ---- JSON lines ---- */

/* Does the line contain \u0000, with a backslash that is not escaped itself? */
static bool has_escaped_nul(Span l)
{
    static const char NUL[] = "\\u0000";
    const char *end = l.s + l.n;
    for (const char *at = l.s; at < end; at++) {
        at = memmem(at, (size_t)(end - at), NUL, sizeof NUL - 1);
        if (at == NULL) return false;
        size_t backslashes = 1;
        while (at - backslashes >= l.s && *(at - backslashes) == '\\') backslashes++;
        if (backslashes % 2 == 1) return true;
    }
    return false;
}

/* Sets *text to the field's text. Returns NULL, or what is wrong with the line. */
static const char *line_text(const Documents *d, Span line, Span *text, char room[WRONG_BYTES])
{
    const char *name = d->options.field == NULL ? "messages" : d->options.field;
    const Json *field = json_get(d->json, name);
    const bool object = json_is(d->json, JSON_OBJECT);
    *text = line;
    if (object && d->options.field == NULL) return NULL;
    if (json_is(field, JSON_TEXT)) {
        *text = (Span){ field->text, strlen(field->text) };
        return NULL;
    }
    (void)snprintf(room, WRONG_BYTES, "%s \"%.100s\"",
                   !object         ? "no JSON object with a field"
                   : field == NULL ? "no field"
                                   : "no text in field",
                   name);
    return room;
}

/* Parses the line into d->json and sets *text. *wrong: NULL, or why the line is not a document. The
 * tree of the line before is dropped first, so memory is bounded by the longest line. */
static Status parse_line(Documents *d, Span line, Span *text, char room[WRONG_BYTES],
                         const char **wrong)
{
    size_t bad = 0;
    *wrong = "a NUL character, which no text may hold";
    if (memchr(line.s, '\0', line.n) != NULL || has_escaped_nul(line)) return OK;
    if (d->arena.base == NULL) TRY(arena_init(&d->arena, "line", MEM_HOST, LINE_BYTES));
    arena_release(&d->arena, (ArenaMark){ 0 });
    TRY(json_parse(line.s, line.n, &d->arena, &d->json, &bad));
    *wrong = room;
    if (d->json == NULL)
        (void)snprintf(room, WRONG_BYTES, "no JSON from column %zu on", bad + 1);
    else
        *wrong = line_text(d, line, text, room);
    return OK;
}

Status documents_bad(Documents *d, const char *wrong)
{
    if (!d->options.skip_bad)
        return FAIL(ERR_FORMAT, "%s:%lld: %s (--on-bad-line skip leaves such lines out)", d->path,
                    (long long)d->line, wrong);
    d->skipped++;
    return OK;
}

/* With skip_bad it goes on to the next good line; otherwise the first bad line is the error. */
static Status next_line(Documents *d, Span *text, bool *more)
{
    char room[WRONG_BYTES];
    while (!at_end(d)) {
        const char *wrong = NULL;
        Span line = take_line(d);
        if (is_blank(line)) continue;
        TRY(parse_line(d, line, text, room, &wrong));
        *more = wrong == NULL;
        if (*more) return OK;
        TRY(documents_bad(d, wrong));
    }
    return OK;
}

Status documents_next(Documents *d, const char **text, size_t *bytes, bool *more)
{
    Span span = { 0 };
    bool found = false;
    if (d->jsonl) {
        TRY(next_line(d, &span, &found));
    } else if (!at_end(d)) {
        span = take_text(d);
        found = span.n > 0;
    }
    *text = span.s;
    *bytes = span.n;
    *more = found;
    return OK;
}
