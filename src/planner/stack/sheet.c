/* sheet: adds rows, replaces them by given numbers, and explains a row by the rows that its text names. */
#include "planner/stack/sheet.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

/* ---- rows ---- */

/* A given number replaces value, unit and source; the text is empty, so it is not explained further. */
static SheetRow row_given(const SheetGiven *g, const char *text)
{
    return (SheetRow){ g->name, text, g->unit, g->source, g->value };
}

/* Returns the value that counts, the given one if there is one: definitions use it as a local variable. */
double sheet_add(Sheet *s, SheetRow row)
{
    for (int i = 0; s->given != NULL && i < s->given->n; i++) {
        if (strcmp(s->given->at[i].name, row.name) != 0) continue;
        row = row_given(&s->given->at[i], row.text == NULL ? NULL : "");
    }
    assert(s->n < SHEET_ROWS_MAX);
    s->row[s->n++] = row;
    return row.value;
}

/* For names that only other stacks define: they, too, may be given. */
void sheet_end(Sheet *s)
{
    for (int i = 0; s->given != NULL && i < s->given->n; i++) {
        if (sheet_find(s, s->given->at[i].name) < 0) sheet_add(s, row_given(&s->given->at[i], ""));
    }
}

/* From the end: if a name is defined twice the later row counts. */
int sheet_find(const Sheet *s, const char *name)
{
    int i = s->n - 1;
    while (i >= 0 && strcmp(s->row[i].name, name) != 0) i--;
    return i;
}

/* ---- numbers that are given ---- */

enum { LIST_BYTES = 900, NAME_BYTES = 64 };

/* Only names that the sheet has may be given, so a typing error is refused instead of ignored. */
Status sheet_give(SheetGivens *g, const char *sheet, const char *const *names, int n,
                  const SheetGiven *value)
{
    char hint[TEXT_HINT_BYTES], list[LIST_BYTES] = "; it has";
    int i = 0;
    size_t at = strlen(list);
    while (i < n && strcmp(names[i], value->name) != 0) i++;
    for (int k = 0; k < n && i == n && at < LIST_BYTES - NAME_BYTES; k++) {
        bool first = true;
        for (int b = 0; b < k; b++) first &= strcmp(names[b], names[k]) != 0;
        if (first) at += (size_t)snprintf(list + at, NAME_BYTES, " %s", names[k]);
    }
    if (i == n)
        return FAIL(ERR_ARG, "%s: %.64s is neither an input nor a definition%s", sheet, value->name,
                    text_hint(hint, value->name, names, n, list));
    if (g->n == SHEET_GIVEN_MAX)
        return FAIL(ERR_ARG, "%s: more than %d values are given", sheet, SHEET_GIVEN_MAX);
    g->at[g->n++] = *value;
    return OK;
}

Status sheet_give_text(SheetGivens *g, const char *sheet, const char *const *names, int n,
                       const char *text, Arena *a)
{
    for (const char *at = text + strcspn(text, ","); *at == ',';) {
        SheetGiven one = { .unit = "", .source = "given" };
        const char *name = at + 1, *number = name + strcspn(name, "=,") + 1;
        char *end = NULL;
        at = name + strcspn(name, ",");
        if (number > at) return FAIL(ERR_ARG, "%s: %.60s is not NAME=NUMBER", sheet, name);
        TRY(arena_text(a, name, (size_t)(number - name) - 1, &one.name));
        one.value = strtod(number, &end);
        /* strtod alone takes hexadecimal, too */
        if (end != at || end == number || strspn(number, "0123456789.eE+-") < (size_t)(at - number))
            return FAIL(ERR_ARG, "%s: %s=%.*s: a decimal number is expected after the =", sheet,
                        one.name, (int)(at - number), number);
        if (!isfinite(one.value))
            return FAIL(ERR_ARG, "%s: %s=%.*s: the value is not finite", sheet, one.name,
                        (int)(at - number), number);
        TRY(sheet_give(g, sheet, names, n, &one));
    }
    return OK;
}

/* ---- what a value is made of ---- */

/* The rows that a text names, while it is read. */
typedef struct Uses {
    const Sheet *sheet;
    const char *at;
    int row[SHEET_ROWS_MAX], n;
} Uses;

/* The row of the name that stands at `text`; -1: none. */
static int row_named(const Sheet *s, const char *text, size_t n)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)n, text);
    return sheet_find(s, name);
}

/* Adds a row once, in the order in which the text names it. */
static void use_row(Uses *u, int row)
{
    int i = 0;
    while (i < u->n && u->row[i] != row) i++;
    if (i == u->n && row >= 0) u->row[u->n++] = row;
}

/* Evaluates a condition: "NAME" or "NAME < NUMBER", with one of < <= > >= ==. */
static bool condition_holds(const Sheet *s, const char *text)
{
    text += strspn(text, " ");
    size_t n = strspn(text, name_chars);
    int row = row_named(s, text, n);
    double value = row < 0 ? 0 : s->row[row].value;
    const char *op = text + n + strspn(text + n, " ");
    if (strchr("<>=", *op) == NULL) return value != 0;
    double limit = strtod(op + strspn(op, "<>="), NULL);
    if (value == limit) return op[1] == '=';
    return *op == '<' ? value < limit : *op == '>' && value > limit;
}

/* Walks over the text up to the bracket or colon that ends this part. Names count only if the part is `taken`. */
static void find_uses(Uses *u, bool taken)
{
    const char *begin = u->at;
    while (*u->at != '\0' && *u->at != ')' && *u->at != ':') {
        size_t n = strspn(u->at, name_chars);
        char sign = *u->at;
        if (n > 0 && taken) use_row(u, row_named(u->sheet, u->at, n));
        u->at += n > 0 ? n : 1;
        if (sign == '(') {
            find_uses(u, taken);
            u->at += *u->at == ')';
        }
        if (sign != '?') continue;
        bool yes = condition_holds(u->sheet, begin);
        find_uses(u, taken && yes);
        u->at += *u->at == ':';
        find_uses(u, taken && !yes);
    }
}

/* " = VALUE UNIT  [SOURCE]" */
static Status print_value(Text *out, double v, const char *unit, const char *source)
{
    char digits[32];
    bool whole_number = fabs(v) < 9e15 && v == nearbyint(v), quoted = *source != '\0';
    (void)snprintf(digits, sizeof digits, "%.10g", v);
    if (whole_number) text_thousands(digits, (int64_t)v);
    return text_printf(out, " = %s%s%s%s%s%s\n", digits, *unit == '\0' ? "" : " ", unit,
                       quoted ? "  [" : "", source, quoted ? "]" : "");
}

/* opened: by row, whether it has been explained above.
 * A row that is used several times is explained once and says "above" after that. */
static Status explain_row(const Sheet *s, int i, int depth, int indent, bool *opened, Text *out)
{
    const SheetRow *r = &s->row[i];
    bool plain = r->text == NULL || r->text[strspn(r->text, "0123456789.")] == '\0';
    TRY(text_printf(out, "%*s%s", indent, "", r->name));
    if (plain) return print_value(out, r->value, r->unit, r->source);
    if (opened[i]) return print_value(out, r->value, r->unit, "above");
    TRY(text_printf(out, " = %s", r->text));
    TRY(print_value(out, r->value, r->unit, r->source));
    if (depth == 0) return OK;
    opened[i] = true;
    Uses u = { .sheet = s, .at = r->text };
    find_uses(&u, true);
    for (int k = 0; k < u.n; k++) TRY(explain_row(s, u.row[k], depth - 1, indent + 2, opened, out));
    return OK;
}

Status sheet_explain(const Sheet *s, int row, int depth, Text *out)
{
    bool opened[SHEET_ROWS_MAX] = { false };
    return explain_row(s, row, depth, 0, opened, out);
}
