/* loader_private: data shared by the loader's files. While the worker fills a slot it owns mix, that
 * slot, `reader`, and `stream` and `epoch` of the sources. The caller's thread owns `held_reader`. Both
 * may read the fields that do not change after loader_open. */
#ifndef DATA_LOADER_PRIVATE_H
#define DATA_LOADER_PRIVATE_H

#include "base/worker.h"
#include "data/holdout.h"
#include "data/loader.h"
#include "data/mix.h"
#include "data/shard.h"

/* The batch being filled, the one returned last, and the one before, which is still valid. */
enum { LOADER_SLOTS = 3 };

/* Documents concatenated in some order. */
typedef struct Stream {
    int64_t n;
    int64_t *start;    /* (n + 1): token of the stream at which its k-th document starts */
    int64_t *document; /* (n): number of the k-th document; NULL: the epoch's order */
} Stream;

typedef struct Source {
    const char *name;
    Shard shard;
    HoldOut out;
    int64_t documents, tokens; /* those that are not held out */
    int64_t sequences;         /* of an epoch */

    int64_t epoch;  /* the epoch that stream and order belong to; -1: none yet */
    uint64_t order; /* the random stream that gives the epoch's order */
    Stream stream;  /* all documents in that order; a held-out one counts as empty */
    Stream held;    /* the held-out documents */
} Source;

/* What one thread needs to read: a row of T + 1 ids, and how many bytes of .bin pages it has
 * touched since pages were last given back. */
typedef struct Reader {
    int32_t *row;
    bool *learned; /* (T + 1) of the row: it is a target */
    int32_t *doc;  /* (T + 1): where the token's document starts in the row */
    int64_t touched_bytes;
} Reader;

struct Loader {
    LoaderConfig config; /* sources is not kept */
    int n;
    Source source[MIX_MAX];
    size_t idx_bytes, bin_bytes;
    Mix mix;
    Reader reader, held_reader;
    Batch slot[LOADER_SLOTS];

    uint64_t given; /* batches given so far; the next one lies in slot given % LOADER_SLOTS */
    Worker worker;  /* fills that slot */
};

/* At most so many bytes of .bin pages stay in memory. */
size_t loader_resident_bytes(const Loader *l);

/* The next batch of the mix. */
Status loader_fill(Loader *l, Batch *out);

#endif
