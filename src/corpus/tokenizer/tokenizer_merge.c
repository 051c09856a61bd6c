/* tokenizer_merge: merges the pairs of a piece (Sennrich et al., arXiv:1508.07909). A piece starts as one
 * id for each byte, or for each character in a vocabulary of characters. Then the pair with the lowest
 * merge rank, the leftmost of equal ones, is merged, until no pair has a merge.
 *
 * A short piece keeps the merge of each pair in an array, and looks through it for the lowest rank. In a
 * long piece pairs are in a heap, so n bytes take n log n steps. */
#include "corpus/tokenizer/tokenizer_private.h"

#ifdef HOSTILE
enum { SHORT_IDS = 3 };
#else
enum { SHORT_IDS = 48 };
#endif

static const uint32_t NO_RANK = UINT32_MAX;

/* ---- table ---- */

static uint64_t pair_hash(int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    pair *= 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: spreads close ids (Knuth 6.4) */
    return pair ^ pair >> 32;
}

Status tokenizer_merge_table(Tokenizer *t, int64_t n_merges, Arena *a)
{
    uint64_t merges = tokenizer_slots(2 * n_merges);
    TRY(ARENA_NEW(a, merges, &t->merge));
    t->merge_mask = merges - 1;
    for (uint64_t i = 0; i < merges; i++) t->merge[i] = (MergeSlot){ .left = TOKENIZER_NO_TOKEN };
    return OK;
}

/* The slot of a pair, or the empty one where it belongs. */
static MergeSlot *find_merge(const Tokenizer *t, int32_t left, int32_t right)
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
    *find_merge(t, left, right) = (MergeSlot){ left, right, rank, result };
}

/* ---- first ids ---- */

/* Bytes of the character that a piece begins with; 1 if it is no UTF-8. */
static int32_t character_bytes(const char *text, int32_t n)
{
    uint8_t lead = (uint8_t)*text;
    int32_t bytes = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return bytes <= n ? bytes : 1;
}

/* Writes the ids that the piece starts with, at most n, and returns how many. */
static int32_t first_ids(const Tokenizer *t, const char *piece, int32_t n, int32_t *id)
{
    int32_t count = 0;
    for (int32_t i = 0; !t->of_characters && i < n; i++)
        id[count++] = t->byte_id[(uint8_t)piece[i]];
    for (int32_t i = 0, bytes; t->of_characters && i < n; i += bytes) {
        bytes = character_bytes(piece + i, n - i);
        id[count] = tokenizer_find(t, piece + i, bytes);
        if (id[count] != TOKENIZER_NO_TOKEN) {
            count++;
            continue;
        }
        for (int32_t k = 0; k < bytes; k++) id[count++] = t->byte_id[(uint8_t)piece[i + k]];
    }
    return count;
}

/* ---- short pieces ---- */

typedef struct Pair {
    uint32_t rank; /* NO_RANK: no merge */
    int32_t result;
} Pair;

static Pair pair_of(const Tokenizer *t, int32_t left, int32_t right)
{
    const MergeSlot *m = find_merge(t, left, right);
    return (Pair){ m->left == TOKENIZER_NO_TOKEN ? NO_RANK : m->rank, m->result };
}

/* Merges n ids in place and returns how many are left. pair[i] is that of id[i] and id[i + 1]. */
static int32_t merge_short(const Tokenizer *t, int32_t *id, int32_t n)
{
    Pair pair[SHORT_IDS];
    for (int32_t i = 0; i + 1 < n; i++)
        __builtin_prefetch(&t->merge[pair_hash(id[i], id[i + 1]) & t->merge_mask]);
    for (int32_t i = 0; i + 1 < n; i++) pair[i] = pair_of(t, id[i], id[i + 1]);
    for (; n > 1; n--) {
        int32_t best = 0;
        for (int32_t i = 1; i + 1 < n; i++) {
            if (pair[i].rank < pair[best].rank) best = i;
        }
        if (pair[best].rank == NO_RANK) break;
        id[best] = pair[best].result;
        for (int32_t i = best + 1; i + 1 < n; i++) {
            id[i] = id[i + 1];
            pair[i - 1] = pair[i];
        }
        if (best > 0) pair[best - 1] = pair_of(t, id[best - 1], id[best]);
        if (best + 2 < n) pair[best] = pair_of(t, id[best], id[best + 1]);
    }
    return n;
}

/* ---- long pieces ---- */

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
    uint32_t rank = pair_of(p->t, p->id[left], p->id[p->next[left]]).rank;
    if (rank != NO_RANK) heap_push(&p->heap, (uint64_t)rank << 32 | (uint32_t)left);
}

/* The left place takes the result, the right one leaves the list. Both new neighbours become
 * pairs. */
static void merge_pair(Merging *p, int32_t left)
{
    int32_t right = p->next[left], after = p->next[right];
    p->id[left] = pair_of(p->t, p->id[left], p->id[right]).result;
    p->id[right] = TOKENIZER_NO_TOKEN;
    p->next[left] = after;
    if (after < p->n) p->before[after] = left;
    push_pair(p, p->before[left]);
    push_pair(p, left);
}

/* The heap needs at most 2 n keys: n - 1 pairs at first, and each of at most n - 1 merges pops one and
 * pushes two. `id` is changed and holds the result, with TOKENIZER_NO_TOKEN between. */
static Status merge_long(const Tokenizer *t, int32_t *id, int32_t n, Arena *scratch)
{
    ArenaMark mark = arena_mark(scratch);
    Merging p = { .t = t, .n = n };
    p.id = id;
    TRY(ARENA_NEW(scratch, 2 * n, &p.heap.key));
    TRY(ARENA_NEW(scratch, n, &p.next));
    TRY(ARENA_NEW(scratch, n, &p.before));
    for (int32_t i = 0; i < n; i++) {
        p.next[i] = i + 1;
        p.before[i] = i - 1;
    }
    for (int32_t i = 0; i < n; i++) push_pair(&p, i);
    while (p.heap.n > 0) {
        uint64_t key = heap_pop(&p.heap);
        int32_t left = (int32_t)(uint32_t)key;
        if (p.id[left] == TOKENIZER_NO_TOKEN || p.next[left] >= n) continue;
        if (pair_of(p.t, p.id[left], p.id[p.next[left]]).rank == key >> 32) merge_pair(&p, left);
    }
    arena_release(scratch, mark);
    return OK;
}

Status tokenizer_merge(const Tokenizer *t, const char *piece, int32_t n, Arena *scratch,
                       int32_t *ids, int64_t *n_ids)
{
    int32_t *id = ids + *n_ids, count = first_ids(t, piece, n, id);
    if (count <= SHORT_IDS) {
        *n_ids += merge_short(t, id, count);
        return OK;
    }
    TRY(merge_long(t, id, count, scratch));
    for (int32_t i = 0; i < count; i++) {
        if (id[i] != TOKENIZER_NO_TOKEN) ids[(*n_ids)++] = id[i];
    }
    return OK;
}

/* A token of the vocabulary is not always reached by its merges. Only those that are may take the
 * shortcut of encode_new, or ids would differ from Hugging Face's. */
Status tokenizer_mark_whole(Tokenizer *t, bool all, Arena *scratch)
{
    int32_t longest = 0, *ids = NULL;
    for (int32_t i = 0; i < t->vocab; i++) {
        if (t->token[i].n > longest) longest = t->token[i].n;
    }
    ArenaMark mark = arena_mark(scratch);
    TRY(ARENA_NEW(scratch, longest, &ids));
    for (int32_t i = 0; i < t->vocab; i++) {
        TokenText *token = &t->token[i];
        int64_t n_ids = 0;
        if (token->n == 0 || tokenizer_find(t, token->bytes, token->n) != i) continue;
        if (!all) TRY(tokenizer_merge(t, token->bytes, token->n, scratch, ids, &n_ids));
        token->whole = all || (n_ids == 1 && ids[0] == i);
    }
    arena_release(scratch, mark);
    return OK;
}
