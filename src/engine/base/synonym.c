/* synonym: looks names up in the table of share/names.tsv, and says what they are here. */
#include "engine/base/synonym.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int plain(char c) { return c == '-' ? '_' : tolower((unsigned char)c); }

static bool same_name(const char *a, const char *b)
{
    for (a += strspn(a, "-"), b += strspn(b, "-"); *a != '\0' && plain(*a) == plain(*b); a++) b++;
    return *a == '\0' && *b == '\0';
}

/* `mark`: the first character of the rows that count, or 0 for all. */
static const Synonym *find(char mark, const char *name)
{
    for (int i = 0; i < synonyms_n; i++) {
        const char *typed = synonyms[i].typed;
        if (mark != 0 && *typed != mark) continue;
        if (same_name(typed + (mark != 0), name)) return &synonyms[i];
    }
    return NULL;
}

const Synonym *synonym_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    const Synonym *s = find(0, name);
    return s != NULL || dot == NULL ? s : find(0, dot + 1);
}

const Synonym *synonym_of_value(const char *value) { return find('=', value); }

const Synonym *synonym_of_address(const char *path)
{
    const char *colon = strstr(path, "://");
    char scheme[16];
    if (colon == NULL || colon - path > 8) return NULL;
    (void)snprintf(scheme, sizeof scheme, "%.*s://", (int)(colon - path), path);
    return find(0, scheme);
}

const char *synonym_answer(char out[SYNONYM_BYTES], const Synonym *s, const char *value)
{
    const bool noted = *s->note != '\0',
               carries = *s->ours != '\0' && s->ours[strlen(s->ours) - 1] == '=';
    const char *before = noted ? " (" : "", *after = noted ? ")" : "";
    const int bare = (int)strlen(s->ours) - carries;
    if (*s->ours == '\0') {
        (void)snprintf(out, SYNONYM_BYTES, "%s", s->note);
    } else if (value != NULL && (carries || strchr(s->ours, '=') != NULL)) {
        const Synonym *word = carries ? synonym_of_value(value) : NULL;
        if (word != NULL && *word->ours != '\0') value = word->ours;
        (void)snprintf(out, SYNONYM_BYTES, "write %s%.60s%s%s%s", s->ours, carries ? value : "",
                       before, s->note, after);
    } else {
        (void)snprintf(out, SYNONYM_BYTES, "it is %.*s here%s%s%s", bare, s->ours, before, s->note,
                       after);
    }
    return out;
}

const char *synonym_number(char out[SYNONYM_NUMBER_BYTES], const char *text)
{
    static const char units[] = "kmbt";
    char digits[32], *end = digits;
    size_t n = 0;
    for (; *text != '\0' && n < sizeof digits - 1; text++)
        if (*text != '_' && *text != ',') digits[n++] = *text;
    digits[n] = '\0';
    const double number = strtod(digits, &end), kibi = number * 1024;
    const char *unit = *end == '\0' ? NULL : strchr(units, tolower((unsigned char)*end));
    const double whole = unit == NULL ? number : number * pow(1000, (double)(unit - units + 1));
    if (!isdigit((unsigned char)*digits) || tolower(digits[1]) == 'x' ||
        whole != nearbyint(whole) || whole > 9e15 || strlen(end) != (unit != NULL))
        return NULL;
    const bool binary = unit == units && kibi == nearbyint(kibi);
    (void)snprintf(out, SYNONYM_NUMBER_BYTES, binary ? "%.0f or %.0f" : "%.0f", whole, kibi);
    return out;
}
