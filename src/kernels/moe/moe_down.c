/*
 * moe_down: the input gradient of the experts' second product, and what is done with it at once: the gradient of
 * SwiGLU, of the routing weight, and the operand of the weight gradient (wact). While a tile of da is in the cache,
 * this costs one pass over pre. The forward product is in moe_product.c.
 */
#include "kernels/core/cpu_math.h"
#include "kernels/moe/moe_product.h"
#include "kernels/moe/moe_tiles.h"

enum { PIECE = 256 }; /* columns that a thread holds on the stack */

/*
 * backward to the rows. With dy_r = dy[row_token[r]], w_r = weight[row_slot[r]]:
 *
 *   out_r = act_r W2_e^T + b_e                     da_r = dy_r W2_e, without w_r
 *   y = sum of w_r out_r                           dweight = <dy_r, out_r> = <da_r, act_r> + <dy_r, b_e>
 *   act = silu(g) u, s = 1 / (1 + e^-g)            dg = w da u s (1 + g (1 - s))
 *                                                  du = w da g s
 * Other gated activations have the slopes of glu.h.
 */

static int64_t width_of(const MoeDownBwdInput *a) { return tensor_cols(&a->pre.data) / 2; }

/* Columns [f, f + n) of one row; returns their part of <da, act>. dpre may be pre: every element of
 * pre is read before dpre is written over it. */
static float bwd_piece(const MoeDownBwdInput *a, int64_t row, int64_t f, int64_t n, const float *da,
                       float weight)
{
    int64_t F = width_of(a), at = (row + moe_first(a->rows.first)) * 2 * F + f;
    float gate_buffer[PIECE], up_buffer[PIECE], wact_buffer[PIECE], dot = 0;
    const float *gate = row_load(&a->pre.data, at, n, gate_buffer);
    const float *up = row_load(&a->pre.data, at + F, n, up_buffer);
    float *dgate = row_open(&a->dpre.data, at, gate_buffer);
    float *dup = row_open(&a->dpre.data, at + F, up_buffer);
    float *wact = row_open(&a->wact.data, row * F + f, wact_buffer);
    const Glu glu = a->glu;
    if (glu.limit > 0) {
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < n; i++) {
            GluSlopes c = glu_slopes(glu, gate[i], up[i]);
            float wda = weight * da[f + i];
            dot += da[f + i] * c.act;
            wact[i] = weight * c.act;
            dgate[i] = wda * c.by_gate;
            dup[i] = wda * c.by_up;
        }
    } else {
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < n; i++) {
            float g = gate[i], u = up[i], s = 1 / (1 + exp_f32(-g));
            float silu = g * s, act = silu * u, wda = weight * da[f + i];
            dot += da[f + i] * act;
            wact[i] = weight * act;
            dgate[i] = wda * u * s * (1 + g * (1 - s));
            dup[i] = wda * silu;
        }
    }
    row_store(&a->dpre.data, at, n, dgate);
    row_store(&a->dpre.data, at + F, n, dup);
    row_store(&a->wact.data, row * F + f, n, wact);
    return dot;
}

/* Columns [d, d + n) of a token's dy; 8-bit numbers are multiplied by their scales. */
static const float *dy_load(const MoeDownBwdInput *a, int64_t token, int64_t d, int64_t n,
                            float *buffer)
{
    const Operand *q = &a->dy;
    const OperandGrid g = operand_grid_of(q);
    const float *dy = row_load(&q->data, token * g.d + d, n, buffer);
    if (q->kind == OPERAND_PLAIN) return dy;
    const float *scale = (const float *)q->scale.data + token / g.height * g.cols;
    for (int64_t i = 0; i < n; i++) buffer[i] = dy[i] * scale[(d + i) / g.width];
    return buffer;
}

/* <dy_r, b_e> */
static double bias_dot(const MoeDownBwdInput *a, int64_t expert, int64_t row)
{
    int64_t D = tensor_cols(&a->dy.data);
    int64_t token = a->row_token.data == NULL ? row : ((const int32_t *)a->row_token.data)[row];
    float dy_buffer[PIECE], bias_buffer[PIECE];
    double sum = 0;
    for (int64_t d = 0; a->bias.data != NULL && d < D; d += PIECE) {
        int64_t n = D - d < PIECE ? D - d : PIECE;
        const float *dy = dy_load(a, token, d, n, dy_buffer);
        const float *bias = row_load(&a->bias, expert * D + d, n, bias_buffer);
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < n; i++) dot += dy[i] * bias[i];
        sum += (double)dot;
    }
    return sum;
}

/* Runs on each row of the product, da (F), while it is in the cache. */
static Status down_backward_finish(const void *args, int64_t expert, int64_t row, const float *da)
{
    const MoeDownBwdInput *a = args;
    int64_t F = width_of(a), slots = tensor_elems(&a->weight);
    int64_t slot = a->row_slot.data == NULL ? row : ((const int32_t *)a->row_slot.data)[row];
    if (slot < 0 || slot >= slots) {
        return FAIL(ERR_ARG, "moe_down_bwd_input: row %lld has the weight %lld, outside 0 .. %lld",
                    (long long)row, (long long)slot, (long long)slots - 1);
    }
    float weight = ((const float *)a->weight.data)[slot];
    double dot = bias_dot(a, expert, row);
    for (int64_t f = 0; f < F; f += PIECE) {
        int64_t n = F - f < PIECE ? F - f : PIECE;
        dot += (double)bwd_piece(a, row, f, n, da, weight);
    }
    ((float *)a->dweight.data)[slot] = (float)dot;
    return OK;
}

/* weight and dweight have one element for each slot, or, without row_slot, for each row. */
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

/* In a pool pre and dpre are rows of one tensor, so they have one form. */
static Status forms_check(const MoeDownBwdInput *a)
{
    if (a->rows.first == NULL || (a->pre.kind == OPERAND_PLAIN) == (a->dpre.kind == OPERAND_PLAIN))
        return OK;
    return FAIL(ERR_ARG,
                "moe_down_bwd_input: in a pool pre and dpre are both plain, or both 8-bit");
}

static Status down_backward_check(const void *args, int64_t R)
{
    const MoeDownBwdInput *a = args;
    const char *op = "moe_down_bwd_input";
    int64_t F = width_of(a), kept = a->rows.first == NULL ? R : -1;
    int64_t E = tensor_elems(&a->offsets) - 1;
    Dtype act = moe_act_type(&a->wact, &a->pre, &a->dpre, a->f32);
    TRY(moe_result_check(op, "pre", &a->pre, kept, 2 * F, act));
    if (kept < 0) kept = tensor_elems(&a->pre.data) / (2 * F);
    TRY(moe_result_check(op, "dpre", &a->dpre, kept, 2 * F, act));
    TRY(forms_check(a));
    if (a->dpre_columns.data.data != NULL)
        TRY(moe_columns_check(op, "dpre_columns", &a->dpre_columns, &a->rows, E, 2 * F));
    if (a->wact.kind != OPERAND_PLAIN)
        TRY(moe_columns_check(op, "wact", &a->wact, &a->rows, E, F));
    else
        TRY(operand_expect_type(op, "wact", &a->wact, R, F, act, OPERANDS_PLAIN));
    if (a->bias.data != NULL)
        TRY(op_expect(op, "bias", &a->bias, E, tensor_cols(&a->dy.data), act));
    return weight_check(a);
}

/* row_bytes: for each row pre is read, dpre and wact are written, and a weight and its gradient. The gradient of a
 * slot without a row is 0: if there may be such slots, dweight is cleared first. */
MoeProduct moe_down_bwd_input_view(const MoeDownBwdInput *a)
{
    bool some_without = a->rows.device != NULL && a->row_slot.data != NULL;
    bool columns = a->dpre_columns.data.data != NULL, rows = a->wact.kind == OPERAND_PLAIN;
    bool narrow = columns || !rows || a->pre.kind != OPERAND_PLAIN || a->dpre.kind != OPERAND_PLAIN;
    int64_t F = width_of(a);
    double row_bytes = moe_result_bytes(&a->pre, 2 * F) + moe_result_bytes(&a->dpre, 2 * F);
    row_bytes += moe_result_bytes(&a->wact, F) + 2 * (double)sizeof(float);
    if (columns) row_bytes += moe_result_bytes(&a->dpre_columns, 2 * F);
    return (MoeProduct){
        { "moe_down_bwd_input", "dy", &a->dy, &a->w, &a->offsets, &a->row_token, &a->rows,
          a->rows.first },
        { tensor_cols(&a->dy.data), F, false, NULL },
        { &a->wact.data, moe_act_type(&a->wact, &a->pre, &a->dpre, a->f32),
          rows && F > 0 ? tensor_elems(&a->wact.data) / F : a->rows.bound, F, narrow, NULL,
          some_without ? &a->dweight : NULL, &a->pre.data, row_bytes },
        { MOE_SWIGLU_BACKWARD, a, down_backward_check, down_backward_finish },
    };
}

OP_PORTS(moe_down_bwd_input, IN_OPERAND(MoeDownBwdInput, dy), IN_OPERAND(MoeDownBwdInput, w),
         IN_OPERAND(MoeDownBwdInput, pre), IN(MoeDownBwdInput, offsets),
         IN_OPT(MoeDownBwdInput, row_token), IN_OPT(MoeDownBwdInput, row_slot),
         IN(MoeDownBwdInput, weight), OUT_OPERAND_POOL(MoeDownBwdInput, dpre),
         OUT_OPERAND(MoeDownBwdInput, wact), OUT(MoeDownBwdInput, dweight),
         IN_OPT(MoeDownBwdInput, bias), OUT_OPERAND_PART_OPT(MoeDownBwdInput, dpre_columns),
         ROWS(MoeDownBwdInput, rows));
