/*
 * fold: groups the rows of a table by keys, and makes one row of each group in another table, like
 * GROUP BY in SQL.
 *
 * Most sheets are made this way. A first table lists all launchers, kernels or gaps; a Fold says
 * what the sheet shows of them. The first table is released afterwards. A fold knows nothing of
 * traces and filters nothing: whoever fills the first table leaves out what does not count.
 */
#ifndef TRACES_TABLE_FOLD_H
#define TRACES_TABLE_FOLD_H

#include "traces/table/table.h"

/* The rows that are folded. Scratch memory comes from their table's arena. */
typedef struct FoldRows {
    Table t;
    double whole[2]; /* what share0 and share1 are percent of; NaN: the sum over all groups */
    void *state;     /* for the sheet's functions */
} FoldRows;

/* Makes the cells of a group that are not a statistic of a column: one for each column with the
 * aggregate `more`, in their order. The group is rows row[0] ... row[n - 1]. */
typedef Status FoldMore(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a, Cell *out);

enum { FOLD_MORE = 4 };

/* Puts the cells that describe row `row`. These are cells that only the first row of a group shows;
 * keeping them in all rows would take most of the memory. */
typedef Status FoldDescribe(const FoldRows *rows, uint32_t row, Table *out);

/* `columns`: NAME=AGGREGATE COLUMN, with | between. A name may have table_init's marks before it. With
 * a * in the name there may be several aggregates with commas between. Each is a column of its own,
 * with the aggregate's word for the *. The aggregates:
 *   first                       the first row's cell; known: the first that is not empty
 *   tuple, list                 the same, JSON as Python prints it, lists as tuples or as lists
 *   n                           how many rows
 *   sum mean median std min max of the numbers; ms: the sum / 1000; whole: the sum of whole numbers
 *   share0 share1               the sum in percent of whole[0], whole[1]; upto0: with all rows before
 *   more                        from f->more
 */
typedef struct Fold {
    const char *rows; /* columns of the rows that are folded */
    const char *keys; /* those of these columns that make a group, with | between */
    const char *by;   /* groups with larger sums of this column come first; NULL: with more rows */
    const char *columns;
    FoldMore *more;
    const char *described; /* columns that `describe` fills; only first, tuple and list take them */
    FoldDescribe *describe;
    bool magnitude; /* order groups by the magnitude of the sums */
    bool optional;  /* without rows make no table, rather than an empty one */
} Fold;

/* Starts the table `out`, whose name is set, and fills it. `without`: see table_init. */
Status fold_rows(FoldRows *rows, const Fold *f, const char *without, Arena *a, Table *out);

#endif
