/* prepare: converts text files to one shard. Each document (documents.h) becomes its token ids and the
 * tokenizer's end-of-text id. Empty documents are skipped and counted; so are bad JSON lines if that is
 * asked for.
 *
 * With `chat` each JSON line is a conversation: {"messages": [{"role", "content"}]} or {"prompt",
 * "answer"}. Only answers are learned (chat.h), and conversations are packed into sequences without
 * cutting any (shard.h). The output files appear only when everything is written. */
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include "data/documents.h"

typedef struct PrepareConfig {
    const char *tokenizer; /* path of a tokenizer.json */
    const char *out;       /* prefix of .bin and .idx */
    const char *const *files;
    int n_files;
    DocumentOptions documents;
    const char *chat; /* chat_load's path: lines are conversations; NULL: documents */
    int64_t sequence; /* of chats: tokens of a pack */
} PrepareConfig;

typedef struct PrepareStats {
    int64_t documents, tokens, text_bytes;
    int64_t learned;        /* tokens of answers, of chats */
    int64_t empty, skipped; /* documents without text; bad lines left out */
    double seconds;
} PrepareStats;

/* ERR_IO: a file is missing (looked for before any work); ERR_FORMAT: a bad line, or no document at
 * all. Speaks on the progress line. */
Status prepare_run(const PrepareConfig *c, PrepareStats *out);

#endif
