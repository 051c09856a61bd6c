/* order: the smaller and the larger of two numbers, pieces of a row, and sorted measurements. */
#ifndef ENGINE_BASE_ORDER_H
#define ENGINE_BASE_ORDER_H

#include <stdint.h>
#include <stdlib.h>

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int order_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* qsort takes no NULL, not even of no numbers. */
static inline void sort_doubles(double *v, int64_t n)
{
    if (n > 0) qsort(v, (size_t)n, sizeof *v, order_doubles);
}

#endif
