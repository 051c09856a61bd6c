/* strings: texts that occur again and again, each held once. Text 0 is the empty one. */
#ifndef ANALYZE_STRINGS_H
#define ANALYZE_STRINGS_H

#include "base/arena.h"

typedef struct Strings {
    Arena text;         /* NUL-terminated, one behind the other: never moved */
    Arena entry, table; /* each grows at its end */
    struct StringEntry *entries;
    uint32_t n, slots;
    uint32_t *slot; /* open addressing over the entries, n of `slots` used; 0: free */
    size_t text_bytes;
} Strings;

typedef struct StringEntry {
    const char *s;
    uint32_t bytes, hash;
} StringEntry;

/* Reserves addresses, not memory: for texts of any length in all, or of so many bytes (each text of
 * one or more, with its NUL). */
Status strings_init(Strings *t);
Status strings_reserve(Strings *t, size_t text_bytes);
void strings_free(Strings *t); /* safe on { 0 } */
/* The number of the text s of n bytes (it may hold NULs), added if it is new. ERR_MEMORY. */
Status strings_id(Strings *t, const char *s, size_t n, uint32_t *out);
/* The same for a text whose strings_hash is known. */
uint32_t strings_hash(const char *s, size_t n);
Status strings_id_hashed(Strings *t, const char *s, size_t n, uint32_t hash, uint32_t *out);
/* Its number, UINT32_MAX if it is not there. */
uint32_t strings_find(const Strings *t, const char *s);

static inline const char *strings_text(const Strings *t, uint32_t id) { return t->entries[id].s; }

#endif
