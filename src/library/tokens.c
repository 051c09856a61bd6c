/* tokens: the documents of a shard, as they lie in the mapped file. */
#include "corpus/shard/shard.h"
#include "library/handle.h"

#include <string.h>

struct SwitchyardTokens {
    Arena arena;
    Shard shard;
};

void switchyard_tokens_close(SwitchyardTokens *t)
{
    if (t != NULL) shard_close(&t->shard);
    library_free(t);
}

static Status tokens_open(const char *prefix, SwitchyardTokens **out)
{
    SwitchyardTokens *t = NULL;
    TRY(library_given("tokens_open", prefix, out));
    TRY(library_make("tokens", sizeof *t, 1, &t));
    Status s = arena_text(&t->arena, prefix, strlen(prefix), &prefix);
    if (s == OK) s = shard_open(&t->shard, prefix);
    if (s == OK) *out = t;
    if (s != OK) switchyard_tokens_close(t);
    return s;
}
LIBRARY_FUNCTION(tokens_open, (const char *prefix, SwitchyardTokens **out), (prefix, out))

static Status tokens_counts(const SwitchyardTokens *t, SwitchyardTokenCounts *out)
{
    TRY(library_given("tokens_counts", t, out));
    *out = (SwitchyardTokenCounts){ t->shard.documents, t->shard.tokens, t->shard.id_bytes };
    return OK;
}
LIBRARY_FUNCTION(tokens_counts, (const SwitchyardTokens *t, SwitchyardTokenCounts *out), (t, out))

static Status tokens_document(const SwitchyardTokens *t, int64_t i, const void **ids, int64_t *n)
{
    TRY(library_given("tokens_document", t, ids));
    TRY(library_given("tokens_document", t, n));
    TRY(library_index("document", i, t->shard.documents));
    const int64_t first = shard_start(&t->shard, i);
    *ids = t->shard.bin.data + first * t->shard.id_bytes;
    *n = shard_start(&t->shard, i + 1) - first;
    return OK;
}
LIBRARY_FUNCTION(tokens_document,
                 (const SwitchyardTokens *t, int64_t i, const void **ids, int64_t *n),
                 (t, i, ids, n))
