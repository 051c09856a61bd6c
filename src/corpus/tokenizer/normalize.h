/* normalize: the normalizer of a tokenizer.json: steps that change a text before it is split. Forms of
 * Unicode come from utf8proc (Unicode 15). Metaspace, a pre-tokenizer that replaces spaces, is the same
 * two steps. A step that changes nothing copies nothing. */
#ifndef CORPUS_TOKENIZER_NORMALIZE_H
#define CORPUS_TOKENIZER_NORMALIZE_H

#include "engine/base/arena.h"

#include <stdbool.h>

enum { NORMALIZE_STEPS_MAX = 8, NORMALIZE_GROWTH_MAX = 64 };

typedef enum NormalizeKind { NORMALIZE_FORM, NORMALIZE_REPLACE, NORMALIZE_PREPEND } NormalizeKind;

typedef struct NormalizeStep {
    NormalizeKind kind;
    int form;          /* options of utf8proc */
    const char *from;  /* text to replace; not empty */
    const char *to;    /* what replaces it, or is put before a text */
    bool unless_there; /* not put before a text that begins with it */
    bool only_first;   /* put only before the text's first part */
} NormalizeStep;

typedef struct Normalizer {
    int n;
    NormalizeStep step[NORMALIZE_STEPS_MAX];
} Normalizer;

/* The step for "NFC" or "NFD"; false: another name. (Hugging Face's tables for NFKC and NFKD are older than
 * Unicode 14, so ids could differ.) */
bool normalize_form(const char *name, NormalizeStep *out);

/* ERR_UNSUPPORTED: too many steps, or a text could become too much longer. Texts of the step stay where they are. */
Status normalizer_add(Normalizer *z, const NormalizeStep *step);

/* No text of n bytes becomes longer than this many times n, even if it is cut into parts of which each
 * gets what is put before a text. */
size_t normalizer_growth(const Normalizer *z);

/* Replaces *text and *n by the result, which may lie in `a`. `first`: the part begins where the whole
 * text begins. A form of Unicode ends at the first byte that is no UTF-8: the rest stays as it is. */
Status normalize(const Normalizer *z, bool first, Arena *a, const char **text, size_t *n);

/* Is the character before byte `at` (or at it, if `after`) one of a word: a letter, mark, digit, connecting
 * punctuation or joiner? That is \w of Rust's regular expressions. */
bool normalize_word_before(const char *text, size_t at);
bool normalize_word_at(const char *text, size_t n, size_t at);

#endif
