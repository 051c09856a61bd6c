/* elementwise: check, cost and CPU version of add and cast, which are one family of ops: both read
 * x and write y element by element. */
#include "kernels/norm/elementwise.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum { PIECE = 4096 }; /* elements a thread converts at a time: two buffers stay in L1 */

Elementwise add_view(const Add *a) { return (Elementwise){ "add", &a->x, &a->y, true }; }

Elementwise cast_view(const Cast *a) { return (Elementwise){ "cast", &a->x, &a->y, false }; }

Status elementwise_check(const Elementwise *e)
{
    char have[96], want[96];
    const Tensor *x = e->x, *y = e->y;
    if (tensor_elems(x) == tensor_elems(y) && dtype_is_float(x->dtype) && dtype_is_float(y->dtype))
        return OK;
    return FAIL(ERR_SHAPE, "%s: y is %s, x is %s: counts differ, or a type is not floating-point",
                e->op, tensor_shape_text(y, have, sizeof have),
                tensor_shape_text(x, want, sizeof want));
}

OpCost elementwise_cost(const Elementwise *e)
{
    size_t y = tensor_bytes(e->y);
    return (OpCost){ .flops = e->adds ? (double)tensor_elems(e->x) : 0,
                     .bytes = (double)(tensor_bytes(e->x) + (e->adds ? 2 * y : y)) };
}

static void elementwise_piece(const Elementwise *e, int64_t first, int64_t n)
{
    float x_buffer[PIECE], y_buffer[PIECE];
    float *out = row_open(e->y, first, y_buffer);
    if (!e->adds) { /* a conversion to f32 needs no buffer */
        row_store(e->y, first, n, row_load(e->x, first, n, out));
        return;
    }
    const float *x = row_load(e->x, first, n, x_buffer), *y = row_load(e->y, first, n, y_buffer);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = y[i] + x[i];
    row_store(e->y, first, n, out);
}

Status elementwise_cpu(Exec *ex, const Elementwise *e)
{
    int64_t n = tensor_elems(e->x);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        elementwise_piece(e, first, n - first < PIECE ? n - first : PIECE);
    }
    return OK;
}

OP_PORTS(add, IN(Add, x), ADD(Add, y));

OP_PORTS(cast, IN(Cast, x), OUT(Cast, y));
