/* swiglu: check, cost and CPU version of both directions, for MLPs. Experts have SwiGLU inside
 * their products (moe_up.c, moe_down.c). */
#include "kernels/moe/swiglu.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum { PIECE = 1024 }; /* columns that a thread works on at a time */

Glu glu_clamped(float limit)
{
    return (Glu){ .limit = limit, .shift = 1, .slope = 1.702f, .reach = INFINITY };
}

Glu glu_gelu(void)
{
    const double twice = 2 * sqrt(2 / M_PI);
    return (Glu){
        .limit = INFINITY, .slope = (float)twice, .cube = (float)(twice * 0.044715), .reach = 12
    };
}

Status swiglu_fwd_check(const SwigluFwd *a)
{
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    TRY(op_expect_act("swiglu_fwd", "gu", &a->gu, n, 2 * f));
    TRY(op_expect("swiglu_fwd", "y", &a->y, n, f, a->gu.dtype));
    return quant_out_check("swiglu_fwd", "y", &a->quant, &a->y);
}

/* An exponential counts as one, with the sum, the division and two products. */
OpCost swiglu_fwd_cost(const SwigluFwd *a)
{
    OpCost cost = { .flops = 5 * (double)tensor_elems(&a->y),
                    .bytes = (double)tensor_bytes(&a->gu) };
    quant_out_cost(&cost, &a->quant, &a->y);
    return cost;
}

size_t swiglu_fwd_workspace(const Exec *ex, const SwigluFwd *a)
{
    return quant_out_workspace(ex, &a->quant, &a->y);
}

/* A row of gu is gate then up, so the pieces of both lie f columns apart. */
static void swiglu_forward_piece(const SwigluFwd *a, int64_t row, int64_t f, int64_t col, int64_t n)
{
    float g_buffer[PIECE], u_buffer[PIECE];
    const float *g = row_load(&a->gu, row * 2 * f + col, n, g_buffer);
    const float *u = row_load(&a->gu, row * 2 * f + f + col, n, u_buffer);
    float *y = row_open(&a->y, row * f + col, u_buffer);
    glu_f32(y, g, u, n, a->glu);
    row_store(&a->y, row * f + col, n, y);
}

Status swiglu_fwd_cpu(Exec *ex, const SwigluFwd *a)
{
    SwigluFwd open = *a;
    open.y = quant_out_open(&a->quant, a->y, ex->workspace);
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < n; row++) {
        for (int64_t col = 0; col < f; col += PIECE) {
            swiglu_forward_piece(&open, row, f, col, f - col < PIECE ? f - col : PIECE);
        }
    }
    return quant_out_cpu(ex, &a->quant, &open.y, ex->workspace);
}

OP_PORTS(swiglu_fwd, IN(SwigluFwd, gu), OUT_OPT(SwigluFwd, y),
         OUT_OPERAND_OPT(SwigluFwd, quant.rows), OUT_OPERAND_OPT(SwigluFwd, quant.columns));

Status swiglu_bwd_check(const SwigluBwd *a)
{
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
    TRY(op_expect_act("swiglu_bwd", "gu", &a->gu, n, 2 * f));
    TRY(op_expect("swiglu_bwd", "dy", &a->dy, n, f, a->gu.dtype));
    TRY(op_expect("swiglu_bwd", "dgu", &a->dgu, n, 2 * f, a->gu.dtype));
    return quant_out_check("swiglu_bwd", "dgu", &a->quant, &a->dgu);
}

OpCost swiglu_bwd_cost(const SwigluBwd *a)
{
    OpCost cost = { .flops = 12 * (double)tensor_elems(&a->dy),
                    .bytes = (double)(tensor_bytes(&a->dy) + tensor_bytes(&a->gu)) };
    quant_out_cost(&cost, &a->quant, &a->dgu);
    return cost;
}

size_t swiglu_bwd_workspace(const Exec *ex, const SwigluBwd *a)
{
    return quant_out_workspace(ex, &a->quant, &a->dgu);
}

/* dgu may be gu: both pieces are read into buffers, or read element by element, before they are written. */
static void swiglu_backward_piece(const SwigluBwd *a, int64_t row, int64_t f, int64_t col,
                                  int64_t n)
{
    float g_buffer[PIECE], u_buffer[PIECE], d_buffer[PIECE];
    int64_t at_g = row * 2 * f + col, at_u = at_g + f;
    const float *dy = row_load(&a->dy, row * f + col, n, d_buffer);
    const float *g = row_load(&a->gu, at_g, n, g_buffer);
    const float *u = row_load(&a->gu, at_u, n, u_buffer);
    float *dg = row_open(&a->dgu, at_g, g_buffer), *du = row_open(&a->dgu, at_u, u_buffer);
    const Glu glu = a->glu; /* a load in the loop, where stores may alias, keeps it from vectors */
    if (glu.limit > 0) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            GluSlopes c = glu_slopes(glu, g[i], u[i]);
            float d = dy[i];
            dg[i] = d * c.by_gate;
            du[i] = d * c.by_up;
        }
    } else { /* y = g s u, s = 1 / (1 + e^-g):   dg = dy u s (1 + g (1 - s)),   du = dy g s */
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float s = 1 / (1 + exp_f32(-g[i])), gi = g[i], ui = u[i], d = dy[i];
            dg[i] = d * ui * s * (1 + gi * (1 - s));
            du[i] = d * gi * s;
        }
    }
    row_store(&a->dgu, at_g, n, dg);
    row_store(&a->dgu, at_u, n, du);
}

Status swiglu_bwd_cpu(Exec *ex, const SwigluBwd *a)
{
    SwigluBwd open = *a;
    open.dgu = quant_out_open(&a->quant, a->dgu, ex->workspace);
    int64_t n = a->gu.dim[0], f = tensor_row_elems(&a->gu) / 2;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < n; row++) {
        for (int64_t col = 0; col < f; col += PIECE) {
            swiglu_backward_piece(&open, row, f, col, f - col < PIECE ? f - col : PIECE);
        }
    }
    return quant_out_cpu(ex, &a->quant, &open.dgu, ex->workspace);
}

OP_PORTS(swiglu_bwd, IN(SwigluBwd, dy), IN(SwigluBwd, gu), OUT_OPT(SwigluBwd, dgu),
         OUT_OPERAND_OPT(SwigluBwd, quant.rows), OUT_OPERAND_OPT(SwigluBwd, quant.columns));
