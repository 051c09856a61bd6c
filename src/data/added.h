/* added: the tokens of a tokenizer.json's added_tokens in a text, which go to their ids before
 * anything else is done with it. As Hugging Face's library has it, the leftmost match counts and of
 * those the longest; lstrip and rstrip take the white space before and after into the match; and
 * there are two sets: the tokens that are not normalized are found first, in the whole text, the
 * normalized ones in what lies between those. */
#ifndef DATA_ADDED_H
#define DATA_ADDED_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { ADDED_SETS = 2 }; /* 0: not normalized; 1: normalized */

typedef struct AddedText {
    const char *text;
    int32_t n, id;
    bool lstrip, rstrip;
} AddedText;

typedef struct AddedSet {
    AddedText *at;         /* by their bytes */
    int32_t n, first[257]; /* those that begin with byte b: [first[b], first[b + 1]) */
} AddedSet;

/* A match; from where to search for the next. Where the one before took white space that a token
 * holds, `start` may lie before that one's end. */
typedef struct AddedMatch {
    size_t start, end, next;
    int32_t id;
} AddedMatch;

/* After s->at was filled: order it. The index of a text that stands there twice, or -1. */
int32_t added_sort(AddedSet *s);

/* The longest that the text begins with; NULL: none. */
const AddedText *added_longest(const AddedSet *s, const char *text, size_t n);

/* The first match from byte `from` on; white space from `done` on may belong to it. */
bool added_find(const AddedSet *s, const char *text, size_t n, size_t from, size_t done,
                AddedMatch *out);

#endif
