/* tokenizer: text to ids and back.
 *
 * Added tokens are found first (added.h). The text between them is normalized (normalize.h) and split
 * into pieces (split.h), whose ids come from merging pairs (tokenizer_merge.c).
 *
 * Most pieces take a shortcut: their ids are in the caller's cache, or they are a token that its own
 * bytes merge to (determined once, at load). The cache is a table of one cache line a piece: a short
 * piece with its ids; a newer piece replaces an older one in its place. A tokenizer never changes after
 * load, so threads may share it; a cache belongs to one thread. */
#include "corpus/tokenizer/tokenizer_private.h"

#include "engine/base/file.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef HOSTILE
enum { CACHE_PIECES = 4 };
#else
enum { CACHE_PIECES = 1 << 15 };
#endif
enum { CACHED_BYTES = 26, CACHED_IDS = 8 };

typedef struct CachedPiece { /* one cache line */
    uint32_t tag;            /* upper half of the hash of the bytes */
    uint8_t n_bytes, n_ids;  /* 0: empty */
    char bytes[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
} CachedPiece;

struct TokenizerCache {
    CachedPiece *piece;
    uint64_t mask;
};

typedef struct Encoder {
    const Tokenizer *t;
    const TokenizerCache *cache;
    Arena *scratch;
    SplitCut cut;
    int32_t *ids;
    int64_t n_ids, last; /* last: the first id of the last piece */
} Encoder;

/* ---- tables ---- */

/* The least power of two that is at least n, and at least 16. So a mask replaces a division. */
uint64_t tokenizer_slots(int64_t n)
{
    uint64_t size = 16;
    while (size < (uint64_t)n) size *= 2;
    return size;
}

/* Tables have at least twice as many slots as entries, so that linear probing stays short. */
Status tokenizer_tables(Tokenizer *t, int64_t n_tokens, Arena *a)
{
    uint64_t slots = tokenizer_slots(2 * n_tokens);
    TRY(ARENA_NEW(a, slots, &t->slot));
    t->slot_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++) t->slot[i] = (TokenSlot){ .id = TOKENIZER_NO_TOKEN };
    return OK;
}

/* The tag rejects nearly all other tokens without a look at their bytes. */
static int32_t find_hashed(const Tokenizer *t, const char *bytes, int32_t n, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint64_t i = hash & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        const TokenSlot *s = &t->slot[i];
        if (s->id == TOKENIZER_NO_TOKEN) return TOKENIZER_NO_TOKEN;
        const TokenText *text = &t->token[s->id];
        if (s->tag == tag && text->n == n && memcmp(text->bytes, bytes, (size_t)n) == 0)
            return s->id;
    }
}

/* Not inline: over a text of known size gcc warns of xxhash's paths for longer ones. */
__attribute__((noinline)) int32_t tokenizer_find(const Tokenizer *t, const char *bytes, int32_t n)
{
    return find_hashed(t, bytes, n, XXH3_64bits(bytes, (size_t)n));
}

void tokenizer_put(Tokenizer *t, int32_t id)
{
    uint64_t hash = XXH3_64bits(t->token[id].bytes, (size_t)t->token[id].n);
    uint64_t i = hash & t->slot_mask;
    while (t->slot[i].id != TOKENIZER_NO_TOKEN) i = (i + 1) & t->slot_mask;
    t->slot[i] = (TokenSlot){ .tag = (uint32_t)(hash >> 32), .id = id };
}

Status tokenizer_find_bytes(Tokenizer *t, const char *name)
{
    for (int b = 0; b < 256; b++) {
        char text[8] = { (char)b };
        int n = t->of_characters ? snprintf(text, sizeof text, "<0x%02X>", (unsigned)b) : 1;
        t->byte_id[b] = tokenizer_find(t, text, n);
        if (t->byte_id[b] == TOKENIZER_NO_TOKEN)
            return FAIL(ERR_UNSUPPORTED,
                        "%s has no token for the byte %d: a vocabulary must have all 256 bytes",
                        name, b);
    }
    return OK;
}

/* ---- encoding ---- */

static Status make_cache(Arena *a, uint64_t pieces, TokenizerCache *out)
{
    *out = (TokenizerCache){ .mask = pieces - 1 };
    return ARENA_ZEROED(a, pieces, &out->piece);
}

Status tokenizer_cache_make(Arena *a, TokenizerCache **out)
{
    TRY(ARENA_NEW(a, 1, out));
    return make_cache(a, CACHE_PIECES, *out);
}

/* The ids of a piece that is not in the cache. */
static Status encode_new(Encoder *e, const char *piece, int32_t n, uint64_t hash)
{
    int32_t id = find_hashed(e->t, piece, n, hash);
    if (id == TOKENIZER_NO_TOKEN || !e->t->token[id].whole)
        return tokenizer_merge(e->t, piece, n, e->scratch, e->ids, &e->n_ids);
    e->ids[e->n_ids++] = id;
    return OK;
}

/* Equal hashes are not trusted: the bytes are compared. All CACHED_IDS are copied, because a copy of a
 * known size is one instruction; those past n_ids are overwritten by the next piece. */
static Status encode_piece(void *context, const char *piece, int32_t n)
{
    Encoder *e = context;
    uint64_t hash = XXH3_64bits(piece, (size_t)n);
    uint32_t tag = (uint32_t)(hash >> 32);
    CachedPiece *c = &e->cache->piece[hash & e->cache->mask];
    e->last = e->n_ids;
    if (c->tag == tag && c->n_bytes == n && memcmp(c->bytes, piece, (size_t)n) == 0) {
        memcpy(e->ids + e->n_ids, c->ids, sizeof c->ids);
        e->n_ids += c->n_ids;
        return OK;
    }
    TRY(encode_new(e, piece, n, hash));
    int64_t n_ids = e->n_ids - e->last;
    if (n > CACHED_BYTES || n_ids > CACHED_IDS) return OK;
    *c = (CachedPiece){ .tag = tag, .n_bytes = (uint8_t)n, .n_ids = (uint8_t)n_ids };
    memcpy(c->bytes, piece, (size_t)n);
    memcpy(c->ids, e->ids + e->last, (size_t)n_ids * sizeof *c->ids);
    return OK;
}

/* Cuts a piece of a vocabulary of characters where no merge reaches over. */
static Status encode_joined(void *context, const char *piece, int32_t n)
{
    const Encoder *e = context;
    int32_t done = 0;
    int before = -1;
    for (int32_t i = 0; e->t->joins != NULL && i < n; i++) {
        int class = tokenizer_class(e->t, piece + i, n - i);
        if (class < 0) continue;
        if (before >= 0 && !e->t->joins[before * TOKENIZER_CLASSES + class]) {
            TRY(encode_piece(context, piece + done, i - done));
            done = i;
        }
        before = class;
    }
    return encode_piece(context, piece + done, n - done);
}

/* Does the token consist of spaces, newlines and tabs? */
static bool is_blank(const TokenText *token)
{
    for (int32_t i = 0; i < token->n; i++) {
        char c = token->bytes[i];
        if (c != ' ' && c != '\n' && c != '\t') return false;
    }
    return true;
}

/* What stands before a byte that is no UTF-8 was cut as if the text ended there. tiktoken joins the last
 * piece, and blank tokens before a blank one, with all the rest to one piece that is not cut. `first` is
 * the first id of this text. */
static Status encode_rest(Encoder *e, int64_t first, const char *rest, size_t n)
{
    const TokenText *token = e->t->token;
    int64_t from = e->n_ids > first ? e->last : first;
    size_t bytes = 0, used = 0;
    char *piece = NULL;
    if (from < e->n_ids && is_blank(&token[e->ids[from]])) {
        while (from > first && is_blank(&token[e->ids[from - 1]])) from--;
    }
    for (int64_t i = from; i < e->n_ids; i++) bytes += (size_t)token[e->ids[i]].n;
    if (bytes + n > INT32_MAX)
        return FAIL(ERR_UNSUPPORTED, "%zu bytes from one that is no UTF-8 to the end of the text",
                    n);
    ArenaMark mark = arena_mark(e->scratch);
    TRY(ARENA_NEW(e->scratch, bytes + n, &piece));
    for (int64_t i = from; i < e->n_ids; used += (size_t)token[e->ids[i++]].n)
        memcpy(piece + used, token[e->ids[i]].bytes, (size_t)token[e->ids[i]].n);
    memcpy(piece + used, rest, n);
    e->n_ids = from;
    Status s = encode_piece(e, piece, (int32_t)(bytes + n));
    arena_release(e->scratch, mark);
    return s;
}

/* Encodes a text without added tokens. In a vocabulary of characters a byte that is no UTF-8 is a piece
 * by itself, since no merge reaches over it. */
static Status encode_plain(Encoder *e, const char *text, size_t n, bool first)
{
    int64_t first_id = e->n_ids;
    size_t used = 0;
    TRY(normalize(&e->t->metaspace, first, e->scratch, &text, &n));
    for (; n > 0; text += used, n -= used) {
        TRY(split_text(&e->cut, text, n, &used));
        if (used < n && !e->t->of_characters)
            return encode_rest(e, first_id, text + used, n - used);
        if (used < n) TRY(encode_piece(e, text + used++, 1));
    }
    return OK;
}

/* Encodes a text between the added tokens of the sets before `set`. `first`: it begins where the whole
 * text begins. */
static Status encode_between(Encoder *e, const char *text, size_t n, int set, bool first)
{
    if (n == 0) return OK;
    if (set == ADDED_SETS) return encode_plain(e, text, n, first);
    if (set == 1) TRY(normalize(&e->t->normalizer, first, e->scratch, &text, &n));
    size_t done = 0;
    AddedMatch m = { 0 };
    while (added_find(&e->t->added[set], text, n, m.next, done, &m)) {
        if (m.start > done)
            TRY(encode_between(e, text + done, m.start - done, set + 1, first && done == 0));
        e->ids[e->n_ids++] = m.id;
        done = m.end;
    }
    return encode_between(e, text + done, n - done, set + 1, first && done == 0);
}

static Status encode_text(Encoder *e, const char *text, size_t n)
{
    SplitSink sink = e->t->of_characters ? encode_joined : encode_piece;
    TRY(split_begin(&e->cut, &e->t->splitter, sink, e, e->scratch));
    return encode_between(e, text, n, 0, true);
}

/* A cache for one text grows with the text: a short prompt should not clear a large one. */
static Status own_cache(Arena *a, size_t n, TokenizerCache *out)
{
    uint64_t pieces = tokenizer_slots((int64_t)(n / 16));
    return make_cache(a, pieces < CACHE_PIECES ? pieces : CACHE_PIECES, out);
}

Status tokenizer_encode_cached(const Tokenizer *t, TokenizerCache *cache, const char *text,
                               size_t n, Arena *a, int32_t **ids, int64_t *n_ids)
{
    ArenaMark start = arena_mark(a);
    TokenizerCache own = { 0 };
    Encoder e = { .t = t, .cache = cache != NULL ? cache : &own, .scratch = a };
    if (n > SIZE_MAX / sizeof(int32_t) / t->growth - CACHED_IDS)
        return FAIL(ERR_ARG, "a text of %zu bytes", n);
    TRY(ARENA_NEW(a, n * t->growth + CACHED_IDS, &e.ids));
    Status s = cache != NULL ? OK : own_cache(a, n, &own);
    if (s == OK) s = encode_text(&e, text, n);
    if (s != OK) {
        arena_release(a, start);
        return s;
    }
    /* The ids are the first block since `start`: keep as much of it as they fill. */
    size_t kept = arena_rounded((size_t)e.n_ids * sizeof(int32_t));
    arena_release(a, (ArenaMark){ .used_bytes = start.used_bytes + kept });
    *ids = e.ids;
    *n_ids = e.n_ids;
    return OK;
}

Status tokenizer_encode(const Tokenizer *t, const char *text, size_t n, Arena *a, int32_t **ids,
                        int64_t *n_ids)
{
    return tokenizer_encode_cached(t, NULL, text, n, a, ids, n_ids);
}

/* ---- the rest of the interface ---- */

Status tokenizer_load(const char *path, Arena *a, Tokenizer **out)
{
    FileMap map = { 0 };
    TRY(file_map(path, &map));
    Status s = tokenizer_parse(path, (const char *)map.data, map.bytes, a, out);
    file_unmap(&map);
    return s;
}

void tokenizer_free(Tokenizer *t)
{
    if (t != NULL) splitter_free(&t->splitter);
}

int32_t tokenizer_vocab(const Tokenizer *t) { return t->vocab; }
int32_t tokenizer_end_of_text(const Tokenizer *t) { return t->end_of_text; }

void tokenizer_bytes(const Tokenizer *t, int32_t id, const char **bytes, int32_t *n)
{
    bool known = id >= 0 && id < t->vocab && t->shown[id].bytes != NULL;
    *bytes = known ? t->shown[id].bytes : "";
    *n = known ? t->shown[id].n : 0;
}

Status tokenizer_decode(const Tokenizer *t, const int32_t *ids, int64_t n_ids, Text *out)
{
    for (int64_t i = 0; i < n_ids; i++) {
        const char *bytes = NULL;
        int32_t n = 0;
        tokenizer_bytes(t, ids[i], &bytes, &n);
        int32_t skip = t->adds_space && i == 0 && n > 0 && bytes[0] == ' ';
        TRY(text_append(out, bytes + skip, (size_t)(n - skip)));
    }
    return OK;
}
