/* shards: a shard of numbered tokens. */
#ifndef TESTS_HARNESS_SHARDS_H
#define TESTS_HARNESS_SHARDS_H

#include "corpus/shard/shard.h"
#include "harness/test.h"

/* n documents of these lengths. Ids count from 0 through all of them, and begin anew at `vocab`. */
static inline void write_numbered(const char *prefix, int32_t vocab, int64_t pack,
                                  const int64_t *length, int64_t n, Arena *a)
{
    ShardWriter w = { 0 };
    int32_t id = 0;
    CHECK_OK(shard_create(&w, prefix, vocab, pack, a));
    for (int64_t d = 0; d < n; d++) {
        for (int64_t i = 0; i < length[d]; i++, id = (id + 1) % vocab)
            CHECK_OK(shard_append(&w, &id, 1));
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
}

#endif
