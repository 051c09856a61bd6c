/* shard_private: the layout of a shard's files, shared by shard.c and shard_write.c. */
#ifndef CORPUS_SHARD_SHARD_PRIVATE_H
#define CORPUS_SHARD_SHARD_PRIVATE_H

#include "corpus/shard/shard.h"

#include <string.h>

#define SHARD_MAGIC      "MMIDIDX\0"
#define SHARD_MASK_MAGIC "SWMASK\0"

/* How an .idx begins. Packed, because nine bytes of magic leave all numbers after it unaligned. */
typedef struct __attribute__((packed)) ShardHeader {
    char magic[sizeof SHARD_MAGIC];
    uint64_t version;
    uint8_t type;
    uint64_t sequences, entries;
} ShardHeader;

/* How a .mask begins. */
typedef struct MaskHeader {
    char magic[sizeof SHARD_MASK_MAGIC];
    int64_t tokens, pack;
} MaskHeader;

enum {
    SHARD_VERSION = 1,
    SHARD_I32 = 4,
    SHARD_U16 = 8,
    SHARD_SUFFIX_BYTES = 16, /* ".lengths.tmp" is the longest */
    SHARD_PATH_BYTES = FILE_PATH_MAX + SHARD_SUFFIX_BYTES,
};

/* The files of a shard, and the path of one. ERR_ARG: it is too long. */
extern const char *const shard_suffixes[SHARD_FILES];
Status shard_part_path(const char *prefix, const char *suffix, char path[SHARD_PATH_BYTES]);

/* Nothing in an .idx is aligned; every machine that this runs on is little endian. */
static inline int32_t i32_at(const uint8_t *p, int64_t i)
{
    int32_t v;
    memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);
    return v;
}

#endif
