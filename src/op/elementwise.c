#include "op/cpu_math.h"
#include "op/op.h"

enum { PIECE = 4096 }; /* elements a thread converts at a time: two buffers stay in L1 */

static bool floating(Dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16 || t == DTYPE_E4M3 ||
           t == DTYPE_E5M2;
}

static Status same_count(const char *op, const Tensor *x, const Tensor *y)
{
    char have[96], want[96];
    if (tensor_elems(x) == tensor_elems(y) && floating(x->dtype) && floating(y->dtype)) return OK;
    return FAIL(ERR_SHAPE, "%s: y is %s, x is %s: counts differ or a type is no floating one", op,
                tensor_shape_text(y, have, sizeof have), tensor_shape_text(x, want, sizeof want));
}

Status add_check(const void *args)
{
    const Add *a = args;
    return same_count("add", &a->x, &a->y);
}

OpCost add_cost(const void *args)
{
    const Add *a = args;
    return (OpCost){ .flops = (double)tensor_elems(&a->x),
                     .bytes = (double)(tensor_bytes(&a->x) + 2 * tensor_bytes(&a->y)) };
}

Status add_cpu(Exec *ex, const void *args)
{
    const Add *a = args;
    int64_t n = tensor_elems(&a->x);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        float x_buffer[PIECE], y_buffer[PIECE];
        int64_t m = n - first < PIECE ? n - first : PIECE;
        const float *x = row_load(&a->x, first, m, x_buffer);
        const float *y = row_load(&a->y, first, m, y_buffer);
        float *out = row_open(&a->y, first, y_buffer);
#pragma omp simd
        for (int64_t i = 0; i < m; i++) out[i] = y[i] + x[i];
        row_store(&a->y, first, m, out);
    }
    return OK;
}

OP_PORTS(add, IN(Add, x), ADD(Add, y));

Status cast_check(const void *args)
{
    const Cast *a = args;
    return same_count("cast", &a->x, &a->y);
}

OpCost cast_cost(const void *args)
{
    const Cast *a = args;
    return (OpCost){ .bytes = (double)(tensor_bytes(&a->x) + tensor_bytes(&a->y)) };
}

Status cast_cpu(Exec *ex, const void *args)
{
    const Cast *a = args;
    int64_t n = tensor_elems(&a->x);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        float buffer[PIECE];
        int64_t m = n - first < PIECE ? n - first : PIECE;
        float *wide = row_open(&a->y, first, buffer); /* to f32: no detour over the buffer */
        row_store(&a->y, first, m, row_load(&a->x, first, m, wide));
    }
    return OK;
}

OP_PORTS(cast, IN(Cast, x), OUT(Cast, y));
