/* corpus: the files that the arguments of a command name. A folder stands for all files below it whose
 * names end in .jsonl, .ndjson, .json or .txt, or so and .gz, .zst or .zstd; files that begin with a dot
 * are left out. A pattern with * ? or [ that is no file's name stands for what it matches. Files of a
 * folder or a pattern come in the order of their names. "cmd: COMMAND" stands for what the command prints. */
#ifndef CORPUS_PREPARE_CORPUS_H
#define CORPUS_PREPARE_CORPUS_H

#include "engine/base/arena.h"

typedef struct Corpus {
    const char **files; /* in the arena of corpus_list */
    int n;
    int64_t room;
    int64_t bytes; /* of all files but pipes and commands */
} Corpus;

/* ERR_IO: a file does not exist, a pattern matches none, or a folder holds none. Parquet files of a folder
 * are listed, so that reading says why it does not read them. */
Status corpus_list(const char *const *arguments, int n, Arena *a, Corpus *out);

#endif
