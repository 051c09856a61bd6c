/* text: string helpers: a builder over an arena, escaping templates, nearest names, human units and
 * UTF-8 validation. Reading JSON is in engine/base/scan.h and engine/base/json.h. */
#ifndef ENGINE_BASE_TEXT_H
#define ENGINE_BASE_TEXT_H

#include "engine/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* A growing string. It grows in place, so appending never copies. Therefore it must be the last
 * allocation of its arena while it grows (asserted). */
typedef struct Text {
    Arena *arena;
    char *data; /* always NUL-terminated after the first append */
    size_t used, cap;
} Text;

Status text_init(Text *t, Arena *arena);
Status text_append(Text *t, const char *s, size_t n);
/* Makes room for n bytes after data + used; the caller writes them and adds to `used`. */
Status text_room(Text *t, size_t n);
Status text_printf(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* text_printf for JSON, and for HTML or SVG. The format holds the syntax, and no argument can break it:
 * %s is escaped (JSON adds the quotes), and invalid UTF-8 becomes U+FFFD. In JSON a bare %g prints the
 * fewest digits that read back to the same value; NaN and infinities are null. Conversions:
 * s .*s c d u x e f g; integers of int, l, ll and z. */
Status text_json(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
Status text_markup(Text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Index of the name nearest to `word` by Damerau-Levenshtein distance if it is at most
 * 1 + strlen(word) / 3, else -1. */
int text_nearest(const char *word, const char *const *names, int n);

/* ", did you mean NAME?" with the nearest name; `otherwise` if no name is near. */
enum { TEXT_HINT_BYTES = 128 };
const char *text_hint(char out[TEXT_HINT_BYTES], const char *word, const char *const *names, int n,
                      const char *otherwise);

/* Appends to the `used` bytes of `out` and returns how many are used now, at most room - 1: what does not fit is left
 * out, so any number of calls stays within `out`. */
size_t text_add(char *out, size_t room, size_t used, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Write "1.50 GiB" or "512 B"; "15.7 G"; "1,234"; "3 d 02 h", "2 h 03 min", "4 min 12 s" or "1.5 s" into out and
 * return it. */
const char *text_bytes(char out[32], double bytes);
const char *text_si(char out[32], double value);
const char *text_thousands(char out[32], int64_t value);
const char *text_duration(char out[32], double seconds);

/* "\n  TEXT\n     ^" for the end of a message: part of the text with a caret under byte `at`. Control
 * bytes and non-ASCII bytes are shown as ?. Returns out. */
enum { TEXT_CARET_BYTES = 160 };
const char *text_caret(char out[TEXT_CARET_BYTES], const char *text, int at);

/* `words` is a list separated by |. text_word returns the i-th word and its length, NULL after the
 * last. text_word_index returns the index of a word, or -1. */
const char *text_word(const char *words, int i, int *n);
int text_word_index(const char *words, const char *word);

/* Appends the words of `s`, wrapped to lines of at most `width` bytes unless one word is longer. The
 * first line continues at column `at`; the others begin at column `indent`. */
Status text_wrap(Text *t, const char *s, int at, int width, int indent);

/* Copies s, with control characters but newlines and tabs as \xNN, so that no byte of it moves the cursor
 * or changes a terminal. Stops where `room` is too small; returns the bytes written, at most 4 n. */
size_t text_visible(char *out, size_t room, const char *s, size_t n);

bool text_starts(const char *s, const char *prefix);
bool text_ends(const char *s, const char *suffix);

/* Is [s, s + n) valid UTF-8 (RFC 3629)? If not, *bad is where its first bad sequence
 * begins. */
bool text_utf8_valid(const char *s, size_t n, size_t *bad);

#endif
