/* python_text: see python_text.h. The output equals that of Python's str() and repr() for values
 * that occur in traces; it is not a general converter. */
#include "traces/table/python_text.h"
#include "traces/table/table.h"

#include <stdlib.h>
#include <string.h>

/* Uses double quotes only if the text has a single quote and no double quote, like repr(). */
Status python_string(Text *out, const char *s, size_t n)
{
    char quote = memchr(s, '\'', n) != NULL && memchr(s, '"', n) == NULL ? '"' : '\'';
    TRY(text_append(out, &quote, 1));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == (unsigned char)quote || c == '\\')
            TRY(text_printf(out, "\\%c", c));
        else if (c == '\n' || c == '\r' || c == '\t')
            TRY(text_append(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", 2));
        else if (c < ' ' || c == 0x7F)
            TRY(text_printf(out, "\\x%02x", c));
        else
            TRY(text_append(out, &s[i], 1));
    }
    return text_append(out, &quote, 1);
}

/* How numpy 2 prints a float64 inside a list. */
Status python_float64(Text *out, double x)
{
    char number[TABLE_NUMBER_BYTES];
    return text_printf(out, "np.float64(%s)", table_number(number, x));
}

/* Writes a JSON string, from its quote on, as Python does. Only the escapes that occur in arguments
 * are decoded; others stand for themselves. *at: moved after the string. */
static Status put_json_string(Text *out, const char **at)
{
    /* the letters of escapes, and what each means */
    static const char LETTER[] = "ntr", MEANT[] = "\n\t\r";
    const char *s = *at + 1, *end = s;
    char plain[512];
    size_t n = 0;
    while (*end != '\0' && *end != '"') end += *end == '\\' && end[1] != '\0' ? 2 : 1;
    *at = *end == '"' ? end + 1 : end;
    if (memchr(s, '\\', (size_t)(end - s)) == NULL || (size_t)(end - s) >= sizeof plain)
        return python_string(out, s, (size_t)(end - s));
    for (; s < end; s++) {
        if (*s == '\\' && s + 1 < end) {
            s++;
            const char *letter = memchr(LETTER, *s, sizeof LETTER - 1);
            plain[n] = *s;
            if (letter != NULL) plain[n] = MEANT[letter - LETTER];
            n++;
        } else {
            plain[n++] = *s;
        }
    }
    return python_string(out, plain, n);
}

/* A word of JSON: true, false, null, or a number. Numbers with a point are written as Python prints
 * floats. */
static Status put_word(Text *out, const char **at)
{
    static const char *const WORD[][2] = { { "true", "True" },
                                           { "false", "False" },
                                           { "null", "None" } };
    size_t n = strcspn(*at, ",[]{}\"");
    const char *s = *at;
    *at += n;
    for (size_t i = 0; i < sizeof WORD / sizeof *WORD; i++) {
        if (strlen(WORD[i][0]) == n && memcmp(s, WORD[i][0], n) == 0)
            return text_append(out, WORD[i][1], strlen(WORD[i][1]));
    }
    if (n == 0 || memchr(s, '.', n) == NULL) return text_append(out, s, n);
    char number[TABLE_NUMBER_BYTES];
    table_number(number, strtod(s, NULL));
    return text_append(out, number, strlen(number));
}

/* One pass without a parser, since arguments in traces are flat or nested lists of numbers and
 * words. */
Status python_value(Text *out, const char *json, bool tuples)
{
    int elements = 0; /* of the innermost list; a tuple of one element is written (x,) */
    enum { DEEPEST = 64 };
    int outer[DEEPEST], depth = 0;
    const char *at = json;
    while (*at != '\0') {
        char c = *at;
        if (c == '"') {
            TRY(put_json_string(out, &at));
            elements += elements == 0;
        } else if (c == '[' && depth < DEEPEST) {
            outer[depth++] = elements == 0 ? 1 : elements;
            elements = 0;
            at++;
            TRY(text_append(out, tuples ? "(" : "[", 1));
        } else if (c == ']' && depth > 0) {
            TRY(text_printf(out, "%s%c", tuples && elements == 1 ? "," : "", tuples ? ')' : ']'));
            elements = outer[--depth];
            at++;
        } else if (c == ',') {
            elements++;
            at++;
            TRY(text_append(out, ", ", 2));
            /* objects, and brackets that do not fit, are copied */
        } else if (strchr("{}]:", c) != NULL || c == '[') {
            at++;
            TRY(text_append(out, &c, 1));
        } else {
            TRY(put_word(out, &at));
            elements += elements == 0;
        }
    }
    return OK;
}
