/* added: the added_tokens of a tokenizer.json. They are searched before the text is split or merged, and
 * map directly to their ids. The rules are those of Hugging Face's library. The leftmost match wins; of
 * several there, the longest. lstrip and rstrip extend the match over the white space before and after
 * it; single_word drops a match beside a letter of a word. There are two sets: tokens that are not normalized are searched first, in the whole text;
 * normalized ones in the text between those. */
#ifndef CORPUS_TOKENIZER_ADDED_H
#define CORPUS_TOKENIZER_ADDED_H

#include "engine/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { ADDED_SETS = 2 }; /* 0: not normalized; 1: normalized */

typedef struct AddedText {
    const char *text;
    int32_t n, id;
    bool lstrip, rstrip, single_word;
} AddedText;

typedef struct AddedSet {
    AddedText *at;         /* by their bytes */
    int32_t n, first[257]; /* texts [first[b], first[b + 1]) begin with byte b */
} AddedSet;

/* A match, and where to search for the next one. `start` may be before the end of the previous match,
 * if that one took white space with which this token begins. */
typedef struct AddedMatch {
    size_t start, end, next;
    int32_t id;
} AddedMatch;

/* Sorts s->at, which the caller has filled. Returns the index of a duplicate text, or -1. */
int32_t added_sort(AddedSet *s);

/* The longest added token that the text begins with; NULL: none. */
const AddedText *added_longest(const AddedSet *s, const char *text, size_t n);

/* The first match from byte `from` on. It may take white space before it, back to byte `done`. */
bool added_find(const AddedSet *s, const char *text, size_t n, size_t from, size_t done,
                AddedMatch *out);

#endif
