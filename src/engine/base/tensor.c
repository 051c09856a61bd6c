/* tensor: allocation, views and the text of a shape. Views share the memory of their tensor; nothing
 * here reads or writes elements. */
#include "engine/base/tensor.h"

#include <assert.h>
#include <stdio.h>

Status tensor_new(Arena *a, Dtype dtype, int rank, const int64_t *dim, Tensor *out)
{
    assert(rank >= 1 && rank <= TENSOR_MAX_RANK);
    Tensor t = { .dtype = dtype, .rank = rank };
    for (int i = 0; i < rank; i++) t.dim[i] = dim[i];
    TRY(arena_alloc(a, tensor_bytes(&t), &t.data));
    *out = t; /* outputs are set only on success */
    return OK;
}

Status tensor_new1(Arena *a, Dtype dtype, int64_t n, Tensor *out)
{
    return tensor_new(a, dtype, 1, (int64_t[]){ n }, out);
}

Status tensor_new2(Arena *a, Dtype dtype, int64_t rows, int64_t cols, Tensor *out)
{
    return tensor_new(a, dtype, 2, (int64_t[]){ rows, cols }, out);
}

Tensor tensor_as2(const Tensor *t, int64_t rows, int64_t cols)
{
    assert(rows * cols == tensor_elems(t));
    return (Tensor){ t->data, t->dtype, 2, { rows, cols } };
}

Tensor tensor_as4(const Tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    assert(a * b * c * d == tensor_elems(t));
    return (Tensor){ t->data, t->dtype, 4, { a, b, c, d } };
}

void *tensor_at(const Tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)i * dtype_bytes(t->dtype);
}

/* The bounds are checked even in release builds: a wrong window here would be a silent overlap on a
 * GPU. */
Tensor tensor_rows(const Tensor *t, int64_t first, int64_t n)
{
    assert(first >= 0 && n >= 0 && first + n <= t->dim[0]);
    Tensor view = *t;
    view.data = tensor_at(t, first * tensor_row_elems(t));
    view.dim[0] = n;
    return view;
}

const char *tensor_shape_text(const Tensor *t, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (int i = 0; i < t->rank && used < out_bytes; i++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%lld", i == 0 ? "(" : ", ",
                                 (long long)t->dim[i]);
    if (used < out_bytes)
        (void)snprintf(out + used, out_bytes - used, ") %s", dtype_name(t->dtype));
    return out;
}
