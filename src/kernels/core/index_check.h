/*
 * index_check: checks that all indices of a tensor are in range. CPU versions of ops check before they use an index, so
 * a wrong one is an error with a sentence and not a write out of bounds. It is one pass over integers, cheap compared
 * with the rows that they name. GPUs do not check: each kernel says what it does with a wrong index.
 */
#ifndef KERNELS_CORE_INDEX_CHECK_H
#define KERNELS_CORE_INDEX_CHECK_H

#include "engine/base/tensor.h"

/* ERR_ARG unless least <= value < limit for every element of t (i32). */
static inline Status index_check_from(const char *op, const char *port, const Tensor *t,
                                      int64_t least, int64_t limit)
{
    const int32_t *value = (const int32_t *)t->data;
    int64_t n = tensor_elems(t), wrong = 0;
#pragma omp simd reduction(+ : wrong)
    for (int64_t i = 0; i < n; i++) wrong += value[i] < least || value[i] >= limit;
    if (wrong == 0) return OK;
    int64_t i = 0;
    while (value[i] >= least && value[i] < limit) i++;
    return FAIL(ERR_ARG, "%s: element %lld of %s is %d, outside %lld .. %lld", op, (long long)i,
                port, value[i], (long long)least, (long long)limit - 1);
}

static inline Status index_check(const char *op, const char *port, const Tensor *t, int64_t limit)
{
    return index_check_from(op, port, t, 0, limit);
}

#endif
