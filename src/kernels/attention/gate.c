/* gate: check, cost and CPU version of both ops, which are one family. A head is walked in pieces. */
#include "kernels/attention/gate.h"

#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum { PIECE = 256 }; /* columns */

Gate gate_fwd_view(const GateFwd *a)
{
    return (Gate){ "gate_fwd", &a->x, &a->o, NULL, &a->y, a->heads };
}

Gate gate_bwd_view(const GateBwd *a)
{
    return (Gate){ "gate_bwd", &a->x, &a->d_o, &a->o, &a->dx, a->heads };
}

Status gate_check(const Gate *g)
{
    const int64_t n = g->x->dim[0], cols = tensor_row_elems(g->in), width = tensor_row_elems(g->x);
    const bool back = g->o != NULL;
    TRY(op_expect_act(g->op, "x", g->x, n, -1));
    TRY(op_expect(g->op, back ? "d_o" : "o", g->in, n, -1, g->x->dtype));
    if (g->heads < 1 || cols % g->heads != 0)
        return FAIL(ERR_SHAPE, "%s: %lld heads do not divide the %lld columns of %s", g->op,
                    (long long)g->heads, (long long)cols, back ? "d_o" : "o");
    TRY(op_expect_window(g->op, "x", g->x, 0, 2 * cols));
    if (back) TRY(op_expect(g->op, "o", g->o, n, cols, g->x->dtype));
    return op_expect(g->op, back ? "dx" : "y", g->out, n, back ? width : cols, g->x->dtype);
}

/* Gates, o and d_o are read, and as much is written. */
OpCost gate_cost(const Gate *g)
{
    const bool back = g->o != NULL;
    return (OpCost){ .flops = (back ? 6 : 4) * (double)tensor_elems(g->in),
                     .bytes = (back ? 4 : 3) * (double)tensor_bytes(g->in) };
}

/* Columns [col, col + n) of head i % H of row i / H; `at`: its gate's first element. */
static void gate_piece(const Gate *g, int64_t i, int64_t at, int64_t col, int64_t n)
{
    const int64_t d = tensor_row_elems(g->in) / g->heads, to = g->o != NULL ? at : i * d;
    float x_buffer[PIECE], in_buffer[PIECE], o_buffer[PIECE], out_buffer[PIECE];
    const float *x = row_load(g->x, at + col, n, x_buffer);
    const float *in = row_load(g->in, i * d + col, n, in_buffer);
    const float *o = g->o == NULL ? NULL : row_load(g->o, i * d + col, n, o_buffer);
    float *out = row_open(g->out, to + col, out_buffer);
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = o == NULL ? in[j] / (1 + exp_f32(-x[j])) : in[j] * o[j] / (1 + exp_f32(x[j]));
    row_store(g->out, to + col, n, out);
}

Status gate_cpu(Exec *ex, const Gate *g)
{
    const int64_t d = tensor_row_elems(g->in) / g->heads, heads = g->heads;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < g->x->dim[0] * heads; i++) {
        const int64_t at = i / heads * tensor_row_elems(g->x) + (2 * (i % heads) + 1) * d;
        for (int64_t col = 0; col < d; col += PIECE)
            gate_piece(g, i, at, col, least(d - col, PIECE));
    }
    return OK;
}

OP_PORTS(gate_fwd, IN(GateFwd, x), IN(GateFwd, o), OUT(GateFwd, y));
OP_PORTS(gate_bwd, IN(GateBwd, x), IN(GateBwd, o), IN(GateBwd, d_o), OUT_PART(GateBwd, dx));
