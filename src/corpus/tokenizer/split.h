/* split: splits text into pieces with a pipeline of patterns, like Hugging Face's pre-tokenizers.
 *
 * Each stage cuts every piece of the stage before it, and sees that piece as a text of its own.
 * Patterns are Oniguruma's (pattern.h translates them), with the classes of Unicode 16.
 *
 * The text is validated as UTF-8 once, here, and PCRE2 is told to trust it. PCRE2's own check scans the
 * rest of the text at every match, which is quadratic. A text ends at its first byte that is not UTF-8.
 * All memory comes from the arena, except machine code, which splitter_free releases.
 */
#ifndef CORPUS_TOKENIZER_SPLIT_H
#define CORPUS_TOKENIZER_SPLIT_H

#include "engine/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { SPLIT_STAGES_MAX = 16 };

/* What becomes of the matches of a pattern and of the text between them. */
typedef enum SplitKeep {
    SPLIT_ISOLATED,      /* all of them are pieces */
    SPLIT_ONLY_OTHERS,   /* matches are dropped */
    SPLIT_ONLY_MATCHES,  /* the text between matches is dropped */
    SPLIT_WITH_PREVIOUS, /* a match belongs to the text before it; the second of two is a piece */
    SPLIT_WITH_NEXT,     /* a match belongs to the text behind it; the first of two is a piece */
} SplitKeep;

typedef struct SplitStage {
    struct pcre2_real_code_8 *code; /* NULL: put a space before a piece that has none */
    struct pcre2_real_code_8
        *later; /* for texts with characters that PCRE2's tables lack; NULL: as `code` */
    SplitKeep keep;
} SplitStage;

typedef struct Splitter {
    int n_stages;
    bool prefix_space; /* one of the stages is that */
    SplitStage stage[SPLIT_STAGES_MAX];
    uint64_t *later; /* a bit for each character that PCRE2's tables lack; NULL: they lack none */
} Splitter;

/* GPT-2's pattern (Radford et al. 2019): contractions, words, numbers and other signs, each with
 * the space before it, and runs of white space without the space before a word. */
extern const char SPLIT_GPT2_PATTERN[];

/* A text to find, or a regular expression of Oniguruma. */
typedef enum SplitSyntax { SPLIT_TEXT, SPLIT_ONIGURUMA } SplitSyntax;

/* Add a stage to the end; s starts zeroed. */
Status splitter_add_rule(Splitter *s, const char *pattern, SplitSyntax syntax, SplitKeep keep,
                         Arena *a);
Status splitter_add_prefix_space(Splitter *s);
void splitter_free(Splitter *s); /* safe on a zeroed one */

/* Gets each piece in the order of the text; it stays where it is as long as the text and the
 * arena of the cut. Pieces are never empty and at most INT32_MAX bytes. */
typedef Status (*SplitSink)(void *context, const char *piece, int32_t n);

typedef struct SplitCut {
    const Splitter *splitter;
    SplitSink sink;
    void *context;
    struct pcre2_real_match_data_8 *match; /* in the arena, like the limits */
    struct pcre2_real_match_context_8 *limits;
    char *prefixed; /* where pieces with a space before them are made */
    bool later;     /* the text has characters that PCRE2's tables lack */
    Arena *arena;
} SplitCut;

/* Make a cut ready: what does not depend on the text comes from the arena here. */
Status split_begin(SplitCut *c, const Splitter *s, SplitSink sink, void *context, Arena *a);

/* Splits the text up to its first byte that is not UTF-8; *used is how many bytes that are. */
Status split_text(SplitCut *c, const char *text, size_t n, size_t *used);

#endif
