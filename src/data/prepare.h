/* prepare: text files to one shard. Each document (documents.h) becomes its token ids and the
 * tokenizer's end-of-text id; empty ones are left out and counted, so are bad JSON lines where that
 * is asked for. Nothing appears under the output's names before everything is written. */
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include "data/documents.h"

typedef struct PrepareConfig {
    const char *tokenizer; /* path of a tokenizer.json */
    const char *out;       /* prefix of .bin and .idx */
    const char *const *files;
    int n_files;
    DocumentOptions documents;
} PrepareConfig;

typedef struct PrepareStats {
    int64_t documents, tokens, text_bytes;
    int64_t empty, skipped; /* documents without text; bad lines left out */
    double seconds;
} PrepareStats;

/* ERR_IO: a file is missing (looked for before any work); ERR_FORMAT: a bad line, or no document at
 * all. Speaks on the progress line. */
Status prepare_run(const PrepareConfig *c, PrepareStats *out);

#endif
