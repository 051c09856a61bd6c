/* tokenizer: text to ids and back.
 *
 * Added tokens are found first (added.h); the text between them is split into pieces (split.h). A piece
 * starts as one id per byte. Then the pair with the lowest merge rank (the leftmost of equal ones) is
 * merged, until no pair has a merge. Pairs are in a heap, so a piece of n bytes takes n log n steps.
 *
 * Most pieces take a shortcut: they are a token that its own bytes merge to (determined once, at load),
 * or they occurred before in the same text. A tokenizer never changes after load, so threads may share
 * it. */
#include "data/tokenizer_private.h"

#include "base/file.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef HOSTILE
enum { RECENT_MAX = 4 };
#else
enum { RECENT_MAX = 1 << 13 }; /* 8192 x 24 bytes stay in a core's L2 cache */
#endif

static const uint32_t NO_RANK = UINT32_MAX;

typedef struct Recent { /* a piece that was encoded before */
    uint64_t hash;
    int64_t first; /* of its ids */
    int32_t n_ids; /* 0: empty */
    int32_t n_bytes;
} Recent;

typedef struct Encoder {
    const Tokenizer *t;
    Arena *scratch;
    int32_t *ids;
    int64_t n_ids;
    Recent *recent;
    uint64_t recent_mask;
} Encoder;

/* ---- tables ---- */

/* The least power of two that is at least n, and at least 16. So a mask replaces a division. */
static uint64_t power_of_two_above(int64_t n)
{
    uint64_t size = 16;
    while (size < (uint64_t)n) size *= 2;
    return size;
}

static uint64_t pair_hash(int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    pair *= 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: spreads close ids (Knuth 6.4) */
    return pair ^ pair >> 32;
}

/* Tables have at least twice as many slots as entries, so that linear probing stays short. */
Status tokenizer_tables(Tokenizer *t, int64_t n_tokens, Arena *a)
{
    uint64_t slots = power_of_two_above(2 * n_tokens);
    TRY(ARENA_NEW(a, slots, &t->slot));
    t->slot_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++) t->slot[i] = (TokenSlot){ .id = TOKENIZER_NO_TOKEN };
    return OK;
}

Status tokenizer_merge_table(Tokenizer *t, int64_t n_merges, Arena *a)
{
    uint64_t merges = power_of_two_above(2 * n_merges);
    TRY(ARENA_NEW(a, merges, &t->merge));
    t->merge_mask = merges - 1;
    for (uint64_t i = 0; i < merges; i++) t->merge[i] = (MergeSlot){ .left = TOKENIZER_NO_TOKEN };
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

int32_t tokenizer_find(const Tokenizer *t, const char *bytes, int32_t n)
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

/* The slot of a pair, or the empty one where it belongs. */
static MergeSlot *merge_slot(const Tokenizer *t, int32_t left, int32_t right)
{
    uint64_t i = pair_hash(left, right) & t->merge_mask;
    while (t->merge[i].left != TOKENIZER_NO_TOKEN &&
           (t->merge[i].left != left || t->merge[i].right != right)) {
        i = (i + 1) & t->merge_mask;
    }
    return &t->merge[i];
}

void tokenizer_put_merge(Tokenizer *t, int32_t left, int32_t right, uint32_t rank, int32_t result)
{
    *merge_slot(t, left, right) = (MergeSlot){ left, right, rank, result };
}

Status tokenizer_find_bytes(Tokenizer *t, const char *name)
{
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->byte_id[b] = tokenizer_find(t, &byte, 1);
        if (t->byte_id[b] == TOKENIZER_NO_TOKEN)
            return FAIL(ERR_UNSUPPORTED,
                        "%s has no token for the byte %d; only vocabularies with all 256 bytes are "
                        "supported",
                        name, b);
    }
    return OK;
}

static uint32_t rank_of(const Tokenizer *t, int32_t left, int32_t right)
{
    const MergeSlot *m = merge_slot(t, left, right);
    return m->left == TOKENIZER_NO_TOKEN ? NO_RANK : m->rank;
}

/* ---- merging ---- */

/* Min-heap of a piece's pairs, by rank, then position. A key has the rank in its upper half. A pair that
 * has changed since its push is recognised by its rank when it is popped. */
typedef struct PairHeap {
    uint64_t *key;
    int64_t n;
} PairHeap;

static void heap_push(PairHeap *h, uint64_t key)
{
    int64_t i = h->n++;
    for (int64_t parent; i > 0 && h->key[parent = (i - 1) / 2] > key; i = parent)
        h->key[i] = h->key[parent];
    h->key[i] = key;
}

static uint64_t heap_pop(PairHeap *h)
{
    uint64_t top = h->key[0], last = h->key[--h->n];
    int64_t i = 0;
    for (int64_t child = 1; child < h->n; child = 2 * i + 1) {
        if (child + 1 < h->n && h->key[child + 1] < h->key[child]) child++;
        if (h->key[child] >= last) break;
        h->key[i] = h->key[child];
        i = child;
    }
    h->key[i] = last;
    return top;
}

typedef struct Merging { /* ids as a doubly linked list over the places of the bytes */
    const Tokenizer *t;
    int32_t *id;            /* TOKENIZER_NO_TOKEN: became part of the one before */
    int32_t *next, *before; /* n and -1 at the ends */
    int32_t n;
    PairHeap heap;
} Merging;

/* Does nothing at the ends of a piece, or for a pair that no merge joins. */
static void push_pair(Merging *p, int32_t left)
{
    if (left < 0 || p->next[left] >= p->n) return;
    uint32_t rank = rank_of(p->t, p->id[left], p->id[p->next[left]]);
    if (rank != NO_RANK) heap_push(&p->heap, (uint64_t)rank << 32 | (uint32_t)left);
}

/* The left place takes the result, the right one leaves the list. Both new neighbours become
 * pairs. */
static void merge_pair(Merging *p, int32_t left)
{
    int32_t right = p->next[left], after = p->next[right];
    p->id[left] = merge_slot(p->t, p->id[left], p->id[right])->result;
    p->id[right] = TOKENIZER_NO_TOKEN;
    p->next[left] = after;
    if (after < p->n) p->before[after] = left;
    push_pair(p, p->before[left]);
    push_pair(p, left);
}

/* The heap needs at most 2 n keys: n - 1 pairs at first, and each of at most n - 1 merges pops one and
 * pushes two. */
static Status merge_piece(Encoder *e, const char *piece, int32_t n)
{
    ArenaMark mark = arena_mark(e->scratch);
    Merging p = { .t = e->t, .n = n };
    void *at = NULL;
    TRY(arena_alloc(e->scratch, (size_t)n * (2 * sizeof(uint64_t) + 3 * sizeof(int32_t)), &at));
    p.heap.key = at;
    p.id = (int32_t *)(p.heap.key + 2 * (size_t)n);
    p.next = p.id + n;
    p.before = p.next + n;
    for (int32_t i = 0; i < n; i++) {
        p.id[i] = e->t->byte_id[(uint8_t)piece[i]];
        p.next[i] = i + 1;
        p.before[i] = i - 1;
    }
    for (int32_t i = 0; i < n; i++) push_pair(&p, i);
    while (p.heap.n > 0) {
        uint64_t key = heap_pop(&p.heap);
        int32_t left = (int32_t)(uint32_t)key;
        if (p.id[left] == TOKENIZER_NO_TOKEN || p.next[left] >= n) continue;
        if (rank_of(p.t, p.id[left], p.id[p.next[left]]) == key >> 32) merge_pair(&p, left);
    }
    for (int32_t i = 0; i < n; i = p.next[i]) e->ids[e->n_ids++] = p.id[i];
    arena_release(e->scratch, mark);
    return OK;
}

/* A token of the vocabulary is not always reached by its merges. Only those that are may take the
 * shortcut of encode_piece, or ids would differ from Hugging Face's. */
Status tokenizer_mark_whole(Tokenizer *t, bool all, Arena *scratch)
{
    int32_t longest = 0;
    for (int32_t i = 0; i < t->vocab; i++) {
        if (t->token[i].n > longest) longest = t->token[i].n;
    }
    ArenaMark mark = arena_mark(scratch);
    Encoder e = { .t = t, .scratch = scratch };
    TRY(ARENA_NEW(scratch, longest, &e.ids));
    for (int32_t i = 0; i < t->vocab; i++) {
        TokenText *token = &t->token[i];
        if (token->n == 0 || tokenizer_find(t, token->bytes, token->n) != i) continue;
        e.n_ids = 0;
        if (!all) TRY(merge_piece(&e, token->bytes, token->n));
        token->whole = all || (e.n_ids == 1 && e.ids[0] == i);
    }
    arena_release(scratch, mark);
    return OK;
}

/* ---- encoding ---- */

/* Does the text of these ids equal the piece? */
static bool same_text(const Tokenizer *t, const int32_t *ids, int32_t n_ids, const char *piece)
{
    for (int32_t i = 0; i < n_ids; i++) {
        const TokenText *token = &t->token[ids[i]];
        if (memcmp(token->bytes, piece, (size_t)token->n) != 0) return false;
        piece += token->n;
    }
    return true;
}

/* Equal hashes are not trusted: same_text compares the bytes of the piece that was encoded
 * before. */
static Status encode_piece(void *context, const char *piece, int32_t n)
{
    Encoder *e = context;
    uint64_t hash = XXH3_64bits(piece, (size_t)n);
    int32_t id = find_hashed(e->t, piece, n, hash);
    if (id != TOKENIZER_NO_TOKEN && e->t->token[id].whole) {
        e->ids[e->n_ids++] = id;
        return OK;
    }
    Recent *r = &e->recent[hash & e->recent_mask];
    int64_t first = e->n_ids;
    if (r->n_ids > 0 && r->hash == hash && r->n_bytes == n &&
        same_text(e->t, e->ids + r->first, r->n_ids, piece)) {
        memcpy(e->ids + first, e->ids + r->first, (size_t)r->n_ids * sizeof *e->ids);
        e->n_ids += r->n_ids;
        return OK;
    }
    TRY(merge_piece(e, piece, n));
    *r = (Recent){ .hash = hash, .first = first, .n_bytes = n };
    r->n_ids = (int32_t)(e->n_ids - first);
    return OK;
}

/* Encodes a text between the added tokens of the sets before `set`. */
static Status encode_between(Encoder *e, SplitCut *cut, const char *text, size_t n, int set)
{
    if (n == 0) return OK;
    if (set == ADDED_SETS) return split_text(cut, text, n);
    size_t done = 0;
    AddedMatch m = { 0 };
    while (added_find(&e->t->added[set], text, n, m.next, done, &m)) {
        if (m.start > done) TRY(encode_between(e, cut, text + done, m.start - done, set + 1));
        e->ids[e->n_ids++] = m.id;
        done = m.end;
    }
    return encode_between(e, cut, text + done, n - done, set + 1);
}

/* The table of recent pieces grows with the text: a short prompt should not clear 8192 entries. */
static Status encode_text(Encoder *e, const char *text, size_t n)
{
    uint64_t recent = power_of_two_above((int64_t)(n / 16));
    if (recent > RECENT_MAX) recent = RECENT_MAX;
    TRY(ARENA_ZEROED(e->scratch, recent, &e->recent));
    e->recent_mask = recent - 1;
    SplitCut cut;
    TRY(split_begin(&cut, &e->t->splitter, encode_piece, e, e->scratch));
    return encode_between(e, &cut, text, n, 0);
}

Status tokenizer_encode(const Tokenizer *t, const char *text, size_t n, Arena *a, int32_t **ids,
                        int64_t *n_ids)
{
    ArenaMark start = arena_mark(a);
    size_t most = t->splitter.prefix_space ? 2 * n : n; /* an id stands for at least a byte */
    Encoder e = { .t = t, .scratch = a };
    if (most > SIZE_MAX / sizeof(int32_t)) return FAIL(ERR_ARG, "a text of %zu bytes", n);
    TRY(ARENA_NEW(a, most, &e.ids));
    Status s = encode_text(&e, text, n);
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

/* ---- the rest of the interface ---- */

Status tokenizer_load(const char *path, Arena *a, Tokenizer **out)
{
    FileMap map = { 0 };
    TRY(file_map(path, &map));
    const char *text = (const char *)map.data;
    bool tiktoken = tokenizer_is_tiktoken(text, map.bytes);
    Status s =
        (tiktoken ? tokenizer_parse_tiktoken : tokenizer_parse)(path, text, map.bytes, a, out);
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
    bool known = id >= 0 && id < t->vocab && t->token[id].bytes != NULL;
    *bytes = known ? t->token[id].bytes : "";
    *n = known ? t->token[id].n : 0;
}
