/*
 * sheet: named values in the order in which C code computes them. A user can replace each value by a number, and
 * can have each explained by the values that it is computed from.
 *
 * A function fills a sheet with one line for each value. SHEET_INPUT and SHEET_DEFINE make a local variable with
 * that name, so later lines use earlier ones as plain C. The text of the expression is kept for
 * sheet_explain. So formulas are compiled and checked with the program, and can still be shown.
 *
 * Not here: a language for users. They give only numbers.
 */
#ifndef PLANNER_STACK_SHEET_H
#define PLANNER_STACK_SHEET_H

#include "engine/base/arena.h"
#include "engine/base/text.h"

enum { SHEET_ROWS_MAX = 160, SHEET_GIVEN_MAX = 64 };

/* A number that replaces a value of a sheet. */
typedef struct SheetGiven {
    const char *name;
    double value;
    const char *unit, *source;
} SheetGiven;

/* If a name is given more than once, the last number counts. */
typedef struct SheetGivens {
    SheetGiven at[SHEET_GIVEN_MAX];
    int n;
} SheetGivens;

/* A value of a sheet, with where it comes from. */
typedef struct SheetRow {
    const char *name;
    const char *text; /* the expression; "": a number is given in its place; NULL: an input */
    const char *unit, *source;
    double value;
} SheetRow;

/* Rows in the order in which they were computed. It is filled by one function and then only read. */
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

/* Adds a row, or the number given for it, and returns its value. */
double sheet_add(Sheet *s, SheetRow row);
/* Adds the given numbers whose names no row has. */
void sheet_end(Sheet *s);

int sheet_find(const Sheet *s, const char *name); /* -1: there is none */

/* Adds a given number for one of these names. ERR_ARG, with the nearest name: it is none of them. */
Status sheet_give(SheetGivens *g, const char *sheet, const char *const *names, int n,
                  const SheetGiven *value);
/* Adds the numbers after the first comma of text: "NAME=NUMBER,...". */
Status sheet_give_text(SheetGivens *g, const char *sheet, const char *const *names, int n,
                       const char *text, Arena *a);

/* Appends "name = expression = value unit [source]" and, indented below it, the values that it was computed from,
 * down to `depth` levels. A value is explained once, and of c ? x : y only the side that was taken. */
Status sheet_explain(const Sheet *s, int row, int depth, Text *out);

/* For expressions, under the names that formulas use. */
static inline double min(double x, double y) { return x < y ? x : y; }
static inline double max(double x, double y) { return x > y ? x : y; }

#endif
