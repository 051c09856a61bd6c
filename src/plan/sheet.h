/*
 * sheet: named values in the order in which C code computes them. Each can be replaced by a number
 * that a user gives, and each can be opened into the values it is made of.
 *
 * A function fills a sheet with a line a value: SHEET_INPUT and SHEET_DEFINE make a local variable
 * of that name, so a later line uses earlier ones as plain C. The text of the expression is kept
 * for sheet_explain. So a formula is compiled and checked with the program, and its words are read
 * where they are needed.
 *
 * Not here: a language for users. What they give, behind a name or in a file, is numbers.
 */
#ifndef PLAN_SHEET_H
#define PLAN_SHEET_H

#include "base/arena.h"
#include "base/text.h"

#include <stdbool.h>

enum { SHEET_ROWS_MAX = 160, SHEET_GIVEN_MAX = 64 };

/* A number in place of what a sheet says. */
typedef struct SheetGiven {
    const char *name;
    double value;
    const char *unit, *source;
} SheetGiven;

/* Where a name is given more than once, the last one counts. */
typedef struct SheetGivens {
    SheetGiven at[SHEET_GIVEN_MAX];
    int n;
} SheetGivens;

typedef struct SheetRow {
    const char *name;
    const char *text; /* the expression; "": a number is given in its place; NULL: an input */
    const char *unit, *source;
    double value;
} SheetRow;

typedef struct Sheet {
    const char *name; /* for sentences: "stack primus" */
    const SheetGivens *given;
    SheetRow row[SHEET_ROWS_MAX];
    int n;
} Sheet;

#define SHEET_INPUT(sheet, name, from, input)                                                      \
    const double name = sheet_add((sheet), (SheetRow){ #name, NULL, "", (from), (input) });        \
    (void)(name);
/* The expression comes last, as it may have commas. */
#define SHEET_DEFINE(sheet, name, unit, from, ...)                                                 \
    const double name = sheet_add(                                                                 \
        (sheet), (SheetRow){ #name, #__VA_ARGS__, (unit), (from), (double)(__VA_ARGS__) });        \
    (void)(name);

/* Adds a row, or what is given in its place, and returns the value. */
double sheet_add(Sheet *s, SheetRow row);
/* Adds what is given under names that no row has. */
void sheet_end(Sheet *s);

int sheet_find(const Sheet *s, const char *name); /* -1: there is none */

/* A number for one of these names. ERR_ARG, with the nearest, if it is none of them. */
Status sheet_give(SheetGivens *g, const char *sheet, const char *const *names, int n,
                  const SheetGiven *value);
/* Behind the first comma of text: "NAME=NUMBER,...". */
Status sheet_give_text(SheetGivens *g, const char *sheet, const char *const *names, int n,
                       const char *text, Arena *a);

/* Appends "name = expression = value unit [source]" and, indented below it, the values it was made
 * from, down to `depth` levels. What was opened above is not opened again, and of c ? x : y the side
 * that is not taken is left out. */
Status sheet_explain(const Sheet *s, int row, int depth, Text *out);

/* For expressions, under the names that formulas use. */
static inline double min(double x, double y) { return x < y ? x : y; }
static inline double max(double x, double y) { return x > y ? x : y; }

#endif
