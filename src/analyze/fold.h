/*
 * fold: groups the rows of a table by keys, and makes a row of each group in another table.
 *
 * Most sheets are made so: a first table lists all launchers, kernels or gaps, and a Fold says what
 * the sheet shows of them. The first table is released afterwards. A fold knows nothing of traces, and
 * it filters nothing: who fills the first table leaves out what does not count.
 */
#ifndef ANALYZE_FOLD_H
#define ANALYZE_FOLD_H

#include "analyze/table.h"

/* The rows that are folded. Scratch memory comes from their table's arena. */
typedef struct FoldRows {
    Table t;
    double whole[2]; /* what shares are of; NaN: the sum over all groups */
    void *state;     /* for the sheet's functions */
} FoldRows;

/* Makes the cells of a group that are no statistics of a column: one for each column with the way
 * `more`, in their order. The group is rows row[0] ... row[n - 1]. */
typedef Status FoldMore(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a, Cell *out);

enum { FOLD_MORE = 4 };

/* Puts the row of cells that describe row `row`: cells that only the first row of a group shows. To
 * keep them in all rows would take most of the memory. */
typedef Status FoldDescribe(const FoldRows *rows, uint32_t row, Table *out);

/* `columns`: NAME=way COLUMN, with | between. A name may have table_init's marks before it. With a * in
 * the name there may be several ways with commas between: each is a column with the way for the *.
 * The ways:
 *   first                       the first row's cell; known: the first that is not empty
 *   tuple, list                 the same, JSON as Python prints it, lists as tuples or as lists
 *   n                           how many rows
 *   sum mean median std min max of the numbers; ms: the sum / 1000; whole: the sum of whole numbers
 *   share0 share1               percent that the sum is of whole[0], whole[1]; upto0: and all rows before
 *   more                        from f->more
 */
typedef struct Fold {
    const char *rows; /* columns of the rows that are folded */
    const char *keys; /* of these, with | between */
    const char *by;   /* of these: groups with larger sums of it come first; NULL: with more rows */
    const char *columns;
    FoldMore *more;
    const char *described; /* columns that `describe` fills; only first, tuple and list take them */
    FoldDescribe *describe;
    bool magnitude; /* the signs of these sums do not count */
    bool optional;  /* without rows there is no table, rather than an empty one */
} Fold;

/* Starts the table `out`, whose name is set, and fills it. `without`: see table_init. */
Status fold_rows(FoldRows *rows, const Fold *f, const char *without, Arena *a, Table *out);

#endif
