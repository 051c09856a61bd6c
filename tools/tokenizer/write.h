/* write: a byte-level vocabulary as tokenizer.json. */
#ifndef TOKENIZER_WRITE_H
#define TOKENIZER_WRITE_H

#include "corpus/tokenizer/tokenizer_private.h"

/* The ids of the two tokens that a merge joins. */
typedef struct TokenizerMerge {
    int32_t left, right;
} TokenizerMerge;

/* Merges are in the order of their ranks. */
typedef struct TokenizerFile {
    const TokenText *token; /* (n_tokens); no bytes: no token has this id */
    int32_t n_tokens;
    const TokenizerMerge *merge;
    int64_t n_merges;
    const char *pattern; /* NULL: GPT-2's, and pieces are merged even if they are tokens */
    bool drops;          /* the text between matches is no piece */
    const AddedText *special;
    int n_special;
} TokenizerFile;

Status tokenizer_write(const char *path, const TokenizerFile *f, Arena *a);

#endif
