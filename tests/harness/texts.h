/* texts: files of text, and tokenizers learned from them. */
#ifndef TESTS_HARNESS_TEXTS_H
#define TESTS_HARNESS_TEXTS_H

#include "corpus/tokenizer/tokenizer.h"
#include "harness/test.h"
#include "tokenizer/train.h"

#include "engine/base/file.h"

static inline void write_text(const char *path, const char *text)
{
    CHECK_OK(file_write_whole(path, text, strlen(text)));
}

/* Learns a tokenizer of so many ids from a file, and writes it to `out`; tokenizer_free it. */
static inline Tokenizer *learn_tokenizer(const char *file, int32_t vocab, const char *out, Arena *a)
{
    Tokenizer *t = NULL;
    CHECK_OK(tokenizer_train(&(TokenizerTraining){ &file, 1, vocab, out }, a));
    CHECK_OK(tokenizer_load(out, a, &t));
    return t;
}

#endif
