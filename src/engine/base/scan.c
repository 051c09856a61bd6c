/* scan: the pull parser. It reads JSON text value by value and decodes strings in place. Grammar:
 * RFC 8259, with one exception: NUL ends the text. */
#include "engine/base/scan.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

Scan scan_begin(char *text) { return (Scan){ .at = text }; }

Scan scan_inside(char *value)
{
    return (Scan){ .at = value + 1, .fresh = true, .bad = *value != '{' && *value != '[' };
}

char scan_peek(Scan *s)
{
    while (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r') s->at++;
    return *s->at;
}

static bool take_char(Scan *s, char c)
{
    if (s->bad || scan_peek(s) != c) return false;
    s->at++;
    return true;
}

static bool take_word(Scan *s, const char *word)
{
    size_t n = strlen(word);
    if (s->bad || strncmp(s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* `fresh` says that the next member needs no comma before it. Only the innermost list can be fresh,
 * so one flag is enough. */
static void enter_brackets(Scan *s, char bracket)
{
    if (!take_char(s, bracket)) s->bad = true;
    s->fresh = true;
}

void scan_object(Scan *s) { enter_brackets(s, '{'); }
void scan_array(Scan *s) { enter_brackets(s, '['); }

/* Steps to the next member. False if the closing bracket came instead, or if the text is bad. */
static bool next_member(Scan *s, char closing)
{
    bool first = s->fresh;
    s->fresh = false;
    if (s->bad || take_char(s, closing)) return false;
    if (!first && !take_char(s, ',')) s->bad = true;
    return !s->bad;
}

bool scan_item(Scan *s) { return next_member(s, ']'); }

char *scan_key(Scan *s)
{
    if (!next_member(s, '}')) return NULL;
    char *key = scan_string(s);
    if (!take_char(s, ':')) s->bad = true;
    return s->bad ? NULL : key;
}

/* Fast path for an unsigned whole number of up to 15 digits, which a double holds exactly. Most numbers
 * of a metrics file are token counts, and strtod takes several times as long. False: not such a
 * number. */
static bool take_digits(Scan *s, double *out)
{
    int64_t v = 0;
    const char *at = s->at;
    while (*at >= '0' && *at <= '9' && at - s->at <= 15) v = v * 10 + (*at++ - '0');
    bool simple = at > s->at && at - s->at <= 15 && *at != '.' && *at != 'e' && *at != 'E';
    if (!simple) return false;
    s->at += at - s->at; /* s->at = at, but for const */
    *out = (double)v;
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* strtod takes leading zeros and bare points, which RFC 8259 does not have. */
static bool is_plain(const char *at, const char *end)
{
    at += *at == '-';
    const char *dot = memchr(at, '.', (size_t)(end - at));
    return is_digit(*at) && !(*at == '0' && is_digit(at[1])) && (dot == NULL || is_digit(dot[1]));
}

static double read_number(Scan *s)
{
    double v = 0;
    char c = '\0';
    if (!s->bad) c = scan_peek(s);
    if (c == 'n' && take_word(s, "null")) return (double)NAN;
    /* strtod would also take "inf", "nan", hexadecimals, and a leading blank or plus */
    if (c != '-' && (c < '0' || c > '9')) s->bad = true;
    if (s->bad) return (double)NAN;
    if (take_digits(s, &v)) return v;
    char *end = s->at, *wanted = s->at + strspn(s->at, "+-.0123456789Ee");
    v = strtod(s->at, &end);
    if (end != wanted) s->bad = true;
    s->at = wanted;
    return v;
}

double scan_number(Scan *s)
{
    if (!s->bad) (void)scan_peek(s);
    const char *begin = s->at;
    const double v = read_number(s);
    if (s->strict && !s->bad && *begin != 'n' && !is_plain(begin, s->at)) s->bad = true;
    return v;
}

/* ---- strings ---- */

/* The value of the four hexadecimal digits after \u; -1 if they are not there. */
static int32_t code_unit(const char *at)
{
    char digits[5] = "";
    if (strspn(at, "0123456789abcdefABCDEF") < 4) return -1;
    memcpy(digits, at, 4);
    return (int32_t)strtol(digits, NULL, 16);
}

/* The leading byte says how many bytes follow; each of those carries six bits (RFC 3629). */
static char *write_utf8(char *out, uint32_t c)
{
    static const unsigned LEADING[] = { 0, 0xC0, 0xE0, 0xF0 };
    int more = (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    *out++ = (char)(LEADING[more] | c >> 6 * more);
    while (more-- > 0) *out++ = (char)(0x80 | (c >> 6 * more & 0x3F));
    return out;
}

/* s->at is just after \u. A pair of surrogates is one character; a lone one becomes U+FFFD. So does
 * U+0000, which a C string cannot hold. The output is never longer than the input, so decoding in
 * place is safe. */
static char *decode_unicode(Scan *s, char *out)
{
    int32_t high = code_unit(s->at);
    if (high < 0) {
        s->bad = true;
        return out;
    }
    s->at += 4;
    uint32_t c = (uint32_t)high;
    if (high >= 0xD800 && high < 0xDC00 && s->at[0] == '\\' && s->at[1] == 'u') {
        int32_t low = code_unit(s->at + 2);
        if (low >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
            s->at += 6;
        }
    }
    const bool lone = c >= 0xD800 && c < 0xE000;
    if (lone && s->strict) s->bad = true;
    if (c == 0 || lone) c = 0xFFFD;
    return write_utf8(out, c);
}

/* s->at is just after the backslash. `out` never passes it, since an escape is longer than what it
 * stands for. */
static char *decode_escape(Scan *s, char *out)
{
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    char c = *s->at;
    const char *known = c == '\0' ? NULL : strchr(FROM, c);
    if (c == 'u') {
        s->at++;
        return decode_unicode(s, out);
    }
    if (known == NULL) {
        s->bad = true;
        return out;
    }
    s->at++;
    *out = TO[known - FROM];
    return out + 1;
}

char *scan_string(Scan *s)
{
    if (!take_char(s, '"')) s->bad = true;
    char *begin = s->at, *out = s->at;
    while (!s->bad && *s->at != '"') {
        const bool control = (unsigned char)*s->at < ' ' && s->strict;
        if (*s->at == '\0' || control) {
            s->bad = true;
        } else if (*s->at == '\\') {
            s->at++;
            out = decode_escape(s, out);
        } else {
            *out++ = *s->at++;
        }
    }
    if (!s->bad) s->at++; /* first, because the NUL below may overwrite the closing quote */
    if (s->bad && *s->at == '\0') s->at = begin; /* report where an unclosed string begins */
    *out = '\0';
    return begin;
}

/* ---- skipping ---- */

static void skip_string(Scan *s)
{
    s->at++;
    while (*s->at != '"' && *s->at != '\0') {
        bool escape = *s->at == '\\' && s->at[1] != '\0';
        s->at += escape ? 2 : 1;
    }
    if (*s->at == '\0') s->bad = true;
    if (!s->bad) s->at++;
}

/* Skips a value with brackets. It counts brackets and does not match their kinds, which is enough to
 * detect a line that a crash cut short: the count never returns to 0. */
static void skip_nested(Scan *s)
{
    int depth = 0;
    do {
        s->at += strcspn(s->at, "\"[]{}");
        char c = *s->at;
        if (c == '\0') {
            s->bad = true;
        } else if (c == '"') {
            skip_string(s);
        } else {
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            s->at++;
        }
    } while (depth > 0 && !s->bad);
}

char *scan_skip(Scan *s)
{
    char c = '\0';
    if (!s->bad) c = scan_peek(s);
    char *begin = s->at;
    if (c == '"') {
        skip_string(s);
    } else if (c == '{' || c == '[') {
        skip_nested(s);
    } else if (!take_word(s, "true") && !take_word(s, "false")) {
        (void)scan_number(s);
    }
    return begin;
}

/* Through void *, because a field may have any of the four types. The caller's offsetof is aligned
 * for it. */
static void take_field(Scan *s, const ScanField *f, void *out)
{
    char *at = (char *)out + f->offset;
    switch (f->type) {
    case SCAN_NUMBER: *(double *)(void *)at = scan_number(s); return;
    case SCAN_WHOLE: {
        double v = scan_number(s);
        if (fabs(v) <= 9007199254740992.0 && v == floor(v)) *(int64_t *)(void *)at = (int64_t)v;
        return;
    }
    case SCAN_TEXT: *(char **)(void *)at = scan_string(s); return;
    case SCAN_RAW: *(char **)(void *)at = scan_skip(s); return;
    }
}

/* Linear search of a few names. A key that occurs twice is stored twice: the last value stays. */
void scan_fields(Scan *s, const ScanField *field, int n, void *out)
{
    scan_object(s);
    for (char *key = scan_key(s); key != NULL; key = scan_key(s)) {
        int i = 0;
        while (i < n && strcmp(field[i].key, key) != 0) i++;
        if (i < n)
            take_field(s, &field[i], out);
        else
            scan_skip(s);
    }
}

bool scan_end(Scan *s) { return !s->bad && scan_peek(s) == '\0'; }
