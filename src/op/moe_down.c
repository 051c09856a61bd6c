/*
 * What goes to the rows in the backward pass of the experts' second product: with a tile of da in
 * the cache, SwiGLU's gradient, the routing weight and its gradient cost one pass over pre.
 */
#include "op/cpu_math.h"
#include "op/gemm.h"
#include "op/moe.h"
#include "op/moe_tiles.h"
#include "op/op.h"

enum { PIECE = 256 }; /* columns that a thread holds on the stack */

/*
 * backward to the rows. With dy_r = dy[row_token[r]], w_r = weight[row_slot[r]]:
 *
 *   out_r = act_r W2_e^T, y = sum of w_r out_r     da_r = dy_r W2_e, without w_r
 *                                                  dweight = <dy_r, out_r> = <da_r, act_r>
 *   act = silu(g) u, s = 1 / (1 + e^-g)            dg = w da u s (1 + g (1 - s))
 *                                                  du = w da g s
 */

/* A thread's scratch. */
typedef struct BwdSpace {
    size_t da, gemm, total; /* the gathered rows come first */
} BwdSpace;

static GemmArgs bwd_product(const MoeDownBwdInput *a, int64_t rows)
{
    int64_t D = tensor_cols(&a->dy.data), F = tensor_cols(&a->wact);
    GemmArgs g = { .m = rows, .n = F, .k = D, .lda = D, .ldb = F, .ldc = F };
    g.a_type = a->dy.data.dtype, g.b_type = a->w.data.dtype, g.c_type = DTYPE_F32;
    return g;
}

static BwdSpace bwd_space(const Exec *ex, const MoeDownBwdInput *a)
{
    GemmArgs g = bwd_product(a, moe_tile_rows(&a->rows));
    size_t gathered = (size_t)(g.m * g.k) * dtype_bytes(g.a_type);
    BwdSpace s = { .da = a->row_token.data == NULL ? 0 : arena_rounded(gathered) };
    s.gemm = s.da + arena_rounded((size_t)(g.m * g.n) * sizeof(float));
    s.total = s.gemm + arena_rounded(gemm_workspace(ex, &g));
    return s;
}

/* Columns [f, f + n) of one row; returns their part of <da, act>. dpre may be pre: every element is
 * read before the one in its place is written. */
static float bwd_piece(const MoeDownBwdInput *a, int64_t row, int64_t f, int64_t n, const float *da,
                       float weight)
{
    int64_t F = tensor_cols(&a->wact), at = row * 2 * F + f;
    float gate_buffer[PIECE], up_buffer[PIECE], wact_buffer[PIECE], dot = 0;
    const float *gate = row_load(&a->pre, at, n, gate_buffer);
    const float *up = row_load(&a->pre, at + F, n, up_buffer);
    float *dgate = row_open(&a->dpre, at, gate_buffer);
    float *dup = row_open(&a->dpre, at + F, up_buffer);
    float *wact = row_open(&a->wact, row * F + f, wact_buffer);
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i], s = 1 / (1 + exp_f32(-g));
        float silu = g * s, act = silu * u, wda = weight * da[f + i];
        dot += da[f + i] * act;
        wact[i] = weight * act;
        dgate[i] = wda * u * s * (1 + g * (1 - s));
        dup[i] = wda * silu;
    }
    row_store(&a->dpre, at, n, dgate);
    row_store(&a->dpre, at + F, n, dup);
    row_store(&a->wact, row * F + f, n, wact);
    return dot;
}

static Status bwd_row(const MoeDownBwdInput *a, int64_t row, const float *da)
{
    int64_t F = tensor_cols(&a->wact), slots = tensor_elems(&a->weight);
    int64_t slot = a->row_slot.data == NULL ? row : ((const int32_t *)a->row_slot.data)[row];
    if (slot < 0 || slot >= slots) {
        return FAIL(ERR_ARG, "moe_down_bwd_input: row %lld has the weight %lld, outside 0 .. %lld",
                    (long long)row, (long long)slot, (long long)slots - 1);
    }
    float weight = ((const float *)a->weight.data)[slot];
    double dot = 0;
    for (int64_t f = 0; f < F; f += PIECE) {
        int64_t n = F - f < PIECE ? F - f : PIECE;
        dot += (double)bwd_piece(a, row, f, n, da, weight);
    }
    ((float *)a->dweight.data)[slot] = (float)dot;
    return OK;
}

static Status bwd_tile(Exec *ex, const void *args, const MoeTile *tile, char *space)
{
    const MoeDownBwdInput *a = args;
    BwdSpace s = bwd_space(ex, a);
    GemmArgs g = bwd_product(a, tile->n);
    float *da = (float *)(void *)(space + s.da);
    MoeTile rows = *tile;
    rows.cols = g.k;
    MoeRead dy;
    TRY(moe_gather("moe_down_bwd_input", &a->dy.data, &a->row_token, &rows, space, &dy));
    g.a = dy.data, g.lda = dy.ld;
    g.b = tensor_at(&a->w.data, tile->expert * g.k * g.n);
    g.c = da;
    TRY(gemm_run(ex, &g, space + s.gemm));
    for (int64_t r = 0; r < tile->n; r++) TRY(bwd_row(a, tile->first + r, da + r * g.n));
    return OK;
}

Status moe_down_bwd_input_cpu(Exec *ex, const void *args)
{
    const MoeDownBwdInput *a = args;
    size_t space = bwd_space(ex, a).total;
    if (a->rows.device != NULL && a->row_slot.data != NULL)
        memset(a->dweight.data, 0, tensor_bytes(&a->dweight));
    MoeTiles t = { "moe_down_bwd_input", a, &a->offsets, &a->rows, 0, bwd_tile, space };
    TRY(moe_tiles_run(ex, &t));
    return OK;
}

size_t moe_down_bwd_input_workspace(const Exec *ex, const void *args)
{
    return (size_t)ex->threads * bwd_space(ex, args).total;
}

/* weight and dweight have a place for each slot, or without row_slot for each row. */
static Status weight_check(const MoeDownBwdInput *a)
{
    const char *op = "moe_down_bwd_input";
    int64_t slots = tensor_elems(&a->weight), rows = a->rows.bound;
    TRY(op_expect(op, "weight", &a->weight, -1, -1, DTYPE_F32));
    TRY(op_expect(op, "dweight", &a->dweight, slots, 1, DTYPE_F32));
    if (a->row_slot.data != NULL) {
        TRY(op_expect(op, "row_slot", &a->row_slot, -1, -1, DTYPE_I32));
        slots = tensor_elems(&a->row_slot);
    }
    if (slots >= rows) return OK;
    return FAIL(ERR_SHAPE, "%s: %lld rows, but %s has only %lld", op, (long long)rows,
                a->row_slot.data == NULL ? "weight" : "row_slot", (long long)slots);
}

Status moe_down_bwd_input_check(const void *args)
{
    const MoeDownBwdInput *a = args;
    const char *op = "moe_down_bwd_input";
    const Tensor *dy = &a->dy.data;
    Dtype act = a->wact.dtype;
    int64_t E = tensor_elems(&a->offsets) - 1, D = tensor_cols(dy), F = tensor_cols(&a->wact);
    TRY(moe_dims_check(op, E, F, D));
    int64_t R = tensor_elems(&a->wact) / F;
    TRY(op_expect_act(op, "wact", &a->wact, R, F));
    TRY(op_expect(op, "pre", &a->pre, R, 2 * F, act));
    TRY(op_expect(op, "dpre", &a->dpre, R, 2 * F, act));
    TRY(quant_expect(op, "dy", &a->dy, -1, D, act, QUANT_PLAIN));
    TRY(quant_expect(op, "w", &a->w, E * D, F, act, QUANT_PLAIN));
    TRY(weight_check(a));
    return moe_rows_check(op, &a->offsets, &a->row_token, &a->rows, R, tensor_elems(dy) / D);
}

OpCost moe_down_bwd_input_cost(const void *args)
{
    const MoeDownBwdInput *a = args;
    double rows = moe_rows_expected(&a->rows);
    return moe_rows_cost(
        rows, &a->w, (double)tensor_cols(&a->wact), (double)tensor_cols(&a->dy.data),
        quant_bytes(&a->dy) + quant_bytes(&a->w) + 2 * moe_rows_bytes(&a->pre, rows) +
            moe_rows_bytes(&a->wact, rows) + 2 * rows * (double)sizeof(float));
}

OP_PORTS(moe_down_bwd_input, IN_QUANT(MoeDownBwdInput, dy), IN_QUANT(MoeDownBwdInput, w),
         IN(MoeDownBwdInput, pre), IN(MoeDownBwdInput, offsets), IN_OPT(MoeDownBwdInput, row_token),
         IN_OPT(MoeDownBwdInput, row_slot), IN(MoeDownBwdInput, weight), OUT(MoeDownBwdInput, dpre),
         OUT(MoeDownBwdInput, wact), OUT(MoeDownBwdInput, dweight), ROWS(MoeDownBwdInput, rows));
