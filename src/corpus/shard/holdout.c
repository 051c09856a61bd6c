/* holdout: the hash of documents, and the tail of sources with too few documents. */
#include "corpus/shard/holdout.h"

#include "engine/base/rng.h"

#include <math.h>

enum { PASS = 1 << 20 }; /* documents that are read before pages are released */
static const uint64_t HELD_SEED = 0x68656C64; /* "held": the same documents for every run's seed */

bool holdout_by_hash(const char *source, int64_t document, double share)
{
    return rng_uniform(HELD_SEED, rng_stream(source), (uint64_t)document) < share;
}

/* Tokens to hold out at the end: a multiple of a pack for chats. 0 if less than two, because one token
 * has no target, or if it would be everything. */
static int64_t tail_of(const Shard *s, double share)
{
    int64_t unit = s->pack > 0 ? s->pack : 1;
    int64_t n = (int64_t)floor(share * (double)s->tokens / (double)unit + 0.5) * unit;
    return n < 2 || n >= s->tokens ? 0 : n;
}

/* Walks all documents once, at the start. Held-out loss needs two tokens, and training needs what
 * is left. */
HoldOut holdout_of(const Shard *s, const char *name, double share)
{
    HoldOut h = { .name = name, .share = share };
    for (int64_t d = 0; d < s->documents && share > 0; d++) {
        if (d % PASS == PASS - 1) shard_forget(s);
        if (!holdout_by_hash(name, d, share)) continue;
        int64_t tokens = shard_start(s, d + 1) - shard_start(s, d);
        h.tokens += tokens;
        h.documents += tokens > 0;
    }
    if (h.tokens >= 2 && h.tokens < s->tokens) return h;
    h.tail = tail_of(s, share);
    if (h.tail == 0) return h;
    h.tokens = h.tail;
    h.documents = 0;
    for (int64_t d = s->documents; d > 0 && shard_start(s, d) > s->tokens - h.tail; d--)
        h.documents += shard_start(s, d) > shard_start(s, d - 1);
    return h;
}

/* Three cases: whole documents by their hash; before the cut of a tail; after it. A document across
 * the cut is split between both sides. */
int64_t holdout_part(const HoldOut *h, const Shard *s, int64_t d, bool held, int64_t *first)
{
    int64_t start = shard_start(s, d), end = shard_start(s, d + 1), cut = s->tokens - h->tail;
    *first = start;
    if (h->tail == 0) return holdout_by_hash(h->name, d, h->share) == held ? end - start : 0;
    if (!held) return end < cut ? end - start : (start < cut ? cut - start : 0);
    if (start < cut) *first = end < cut ? end : cut;
    return end - *first;
}
