/* inspect: scans a shard for document lengths and ids, and prints statistics for `data inspect`. */
#include "inspect/inspect.h"

#include "corpus/shard/shard.h"
#include "engine/config/config.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16, BAR_COLUMNS = 50, SAMPLE_BYTES = 2048 };

const double inspect_quantiles[INSPECT_QUANTILES] = { 0.01, 0.1, 0.5, 0.9, 0.99 };

/* ---- lengths ---- */

static int compare_lengths(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* floor(log2(length)), at most the last bin; 0 for lengths 0 and 1. */
static int bin_of(int64_t length)
{
    int b = 0;
    while (b + 1 < INSPECT_BINS && length >= (int64_t)2 << b) b++;
    return b;
}

/* Keys that all tokens of a document see. Documents are packed one behind the other and cut into sequences of T tokens,
 * so a document's token d stands at any place p of 0 .. T-1 of one, equally likely, and sees min(d, p) + 1 keys:
 * d (2T - 1 - d) / 2T + 1 on average while d < T, then (T + 1) / 2. Sums of d and of its square are closed forms. */
static double keys_of(int64_t length, int64_t sequence)
{
    const double n = (double)(length < sequence ? length : sequence), T = (double)sequence;
    const double sum = n * (n - 1) / 2, squares = n * (n - 1) * (2 * n - 1) / 6;
    return ((2 * T - 1) * sum - squares) / (2 * T) + n + ((double)length - n) * (T + 1) / 2;
}

/* Sorting all lengths gives exact quantiles: position q (D - 1), rounded to the nearest
 * document. */
static Status scan_lengths(const Shard *s, Arena *a, Inspect *r)
{
    int64_t *length = NULL;
    TRY(ARENA_NEW(a, s->documents, &length));
    for (int64_t d = 0; d < s->documents; d++) {
        length[d] = shard_start(s, d + 1) - shard_start(s, d);
        r->bin[bin_of(length[d])]++;
        r->keys += keys_of(length[d], r->sequence);
    }
    if (s->tokens > 0) r->keys /= (double)s->tokens;
    if (s->documents == 0) return OK;
    qsort(length, (size_t)s->documents, sizeof *length, compare_lengths);
    r->shortest = length[0];
    r->longest = length[s->documents - 1];
    r->mean = (double)s->tokens / (double)s->documents;
    for (int q = 0; q < INSPECT_QUANTILES; q++)
        r->quantile[q] = length[(int64_t)(inspect_quantiles[q] * (double)(s->documents - 1) + 0.5)];
    return OK;
}

/* ---- ids ---- */

/* Finds the largest id; with `count`, which must have room for it, counts each id. An id that no
 * vocabulary has is an error: the table of counts would take GiB. */
static Status walk_ids(const Shard *s, int32_t *largest, int64_t *count)
{
    int32_t piece[PIECE];
    for (int64_t i = 0; i < s->tokens; i += PIECE) {
        int64_t n = s->tokens - i < PIECE ? s->tokens - i : PIECE;
        shard_read(s, i, n, piece);
        for (int64_t k = 0; k < n; k++) {
            if (piece[k] < 0 || piece[k] >= CONFIG_VOCAB_MAX)
                return FAIL(ERR_FORMAT,
                            "%s.bin: token %lld is id %d, a vocabulary has ids from 0 to below "
                            "%d: is it a shard of tokens?",
                            s->prefix, (long long)(i + k), piece[k], CONFIG_VOCAB_MAX);
            if (piece[k] > *largest) *largest = piece[k];
            if (count != NULL) count[piece[k]]++;
        }
    }
    return OK;
}

/* Inserts an id into the most frequent ones if it belongs there. Ids come in rising order, so of equal
 * counts the smaller id stays first. */
static void insert_top(Inspect *r, InspectToken t)
{
    int at = r->n_top;
    while (at > 0 && r->top[at - 1].count < t.count) at--;
    if (at == INSPECT_TOP) return;
    if (r->n_top < INSPECT_TOP) r->n_top++;
    memmove(&r->top[at + 1], &r->top[at], (size_t)(r->n_top - 1 - at) * sizeof t);
    r->top[at] = t;
}

/* Two passes over the ids: the first finds how large the table of counts must be. */
static Status scan_ids(const Shard *s, Arena *a, Inspect *r)
{
    int64_t *count = NULL;
    r->largest_id = -1;
    TRY(walk_ids(s, &r->largest_id, NULL));
    TRY(ARENA_ZEROED(a, (int64_t)r->largest_id + 1, &count));
    TRY(walk_ids(s, &r->largest_id, count));
    for (int32_t id = 0; id <= r->largest_id; id++) {
        if (count[id] == 0) continue;
        r->distinct++;
        insert_top(r, (InspectToken){ id, count[id] });
    }
    return OK;
}

static void scan_samples(const Shard *s, Inspect *r)
{
    const int64_t room = sizeof r->sample->id / sizeof *r->sample->id;
    r->n_samples = (int)(s->documents < INSPECT_SAMPLES ? s->documents : INSPECT_SAMPLES);
    for (int i = 0; i < r->n_samples; i++) {
        InspectSample *at = &r->sample[i];
        at->document = s->documents / r->n_samples * i;
        int64_t first = shard_start(s, at->document), n = shard_start(s, at->document + 1) - first;
        at->cut = n > room;
        at->n = (int)(at->cut ? room : n);
        shard_read(s, first, at->n, at->id);
    }
}

Status inspect_scan(const char *prefix, int64_t sequence, Arena *a, Inspect *out)
{
    Shard s = { 0 };
    TRY(shard_open(&s, prefix));
    *out = (Inspect){ .prefix = prefix,
                      .sequence = sequence,
                      .id_bytes = s.id_bytes,
                      .documents = s.documents,
                      .tokens = s.tokens,
                      .bytes = (int64_t)(s.bin.bytes + s.idx.bytes) };
    ArenaMark mark = arena_mark(a);
    Status status = scan_lengths(&s, a, out);
    if (status == OK) status = scan_ids(&s, a, out);
    if (status == OK) scan_samples(&s, out);
    arena_release(a, mark);
    shard_close(&s);
    return status;
}

/* ---- text ---- */

/* Length in bytes of the printable character at s; 0: it is not printable. */
static size_t printable(const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    size_t length = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4, bad = 0;
    if (c < ' ' || c == 0x7F || length > n || !text_utf8_valid(s, length, &bad)) return 0;
    return length;
}

/* Appends n bytes; those that are not printable as \n, \t or \xNN. Newlines may stay. */
static Status append_visible(Text *out, const char *s, size_t n, bool newlines)
{
    for (size_t i = 0; i < n;) {
        size_t length = s[i] == '\n' && newlines ? 1 : printable(s + i, n - i);
        if (length > 0)
            TRY(text_append(out, s + i, length));
        else if (s[i] == '\n' || s[i] == '\t')
            TRY(text_append(out, s[i] == '\n' ? "\\n" : "\\t", 2));
        else
            TRY(text_printf(out, "\\x%02x", (unsigned char)s[i]));
        i += length > 0 ? length : 1;
    }
    return OK;
}

Status inspect_token_text(const Tokenizer *t, int32_t id, Text *out)
{
    const char *bytes = NULL;
    int32_t n = 0;
    tokenizer_bytes(t, id, &bytes, &n);
    if (id == tokenizer_end_of_text(t)) return text_printf(out, "(end of text)");
    if (id >= tokenizer_vocab(t)) return text_printf(out, "(not in the tokenizer)");
    TRY(text_append(out, "\"", 1));
    TRY(append_visible(out, bytes, (size_t)n, false));
    return text_append(out, "\"", 1);
}

/* A character may be split between two ids, so all bytes are joined before anything is escaped. */
Status inspect_sample(const InspectSample *s, const Tokenizer *t, Text *out)
{
    char text[SAMPLE_BYTES] = { 0 };
    size_t used = 0;
    for (int i = 0; i < s->n; i++) {
        const char *bytes = NULL;
        int32_t n = 0;
        if (t == NULL) {
            TRY(text_printf(out, "%d ", s->id[i]));
            continue;
        }
        tokenizer_bytes(t, s->id[i], &bytes, &n);
        if ((size_t)n > sizeof text - used) break;
        if (n > 0) memcpy(text + used, bytes, (size_t)n);
        used += (size_t)n;
    }
    return append_visible(out, text, used, true);
}

void inspect_bins(const Inspect *r, int *first, int *last)
{
    *first = 0;
    *last = INSPECT_BINS - 1;
    while (*first < *last && r->bin[*first] == 0) ++*first;
    while (*last > *first && r->bin[*last] == 0) --*last;
}

/* Bars are scaled to the fullest bin. Rounding up shows even a single document as one mark. */
static Status print_lengths(const Inspect *r, Text *out)
{
    char number[32];
    TRY(text_printf(out, "\ntokens a document: mean %.1f, shortest %lld, longest %s\n", r->mean,
                    (long long)r->shortest, text_thousands(number, r->longest)));
    for (int q = 0; q < INSPECT_QUANTILES; q++)
        TRY(text_printf(out, "%s%g %% have at most %lld", q == 0 ? "  " : ", ",
                        100 * inspect_quantiles[q], (long long)r->quantile[q]));
    TRY(text_printf(out,
                    "\nkeys that a query sees in sequences of %s tokens: mean %.1f of %.1f "
                    "(plan.mean_context)\n",
                    text_thousands(number, r->sequence), r->keys, ((double)r->sequence + 1) / 2));
    TRY(text_printf(out, "\n   tokens  documents\n"));
    int first = 0, last = 0;
    int64_t most = 1;
    inspect_bins(r, &first, &last);
    for (int b = first; b <= last; b++) most = r->bin[b] > most ? r->bin[b] : most;
    for (int b = first; b <= last; b++) {
        TRY(text_printf(out, "%9lld %10lld  ", b == 0 ? 0LL : 1LL << b, (long long)r->bin[b]));
        for (int64_t i = 0; i < (r->bin[b] * BAR_COLUMNS + most - 1) / most; i++)
            TRY(text_append(out, "#", 1));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}

static Status print_top(const Inspect *r, const Tokenizer *t, Text *out)
{
    char number[32], distinct[32];
    TRY(text_printf(out, "\n%s different ids occur, the largest is %s\n",
                    text_thousands(distinct, r->distinct), text_thousands(number, r->largest_id)));
    if (t != NULL && r->largest_id >= tokenizer_vocab(t))
        TRY(text_printf(out, "the tokenizer has %s ids: this shard was made with another one\n",
                        text_thousands(number, tokenizer_vocab(t))));
    TRY(text_printf(out, "\n       id      count  share\n"));
    for (int i = 0; i < r->n_top; i++) {
        TRY(text_printf(out, "%9d %10lld %5.1f%%%s", r->top[i].id, (long long)r->top[i].count,
                        100 * (double)r->top[i].count / (double)r->tokens, t != NULL ? "  " : ""));
        if (t != NULL) TRY(inspect_token_text(t, r->top[i].id, out));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}

static Status print_samples(const Inspect *r, const Tokenizer *t, Text *out)
{
    for (int i = 0; i < r->n_samples; i++) {
        const InspectSample *s = &r->sample[i];
        TRY(text_printf(out, "\ndocument %lld%s:\n", (long long)s->document,
                        s->cut ? " begins" : ""));
        TRY(inspect_sample(s, t, out));
        TRY(text_append(out, "\n", 1));
    }
    return OK;
}

Status inspect_text(const Inspect *r, const Tokenizer *t, Text *out)
{
    char documents[32], tokens[32], bytes[32];
    TRY(text_printf(out, "%s: %s documents, %s tokens of type %s, %s in two files\n", r->prefix,
                    text_thousands(documents, r->documents), text_thousands(tokens, r->tokens),
                    r->id_bytes == 2 ? "u16" : "i32", text_bytes(bytes, (double)r->bytes)));
    if (r->documents == 0) return OK;
    TRY(print_lengths(r, out));
    TRY(print_top(r, t, out));
    return print_samples(r, t, out);
}
