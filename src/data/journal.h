/* journal: how far a preparation is, in PREFIX.journal. It is replaced whole, after everything that it
 * counts is on the disk. */
#ifndef DATA_JOURNAL_H
#define DATA_JOURNAL_H

#include "data/blocks.h"
#include "data/corpus.h"
#include "data/prepare.h"
#include "data/shard.h"

/* The state between two blocks. file: the number of the file that the next block is of; file_bytes: of
 * all files before it. */
typedef struct Journal {
    char run
        [FILE_SUM_BYTES]; /* which run it is of: a hash of the files' names, sizes and times, and of
                                 all that decides what is written */
    int64_t file, file_bytes;
    BlockPlace place;
    ShardMark mark;
    PrepareStats stats;
} Journal;

/* Sets out->run. ERR_IO: a file is gone. */
Status journal_run(const PrepareConfig *c, const Corpus *corpus, const char *tokenizer_sum,
                   Arena *a, char out[FILE_SUM_BYTES]);
Status journal_write(const Journal *j, const char *prefix);
/* *found: there is a journal of this run; everything but j->run is set then. */
Status journal_read(Journal *j, const char *prefix, bool *found);
Status journal_remove(const char *prefix);

#endif
