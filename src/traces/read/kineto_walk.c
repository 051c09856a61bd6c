/* kineto_walk: see kineto_walk.h. Text comes in pieces that are cut anywhere. What a piece does not
 * hold whole is kept until the next piece comes. Each read_ function below handles one state of
 * Where: it moves `*out` as far as it understands, and changes the state when a part ends. */
#include "traces/read/kineto_walk.h"

#include <assert.h>
#include <string.h>

/* All sentences about a file that is not a trace have the same form, and say what to name
 * instead. */
static Status not_json(const Walk *w, const char *what)
{
    return FAIL(ERR_FORMAT,
                "%s is not a trace: %s: name a file of PyTorch's profiler or of our recorder",
                w->e->path, what);
}

/* ---- members that nobody wants ---- */

/* Skips the value of a member that nobody wants. It may be of any length, so it is never kept:
 * quotes and depth are remembered from piece to piece. */
static const char *skip_member(Walk *w, const char *p)
{
    for (; p < w->batch.end; p++) {
        char c = *p;
        if (w->quoted) {
            if (w->escaped)
                w->escaped = false;
            else if (c == '\\')
                w->escaped = true;
            else if (c == '"')
                w->quoted = false;
            if (w->quoted || w->depth > 0) continue;
            w->where = AT_TOP;
            return p + 1;
        }
        bool closes = c == '}' || c == ']';
        if (w->depth == 0 && (closes || c == ',')) { /* after a word */
            w->where = AT_TOP;
            return p;
        }
        w->quoted = c == '"';
        w->depth += (c == '{' || c == '[') - closes;
        if (closes && w->depth == 0) {
            w->where = AT_TOP;
            return p + 1;
        }
    }
    return p;
}

/* ---- the object around the events ---- */

/* Reads the member at p. *out: the position after it, or p if the text ends before the member is
 * understood. */
static Status read_member(Walk *w, const char *p, const char **out)
{
    Batch *b = &w->batch;
    const char *key = p + 1, *end = scan_value(b, p);
    *out = p;
    if (end == NULL) return OK;
    size_t n = (size_t)(end - key - 1);
    p = scan_blank(end);
    b->ended = p >= b->end;
    if (*p != ':') return OK;
    p = scan_blank(p + 1);
    b->ended = p >= b->end;
    if (b->ended) return OK;
    if (n == 11 && memcmp(key, "traceEvents", n) == 0 && *p == '[') {
        w->where = AT_EVENTS;
        w->found = true;
        *out = p + 1;
        return OK;
    }
    if (!commit_wants(key, n) || w->giant) {
        w->giant = false;
        w->where = AT_SKIP;
        w->quoted = w->escaped = false;
        w->depth = 0;
        *out = p;
        return OK;
    }
    end = scan_value(b, p);
    if (end == NULL) return OK;
    memcpy(b->scratch, p, (size_t)(end - p));
    b->scratch[end - p] = '\0';
    *out = end;
    return commit_top(w->e, key, n, b->scratch);
}

/* Between members. JSON errors before the events are fatal; after the events they count as
 * malformed. */
static Status read_top(Walk *w, const char *p, const char **out)
{
    p = scan_blank(p);
    while (*p == ',') p = scan_blank(p + 1);
    *out = p;
    if (p >= w->batch.end) return OK;
    if (*p == '}') {
        w->where = AT_DONE;
        *out = p + 1;
        return OK;
    }
    w->batch.ended = false;
    if (*p == '"') TRY(read_member(w, p, out));
    if (*out != p || w->batch.ended || w->where != AT_TOP) return OK;
    if (!w->found) return not_json(w, "what comes before its events is not JSON");
    w->e->counts.malformed++;
    w->behind = true;
    w->where = AT_DONE;
    return OK;
}

/* Skips a byte order mark. Then an array of events begins, or the object around them. */
static Status read_start(Walk *w, const char *p, const char **out)
{
    *out = p;
    if (w->bytes < 3 && !w->last) return OK;
    if (w->bytes >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) p += 3;
    p = scan_blank(p);
    *out = p;
    if (p >= w->batch.end) return OK;
    w->array = *p == '[';
    w->where = w->array ? AT_EVENTS : AT_TOP;
    *out = p + 1;
    if (w->array || *p == '{') return OK;
    return not_json(w, "it is not JSON, which begins with { or [");
}

/* ---- events ---- */

/* Commits what a scan found and notes why it stopped. */
static Status commit_scan(Walk *w, const Batch *b, ScanStop why)
{
    if (why == STOP_CLOSED) w->where = w->array ? AT_DONE : AT_TOP;
    if (why == STOP_LOST) w->where = AT_LOST;
    w->phases |= b->phases;
    return commit_batch(w->e, b);
}

static Status read_events(Walk *w, const char *p, const char **out)
{
    ScanStop why;
    *out = scan_events(&w->batch, p, &why);
    return commit_scan(w, &w->batch, why);
}

/* Text after the end is not part of a trace: it counts as one malformed element. */
static const char *read_end(Walk *w, const char *p)
{
    if (!w->behind && scan_blank(p) < w->batch.end) {
        w->behind = true;
        w->e->counts.malformed++;
    }
    return w->batch.end;
}

/* Finds the next event after a malformed one, or the bracket that ends traceEvents. The last
 * block of what is skipped is kept, because only the end of the text tells whether that bracket
 * is in it. */
static const char *find_event(Walk *w, const char *p)
{
    const char *end = w->batch.end;
    const char *next = scan_next_event(w->batch.keys, p, end);
    if (next == NULL && w->last) next = scan_closing(p, end);
    if (next != NULL) {
        w->where = AT_EVENTS;
        return next;
    }
    return end - p > BLOCK_BYTES ? end - BLOCK_BYTES : p;
}

/* Reads all that the text holds whole, and moves the rest to the front of the buffer. It goes on
 * while the state changes or the text advances. */
static Status read_text(Walk *w)
{
    const char *p = w->text, *next = p;
    w->batch.text = p;
    w->batch.end = p + w->bytes;
    for (bool more = true; more; p = next) {
        Where before = w->where;
        switch (w->where) {
        case AT_START: TRY(read_start(w, p, &next)); break;
        case AT_TOP: TRY(read_top(w, p, &next)); break;
        case AT_SKIP: next = skip_member(w, p); break;
        case AT_EVENTS: TRY(read_events(w, p, &next)); break;
        case AT_LOST: next = find_event(w, p); break;
        case AT_DONE: next = read_end(w, p); break;
        }
        more = w->where != before || (next > p && w->where == AT_TOP);
    }
    w->bytes = (size_t)(w->batch.end - p);
    memmove(w->text, p, w->bytes);
    memset(w->text + w->bytes, 0, SCAN_PAD);
    return OK;
}

/* An event over the limit counts as malformed, and the search for the next one begins inside it. A
 * member over the limit is skipped. */
static Status drop_oversized(Walk *w)
{
    bool member = w->where == AT_TOP;
    if (w->giant || (!member && w->where != AT_EVENTS))
        return not_json(w, "what surrounds its events is longer than 16 MiB");
    w->e->counts.malformed++;
    w->giant = member;
    if (member) return OK;
    w->e->counts.seen++;
    w->where = AT_LOST;
    w->bytes--;
    memmove(w->text, w->text + 1, w->bytes + SCAN_PAD);
    return OK;
}

/* Kept text is at most the largest event, or what find_event keeps. A block is appended to it, and
 * one more while the largest event is waited for. */
size_t walk_room(const Source *s)
{
    size_t most = s->element_max > BLOCK_BYTES ? s->element_max : BLOCK_BYTES;
    return (most < s->text_max ? most : (size_t)s->text_max) + 2 * s->block;
}

Status walk_init(Walk *w, Events *e, const Batch *like, const Source *s, Arena *a)
{
    *w = (Walk){ .e = e, .batch = *like, .room = walk_room(s), .element_max = s->element_max };
    TRY(ARENA_NEW(a, w->room + SCAN_PAD, &w->text));
    return batch_init(&w->batch, a, w->room);
}

static void append_text(Walk *w, const char *text, size_t n)
{
    assert(n <= w->room - w->bytes);
    memcpy(w->text + w->bytes, text, n);
    w->bytes += n;
    memset(w->text + w->bytes, 0, SCAN_PAD);
}

/* Kept text is scanned again only when there is twice as much. Otherwise a long event would be
 * scanned from its beginning with every block, which takes quadratic time. */
Status walk_text(Walk *w, const char *text, size_t n, bool last)
{
    append_text(w, text, n);
    w->last = last;
    if (w->bytes < w->wanted && !last) return OK;
    TRY(read_text(w));
    while (w->bytes > w->element_max && w->where != AT_LOST) {
        TRY(drop_oversized(w));
        TRY(read_text(w));
    }
    w->wanted = 2 * w->bytes < w->element_max ? 2 * w->bytes : w->element_max;
    return OK;
}

/* The rest after STOP_INSIDE is the begin of an event that the next block goes on with, so scanning
 * it again would be in vain. */
Status walk_batch(Walk *w, const Batch *b, const char *rest, ScanStop why, bool last)
{
    size_t n = (size_t)(b->end - rest);
    TRY(commit_scan(w, b, why));
    if (why != STOP_INSIDE || last) return walk_text(w, rest, n, last);
    append_text(w, rest, n);
    return OK;
}

Status walk_end(Walk *w, const Source *s)
{
    ReadCounts *c = &w->e->counts;
    /* An array of events may lack its closing bracket: Chrome's format allows that. */
    bool ended = w->where == AT_DONE || (w->array && w->where == AT_EVENTS && w->bytes == 0);
    c->bytes = s->given;
    c->truncated = !ended || s->cut;
    TRY(source_check(s));
    if (w->where == AT_START)
        return not_json(w, s->cut ? "its gzip ends before any text" : "it is empty");
    if (!w->array && !w->found)
        return not_json(w, ended ? "it is JSON without traceEvents" : "it ends before its events");
    if (w->array && !w->phases) return not_json(w, "it is a JSON array without events");
    return OK;
}
