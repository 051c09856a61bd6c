/* loader_private: data shared by the loader's files. While the worker fills a slot it owns mix, that
 * slot, `reader`, the phase, and `stream` and `epoch` of the sources. The caller's thread owns `held_reader`. Both
 * may read the fields that do not change after loader_open. */
#ifndef CORPUS_SHARD_LOADER_PRIVATE_H
#define CORPUS_SHARD_LOADER_PRIVATE_H

#include "corpus/shard/holdout.h"
#include "corpus/shard/loader.h"
#include "corpus/shard/mix.h"
#include "corpus/shard/shard.h"
#include "engine/host/worker.h"

/* The batch being filled, the one returned last, and the one before, which is still valid. */
enum { LOADER_SLOTS = 3 };

/* A document of a stream. */
typedef struct Spot {
    bool held;          /* of the held-out stream */
    int64_t k;          /* its number in the stream */
    int64_t start, end; /* tokens of the stream */
    int64_t document;   /* its number in the shard */
} Spot;

/* In an epoch's stream the start of every 64th document is kept; others are counted from there. */
enum { STREAM_GROUP = 64 };

/* The training documents of an epoch, concatenated in its order. A held-out document is empty there. */
typedef struct EpochStream {
    int64_t *
        start; /* (documents / STREAM_GROUP + 1): token at which document k * STREAM_GROUP starts */
    int64_t known; /* entries of it that are computed: as far as was read */
    Spot last;     /* that was found; start INT64_MAX: none */
} EpochStream;

/* The held-out documents, concatenated. */
typedef struct HeldStream {
    int64_t n;
    int64_t *start;    /* (n + 1): token of the stream at which its k-th document starts */
    int64_t *document; /* (n): number of the k-th document */
} HeldStream;

typedef struct Source {
    const char *name, *held_as;
    char *path; /* the shard's prefix, whose files are looked at behind each batch */
    Shard shard;
    HoldOut out;
    int64_t tokens;    /* those that are not held out */
    int64_t sequences; /* of an epoch */
    int32_t *length;   /* (documents): training tokens of each */

    int64_t epoch;  /* that stream and order belong to; -1: none yet */
    uint64_t order; /* the random stream that gives the epoch's order */
    EpochStream stream;
    HeldStream held;
} Source;

/* What one thread needs to read: a row of T + 1 ids, and how many bytes of the files' pages it has
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
    size_t mapped_bytes;    /* of all files */
    double weight[MIX_MAX]; /* before the first phase */
    int phase;              /* 0: before the first */
    int64_t step;           /* batches filled */
    Mix mix;                /* of the phase */
    int64_t base[MIX_MAX];  /* sequences of each source before the mix */
    Reader reader, held_reader;
    Batch slot[LOADER_SLOTS];

    uint64_t given; /* batches given so far; the next one lies in slot given % LOADER_SLOTS */
    Worker worker;  /* fills that slot */
};

/* At most so many bytes of the files' pages stay in memory. */
size_t loader_resident_bytes(const Loader *l);

/* Begins the mix of a phase at its slot; the caller sets `base`. */
Status loader_begin_phase(Loader *l, int phase, uint64_t slot);
/* The step at which a phase begins. */
int64_t loader_phase_step(const Loader *l, int phase);

/* Sequences of all ranks in the first `steps` steps. */
uint64_t loader_sequences_of(const Loader *l, int64_t steps);

/* ERR_CHANGED: a file was changed since it was opened. */
Status loader_check_files(const Loader *l);

/* The next batch of the mix. */
Status loader_fill(Loader *l, Batch *out);

#endif
