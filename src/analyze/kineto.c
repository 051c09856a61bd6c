/* kineto: where in the text the events stand, and the blocks in which they are read. */
#include "analyze/kineto.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 18, INPUT_BYTES = SCAN_BYTES_MAX + BLOCK_BYTES };

typedef enum Where {
    AT_START,
    AT_TOP,    /* among the members of the object */
    AT_SKIP,   /* in a member's value that nobody wants */
    AT_EVENTS, /* in traceEvents */
    AT_LOST,   /* there, behind a malformed event */
    AT_DONE
} Where;

typedef struct Reader {
    Source *source;
    Events *e;
    Batch batch;
    KeyTable keys;
    Arena memory;
    char *text; /* INPUT_BYTES and SCAN_PAD */
    size_t bytes;
    Where where;
    bool array, found; /* the array form; traceEvents was there */
    bool quoted, escaped;
    int64_t depth; /* of brackets, in AT_SKIP */
} Reader;

static Status not_json(const Reader *r, const char *what)
{
    return FAIL(ERR_FORMAT, "%s is no trace: %s", r->e->path, what);
}

/* ---- a value that nobody wants, of any length ---- */

static const char *skip(Reader *r, const char *p)
{
    for (; p < r->batch.end; p++) {
        char c = *p;
        if (r->quoted) {
            if (r->escaped)
                r->escaped = false;
            else if (c == '\\')
                r->escaped = true;
            else if (c == '"')
                r->quoted = false;
            if (r->quoted || r->depth > 0) continue;
            r->where = AT_TOP;
            return p + 1;
        }
        bool closes = c == '}' || c == ']';
        if (r->depth == 0 && (closes || c == ',')) { /* behind a word */
            r->where = AT_TOP;
            return p;
        }
        r->quoted = c == '"';
        r->depth += (c == '{' || c == '[') - closes;
        if (closes && r->depth == 0) {
            r->where = AT_TOP;
            return p + 1;
        }
    }
    return p;
}

/* ---- the object around the events ---- */

/* The member at p. Behind it, or p if the text ends before it is known what it is. */
static Status take_member(Reader *r, const char *p, const char **out)
{
    Batch *b = &r->batch;
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
        r->where = AT_EVENTS;
        r->found = true;
        *out = p + 1;
        return OK;
    }
    if (!commit_wants(key, n)) {
        r->where = AT_SKIP;
        r->quoted = r->escaped = false;
        r->depth = 0;
        *out = p;
        return OK;
    }
    end = scan_value(b, p);
    if (end == NULL) return OK;
    memcpy(b->scratch, p, (size_t)(end - p));
    b->scratch[end - p] = '\0';
    *out = end;
    return commit_top(r->e, key, n, b->scratch);
}

static Status take_top(Reader *r, const char *p, const char **out)
{
    p = scan_blank(p);
    while (*p == ',') p = scan_blank(p + 1);
    *out = p;
    if (p >= r->batch.end) return OK;
    if (*p == '}') {
        r->where = AT_DONE;
        *out = p + 1;
        return OK;
    }
    r->batch.ended = false;
    if (*p == '"') TRY(take_member(r, p, out));
    if (*out != p || r->batch.ended || r->where != AT_TOP) return OK;
    if (!r->found) return not_json(r, "what stands before its events is not JSON");
    r->e->counts.malformed++;
    r->where = AT_DONE;
    return OK;
}

static Status take_start(Reader *r, const char *p, const char **out)
{
    if (r->bytes >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) p += 3;
    p = scan_blank(p);
    *out = p;
    if (p >= r->batch.end) return OK;
    r->array = *p == '[';
    r->where = r->array ? AT_EVENTS : AT_TOP;
    *out = p + 1;
    if (r->array || *p == '{') return OK;
    return not_json(r, "it is not JSON, which begins with { or [");
}

/* ---- events ---- */

static Status take_events(Reader *r, const char *p, const char **out)
{
    Batch *b = &r->batch;
    ScanStop why;
    b->n = b->seen = b->malformed = b->unused = 0;
    b->scratch_used = 0;
    *out = scan_events(b, p, &why);
    if (why == STOP_CLOSED) r->where = r->array ? AT_DONE : AT_TOP;
    if (why == STOP_LOST) r->where = AT_LOST;
    return commit_batch(r->e, b);
}

/* The next event, for which the last bytes of a text must be seen again with those behind them. */
static const char *find_event(Reader *r, const char *p)
{
    const char *next = scan_next_event(p, r->batch.end);
    if (next != NULL) {
        r->where = AT_EVENTS;
        return next;
    }
    return r->batch.end - p > SCAN_PAD ? r->batch.end - SCAN_PAD : p;
}

/* Takes what the text holds whole. What is left is moved to its begin. */
static Status take_text(Reader *r)
{
    Batch *b = &r->batch;
    const char *p = r->text, *next = p;
    b->text = r->text;
    b->end = r->text + r->bytes;
    for (bool more = true; more; p = next) {
        Where before = r->where;
        switch (r->where) {
        case AT_START: TRY(take_start(r, p, &next)); break;
        case AT_TOP: TRY(take_top(r, p, &next)); break;
        case AT_SKIP: next = skip(r, p); break;
        case AT_EVENTS: TRY(take_events(r, p, &next)); break;
        case AT_LOST: next = find_event(r, p); break;
        case AT_DONE: next = b->end; break;
        }
        more = r->where != before || (next > p && r->where == AT_TOP);
    }
    r->bytes = (size_t)(b->end - p);
    memmove(r->text, p, r->bytes);
    return OK;
}

/* An event that does not fit is malformed, a member is passed over. */
static Status drop_giant(Reader *r)
{
    if (r->where == AT_EVENTS) {
        r->e->counts.malformed++;
        r->e->counts.seen++;
        r->where = AT_LOST;
        r->bytes--;
        memmove(r->text, r->text + 1, r->bytes);
        return OK;
    }
    return not_json(r, "a member of its object is longer than 16 MiB");
}

static Status read_blocks(Reader *r)
{
    size_t got = 1;
    while (got > 0) {
        TRY(source_read(r->source, r->text + r->bytes, BLOCK_BYTES, &got));
        r->bytes += got;
        memset(r->text + r->bytes, 0, SCAN_PAD);
        TRY(take_text(r));
        if (r->bytes > ELEMENT_BYTES_MAX) TRY(drop_giant(r));
    }
    return OK;
}

/* What the end of the text says about it. */
static Status judge(Reader *r)
{
    ReadCounts *c = &r->e->counts;
    c->bytes = r->source->given;
    if (r->where == AT_START) return not_json(r, "it is empty");
    if (!r->array && !r->found) return not_json(r, "it is JSON without traceEvents");
    if (r->array && !r->batch.phases) return not_json(r, "it is a JSON array without events");
    bool open = r->array && r->where == AT_EVENTS && r->bytes == 0;
    c->truncated = (r->where != AT_DONE && !open) || r->source->cut;
    return source_check(r->source);
}

/* Addresses for as many rows as the text can hold: an event that is kept takes 24 bytes. */
static int64_t rows_max(const Source *s)
{
    static const uint64_t MOST = EVENT_NONE, DEFLATE_RATIO = 1032;
    uint64_t text = s->gzip ? s->file_bytes * DEFLATE_RATIO : s->file_bytes;
    uint64_t rows = s->pipe ? MOST : text / 16 + 64;
    return (int64_t)(rows < MOST ? rows : MOST);
}

Status kineto_read(Source *source, const EventsOptions *o, Events *e)
{
    Reader r = { .source = source, .e = e };
    TRY(arena_init(&r.memory, "blocks", MEM_HOST, (size_t)INPUT_BYTES * 7));
    scan_keys(&r.keys);
    r.batch.keys = &r.keys;
    r.batch.python = o->python;
    Status s = ARENA_NEW(&r.memory, INPUT_BYTES + SCAN_PAD, &r.text);
    if (s == OK) s = batch_init(&r.batch, &r.memory, INPUT_BYTES);
    if (s == OK) s = commit_init(e, rows_max(source));
    if (s == OK) s = read_blocks(&r);
    if (s == OK) s = judge(&r);
    if (s == OK) s = commit_end(e);
    arena_free(&r.memory);
    return s;
}
