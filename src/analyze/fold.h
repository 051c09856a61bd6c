/*
 * fold: rows of one table with equal keys become one row of another: select, group, aggregate, order.
 *
 * Most sheets are that: a table of all launchers, kernels or gaps, which is thrown away, and a Fold that
 * says what stands in the sheet. It knows nothing of traces.
 */
#ifndef ANALYZE_FOLD_H
#define ANALYZE_FOLD_H

#include "analyze/table.h"

/* The rows that are folded, while they are. */
typedef struct FoldRows {
    Table t;
    double whole[2]; /* what shares are of; NaN: the sum over all groups */
    void *state;     /* of the sheet */
} FoldRows;

/* Cells of a group's row that no column has: one for each column whose way is `more`. */
typedef Status FoldMore(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a, Cell *out);

enum { FOLD_MORE = 4 };

/* `columns`: NAME=way COLUMN, with | between. A name may have table_init's marks before it. With a * in
 * the name there may be several ways with commas between: each is a column with the way for the *.
 * The ways:
 *   first                       the first row's cell
 *   tuple, list                 the same, JSON as Python prints it, lists as tuples or as lists
 *   n                           how many rows
 *   sum mean median std min max of the numbers; ms: the sum / 1000; whole: the sum of whole numbers
 *   share0 share1               percent that the sum is of whole[0], whole[1]; upto0: and all rows before
 *   more                        from f->more
 */
typedef struct Fold {
    const char *rows; /* columns of the rows that are folded */
    const char *keys; /* of these, with | between */
    const char *by; /* of these: groups come by its falling sums; NULL: by their numbers of rows */
    const char *columns;
    FoldMore *more;
    bool magnitude; /* their signs do not count for the order */
    bool optional;  /* there is no table where there are no rows */
} Fold;

/* Starts `out`, whose name is set, in `a`. */
Status fold_rows(FoldRows *rows, const Fold *f, const char *without, Arena *a, Table *out);

#endif
