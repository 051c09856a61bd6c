/* text: the text builder, nearest names, word lists, numbers with units, and UTF-8 validation. */
#include "engine/base/text.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORD_MAX = 96, /* a longer word is no mistyped name */
};

/* ---- builder ---- */

/* Ensures room for n more bytes and the NUL. The text grows in place, because consecutive blocks of an
 * arena have no gap between them. */
Status text_room(Text *t, size_t n)
{
    if (n < t->cap - t->used) return OK;
    size_t more = arena_rounded(n + 1 - (t->cap - t->used));
    void *at = NULL;
    TRY(arena_alloc(t->arena, more, &at));
    assert((char *)at == t->data + t->cap); /* somebody else allocated while the text grew */
    t->cap += more;
    return OK;
}

Status text_init(Text *t, Arena *arena)
{
    void *at = NULL;
    TRY(arena_alloc(arena, ARENA_ALIGN, &at));
    *t = (Text){ .arena = arena, .data = at, .cap = ARENA_ALIGN };
    t->data[0] = '\0';
    return OK;
}

Status text_append(Text *t, const char *s, size_t n)
{
    TRY(text_room(t, n));
    if (n > 0) memcpy(t->data + t->used, s, n);
    t->used += n;
    t->data[t->used] = '\0';
    return OK;
}

/* Tries with the room there is. If it was too small, the length is known and the second try
 * fits. */
Status text_printf(Text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(t->data + t->used, t->cap - t->used, fmt, ap);
    Status s = OK;
    if (n < 0) s = FAIL(ERR_ARG, "text: the format \"%s\" cannot be printed", fmt);
    if (s == OK && (size_t)n >= t->cap - t->used) {
        t->data[t->used] = '\0'; /* unchanged if there is no room */
        s = text_room(t, (size_t)n);
        if (s == OK) (void)vsnprintf(t->data + t->used, t->cap - t->used, fmt, again);
    }
    va_end(again);
    va_end(ap);
    if (s == OK) t->used += (size_t)n;
    return s;
}

/* ---- names ---- */

static int min_int(int a, int b) { return a < b ? a : b; }

/* Edit distance where a swap of two neighbours counts as one edit (optimal string alignment). Row i of
 * the table needs only the two rows before it. Both lengths are below WORD_MAX. */
static int edit_distance(const char *a, int a_len, const char *b, int b_len)
{
    int row[3][WORD_MAX + 1];
    for (int j = 0; j <= b_len; j++) row[0][j] = j;
    for (int i = 1; i <= a_len; i++) {
        int *now = row[i % 3];
        const int *before = row[(i + 2) % 3], *before2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= b_len; j++) {
            int change = before[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = min_int(change, min_int(before[j], now[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) now[j] = min_int(now[j], before2[j - 2] + 1);
        }
    }
    return row[a_len % 3][b_len];
}

/* Of names at equal distance the first one wins, so hints do not depend on chance. */
int text_nearest(const char *word, const char *const *names, int n)
{
    size_t length = strlen(word);
    if (length >= WORD_MAX) return -1;
    int nearest = -1, limit = 1 + (int)length / 3;
    for (int i = 0; i < n; i++) {
        size_t name_length = strlen(names[i]);
        if (name_length >= WORD_MAX) continue;
        const int apart =
            abs((int)name_length - (int)length); /* the least that the distance can be */
        if (apart > limit || (apart == limit && nearest >= 0)) continue;
        int d = edit_distance(word, (int)length, names[i], (int)name_length);
        if (d > limit || (d == limit && nearest >= 0)) continue;
        nearest = i;
        limit = d;
    }
    return nearest;
}

/* Shows up to 60 bytes. If the mark lies far to the right, the text before it is left out. */
const char *text_caret(char out[TEXT_CARET_BYTES], const char *text, int at)
{
    enum { SHOWN = 60 };
    char shown[SHOWN + 1] = "";
    int from = at > SHOWN / 2 ? at - SHOWN / 2 : 0, n = 0;
    for (const char *c = text + from; n < SHOWN && *c != '\0'; c++) {
        shown[n++] = *c;
        if (*c < ' ' || *c > '~') shown[n - 1] = '?';
    }
    (void)snprintf(out, TEXT_CARET_BYTES, "\n  %.*s\n  %*s^", n, shown, at - from, "");
    return out;
}

const char *text_hint(char out[TEXT_HINT_BYTES], const char *word, const char *const *names, int n,
                      const char *otherwise)
{
    int near = text_nearest(word, names, n);
    if (near < 0) return otherwise;
    (void)snprintf(out, TEXT_HINT_BYTES, ", did you mean %s?", names[near]);
    return out;
}

const char *text_word(const char *words, int i, int *n)
{
    for (; i > 0 && words != NULL; i--) {
        words = strchr(words, '|');
        if (words != NULL) words++;
    }
    *n = words == NULL ? 0 : (int)strcspn(words, "|");
    return words;
}

int text_word_index(const char *words, const char *word)
{
    int length = (int)strlen(word), n = 0;
    const char *at = words;
    for (int i = 0; (at = text_word(words, i, &n)) != NULL; i++) {
        if (n == length && memcmp(at, word, (size_t)n) == 0) return i;
    }
    return -1;
}

/* `begins`: the line holds no word yet. A word that is too long stays on such a line, because a
 * break would only add an empty one. */
Status text_wrap(Text *t, const char *s, int at, int width, int indent)
{
    bool begins = true;
    for (s += strspn(s, " "); *s != '\0'; s += strspn(s, " ")) {
        const int n = (int)strcspn(s, " ");
        if (at + !begins + n > width && !(begins && at <= indent)) {
            TRY(text_printf(t, "\n%*s", indent, ""));
            at = indent, begins = true;
        }
        TRY(text_append(t, " ", !begins));
        TRY(text_append(t, s, (size_t)n));
        at += !begins + n, begins = false;
        s += n;
    }
    return text_append(t, "\n", 1);
}

bool text_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool text_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return m <= n && memcmp(s + n - m, suffix, m) == 0;
}

/* ---- human units ---- */

/* Prints value / base^k with three digits and the k-th unit. The thresholds apply to the rounded
 * value, so that 999,700 is "1.00 M" and not "1000 k". */
static void print_scaled(char out[32], double value, double base, const char *const *unit,
                         int n_units)
{
    int k = 0;
    double v = value;
    while (k + 1 < n_units && fabs(v) >= base - 0.5) {
        v /= base;
        k++;
    }
    int decimals = fabs(v) >= 99.95 ? 0 : fabs(v) >= 9.995 ? 1 : 2;
    bool whole = k == 0 && v == nearbyint(v);
    (void)snprintf(out, 32, "%.*f%s%s", whole ? 0 : decimals, v, *unit[k] == '\0' ? "" : " ",
                   unit[k]);
}

const char *text_bytes(char out[32], double bytes)
{
    static const char *const UNIT[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    print_scaled(out, bytes, 1024, UNIT, 7);
    return out;
}

const char *text_si(char out[32], double value)
{
    static const char *const UNIT[] = { "", "k", "M", "G", "T", "P", "E" };
    print_scaled(out, value, 1000, UNIT, 7);
    return out;
}

/* The magnitude is computed as unsigned, because -INT64_MIN does not fit into an int64_t. */
const char *text_thousands(char out[32], int64_t value)
{
    char digits[24];
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    int used = 0;
    if (value < 0) out[used++] = '-';
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

const char *text_duration(char out[32], double seconds)
{
    const long long minute = 60, hour = 3600, day = 24 * hour;
    if (!(seconds < 1e15)) return strcpy(out, "unknown"); /* nor NaN */
    long long whole = llround(seconds);
    if (seconds < 60)
        (void)snprintf(out, 32, "%.3g s", seconds);
    else if (whole < hour)
        (void)snprintf(out, 32, "%lld min %02lld s", whole / minute, whole % minute);
    else if (whole < 2 * day)
        (void)snprintf(out, 32, "%lld h %02lld min", whole / hour, whole % hour / minute);
    else
        (void)snprintf(out, 32, "%lld d %02lld h", whole / day, whole % day / hour);
    return out;
}

/* ---- UTF-8 ---- */

/* Length in bytes of the sequence that begins at s; 0 if RFC 3629 does not allow it. That excludes
 * overlong forms, surrogates and code points above U+10FFFF; the second byte decides all three. */
static size_t utf8_sequence(const uint8_t *s, size_t n)
{
    uint8_t lead = s[0], low = 0x80, high = 0xBF;
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (n < length) return 0;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
    }
    return length;
}

bool text_utf8_valid(const char *s, size_t n, size_t *bad)
{
    const uint8_t *at = (const uint8_t *)s;
    size_t i = 0;
    while (i < n) {
        uint64_t eight; /* fast path: eight ASCII bytes at once */
        if (n - i >= sizeof eight) {
            memcpy(&eight, at + i, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        size_t length = utf8_sequence(at + i, n - i);
        if (length == 0) {
            *bad = i;
            return false;
        }
        i += length;
    }
    return true;
}

/* Bytes of a control character at s: of ASCII, or of the second block of them (U+0080 to U+009F). */
static size_t control_bytes(const unsigned char *s, size_t n)
{
    if (*s == '\n' || *s == '\t') return 0;
    if (*s < ' ' || *s == 0x7F) return 1;
    return n > 1 && s[0] == 0xC2 && s[1] < 0xA0 ? 2 : 0;
}

size_t text_add(char *out, size_t room, size_t used, const char *fmt, ...)
{
    va_list args;
    assert(used < room);
    va_start(args, fmt);
    int n = vsnprintf(out + used, room - used, fmt, args);
    va_end(args);
    return n < 0 ? used : (size_t)n < room - used ? used + (size_t)n : room - 1;
}

size_t text_visible(char *out, size_t room, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        const unsigned char *at = (const unsigned char *)s + i;
        size_t hidden = control_bytes(at, n - i);
        if (used + (hidden > 0 ? 4 * hidden : 1) > room) return used;
        if (hidden == 0) out[used++] = s[i++];
        for (size_t k = 0; k < hidden; k++, i++) {
            memcpy(out + used, (char[]){ '\\', 'x', hex[at[k] >> 4], hex[at[k] & 15] }, 4);
            used += 4;
        }
    }
    return used;
}
