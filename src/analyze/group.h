/* group: rows with equal keys, and what their values come to. */
#ifndef ANALYZE_GROUP_H
#define ANALYZE_GROUP_H

#include "base/arena.h"

#include <stdbool.h>

/* Groups in the order of their first rows. */
typedef struct Groups {
    int64_t n;
    uint32_t *of;    /* the group of a row; of groups_ranked NULL */
    uint32_t *first; /* rows of group g, in order: row[first[g]] ... row[first[g + 1] - 1] */
    uint32_t *row;
    double *sum; /* of a group's values; of groups_make NULL */
} Groups;

/* `key` holds `width` numbers a row. */
Status groups_make(const uint32_t *key, int width, int64_t rows, Arena *a, Groups *out);
/* The same, groups by the falling sum of their rows' values (NULL: by how many rows they have).
 * magnitude: by what the sum is without its sign. */
Status groups_ranked(const uint32_t *key, int width, const double *value, bool magnitude,
                     int64_t rows, Arena *a, Groups *out);

/* The rows of group k, *n of them. */
static inline const uint32_t *groups_rows(const Groups *g, int64_t k, int64_t *n)
{
    *n = g->first[k + 1] - g->first[k];
    return g->row + g->first[k];
}

/* Places by falling value, or by rising value; of equal ones the first one first. */
Status groups_by(const double *value, int64_t n, Arena *a, uint32_t **out);
Status groups_rising(const double *value, int64_t n, Arena *a, uint32_t **out);
void sort_numbers(double *x, int64_t n);
double median_of(double *x, int64_t n); /* sorts; NaN of none */
void sort_ids(uint32_t *x, int64_t n);

typedef struct Summary {
    int64_t n;
    double sum, mean, median, min, max;
    double std; /* of a sample, NaN for one value */
} Summary;

/* Of value[row[0]] ... value[row[n - 1]], or of value[0] ... if row is NULL. Needs n numbers of
 * `a`, which are given back. */
Status summary_of(const double *value, const uint32_t *row, int64_t n, Arena *a, Summary *out);

/* The standard deviation of a whole population. */
double summary_std_all(const Summary *s);

#endif
