/* tiktoken: reads .tiktoken files and writes them as tokenizer.json. */
#ifndef TOKENIZER_TIKTOKEN_H
#define TOKENIZER_TIKTOKEN_H

#include "tokenizer/write.h"

/* A .tiktoken file does not say how a text is split, nor which special tokens there are. */
typedef struct TokenizerConversion {
    const char *path, *out_path;
    const char *encoding;       /* a published one; NULL: by the number of tokens, or `pattern` */
    const char *pattern;        /* pieces of a text, for PCRE2; NULL: that of the encoding */
    const char *const *special; /* TEXT=ID, besides those of the encoding */
    int n_special;
} TokenizerConversion;

/* What the text of such a file says. ERR_ARG: an unknown encoding, a broken pattern or special token;
 * ERR_FORMAT: `name` and what is wrong with which line. */
Status tiktoken_read(const char *name, const char *text, size_t bytes, const TokenizerConversion *c,
                     Arena *a, TokenizerFile *out);

/* Writes it as a tokenizer.json that gives the same ids. */
Status tiktoken_convert(const TokenizerConversion *c, Arena *a);

#endif
