/* tensor: a pointer with a type and a shape, always row-major and contiguous. That rule removes strides
 * from every kernel's signature. A "row" is one index of dim 0 with all elements of the other dims; the
 * last dim is called columns. A Tensor is a value: copying it does not copy its memory. */
#ifndef ENGINE_BASE_TENSOR_H
#define ENGINE_BASE_TENSOR_H

#include "engine/base/arena.h"
#include "engine/base/dtype.h"

#include <stdint.h>

enum { TENSOR_MAX_RANK = 4 };

/* dim[0] is the slowest dimension. Entries from `rank` on are not used. */
typedef struct Tensor {
    void *data; /* lives in the arena that it was made in; NULL: not set */
    Dtype dtype;
    int rank;
    int64_t dim[TENSOR_MAX_RANK];
} Tensor;

static inline int64_t tensor_elems(const Tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

static inline size_t tensor_bytes(const Tensor *t)
{
    return (size_t)tensor_elems(t) * dtype_bytes(t->dtype);
}

/* Elements of one index of dim 0. */
static inline int64_t tensor_row_elems(const Tensor *t)
{
    int64_t n = 1;
    for (int i = 1; i < t->rank; i++) n *= t->dim[i];
    return n;
}

static inline int64_t tensor_cols(const Tensor *t) { return t->dim[t->rank - 1]; }

/* Set *out to a new tensor in `a`, contents undefined. */
Status tensor_new1(Arena *a, Dtype dtype, int64_t n, Tensor *out);
Status tensor_new2(Arena *a, Dtype dtype, int64_t rows, int64_t cols, Tensor *out);
Status tensor_new(Arena *a, Dtype dtype, int rank, const int64_t *dim, Tensor *out);

/* The same memory seen as (rows, cols); the element count must be equal (asserted). These are
 * views: they allocate nothing and stay valid as long as the memory of t. */
Tensor tensor_as2(const Tensor *t, int64_t rows, int64_t cols);
Tensor tensor_as4(const Tensor *t, int64_t a, int64_t b, int64_t c, int64_t d);

/* Rows [first, first + n) of dim 0, without a copy. */
Tensor tensor_rows(const Tensor *t, int64_t first, int64_t n);

/* Address of element i. */
void *tensor_at(const Tensor *t, int64_t i);

/* "(4, 128) bf16" into `out`, for messages. Returns out. */
const char *tensor_shape_text(const Tensor *t, char *out, size_t out_bytes);

#endif
