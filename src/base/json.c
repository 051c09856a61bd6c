/* json: the writer declared in text.h. A comma is due before every value and key but the first of
 * its object or array, and not between a key and its value: that is all the state there is. */
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = sizeof((Json *)0)->first / sizeof(bool) };

static Status put(Json *j, const char *s) { return text_append(j->text, s, strlen(s)); }

static Status comma(Json *j)
{
    bool due = !j->after_key && !j->first[j->depth];
    j->after_key = false;
    j->first[j->depth] = false;
    return due ? put(j, ",") : OK;
}

Json json_begin(Text *text)
{
    Json j = { .text = text };
    j.first[0] = true;
    return j;
}

static Status open_level(Json *j, const char *bracket)
{
    assert(j->depth + 1 < DEPTH_MAX);
    TRY(comma(j));
    j->first[++j->depth] = true;
    return put(j, bracket);
}

static Status close_level(Json *j, const char *bracket)
{
    assert(j->depth > 0 && !j->after_key);
    j->depth--;
    return put(j, bracket);
}

Status json_object(Json *j) { return open_level(j, "{"); }
Status json_object_end(Json *j) { return close_level(j, "}"); }
Status json_array(Json *j) { return open_level(j, "["); }
Status json_array_end(Json *j) { return close_level(j, "]"); }

static const char *escape_of(unsigned char c, char out[8])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: (void)snprintf(out, 8, "\\u%04x", c); return out;
    }
}

/* Runs of bytes that need no escape go out in one piece. */
static Status put_escaped(Json *j, const char *s, size_t n)
{
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        char escape[8];
        TRY(text_append(j->text, s + start, i - start));
        TRY(put(j, escape_of(c, escape)));
        start = i + 1;
    }
    return text_append(j->text, s + start, n - start);
}

/* A JSON text is UTF-8 (RFC 8259), so bytes that are not become U+FFFD, one each. */
static Status put_quoted(Json *j, const char *s, size_t n)
{
    TRY(put(j, "\""));
    size_t bad = 0;
    while (!text_utf8_valid(s, n, &bad)) {
        TRY(put_escaped(j, s, bad));
        TRY(put(j, "\\ufffd"));
        s += bad + 1;
        n -= bad + 1;
    }
    TRY(put_escaped(j, s, n));
    return put(j, "\"");
}

Status json_key(Json *j, const char *key)
{
    TRY(comma(j));
    TRY(put_quoted(j, key, strlen(key)));
    j->after_key = true;
    return put(j, ":");
}

Status json_string_n(Json *j, const char *s, size_t n)
{
    TRY(comma(j));
    return put_quoted(j, s, n);
}

Status json_string(Json *j, const char *s) { return json_string_n(j, s, strlen(s)); }

/* Whole numbers are printed as such as long as each is one f64 (below 2^53) or f32 (2^24). */
Status json_double(Json *j, double v)
{
    char number[32];
    TRY(comma(j));
    if (!isfinite(v)) return put(j, "null");
    if (v == nearbyint(v) && fabs(v) < 9007199254740992.0) return text_printf(j->text, "%.0f", v);
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(number, sizeof number, "%.*g", digits, v);
        if (strtod(number, NULL) == v) break;
    }
    return put(j, number);
}

Status json_number(Json *j, const char *key, double v)
{
    TRY(json_key(j, key));
    return json_double(j, v);
}

Status json_float(Json *j, float v)
{
    char number[32];
    TRY(comma(j));
    if (!isfinite(v)) return put(j, "null");
    if (v == nearbyintf(v) && fabsf(v) < 16777216.0f) {
        return text_printf(j->text, "%.0f", (double)v);
    }
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(number, sizeof number, "%.*g", digits, (double)v);
        if (strtof(number, NULL) == v) break;
    }
    return put(j, number);
}

Status json_int(Json *j, int64_t v)
{
    TRY(comma(j));
    return text_printf(j->text, "%lld", (long long)v);
}

Status json_bool(Json *j, bool v)
{
    TRY(comma(j));
    return put(j, v ? "true" : "false");
}
