/* table: a result with named columns, written as CSV, JSON or into a page. */
#ifndef ANALYZE_TABLE_H
#define ANALYZE_TABLE_H

#include "base/file.h"
#include "base/text.h"

typedef enum CellType { CELL_NONE, CELL_TEXT, CELL_NUMBER, CELL_WHOLE, CELL_BOOL } CellType;

typedef struct Cell {
    CellType type;
    union {
        const char *text;
        double number;
        int64_t whole;
        bool truth;
    };
} Cell;

/* Cells lie by row. Names and texts are kept as pointers. */
typedef struct Table {
    const char *name; /* of the sheet, and of its file: gpu_timeline */
    Arena *arena;     /* cells, and whatever the cells point to */
    const char *const *column;
    int columns;
    Cell *cell;
    int64_t rows, room;
} Table;

Status table_init(Table *t, const char *name, const char *const *column, int columns, Arena *a);
/* A new row of empty cells, valid until the next one is asked for. */
Status table_row(Table *t, Cell **out);

static inline Cell cell_text(const char *s) { return (Cell){ CELL_TEXT, .text = s }; }
static inline Cell cell_number(double x) { return (Cell){ CELL_NUMBER, .number = x }; }
static inline Cell cell_whole(int64_t x) { return (Cell){ CELL_WHOLE, .whole = x }; }
static inline Cell cell_bool(bool x) { return (Cell){ CELL_BOOL, .truth = x }; }

/* x with the fewest digits that read back, as Python prints it: "1.0", "1e-05", "nan". Returns out. */
enum { TABLE_NUMBER_BYTES = 40 };
const char *table_number(char out[TABLE_NUMBER_BYTES], double x);

/* RFC 4180; numbers with the fewest digits that read back, whole ones with .0, NaN and CELL_NONE
 * empty, bools True and False: what pandas writes. */
Status table_csv(const Table *t, File *out);
/* An array of objects. */
Status table_json(const Table *t, File *out);

#endif
