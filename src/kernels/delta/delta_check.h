/* delta_check (private to delta/): what the checks of its ops have in common. */
#ifndef KERNELS_DELTA_DELTA_CHECK_H
#define KERNELS_DELTA_DELTA_CHECK_H

#include "kernels/core/op.h"
#include "kernels/delta/delta.h"

/* Checks x and sizes of heads; that rows are whole sequences, and that doc has an entry for each; gradients of x and of
 * weights, which are optional. */
Status delta_check_x(const char *op, const Tensor *x, const DeltaDims *d);
Status delta_check_doc(const char *op, const Tensor *x, const Tensor *doc, int64_t sequence);
Status delta_check_dx(const char *op, const Tensor *x, const Tensor *dx, const Tensor *w,
                      const Tensor *dw);

/* The position of a row in its sequence, and that of the first token that it sees. */
static inline int64_t delta_position(const int64_t first[2], int64_t row, int64_t sequence)
{
    return first[row / sequence % 2] + row % sequence;
}
static inline int64_t delta_first(const Tensor *doc, int64_t row)
{
    return doc->data == NULL ? 0 : ((const int32_t *)doc->data)[row];
}

#endif
