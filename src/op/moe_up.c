/*
 * The experts' first product, with its gather in front and SwiGLU behind. Both run on a tile of
 * rows while it is in the cache: the product leaves the pre-activation in f32, from which act is
 * made; in bf16 the pre-activation is rounded on its way out.
 */
#include "op/cpu_math.h"
#include "op/gemm.h"
#include "op/moe.h"
#include "op/moe_tiles.h"
#include "op/op.h"

enum { PIECE = 256 }; /* columns that a thread holds on the stack */

/* forward   pre_r = x[row_token[r]] W1_e^T,  act_r = silu(pre_r[:F]) * pre_r[F:] */

/* A thread's scratch. */
typedef struct FwdSpace {
    size_t pre, gemm, total; /* the gathered rows come first */
} FwdSpace;

static GemmArgs fwd_product(const MoeUpFwd *a, int64_t rows)
{
    int64_t D = tensor_cols(&a->x.data), F = tensor_cols(&a->act);
    GemmArgs g = { .m = rows, .n = 2 * F, .k = D, .lda = D, .ldb = D, .ldc = 2 * F };
    g.trans_b = true;
    g.a_type = a->x.data.dtype, g.b_type = a->w.data.dtype, g.c_type = DTYPE_F32;
    return g;
}

static FwdSpace fwd_space(const Exec *ex, const MoeUpFwd *a)
{
    GemmArgs g = fwd_product(a, moe_tile_rows(&a->rows));
    size_t elems = (size_t)(g.m * g.n), gathered = (size_t)(g.m * g.k) * dtype_bytes(g.a_type);
    FwdSpace s = { .pre = a->row_token.data == NULL ? 0 : arena_rounded(gathered) };
    s.gemm = s.pre + (g.a_type == DTYPE_F32 ? 0 : arena_rounded(elems * sizeof(float)));
    s.total = s.gemm + arena_rounded(gemm_workspace(ex, &g));
    return s;
}

static void swiglu_row(const float *pre, const Tensor *act, int64_t row)
{
    int64_t F = tensor_cols(act);
    for (int64_t first = 0; first < F; first += PIECE) {
        int64_t n = F - first < PIECE ? F - first : PIECE;
        const float *gate = pre + first, *up = pre + F + first;
        float buffer[PIECE], *y = row_open(act, row * F + first, buffer);
#pragma omp simd
        for (int64_t f = 0; f < n; f++) y[f] = gate[f] / (1 + exp_f32(-gate[f])) * up[f];
        row_store(act, row * F + first, n, y);
    }
}

static Status fwd_tile(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    const MoeUpFwd *a = args;
    FwdSpace s = fwd_space(ex, a);
    GemmArgs g = fwd_product(a, tile->n);
    MoeTile rows = *tile;
    rows.cols = g.k;
    MoeRead x;
    TRY(moe_gather("moe_up_fwd", &a->x.data, &a->row_token, &rows, space, &x));
    float *pre = row_open(&a->pre, tile->first * g.n, (float *)(void *)(space + s.pre));
    g.a = x.data, g.lda = x.ld;
    g.b = tensor_at(&a->w.data, tile->expert * g.n * g.k);
    g.c = pre;
    TRY(gemm_run(ex, &g, space + s.gemm));
    for (int64_t r = 0; r < tile->n; r++) {
        swiglu_row(pre + r * g.n, &a->act, tile->first + r);
        row_store(&a->pre, (tile->first + r) * g.n, g.n, pre + r * g.n);
    }
    return OK;
}

Status moe_up_fwd_cpu(Exec *ex, const void *args)
{
    const MoeUpFwd *a = args;
    MoeTiles t = { "moe_up_fwd", a, &a->offsets, &a->rows, 0, fwd_tile, fwd_space(ex, a).total };
    TRY(moe_tiles_run(ex, &t));
    return OK;
}

size_t moe_up_fwd_workspace(const Exec *ex, const void *args)
{
    return (size_t)ex->threads * fwd_space(ex, args).total;
}

Status moe_up_fwd_check(const void *args)
{
    const MoeUpFwd *a = args;
    const char *op = "moe_up_fwd";
    const Tensor *x = &a->x.data;
    int64_t E = tensor_elems(&a->offsets) - 1, D = tensor_cols(x), F = tensor_cols(&a->act);
    TRY(moe_dims_check(op, E, F, D));
    int64_t R = tensor_elems(&a->act) / F;
    TRY(op_expect_act(op, "act", &a->act, R, F));
    TRY(op_expect(op, "pre", &a->pre, R, 2 * F, a->act.dtype));
    TRY(quant_expect(op, "x", &a->x, -1, D, a->act.dtype, QUANT_PLAIN));
    TRY(quant_expect(op, "w", &a->w, E * 2 * F, D, a->act.dtype, QUANT_PLAIN));
    return moe_rows_check(op, &a->offsets, &a->row_token, &a->rows, R, tensor_elems(x) / D);
}

/* x once (a gather out of the cache is not counted again), all experts' weights, and the rows. */
OpCost moe_up_fwd_cost(const void *args)
{
    const MoeUpFwd *a = args;
    double rows = moe_rows_expected(&a->rows);
    double D = (double)tensor_cols(&a->x.data), F = (double)tensor_cols(&a->act);
    return moe_rows_cost(rows, &a->w, D, 2 * F,
                         quant_bytes(&a->x) + quant_bytes(&a->w) + moe_rows_bytes(&a->pre, rows) +
                             moe_rows_bytes(&a->act, rows));
}

OP_PORTS(moe_up_fwd, IN_QUANT(MoeUpFwd, x), IN_QUANT(MoeUpFwd, w), IN(MoeUpFwd, offsets),
         IN_OPT(MoeUpFwd, row_token), OUT(MoeUpFwd, pre), OUT(MoeUpFwd, act), ROWS(MoeUpFwd, rows));
