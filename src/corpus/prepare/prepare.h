/* prepare: converts text files to one shard. Each document (documents.h) becomes its token ids and the
 * tokenizer's end-of-text id. Empty documents are skipped and counted; so are bad JSON lines if that is
 * asked for.
 *
 * Threads take blocks of the files (blocks.h) in turn, encode them, and write them in the order of the
 * files. So the shard is the same for any number of threads. Memory is some blocks a thread, and with
 * dedup what dedup.h says.
 *
 * Every journal_bytes of text the state is written to PREFIX.journal. If the run fails or is killed after
 * that, the next one goes on from there, and ends with the same shard; skip_bad may be another.
 *
 * With `parts` each JSON line says which of its texts are learned (prepare_parts.c), and documents are
 * packed into sequences without cutting any (shard.h). The output files appear
 * only when everything is written. */
#ifndef CORPUS_PREPARE_PREPARE_H
#define CORPUS_PREPARE_PREPARE_H

#include "corpus/prepare/documents.h"

enum { PREPARE_THREADS_MAX = 256 };

typedef struct PrepareConfig {
    const char *tokenizer;    /* path of a tokenizer.json */
    const char *out;          /* prefix of .bin and .idx */
    const char *const *files; /* or folders, or patterns (corpus.h) */
    int n_files;
    DocumentOptions documents;
    bool parts;            /* lines are documents of parts */
    int64_t sequence;      /* of packs: tokens */
    bool dedup;            /* leave out documents whose bytes have come before */
    int64_t threads;       /* 0: as many as there are processors */
    int64_t journal_bytes; /* of text between two states of the journal; 0: 128 MiB */
} PrepareConfig;

/* The journal keeps those up to `duplicates`. */
typedef struct PrepareStats {
    int64_t documents, tokens, text_bytes;
    int64_t learned;        /* tokens, with parts */
    int64_t empty, skipped; /* documents without text; bad lines left out */
    int64_t duplicates;
    int64_t resumed_bytes; /* of text that an earlier run had written */
    int64_t encoded;       /* documents that were tokenised; with dedup some duplicates, too */
    double seconds;
} PrepareStats;

/* ERR_IO: a file is missing (looked for before any work); ERR_FORMAT: a bad line, a damaged file, or no
 * document at all; ERR_INTERRUPTED. Speaks on the progress line. */
Status prepare_run(const PrepareConfig *c, PrepareStats *out);

#endif
