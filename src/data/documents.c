/* documents: takes the next text from a mapped file, by line, block or file, and the string out of
 * a JSON line. */
#include "data/documents.h"

#include "base/text.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum { WRONG_BYTES = 256 };

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
    cJSON_Delete(d->json);
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

static Span take_text_line(Documents *d)
{
    Span line = { 0 };
    while (!at_end(d) && is_blank(line)) line = take_line(d);
    if (line.n == 0 || is_blank(line)) return (Span){ 0 };
    if (line.s[line.n - 1] == '\r') line.n--;
    return line;
}

/* From the first line that is not blank to the last one before the next that is. */
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

/* \u0000, written so that the backslash is not itself escaped. */
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

/* Parses the line into d->json. False, with what is wrong in `wrong`, if it is no document. */
static bool parse_line(Documents *d, Span line, Span *text, char wrong[WRONG_BYTES])
{
    const char *end = line.s;
    if (memchr(line.s, '\0', line.n) != NULL || has_escaped_nul(line)) {
        (void)snprintf(wrong, WRONG_BYTES, "a NUL character, which no text may hold");
        return false;
    }
    cJSON *json = cJSON_ParseWithLengthOpts(line.s, line.n, &end, 0);
    d->json = json;
    while (json != NULL && end < line.s + line.n && is_space(*end)) end++;
    if (json == NULL || end < line.s + line.n) {
        (void)snprintf(wrong, WRONG_BYTES, "no JSON from column %td on", end - line.s + 1);
        return false;
    }
    if (d->options.field == NULL && cJSON_IsObject(json)) {
        *text = line;
        return true;
    }
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(json, d->options.field);
    if (!cJSON_IsObject(json) || !cJSON_IsString(field)) {
        (void)snprintf(wrong, WRONG_BYTES, "%s \"%.100s\"",
                       !cJSON_IsObject(json) ? "no JSON object with a field"
                       : field == NULL       ? "no field"
                                             : "no text in field",
                       d->options.field == NULL ? "messages" : d->options.field);
        return false;
    }
    *text = (Span){ field->valuestring, strlen(field->valuestring) };
    return true;
}

Status documents_bad(Documents *d, const char *wrong)
{
    if (!d->options.skip_bad)
        return FAIL(ERR_FORMAT, "%s:%lld: %s (--on-bad-line skip leaves such lines out)", d->path,
                    (long long)d->line, wrong);
    d->skipped++;
    return OK;
}

static Status next_line(Documents *d, Span *text, bool *more)
{
    char wrong[WRONG_BYTES];
    while (!at_end(d)) {
        cJSON_Delete(d->json);
        d->json = NULL;
        Span line = take_line(d);
        if (is_blank(line)) continue;
        *more = parse_line(d, line, text, wrong);
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
