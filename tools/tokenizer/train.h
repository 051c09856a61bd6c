/* train: learns a byte-level BPE vocabulary from text files. */
#ifndef TOKENIZER_TRAIN_H
#define TOKENIZER_TRAIN_H

#include "engine/base/arena.h"

#include <stdint.h>

typedef struct TokenizerTraining {
    const char *const *files; /* text, or JSONL by the ending .jsonl (field "text") */
    int n_files;
    int64_t vocab; /* 256 bytes + merges + special tokens, exactly */
    const char *out_path;
} TokenizerTraining;

/* Learns a vocabulary from the files and writes it as a tokenizer.json. ERR_ARG: the text gives
 * fewer merges than the vocabulary needs. `a` holds all working memory. */
Status tokenizer_train(const TokenizerTraining *t, Arena *a);

#endif
