/* tokenizer: BPE of Hugging Face's tokenizer.json, which is byte-level, or of characters with a token for each byte (byte fall-back, as SentencePiece's); docs/reference/formats.md
 * lists what else it may have. The ids are those of Hugging Face's library without its post-processor: no
 * tokens are added before or after a text. From the first byte on that is no UTF-8, ids of a byte-level
 * vocabulary are those of tiktoken's byte interface. */
#ifndef CORPUS_TOKENIZER_TOKENIZER_H
#define CORPUS_TOKENIZER_TOKENIZER_H

#include "engine/base/arena.h"
#include "engine/base/text.h"

#include <stdint.h>

typedef struct Tokenizer Tokenizer;

/* ERR_IO: no such file; ERR_FORMAT: names the file and what is wrong with which part of it. */
Status tokenizer_load(const char *path, Arena *a, Tokenizer **out);
void tokenizer_free(Tokenizer *t); /* what PCRE2 holds; safe on NULL */

int32_t tokenizer_vocab(const Tokenizer *t);       /* one past the largest id */
int32_t tokenizer_end_of_text(const Tokenizer *t); /* id of the document separator; -1: none */

/* Ids of n bytes of text in `a`. Added tokens
 * in the text, special ones too, are their ids. */
Status tokenizer_encode(const Tokenizer *t, const char *text, size_t n, Arena *a, int32_t **ids,
                        int64_t *n_ids);

/* The same with a cache of pieces, which saves most of the work where one thread encodes many texts. A
 * cache is for one tokenizer and one thread. Its 1 MiB is in `a`. */
typedef struct TokenizerCache TokenizerCache;
Status tokenizer_cache_make(Arena *a, TokenizerCache **out);
Status tokenizer_encode_cached(const Tokenizer *t, TokenizerCache *cache, const char *text,
                               size_t n, Arena *a, int32_t **ids, int64_t *n_ids);

/* Appends the bytes of the ids of a whole text. Unlike tokenizer_bytes it takes away the space that some
 * vocabularies put before a text. */
Status tokenizer_decode(const Tokenizer *t, const int32_t *ids, int64_t n_ids, Text *out);

/* The bytes of one id (not NUL-terminated, no UTF-8 by itself); special tokens give 0 bytes. An id
 * out of range gives 0 bytes. */
void tokenizer_bytes(const Tokenizer *t, int32_t id, const char **bytes, int32_t *n);

#endif
