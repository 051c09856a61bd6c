/* loader: batches of token ids from memory-mapped shards, prefetched one step ahead by one thread.
 *
 * Each source (domain) is a .bin/.idx pair; holdout.h says which part of it is held out. Every epoch,
 * the training documents of a source are put in a new order (a function of seed, source, epoch),
 * concatenated, and cut into sequences of T tokens, of which the last is filled up with id 0 and target
 * -1. The target of a token is the next one of that stream. mix.h chooses the source of sequence i by the weights, which may change at some steps. So
 * everything is a function of (seed, i), whatever the number of ranks. A checkpoint also has how many
 * sequences of each source were read, so that weights may change in a resumed run.
 *
 * In a shard with a mask (shard.h) documents are packs of chats. Targets that are not learned are -1,
 * Batch.doc refers to chats instead of documents, and a sequence is a whole number of packs.
 *
 * Ids are checked against the vocabulary when they are read. loader_open allocates all memory: of a
 * source 4 bytes a document and 16 for each that is held out. If the files exceed 32 MiB, pages that were
 * read are released, so that at most 32 MiB of them stay resident. Opening reads the .idx once;
 * an epoch's order is computed only as far as it is read.
 */
#ifndef CORPUS_SHARD_LOADER_H
#define CORPUS_SHARD_LOADER_H

#include "engine/config/ramp.h"

#include "engine/base/tensor.h"

#include <stdbool.h>

typedef struct LoaderSource {
    /* path: prefix of .bin and .idx; both must live as long as the loader */
    const char *name, *path;
    double weight; /* 0 (then for all sources): the number of its training tokens is the weight, */
    double epochs; /* times this; 0: 1 */
    const char *held_as; /* the name that chooses what is held out (holdout.h); NULL: `name` */
} LoaderSource;

/* Other weights from a step on. */
typedef struct LoaderPhase {
    int64_t step; /* steps done before; rises from phase to phase, and is at least 1 */
    double weight[CONFIG_SOURCES_MAX]; /* of each source; 0: it does not come */
} LoaderPhase;

typedef struct LoaderConfig {
    const LoaderSource *sources;
    int n_sources;
    const LoaderPhase *phases; /* must live as long as the loader */
    int n_phases;
    int64_t sequence;      /* T */
    int64_t batch;         /* sequences a step, of all ranks; with a ramp the most */
    int64_t first, own;    /* this rank reads sequences [first, first + own) of them; own 0: all */
    const BatchRamp *ramp; /* NULL: all steps have `batch`. Of a smaller step a rank reads a
                              proportional part. It must live as long as the loader */
    int64_t vocab;
    uint64_t seed;
    double validation; /* share held out (holdout.h) */
    bool shuffle;
    int depths;                 /* of multi-token prediction */
    const int32_t *token_bytes; /* (vocab): bytes of text each id stands for, or NULL; must live as
                                   long as the loader */
} LoaderConfig;

typedef struct Batch {
    Tensor id, target, pos; /* (B*T) i32; pos: place in the sequence, 0 .. T-1 */
    Tensor doc;      /* (B, T) i32: position in the sequence where the token's document starts */
    Tensor domain;   /* (B) i32: source number */
    int64_t targets; /* targets that are not -1, in the batch of all ranks */
    /* For depth k + 1 of multi-token prediction. id: the token k + 1 positions further on (0 after the
     * sequence's last target). target: the token after that one; -1 if it is beyond the last target or
     * in another document than this position's token. */
    struct {
        Tensor id, target; /* (B*T) i32 */
        int64_t targets;
    } next[CONFIG_DEPTHS_MAX];
    int depths;
    int64_t taken[CONFIG_SOURCES_MAX]; /* sequences of each source so far, of all ranks */
    int64_t bytes; /* bytes of text that this rank's targets stand for; 0 without token_bytes */
} Batch;

typedef struct Loader Loader;

/* Bytes of arena memory that loader_open takes (reads the .idx files), and how many bytes of mapped
 * files can be in memory at a time: at most 32 MiB. */
Status loader_plan(const LoaderConfig *c, size_t *arena_bytes, size_t *mapped_bytes);

/* Missing, empty, truncated or disagreeing files are errors that name the file and both sizes; so
 * is a source without enough training tokens for one sequence. */
Status loader_open(const LoaderConfig *c, Arena *a, Loader **out);
void loader_close(Loader *l); /* stops the thread; safe on NULL */

/* Makes the next batch start after `position` sequences, in steps from the beginning. */
Status loader_seek(Loader *l, uint64_t position);
/* Goes on after a batch of another loader: `taken` is that batch's, by the sources of this one, at
 * position. If sources, weights and batch are as they were, what follows is, too. If not, each source still
 * goes on where it was, so no document comes twice in an epoch. */
Status loader_resume(Loader *l, int64_t step, uint64_t position, const int64_t *taken);

/* The training sequences of the next step. The tensors stay valid until the second next call. */
Status loader_next(Loader *l, const Batch **out);
/* Waits until the next batch is read: OK, or why loader_next will fail. ERR_CHANGED: a file was
 * overwritten or cut while training reads it. */
Status loader_wait(Loader *l);

/* Reads held-out sequences [first, first + n) of one source, in document order, into the caller's
 * batch, whose tensors have at least n sequences. Past the last sequence targets are -1. Not
 * threaded. The documents are one stream that is cut like training's, so each token but the very
 * first is a target once. The last sequence is filled up with id 0 and target -1. ERR_ARG for a
 * source that does not exist; ERR_SHAPE for a batch that is too small. */
Status loader_held_sequences(const Loader *l, int source, int64_t *out_n);
Status loader_held(Loader *l, int source, int64_t first, int64_t n, Batch *out);

/* How many tokens at a source's end are held out because it has too few documents; 0: whole documents
 * are held out. */
int64_t loader_held_tail(const Loader *l, int source);

/* The held-out documents of a source, or parts of them, in the order of their stream. */
int64_t loader_held_documents(const Loader *l, int source);
/* The k-th one's number in the shard; *end: the position in the stream after its last token. */
int64_t loader_held_document(const Loader *l, int source, int64_t k, int64_t *end);

/* The shard's number of the document that has a token of training sequence `sequence` of a source, counted from 0 over
 * all epochs; *end: the token of the sequence behind the document's last. Call it when loader_wait has returned. */
int64_t loader_document(Loader *l, int source, int64_t sequence, int64_t token, int64_t *end);

int loader_sources(const Loader *l);
const char *loader_source_name(const Loader *l, int source);
int64_t loader_epoch_sequences(const Loader *l, int source); /* training sequences of an epoch */

/* A batch of b sequences of t tokens in `a`; batch_new_deep: with so many depths. */
Status batch_new(Arena *a, int64_t b, int64_t t, Batch *out);
Status batch_new_deep(Arena *a, int64_t b, int64_t t, int depths, Batch *out);

#endif
