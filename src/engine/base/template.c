/* template: text_json and text_markup, declared in text.h. The format is processed one conversion at a
 * time: strings are escaped here, other conversions go to text_printf. */
#include "engine/base/text.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEC_BYTES = 16, ESCAPE_BYTES = 8 };

/* Returns the text that replaces a byte, possibly built in `room`; NULL: the byte is unchanged. */
typedef const char *Escape(unsigned char c, char room[ESCAPE_BYTES]);

static const char *json_escape(unsigned char c, char room[ESCAPE_BYTES])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    }
    if (c >= 0x20) return NULL;
    (void)snprintf(room, ESCAPE_BYTES, "\\u%04x", c);
    return room;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the type is Escape */
static const char *markup_escape(unsigned char c, char room[ESCAPE_BYTES])
{
    (void)room;
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\t':
    case '\n': return NULL;
    }
    return c < 0x20 || c == 0x7F ? "\xEF\xBF\xBD" : NULL; /* XML allows no other control bytes */
}

/* s is valid UTF-8. Runs of bytes that need no escape are appended with one call. */
static Status append_valid(Text *t, const char *s, size_t n, Escape *escape)
{
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        char room[ESCAPE_BYTES];
        const char *instead = escape((unsigned char)s[i], room);
        if (instead == NULL) continue;
        TRY(text_append(t, s + start, i - start));
        TRY(text_append(t, instead, strlen(instead)));
        start = i + 1;
    }
    return text_append(t, s + start, n - start);
}

/* JSON (RFC 8259) and XML must be UTF-8, so each invalid byte becomes U+FFFD. */
static Status append_escaped(Text *t, const char *s, size_t n, Escape *escape)
{
    size_t bad = 0;
    while (!text_utf8_valid(s, n, &bad)) {
        TRY(append_valid(t, s, bad, escape));
        TRY(text_append(t, "\xEF\xBF\xBD", 3));
        s += bad + 1;
        n -= bad + 1;
    }
    return append_valid(t, s, n, escape);
}

/* The fewest digits that read back to the same value. Whole numbers below 2^53, which a double holds
 * exactly, are printed without a decimal point. */
static Status append_shortest(Text *t, double v)
{
    char number[32];
    if (!isfinite(v)) return text_append(t, "null", 4);
    if (v == nearbyint(v) && fabs(v) < 9007199254740992.0) return text_printf(t, "%.0f", v);
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(number, sizeof number, "%.*g", digits, v);
        if (strtod(number, NULL) == v) break;
    }
    return text_append(t, number, strlen(number));
}

static Status append_string(Text *t, const char *s, int most, Escape *escape)
{
    const char *quote = escape == json_escape ? "\"" : "";
    TRY(text_append(t, quote, strlen(quote)));
    TRY(append_escaped(t, s, most < 0 ? strlen(s) : (size_t)most, escape));
    return text_append(t, quote, strlen(quote));
}

/* `spec` is one conversion with its percent sign. The argument's type follows from its last
 * letters, as in printf. */
static Status append_conversion(Text *t, const char *spec, va_list *ap, Escape *escape)
{
    size_t n = strlen(spec);
    bool wide = spec[n - 2] == 'l' || spec[n - 2] == 'z'; /* long, long long, size_t: 64 bits */
    switch (spec[n - 1]) {
    case 's': {
        int most = strcmp(spec, "%.*s") == 0 ? va_arg(*ap, int) : -1;
        return append_string(t, va_arg(*ap, const char *), most, escape);
    }
    case 'e':
    case 'f':
    case 'g': {
        double v = va_arg(*ap, double);
        bool shortest = escape == json_escape && n == 2;
        return shortest ? append_shortest(t, v) : text_printf(t, spec, v);
    }
    case 'c':
    case 'd':
    case 'u':
    case 'x':
        if (wide) return text_printf(t, spec, va_arg(*ap, long long));
        return text_printf(t, spec, va_arg(*ap, int));
    case '%': return text_append(t, "%", 1);
    }
    assert(!"a conversion that templates do not know");
    return OK;
}

/* Copies text up to the next percent sign, then one conversion. Flags, width and precision are
 * copied to `spec` unread. */
static Status append_template(Text *t, const char *fmt, va_list *ap, Escape *escape)
{
    for (;;) {
        char spec[SPEC_BYTES];
        size_t n = strcspn(fmt, "%");
        TRY(text_append(t, fmt, n));
        fmt += n;
        if (*fmt == '\0') return OK;
        n = strspn(fmt + 1, "+- 0123456789.*lz") + 2;
        assert(n < SPEC_BYTES);
        (void)snprintf(spec, n + 1, "%s", fmt);
        fmt += n;
        TRY(append_conversion(t, spec, ap, escape));
    }
}

Status text_json(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Status s = append_template(t, fmt, &ap, json_escape);
    va_end(ap);
    return s;
}

Status text_markup(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Status s = append_template(t, fmt, &ap, markup_escape);
    va_end(ap);
    return s;
}
