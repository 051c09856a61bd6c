/* loader_private: what the loader's files share. Two threads, no shared writes without `lock`: the
 * reading thread owns mix, start and epoch of the sources, the slot that it fills and `reader`; the
 * caller's thread owns position, taken and `held_reader`; what is fixed after loader_open is read
 * by both. */
#ifndef DATA_LOADER_PRIVATE_H
#define DATA_LOADER_PRIVATE_H

#include "data/loader.h"
#include "data/mix.h"
#include "data/shard.h"

#include <pthread.h>

/* The batch being made, the one given last, and the one before, which is still valid. */
enum { LOADER_SLOTS = 3, LOADER_MESSAGE_BYTES = 2048 };

typedef struct Source {
    const char *name;
    Shard shard;
    int64_t documents, tokens; /* of training */
    int64_t held_documents, held_tokens;
    int64_t sequences; /* of an epoch */

    int64_t epoch;  /* that start and order are of; -1: none yet */
    uint64_t order; /* random stream of the epoch's order */
    int64_t *start; /* (shard.documents + 1): token of the epoch at which its k-th document starts;
                       a held-out document counts as empty */
    int64_t *held;  /* (held_documents): their numbers */
    int64_t *held_start; /* (held_documents + 1): the same of the held documents */
} Source;

/* Reading for one thread: a row of T + 1 ids, and the bytes of .bin pages touched since they were
 * last given back. */
typedef struct Reader {
    int32_t *row;
    int64_t touched_bytes;
} Reader;

typedef struct LoaderSlot {
    Batch batch;
    int64_t taken[MIX_MAX]; /* sequences of each source up to the end of the batch */
} LoaderSlot;

struct Loader {
    LoaderConfig config; /* sources is not kept */
    int n;
    Source source[MIX_MAX];
    size_t idx_bytes, bin_bytes;
    Mix mix;
    Reader reader, held_reader;
    LoaderSlot slot[LOADER_SLOTS];

    uint64_t position;
    int64_t taken[MIX_MAX];

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t made, given; /* batches; slot number is count % LOADER_SLOTS */
    bool busy, stop;
    Status failure; /* of the batch after the last one made; message is its record */
    char message[LOADER_MESSAGE_BYTES];
};

/* Most bytes of .bin pages that are kept. */
size_t loader_resident_bytes(const Loader *l);

/* The next batch of the mix. */
Status loader_fill(Loader *l, LoaderSlot *slot);

Status loader_thread_start(Loader *l);
void loader_thread_stop(Loader *l);

#endif
