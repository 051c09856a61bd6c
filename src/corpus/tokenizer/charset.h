/* charset: sets of characters, as sorted ranges, and how a pattern writes them. Categories, scripts and
 * properties come from a table of ours (Unicode 16), so that ids depend on no library of the machine.
 *
 * All sets lie in the caller's arena. Surrogates are no characters: whether a set has them is left open. */
#ifndef CORPUS_TOKENIZER_CHARSET_H
#define CORPUS_TOKENIZER_CHARSET_H

#include "engine/base/text.h"

enum { CHARSET_UNICODE = 16, CHARSET_END = 0x110000, CHARSET_CATEGORIES = 28, CHARSET_GROUPS = 5 };

/* n / 2 ranges: [edge[0], edge[1]), [edge[2], edge[3]) and so on. */
typedef struct CharSet {
    const uint32_t *edge;
    int32_t n;
} CharSet;

/* Bit 2 * (in a) + (in b) says whether the result has a character. */
typedef enum CharSetOp {
    CHARSET_OR = 14,
    CHARSET_AND = 8,
    CHARSET_MINUS = 4,
    CHARSET_XOR = 6,
} CharSetOp;

typedef enum CharSetKind { CHARSET_UNKNOWN, CHARSET_CATEGORY, CHARSET_SCRIPT } CharSetKind;

Status charset_range(Arena *a, uint32_t first, uint32_t last, CharSet *out);
Status charset_combine(Arena *a, CharSet left, CharSet right, CharSetOp op, CharSet *out);
Status charset_negate(Arena *a, CharSet s, CharSet *out);
bool charset_has(CharSet s, uint32_t character);

/* The set of a category, script or property; the name has small letters alone. Properties count as
 * scripts. CHARSET_UNKNOWN: no such name. */
Status charset_named(Arena *a, const char *name, size_t n, CharSet *out, CharSetKind *kind);

/* Adds what a comparison without case takes for one of the set's characters. */
Status charset_fold(Arena *a, CharSet s, CharSet *out);

/* The categories and their groups as the program that reads the written pattern knows them. */
typedef struct CharSetReader {
    bool whole; /* false: its tables are not known, so no category is written by its name */
    CharSet view[CHARSET_GROUPS + CHARSET_CATEGORIES];
} CharSetReader;

/* `unicode` is the version that the reader has: 14, 15 or 16; 0: unknown. */
Status charset_reader(Arena *a, int unicode, CharSetReader *out);

/* A bit for each character: it came after Unicode 14. None of these is below U+0800. */
Status charset_later(Arena *a, uint64_t **out);

/* Appends the set as a pattern of one character, which PCRE2 and Oniguruma read alike. */
Status charset_write(const CharSetReader *r, Arena *scratch, CharSet s, Text *out);

#endif
