/* train: learns the merges of a byte-level BPE vocabulary (Sennrich et al., arXiv:1508.07909;
 * over bytes: Radford et al. 2019). Encoding with the result is in corpus/tokenizer/tokenizer.c.
 *
 * A merge never crosses a cut of GPT-2's pattern, so a text is a set of pieces with counts. Until the
 * vocabulary is full, the most frequent pair of neighbouring tokens becomes a token. Ties: the smaller
 * left id first, then the smaller right id. Ids of bytes follow the order of the characters that
 * represent them, so the result equals that of Hugging Face's trainer.
 *
 * Counts are updated incrementally: each pair has a list of positions at which it was seen, and a merge
 * visits only those. Positions and heap entries may be stale. A position is checked against the tokens
 * that are there now, a heap entry against the pair's count. Each merge at a position makes a piece one
 * token shorter and adds at most two positions. So the number of positions is at most three times the
 * bytes of the distinct pieces. */
#include "tokenizer/train.h"

#include "corpus/prepare/documents.h"
#include "corpus/tokenizer/tokenizer_private.h"
#include "engine/host/progress.h"
#include "tokenizer/write.h"

#include <string.h>

enum { BYTES = 256, NONE = -1, CHUNK_BYTES = 1 << 20, SHOWN_BYTES = 1 << 16 };
static const char UNWRITTEN[] = "nothing was written";

typedef struct Corpus {
    Arena *arena;
    Tokenizer words; /* the distinct pieces as tokens, in the order of their first appearance */
    int64_t *count;  /* of each word */
    int64_t room;    /* for words */
    int64_t n_bytes; /* bytes of the different words */
    char *chunk;     /* memory for the bytes of new words */
    size_t chunk_left;
    Progress bar; /* over bytes of the files; updated every SHOWN_BYTES */
    int64_t unshown;
} Corpus;

/* ---- counting pieces ---- */

/* Doubles the room for words, and hashes all words again into tables of the new size. */
static Status corpus_grow(Corpus *c)
{
    int64_t count_room = c->room;
    TRY(ARENA_GROW(c->arena, c->room + 1, &count_room, &c->count));
    TRY(ARENA_GROW(c->arena, c->room + 1, &c->room, &c->words.token));
    if (c->room > INT32_MAX)
        return FAIL(ERR_UNSUPPORTED, "more than %d different pieces", INT32_MAX);
    TRY(tokenizer_tables(&c->words, c->room, c->arena));
    for (int32_t w = 0; w < c->words.vocab; w++) tokenizer_put(&c->words, w);
    return OK;
}

/* Copies a word's bytes into a chunk: an arena block has 256 bytes, and most words are far
 * shorter. */
static Status corpus_keep(Corpus *c, const char *bytes, int32_t n, const char **out)
{
    if ((size_t)n > c->chunk_left) {
        c->chunk_left = n > CHUNK_BYTES ? (size_t)n : CHUNK_BYTES;
        TRY(ARENA_NEW(c->arena, c->chunk_left, &c->chunk));
    }
    memcpy(c->chunk, bytes, (size_t)n);
    *out = c->chunk;
    c->chunk += n;
    c->chunk_left -= (size_t)n;
    return OK;
}

/* Gets each piece of the text from the splitter. Its bytes live only as long as the document, so a
 * new word is copied. */
static Status count_piece(void *context, const char *bytes, int32_t n)
{
    Corpus *c = context;
    if (c->words.vocab == c->room) TRY(corpus_grow(c));
    int32_t w = tokenizer_find(&c->words, bytes, n);
    if (w == TOKENIZER_NO_TOKEN) {
        TokenText word = { .n = n };
        TRY(corpus_keep(c, bytes, n, &word.bytes));
        w = c->words.vocab++;
        c->words.token[w] = word;
        c->count[w] = 0;
        c->n_bytes += n;
        tokenizer_put(&c->words, w);
    }
    c->count[w]++;
    c->unshown += n;
    if (c->unshown < SHOWN_BYTES) return OK;
    TRY(progress_add(&c->bar, c->unshown));
    c->unshown = 0;
    return OK;
}

/* ---- files ---- */

/* A byte that is no UTF-8 is a piece by itself. */
static Status count_text(SplitCut *cut, const char *text, size_t n)
{
    size_t used = 0;
    for (size_t at = 0; at < n; at += used) {
        TRY(split_text(cut, text + at, n - at, &used));
        if (at + used == n) break;
        TRY(count_piece(cut->context, text + at + used++, 1));
    }
    return OK;
}

static Status count_file(SplitCut *cut, const char *path)
{
    static const DocumentOptions WHOLE = { .split = SPLIT_FILE, .field = "text" };
    Documents documents = { 0 };
    TRY(documents_open(&documents, path, &WHOLE));
    Status s = OK;
    for (bool more = true; more && s == OK;) {
        const char *text = NULL;
        size_t n = 0;
        s = documents_next(&documents, &text, &n, &more);
        if (s == OK && more) s = count_text(cut, text, n);
    }
    documents_close(&documents);
    return s;
}

static Status count_files(Corpus *c, const TokenizerTraining *t)
{
    Splitter splitter = { 0 };
    SplitCut cut;
    for (int i = 0; i < t->n_files; i++) {
        uint64_t bytes = 0;
        TRY(file_size(t->files[i], &bytes));
        c->bar.total += (int64_t)bytes;
    }
    progress_begin(&c->bar);
    Status s =
        splitter_add_rule(&splitter, SPLIT_GPT2_PATTERN, SPLIT_ONIGURUMA, SPLIT_ISOLATED, c->arena);
    if (s == OK) s = split_begin(&cut, &splitter, count_piece, c, c->arena);
    for (int i = 0; i < t->n_files && s == OK; i++) s = count_file(&cut, t->files[i]);
    if (s == OK) progress_end(&c->bar);
    splitter_free(&splitter);
    return s;
}

/* ---- pairs ---- */

typedef struct Pair {
    int32_t left, right;
    int64_t count;
    int32_t first, last; /* list of positions, in the order of the text; NONE: empty */
    int32_t learning;    /* number of the merge in which the pair was last pushed on the heap */
} Pair;

typedef struct Place { /* where the left token of a pair starts */
    int32_t token, next;
} Place;

typedef struct Candidate { /* a pair with its count when it was pushed on the heap */
    int64_t count;
    int32_t pair, left, right;
} Candidate;

typedef struct Trainer {
    Arena *arena;
    /* All words one after the other. token: the id at a token's first byte, NONE at its other bytes. */
    int32_t *token, *next, *before; /* next and before are NONE at the ends of a word */
    int64_t *weight;                /* weight of the word that the byte is in */
    Place *place;
    Pair *pair;
    int32_t *slot; /* hash table of pair numbers */
    Candidate *heap;
    int32_t *touched; /* pairs that the current merge made more frequent */
    int64_t n_places, n_pairs, pair_room, n_heap, heap_room, n_touched;
    int32_t learning;

    Tokenizer names; /* the tokens so far, by their bytes */
    TokenizerMerge *merge;
    int64_t n_merges, merge_room;
} Trainer;

/* The slot of the pair, or the empty one where it belongs. Twice as many slots as pairs keep
 * probing short. */
static int64_t pair_slot(const Trainer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t mask = 2 * (uint64_t)t->pair_room - 1;
    key *= 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */
    uint64_t i = (key ^ key >> 32) & mask;
    for (; t->slot[i] != NONE; i = (i + 1) & mask) {
        const Pair *p = &t->pair[t->slot[i]];
        if (p->left == left && p->right == right) break;
    }
    return (int64_t)i;
}

static Status grow_pairs(Trainer *t)
{
    int64_t touched_room = t->pair_room;
    TRY(ARENA_GROW(t->arena, t->pair_room + 1, &touched_room, &t->touched));
    TRY(ARENA_GROW(t->arena, t->pair_room + 1, &t->pair_room, &t->pair));
    if (t->pair_room > INT32_MAX)
        return FAIL(ERR_UNSUPPORTED, "more than %d pairs of tokens", INT32_MAX);
    TRY(ARENA_NEW(t->arena, 2 * t->pair_room, &t->slot));
    memset(t->slot, 0xFF, 2 * (size_t)t->pair_room * sizeof *t->slot); /* NONE */
    for (int64_t p = 0; p < t->n_pairs; p++)
        t->slot[pair_slot(t, t->pair[p].left, t->pair[p].right)] = (int32_t)p;
    return OK;
}

/* The pair's entries in the heap and in its list of positions become stale. They are checked when
 * they are used. */
static void lower_pair(Trainer *t, int32_t left, int32_t right, int64_t weight)
{
    t->pair[t->slot[pair_slot(t, left, right)]].count -= weight;
}

/* Adds an occurrence of the pair that starts at `at`: to its count and to its list of positions. */
static Status raise_pair(Trainer *t, int32_t at)
{
    if (t->n_pairs == t->pair_room) TRY(grow_pairs(t));
    int32_t left = t->token[at], right = t->token[t->next[at]];
    int64_t slot = pair_slot(t, left, right);
    if (t->slot[slot] == NONE) {
        t->slot[slot] = (int32_t)t->n_pairs;
        t->pair[t->n_pairs++] =
            (Pair){ .left = left, .right = right, .first = NONE, .last = NONE, .learning = NONE };
    }
    int32_t number = t->slot[slot], place = (int32_t)t->n_places++;
    Pair *p = &t->pair[number];
    p->count += t->weight[at];
    t->place[place] = (Place){ .token = at, .next = NONE };
    if (p->first == NONE)
        p->first = place;
    else
        t->place[p->last].next = place;
    p->last = place;
    if (p->learning != t->learning) t->touched[t->n_touched++] = number;
    p->learning = t->learning;
    return OK;
}

/* ---- the heap: most frequent first, then by ids ---- */

static bool goes_before(const Candidate *a, const Candidate *b)
{
    if (a->count != b->count) return a->count > b->count;
    if (a->left != b->left) return a->left < b->left;
    return a->right < b->right;
}

static Status heap_push(Trainer *t, int32_t number)
{
    TRY(ARENA_GROW(t->arena, t->n_heap + 1, &t->heap_room, &t->heap));
    const Pair *p = &t->pair[number];
    Candidate c = { p->count, number, p->left, p->right };
    int64_t i = t->n_heap++;
    for (int64_t parent; i > 0 && goes_before(&c, &t->heap[parent = (i - 1) / 2]); i = parent)
        t->heap[i] = t->heap[parent];
    t->heap[i] = c;
    return OK;
}

static Candidate heap_pop(Trainer *t)
{
    Candidate top = t->heap[0], last = t->heap[--t->n_heap];
    int64_t i = 0;
    for (int64_t child = 1; child < t->n_heap; child = 2 * i + 1) {
        if (child + 1 < t->n_heap && goes_before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!goes_before(&t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = last;
    return top;
}

/* Only a pair that gained occurrences needs a new heap entry. One that lost some keeps an entry
 * with too high a count, which best_pair corrects. */
static Status push_touched(Trainer *t)
{
    for (int64_t i = 0; i < t->n_touched; i++) TRY(heap_push(t, t->touched[i]));
    t->n_touched = 0;
    t->learning++;
    return OK;
}

/* The most frequent pair, or NONE if no pair is left. Counts only sink between pushes, so an outdated
 * entry is pushed again with its present count. */
static Status best_pair(Trainer *t, int32_t *out)
{
    *out = NONE;
    while (t->n_heap > 0 && *out == NONE) {
        Candidate c = heap_pop(t);
        int64_t now = t->pair[c.pair].count;
        if (now == c.count)
            *out = c.pair;
        else if (now > 0)
            TRY(heap_push(t, c.pair));
    }
    return OK;
}

/* ---- merging ---- */

/* Replaces the pair that starts at `at` by `token`, and counts the new pairs with its neighbours. */
static Status merge_at(Trainer *t, int32_t at, int32_t token)
{
    int32_t right = t->next[at], after = t->next[right], before = t->before[at];
    int64_t weight = t->weight[at];
    if (before != NONE) lower_pair(t, t->token[before], t->token[at], weight);
    if (after != NONE) lower_pair(t, t->token[right], t->token[after], weight);
    t->token[at] = token;
    t->token[right] = NONE;
    t->next[at] = after;
    if (after != NONE) t->before[after] = at;
    if (before != NONE) TRY(raise_pair(t, before));
    return after == NONE ? OK : raise_pair(t, at);
}

/* Positions are in the order of the text, so of overlapping pairs ("aaa") the left one is merged. */
static Status merge_everywhere(Trainer *t, int32_t number, int32_t token)
{
    Pair p = t->pair[number];
    for (int32_t i = p.first; i != NONE; i = t->place[i].next) {
        int32_t at = t->place[i].token, right = t->next[at];
        bool still = t->token[at] == p.left && right != NONE && t->token[right] == p.right;
        if (still) TRY(merge_at(t, at, token));
    }
    t->pair[number].count = 0; /* occurrences that overlapped a merged one are gone, too */
    t->pair[number].first = t->pair[number].last = NONE;
    return push_touched(t);
}

/* The token of the two joined texts: a new one, or one that another merge produced already. */
static Status joined_token(Trainer *t, const Pair *p, int32_t *out)
{
    Tokenizer *names = &t->names;
    const TokenText *left = &names->token[p->left], *right = &names->token[p->right];
    TokenText joined = { .n = left->n + right->n };
    char *at = NULL;
    ArenaMark mark = arena_mark(t->arena);
    TRY(ARENA_NEW(t->arena, joined.n, &at));
    memcpy(at, left->bytes, (size_t)left->n);
    memcpy(at + left->n, right->bytes, (size_t)right->n);
    joined.bytes = at;
    *out = tokenizer_find(names, joined.bytes, joined.n);
    if (*out != TOKENIZER_NO_TOKEN) {
        arena_release(t->arena, mark);
        return OK;
    }
    *out = names->vocab++;
    names->token[*out] = joined;
    tokenizer_put(names, *out);
    return OK;
}

static Status learn(Trainer *t, int32_t n_tokens)
{
    Progress bar = {
        .what = "learn merges", .unit = "tokens", .total = n_tokens, .left = UNWRITTEN
    };
    progress_begin(&bar);
    while (t->names.vocab < n_tokens) {
        TRY(progress_to(&bar, t->names.vocab));
        int32_t number = NONE, token = NONE;
        TRY(best_pair(t, &number));
        if (number == NONE)
            return FAIL(ERR_ARG,
                        "tokenizer: the text gives a vocabulary of at most %d, fewer than the %d "
                        "wanted; take more text or a smaller vocabulary",
                        t->names.vocab + 1, n_tokens + 1);
        Pair p = t->pair[number];
        TRY(joined_token(t, &p, &token));
        TRY(ARENA_GROW(t->arena, t->n_merges + 1, &t->merge_room, &t->merge));
        t->merge[t->n_merges++] = (TokenizerMerge){ p.left, p.right };
        TRY(merge_everywhere(t, number, token));
    }
    progress_end(&bar);
    return OK;
}

/* ---- set-up ---- */

/* Makes the 256 bytes the first tokens, in the order of the characters that represent them. */
static Status first_tokens(Trainer *t, int32_t n_tokens, int32_t id_of_byte[BYTES])
{
    char *at = NULL;
    TRY(ARENA_NEW(t->arena, n_tokens, &t->names.token));
    TRY(ARENA_NEW(t->arena, BYTES, &at));
    TRY(tokenizer_tables(&t->names, n_tokens, t->arena));
    for (uint32_t c = 0; c < TOKENIZER_ALPHABET; c++) {
        int byte = tokenizer_byte(c);
        if (byte < 0) continue;
        int32_t id = t->names.vocab++;
        *at = (char)byte;
        t->names.token[id] = (TokenText){ .bytes = at++, .n = 1 };
        tokenizer_put(&t->names, id);
        id_of_byte[byte] = id;
    }
    return OK;
}

static Status lay_out_words(Trainer *t, const Corpus *c, const int32_t id_of_byte[BYTES])
{
    size_t n = (size_t)c->n_bytes;
    if (c->n_bytes > INT32_MAX / 3)
        return FAIL(ERR_UNSUPPORTED,
                    "tokenizer: %lld bytes of different pieces, more than the %d it can train on",
                    (long long)c->n_bytes, INT32_MAX / 3);
    TRY(ARENA_NEW(t->arena, n, &t->token));
    TRY(ARENA_NEW(t->arena, n, &t->next));
    TRY(ARENA_NEW(t->arena, n, &t->before));
    TRY(ARENA_NEW(t->arena, n, &t->weight));
    TRY(ARENA_NEW(t->arena, 3 * n, &t->place));
    int32_t at = 0;
    for (int32_t w = 0; w < c->words.vocab; w++) {
        const TokenText *word = &c->words.token[w];
        for (int32_t i = 0; i < word->n; i++, at++) {
            t->token[at] = id_of_byte[(uint8_t)word->bytes[i]];
            t->next[at] = i + 1 < word->n ? at + 1 : NONE;
            t->before[at] = i > 0 ? at - 1 : NONE;
            t->weight[at] = c->count[w];
        }
    }
    for (int32_t i = 0; i < at; i++) {
        if (t->next[i] != NONE) TRY(raise_pair(t, i));
    }
    return push_touched(t);
}

static Status train(const TokenizerTraining *training, Arena *a)
{
    Corpus corpus = { .arena = a, .bar = { .what = "count words", .left = UNWRITTEN } };
    TRY(count_files(&corpus, training));
    Trainer t = { .arena = a };
    int32_t id_of_byte[BYTES];
    int32_t n_tokens = (int32_t)training->vocab - 1; /* without the separator */
    TRY(first_tokens(&t, n_tokens, id_of_byte));
    TRY(lay_out_words(&t, &corpus, id_of_byte));
    TRY(learn(&t, n_tokens));
    AddedText end_of_text = { .text = TOKENIZER_END_OF_TEXT,
                              .n = sizeof TOKENIZER_END_OF_TEXT - 1,
                              .id = t.names.vocab };
    TokenizerFile learned = { .token = t.names.token,
                              .n_tokens = t.names.vocab,
                              .merge = t.merge,
                              .n_merges = t.n_merges,
                              .special = &end_of_text,
                              .n_special = 1 };
    return tokenizer_write(training->out_path, &learned, a);
}

Status tokenizer_train(const TokenizerTraining *t, Arena *a)
{
    if (t->vocab <= BYTES || t->vocab > TOKENIZER_MAX_VOCAB)
        return FAIL(ERR_ARG, "tokenizer: a vocabulary of %lld; it can be %d to %d",
                    (long long)t->vocab, BYTES + 1, TOKENIZER_MAX_VOCAB);
    ArenaMark mark = arena_mark(a);
    Status s = train(t, a);
    arena_release(a, mark);
    return s;
}
