/* documents: returns the next document of a block: a line, lines between blank ones, all of it, or a
 * string field of a JSON line. */
#include "corpus/prepare/documents.h"

#include "engine/base/text.h"

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

static bool is_blank(Span l) { return blocks_blank(l.s, l.n); }

Status documents_open(Documents *d, const char *path, const DocumentOptions *o)
{
    *d = (Documents){ .path = path, .options = *o };
    Status s = blocks_open(&d->blocks, path, o);
    if (s == OK) s = arena_reserve(&d->room_arena, "block", LINE_BYTES);
    if (s == OK) s = text_init(&d->room, &d->room_arena);
    if (s != OK) documents_close(d);
    return s;
}

void documents_of_block(Documents *d, const char *name, bool jsonl, const Block *block,
                        const DocumentOptions *o)
{
    d->path = name;
    d->options = *o;
    d->jsonl = jsonl;
    d->block = *block;
    d->line = block->begin.lines;
    d->at = 0;
    d->skipped = 0;
    d->ids = NULL;
}

void documents_close(Documents *d)
{
    blocks_close(&d->blocks);
    arena_free(&d->room_arena);
    arena_free(&d->arena);
    *d = (Documents){ 0 };
}

static bool at_end(const Documents *d) { return d->at >= d->block.bytes; }

/* Only documents_open knows of more blocks. A text that is one document is never in two. */
static Status next_block(Documents *d)
{
    bool more = d->blocks.input.path != NULL;
    if (!more || !at_end(d)) return OK;
    TRY(blocks_next(&d->blocks, &d->room, &d->block, &more));
    d->jsonl = d->blocks.jsonl;
    d->at = 0;
    return OK;
}

/* The next line, without its newline. */
static Span take_line(Documents *d)
{
    Span line = { d->block.text + d->at, d->block.bytes - d->at };
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
    d->at = d->block.bytes;
    return (Span){ d->block.text, d->block.bytes };
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

/* The member of that name. If there is none, the name is a path: "a.b" is the member b of the member a. */
static const Json *find_field(const Json *object, const char *name)
{
    char part[WRONG_BYTES];
    const Json *whole = json_get(object, name);
    const char *dot = whole == NULL ? strchr(name, '.') : NULL;
    if (dot == NULL || (size_t)(dot - name) >= sizeof part) return whole;
    memcpy(part, name, (size_t)(dot - name));
    part[dot - name] = '\0';
    return find_field(json_get(object, part), dot + 1);
}

/* Sets *text to the field's text. Returns NULL, or what is wrong with the line. */
static const char *line_text(Documents *d, Span line, Span *text, char room[WRONG_BYTES])
{
    const char *name = d->options.field;
    const bool object = json_is(d->json, JSON_OBJECT);
    *text = line;
    d->ids = NULL;
    if (name == NULL) return object ? NULL : "no JSON object";
    const Json *field = find_field(d->json, name);
    if (json_is(field, JSON_TEXT)) {
        *text = (Span){ field->text, strlen(field->text) };
        return NULL;
    }
    if (d->options.ids && json_is(field, JSON_ARRAY)) {
        d->ids = field;
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
    if (d->arena.base == NULL) TRY(arena_reserve(&d->arena, "line", LINE_BYTES));
    arena_release(&d->arena, (ArenaMark){ 0 });
    TRY(json_parse(line.s, line.n, &d->arena, &d->json, &bad));
    *wrong = room;
    if (!text_utf8_valid(line.s, line.n, &bad))
        (void)snprintf(room, WRONG_BYTES, "no UTF-8 from byte %zu on", bad + 1);
    else if (d->json == NULL)
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
    const char *wrong = NULL;
    Span line = take_line(d);
    if (is_blank(line)) return OK;
    TRY(parse_line(d, line, text, room, &wrong));
    *more = wrong == NULL;
    return *more ? OK : documents_bad(d, wrong);
}

Status documents_next(Documents *d, const char **text, size_t *bytes, bool *more)
{
    Span span = { 0 };
    for (*more = false; !*more;) {
        TRY(next_block(d));
        if (at_end(d)) break;
        if (d->jsonl) {
            TRY(next_line(d, &span, more));
        } else {
            span = take_text(d);
            *more = span.n > 0;
        }
    }
    *text = span.s;
    *bytes = span.n;
    return OK;
}
