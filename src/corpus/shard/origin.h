/* origin: which tokenizer a shard was prepared with, in PREFIX.meta beside it:
 *
 *   xxh3_128: 32 hexadecimal digits, of the tokenizer's file
 *   vocab: 8192
 *   tokenizer: runs/tokenizer.json
 *
 * A run compares it with its own tokenizer. Shards of other programs have no such file. */
#ifndef CORPUS_SHARD_ORIGIN_H
#define CORPUS_SHARD_ORIGIN_H

#include "engine/base/file.h"

typedef struct Origin {
    char sum[FILE_SUM_BYTES], tokenizer[FILE_PATH_MAX]; /* the path as it was given */
    int vocab;                                          /* ids; 0: nothing is known */
} Origin;

/* The origin that this tokenizer gives to a shard. Reads the whole file for its hash. `vocab`: its
 * number of ids. */
Status origin_of(const char *tokenizer, int vocab, Origin *out);
/* Writes PREFIX.meta through a temporary file. ShardWriter calls it before the .idx appears. */
Status origin_write(const Origin *o, const char *prefix);
/* { 0 } without PREFIX.meta. ERR_FORMAT: the file is damaged. */
Status origin_read(const char *prefix, Origin *out);

#endif
