/* pattern: reads a regular expression as another program reads it, and writes it so that PCRE2 matches the same.
 *
 * Patterns of a tokenizer.json are Oniguruma's with Ruby's syntax, those of a .tiktoken file (tools/tokenizer) fancy-regex's. What is
 * written uses only what PCRE2 and Oniguruma read alike, so it may also stand in a tokenizer.json (but for ^ and $
 * of Oniguruma, which stay and need PCRE2_MULTILINE). Classes, and letters without case, are written as sets of our
 * own table. A construct that cannot be written so is refused with its place. */
#ifndef CORPUS_TOKENIZER_PATTERN_H
#define CORPUS_TOKENIZER_PATTERN_H

#include "engine/base/text.h"

typedef enum PatternDialect { PATTERN_ONIGURUMA, PATTERN_FANCY } PatternDialect;

/* Appends the translation to `out`. `unicode` is the version of the tables of what will read it: 14, 15 or
 * 16, or 0 for any other. ERR_FORMAT, ERR_UNSUPPORTED: the pattern, the construct, its byte, and what to do. */
Status pattern_translate(const char *pattern, PatternDialect dialect, int unicode, Text *out);

#endif
