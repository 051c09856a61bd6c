/* dedup: which documents have come before, by the XXH3-128 of their bytes. Among 2^40 different documents
 * two have the same hash with a probability of 2^-49. The hashes are also in a file, so that a killed
 * program can go on.
 *
 * Threads may look hashes up while one adds some.
 *
 * Memory: 16 bytes a slot; a table is at most 3/4 full, and doubles. So between 21 and 43 bytes a
 * document, and half as much again while the table doubles. */
#ifndef CORPUS_PREPARE_DEDUP_H
#define CORPUS_PREPARE_DEDUP_H

#include "engine/base/file.h"

#include <pthread.h>

typedef struct DocumentHash {
    uint64_t high, low; /* both 0: no hash */
} DocumentHash;

typedef struct HashSet {
    DocumentHash *slot; /* open addressing, in: */
    Arena arena;
    uint64_t slots; /* a power of two */
    int64_t n;
} HashSet;

typedef struct Dedup {
    HashSet seen;
    pthread_mutex_t lock; /* of `seen` */
    File file;            /* PREFIX.seen.tmp: the hashes in the order of their documents */
} Dedup;

DocumentHash dedup_hash(const char *text, size_t bytes);

Status hashes_open(HashSet *s);
Status hashes_add(HashSet *s, DocumentHash h, bool *is_new);
bool hashes_have(const HashSet *s, DocumentHash h);
void hashes_clear(HashSet *s);

/* n: documents that an earlier run has seen, whose hashes are in the file; 0: a new file. The write buffer
 * lies in `a`. */
Status dedup_open(Dedup *d, const char *prefix, int64_t n, Arena *a);
bool dedup_has(Dedup *d, DocumentHash h);
/* *is_new: it has not come before. */
Status dedup_add(Dedup *d, DocumentHash h, bool *is_new);
void dedup_close(Dedup *d, bool keep); /* safe on { 0 }; keep: the file, for dedup_open */

#endif
