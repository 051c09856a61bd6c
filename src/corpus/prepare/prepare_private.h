/* prepare_private: the state of a preparation, shared by prepare*.c. The lock `reading` guards the files
 * and tickets; `writing` guards the turn and what is written. Everything else of a Preparer does not
 * change while lanes run. */
#ifndef CORPUS_PREPARE_PREPARE_PRIVATE_H
#define CORPUS_PREPARE_PREPARE_PRIVATE_H

#include "corpus/prepare/corpus.h"
#include "corpus/prepare/dedup.h"
#include "corpus/prepare/prepare.h"
#include "corpus/shard/shard.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/host/progress.h"
#include "engine/host/worker.h"

#include <stdatomic.h>

typedef struct Preparer Preparer;

/* How far a preparation is, in PREFIX.journal: the state between two blocks. The file is replaced whole,
 * after everything that it counts is on the disk. run: a hash of the files' names, sizes and times, and of
 * all that decides what is written. file: the number of the file that the next block is of; file_bytes: of
 * all files before it. */
typedef struct Journal {
    char run[FILE_SUM_BYTES];
    int64_t file, file_bytes;
    BlockPlace place;
    ShardMark mark;
    PrepareStats stats;
} Journal;

/* A document of a block, as ids of its lane. */
typedef struct Encoded {
    int64_t end; /* the id after its last one; it begins where the one before ends */
    int64_t text_bytes;
    DocumentHash hash;
} Encoded;

/* What one thread works with: a block, its ids, and memory for both. */
typedef struct Lane {
    Preparer *p;
    Worker worker;
    Arena scratch; /* one document's ids, then reset */
    /* Each in an arena of its own: the text of the block; ids i32 of all its documents; whether each is
     * learned, u8, with `parts`; Encoded. */
    Text text, ids, learned, documents;
    Arena arena[4];
    TokenizerCache *cache; /* in the arena of the Preparer */
    Documents reader;
    Block block;
    bool jsonl;
    Journal after;  /* file, file_bytes and place behind the block */
    int64_t ticket; /* number of the block */
    int64_t progress_bytes;
    int64_t empty, duplicates;
    HashSet seen; /* with dedup: hashes of `documents` */
} Lane;

struct Preparer {
    const PrepareConfig *config;
    Corpus corpus;
    Arena arena; /* the tokenizer's, names, write buffers, caches */
    /* In `arena`, but tokenizer_free must release its machine code. */
    Tokenizer *tokenizer;
    int32_t end_of_text;
    int n_lanes;
    Lane *lane;

    pthread_mutex_t reading;
    struct {
        Blocks blocks; /* of file number `file`; not open: it is to be opened */
        int64_t file, file_bytes;
        BlockPlace place; /* where to begin in it */
        int64_t tickets;
    } from;

    pthread_mutex_t writing;
    pthread_cond_t turned;
    int64_t turn;         /* the ticket whose block is written next */
    Lane *failed;         /* the lane of the first block that failed */
    _Atomic bool stop;    /* something failed, so nobody reads on */
    bool can_resume;      /* no pipe is among the files */
    bool journaled;       /* there is a PREFIX.journal of this run */
    int64_t journaled_at; /* text_bytes of it */
    Journal state;
    ShardWriter writer;
    Dedup dedup;  /* hashes of the documents that are written */
    int lock;     /* of PREFIX.lock; 0: not held */
    Progress bar; /* over bytes of the files */
};

/* The hash of a document, with dedup. *duplicate: it is known to have come before, so it need not be
 * encoded. Duplicates of a block that another lane has now are found when they are written. */
DocumentHash prepare_hash(Lane *l, const char *text, size_t bytes, bool *duplicate);

/* Appends ids to the lane's document, and ends it. */
Status prepare_ids(Lane *l, const int32_t *ids, int64_t n, bool learned);
Status prepare_end(Lane *l, int64_t text_bytes, DocumentHash hash);

/* Encodes the document of parts that the reader is at, whose line has these bytes; writes one; fills the last
 * pack. */
Status prepare_parts(Lane *l, const char *line, size_t bytes);
Status prepare_write_parts(Preparer *p, const int32_t *ids, const uint8_t *learned, int64_t n);
Status prepare_fill_pack(ShardWriter *w, int32_t end_of_text);

/* Notes that there is a journal of the state. */
void prepare_journaled(Preparer *p);
/* Sets j->run. ERR_IO: a file is gone. */
Status journal_run(const PrepareConfig *c, const Corpus *corpus, const char *tokenizer_sum,
                   Arena *a, char out[FILE_SUM_BYTES]);
Status journal_write(const Journal *j, const char *prefix);
/* *found: there is a journal of this run; everything but j->run is set then. */
Status journal_read(Journal *j, const char *prefix, bool *found);
Status journal_remove(const char *prefix);

/* Reads, encodes and writes blocks until there are no more: the job of a lane's worker. */
Status prepare_lane(void *lane);

#endif
