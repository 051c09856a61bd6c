/* group: which rows have equal keys, and statistics of their values. It knows numbers only; fold.h
 * makes tables of both. */
#ifndef TRACES_TABLE_GROUP_H
#define TRACES_TABLE_GROUP_H

#include "engine/base/arena.h"

#include <stdbool.h>

/* Groups in the order of their first rows. */
typedef struct Groups {
    int64_t n;
    uint32_t *of;    /* of[row]: its group; NULL from groups_ranked */
    uint32_t *first; /* rows of group g, in order: row[first[g]] ... row[first[g + 1] - 1] */
    uint32_t *row;
    double *sum; /* of each group's values; NULL from groups_make */
} Groups;

/* Groups rows with equal keys. `key` has `width` numbers for each row. */
Status groups_make(const uint32_t *key, int width, int64_t rows, Arena *a, Groups *out);
/* Like groups_make, with the groups ordered by the sum of their rows' values, largest first. value
 * NULL: by their numbers of rows. magnitude: the signs of sums do not count. */
Status groups_ranked(const uint32_t *key, int width, const double *value, bool magnitude,
                     int64_t rows, Arena *a, Groups *out);

/* The rows of group k, *n of them. */
static inline const uint32_t *groups_rows(const Groups *g, int64_t k, int64_t *n)
{
    *n = g->first[k + 1] - g->first[k];
    return g->row + g->first[k];
}

/* The indices of values in falling or rising order; equal values keep their order. */
Status groups_by(const double *value, int64_t n, Arena *a, uint32_t **out);
Status groups_rising(const double *value, int64_t n, Arena *a, uint32_t **out);
void sort_numbers(double *x, int64_t n);
double median_of(double *x, int64_t n); /* sorts x; NaN if n is 0 */
void sort_ids(uint32_t *x, int64_t n);

/* Statistics of n values. All but the sum are NaN for no value. */
typedef struct Summary {
    int64_t n;
    double sum, mean, median, min, max;
    double std; /* of a sample: divided by n - 1; NaN for one value */
} Summary;

/* Of value[row[0]] ... value[row[n - 1]], or of value[0] ... value[n - 1] if row is NULL. Leaves
 * nothing in `a`. */
Status summary_of(const double *value, const uint32_t *row, int64_t n, Arena *a, Summary *out);

/* The standard deviation of a whole population. */
double summary_std_all(const Summary *s);

#endif
