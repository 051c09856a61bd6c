/* table: cells in rows and named columns, written as CSV or JSON. All results of trace commands are
 * tables. It does not compute: fold.h does. */
#ifndef TRACES_TABLE_TABLE_H
#define TRACES_TABLE_TABLE_H

#include "engine/base/file.h"
#include "engine/base/text.h"

/* CELL_NUMBER is a double and is always written with a point; CELL_WHOLE is an integer. */
typedef enum CellType { CELL_NONE, CELL_TEXT, CELL_NUMBER, CELL_WHOLE, CELL_BOOL } CellType;

/* One value. A cell of zeros is empty. */
typedef struct Cell {
    CellType type;
    union {
        const char *text;
        double number;
        int64_t whole;
        bool truth;
    };
} Cell;

/* Cells lie row by row. Texts are pointers, and must live as long as the table. */
typedef struct Table {
    const char *name; /* of the sheet, and of its file: "gpu_timeline" */
    Arena *arena;     /* cells, and whatever the cells point to */
    const char **column;
    int columns;
    bool *lacks; /* lacks[word]: this word of table_add is not a column of this table */
    int words;
    Cell *cell;
    int word, filled; /* where the next cell of the last row goes: its word, its column */
    int64_t rows, room, column_room, word_room; /* room: of the arrays, in elements */
} Table;

/* Starts a table. `columns` is a list of words with | between. A word that begins with one of
 * the marks ? + @ is a column that not every table has. It is left out if its mark is among
 * `without`. */
Status table_init(Table *t, const char *name, const char *columns, const char *without, Arena *a);
/* More columns, each with `prefix` before its name. Only while there are no rows. */
Status table_add(Table *t, const char *prefix, const char *columns, const char *without);
/* Adds a row of empty cells. *out is valid until the next row is added. */
Status table_row(Table *t, Cell **out);
/* TABLE_ROW begins a row with these cells, one for each word. Cells of words that are not
 * columns are dropped. TABLE_MORE adds the next cells of the last row. Cells that are not given
 * are empty. */
#define TABLE_CELLS(...)                                                                           \
    (const Cell[]){ __VA_ARGS__ }, (int)(sizeof((const Cell[]){ __VA_ARGS__ }) / sizeof(Cell))
#define TABLE_ROW(t, ...)  table_put((t), TABLE_CELLS(__VA_ARGS__))
#define TABLE_MORE(t, ...) table_more((t), TABLE_CELLS(__VA_ARGS__))
Status table_put(Table *t, const Cell *cell, int n);
void table_more(Table *t, const Cell *cell, int n);

/* table_drop removes the columns with these names (| between), table_filter the rows whose flag is
 * false. */
Status table_drop(Table *t, const char *names);
void table_filter(Table *t, const bool *keep);

/* The index of a column; -1: there is none. */
int table_column(const Table *t, const char *name);
static inline Cell *table_at(const Table *t, int64_t row, int column)
{
    return &t->cell[row * t->columns + column];
}

static inline Cell cell_none(void) { return (Cell){ 0 }; }
static inline Cell cell_number(double x) { return (Cell){ CELL_NUMBER, .number = x }; }
static inline Cell cell_whole(int64_t x) { return (Cell){ CELL_WHOLE, .whole = x }; }
static inline Cell cell_bool(bool x) { return (Cell){ CELL_BOOL, .truth = x }; }
/* An empty cell for NULL, or for a count < 0. */
static inline Cell cell_text(const char *s)
{
    return (Cell){ s == NULL ? CELL_NONE : CELL_TEXT, .text = s };
}
static inline Cell cell_count(int64_t x) { return x < 0 ? cell_none() : cell_whole(x); }

double cell_value(const Cell *c); /* NaN: it is not a number */

static inline double percent_of(double part, double whole) /* 0 of nothing */
{
    return whole == 0 ? 0 : part / whole * 100;
}

/* x with the fewest digits that read back, as Python prints it: "1.0", "1e-05", "nan". Returns
 * out. */
enum { TABLE_NUMBER_BYTES = 40 };
const char *table_number(char out[TABLE_NUMBER_BYTES], double x);

/* Writes CSV (RFC 4180) as pandas does. Numbers have the fewest digits that read back, whole reals
 * end in .0, NaN and CELL_NONE are empty, bools are True and False. */
Status table_csv(const Table *t, File *out);
/* Writes an array of objects, one for each row. */
Status table_json(const Table *t, File *out);

#endif
