/*
 * text: small string work: a builder over an arena, nearest names, human units, JSON out.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* A growing string. It must be the last allocation of its arena while it grows: it extends in
 * place, so appending never copies. */
typedef struct Text {
    Arena *arena;
    char *data; /* always NUL-terminated after the first append */
    size_t used, cap;
} Text;

Status text_init(Text *t, Arena *arena);
Status text_append(Text *t, const char *s, size_t n);
Status text_printf(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Index of the name nearest to `word` by Damerau-Levenshtein distance if it is at most
 * 1 + strlen(word) / 3, else -1. */
int text_nearest(const char *word, const char *const *names, int n);

/* "1.50 GiB", "512 B"; "15.7 G", "1,234" into out; return out. */
const char *text_bytes(char out[32], double bytes);
const char *text_si(char out[32], double value);
const char *text_thousands(char out[32], int64_t value);

/* "\n  TEXT\n     ^": a window of the text with a caret under byte `at`, control bytes and what is
 * not ASCII as ?; for the end of a message. Returns out. */
enum { TEXT_CARET_BYTES = 160 };
const char *text_caret(char out[TEXT_CARET_BYTES], const char *text, int at);

bool text_starts(const char *s, const char *prefix);
bool text_ends(const char *s, const char *suffix);

/* Is [s, s + n) valid UTF-8 (RFC 3629)? If not, *bad is where its first bad sequence
 * begins. */
bool text_utf8_valid(const char *s, size_t n, size_t *bad);

/* JSON out: a writer over Text that puts commas and quotes, escapes strings, prints numbers with
 * the fewest digits that read back to the same value, and NaN and infinities as null. */
typedef struct Json {
    Text *text;
    int depth;
    bool first[32];
    bool after_key;
} Json;

Json json_begin(Text *text);
Status json_object(Json *j);     /* { */
Status json_object_end(Json *j); /* } */
Status json_array(Json *j);
Status json_array_end(Json *j);
Status json_key(Json *j, const char *key);
Status json_string(Json *j, const char *s);
Status json_string_n(Json *j, const char *s, size_t n);
Status json_double(Json *j, double v);
Status json_number(Json *j, const char *key, double v); /* key and value */
Status json_float(Json *j, float v); /* fewest digits that read back to the same f32 */
Status json_int(Json *j, int64_t v);
Status json_bool(Json *j, bool v);

#endif
