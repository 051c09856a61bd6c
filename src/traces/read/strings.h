/* strings: texts that repeat, each stored once and known by a number. Number 0 is the empty text. A
 * text never moves and is never removed. Not for several threads at once. */
#ifndef TRACES_READ_STRINGS_H
#define TRACES_READ_STRINGS_H

#include "engine/base/arena.h"

#include <stdbool.h>

typedef struct Strings {
    Arena text;         /* the texts, each followed by a NUL */
    Arena entry, table; /* of `entries` and of `slot`; each holds nothing else */
    struct StringEntry *entries;
    uint32_t n, slots;
    uint32_t *slot; /* open addressing: an entry's number, 0 is free */
    size_t text_bytes;
} Strings;

/* A text of `bytes` bytes, which may contain NULs, and its strings_hash. */
typedef struct StringEntry {
    const char *s;
    uint32_t bytes, hash;
} StringEntry;

/* Reserves addresses, not memory. strings_reserve: for at most `text_bytes` bytes in all, with a
 * NUL for each text. */
Status strings_init(Strings *t);
Status strings_reserve(Strings *t, size_t text_bytes);
void strings_free(Strings *t); /* safe on { 0 } */
/* Gives the number of the text s of n bytes, which may hold NULs. A new text is added. */
Status strings_id(Strings *t, const char *s, size_t n, uint32_t *out);
/* The same for a text whose strings_hash the caller has computed. */
uint32_t strings_hash(const char *s, size_t n);
Status strings_id_hashed(Strings *t, const char *s, size_t n, uint32_t hash, uint32_t *out);
/* The number of a text; UINT32_MAX if it is not there. */
uint32_t strings_find(const Strings *t, const char *s);

/* Does s contain one of the words, which | separates? Upper and lower case are equal. */
bool strings_has_word(const char *s, const char *words);

static inline const char *strings_text(const Strings *t, uint32_t id) { return t->entries[id].s; }

#endif
