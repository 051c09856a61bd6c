/* pattern_private: what the reader of patterns (pattern.c) and that of classes (pattern_class.c) share. */
#ifndef CORPUS_TOKENIZER_PATTERN_PRIVATE_H
#define CORPUS_TOKENIZER_PATTERN_PRIVATE_H

#include "corpus/tokenizer/charset.h"

typedef struct PatternFlags {
    bool any_case, dot_all, lines, extended;
} PatternFlags;

typedef struct PatternReader {
    const char *text;
    size_t n, at;
    bool ruby; /* Oniguruma; otherwise fancy-regex */
    CharSetReader reader;
    CharSet long_folds; /* without case equal to several characters */
    uint32_t before;    /* the literal before this one, its lowest form without case; 0: none */
    int depth, behind;  /* groups and lookbehinds that are open */
    Arena *scratch;
    Text *out;
} PatternReader;

/* "PATTERN: TEXT at byte FROM WHY", of the text [from, r->at). */
Status pattern_refuse(const PatternReader *r, size_t from, const char *why);

/* The next character; there is one. */
uint32_t pattern_character(PatternReader *r);

/* \w. Oniguruma has six more characters in it outside of classes. */
Status pattern_words(const PatternReader *r, bool outside, CharSet *out);

/* The set of a class; r->at is behind its [. */
Status pattern_class(PatternReader *r, const PatternFlags *f, int depth, CharSet *out);

/* r->at is behind the \ at `from`. *is: it was one like \d or \p{L}. Otherwise pattern_character_escape
 * reads which character it is. */
Status pattern_class_escape(PatternReader *r, const PatternFlags *f, size_t from, bool inside,
                            CharSet *out, bool *is);
Status pattern_character_escape(PatternReader *r, size_t from, bool inside, uint32_t *out);

#endif
