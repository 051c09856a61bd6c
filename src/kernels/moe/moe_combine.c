/* moe_combine: check, cost and CPU version of the weighted sum of expert outputs, and of the update
 * of the router's bias (MoeBiasUpdate). */
#include "kernels/core/cpu_math.h"
#include "kernels/core/index_check.h"
#include "kernels/core/op.h"
#include "kernels/moe/moe_tiles.h"
#include "kernels/route/route_margin.h"

enum { PIECE = 512 }; /* columns that a thread holds on the stack */

static double bytes_of(const Tensor *t) { return t->data == NULL ? 0 : (double)tensor_bytes(t); }

/* Combine: y_n = sum over k of weight[n][k] * out[slot_row[n][k]] + shared_n + residual_n */

/* sum += weight * row, for columns [first, first + n), which begin anywhere in t. */
static void add_weighted(const Tensor *t, int64_t first, int64_t n, float weight, float *sum)
{
    float buffer[PIECE];
    const float *row = row_load(t, first, n, buffer);
#pragma omp simd
    for (int64_t d = 0; d < n; d++) sum[d] += weight * row[d];
}

/* Columns [d0, d0 + n) of one token. Everything is read before y is written: y may be the residual. */
static void combine_piece(const MoeCombine *a, int64_t token, int64_t d0, int64_t n)
{
    int64_t D = tensor_cols(&a->y), K = moe_combine_slots(a);
    const int32_t *slot_row = a->slot_row.data;
    const float *weight = a->weight.data;
    float sum[PIECE];
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t k = token * K; k < (token + 1) * K; k++) {
        int64_t row = slot_row == NULL ? token : slot_row[k];
        if (row < 0) continue;
        add_weighted(&a->out, row * D + d0, n, weight == NULL ? 1 : weight[k], sum);
    }
    if (a->shared.data != NULL) add_weighted(&a->shared, token * D + d0, n, 1, sum);
    if (a->residual.data != NULL) add_weighted(&a->residual, token * D + d0, n, 1, sum);
    row_store(&a->y, token * D + d0, n, sum);
}

Status moe_combine_cpu(Exec *ex, const MoeCombine *a)
{
    int64_t D = tensor_cols(&a->y), N = tensor_elems(&a->y) / D;
    if (a->slot_row.data != NULL)
        TRY(index_check_from("moe_combine", "slot_row", &a->slot_row, -1,
                             tensor_elems(&a->out) / D));
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t d = 0; d < D; d += PIECE)
            combine_piece(a, n, d, D - d < PIECE ? D - d : PIECE);
    }
    return OK;
}

Status moe_combine_check(const MoeCombine *a)
{
    const char *op = "moe_combine";
    int64_t K = moe_combine_slots(a), D = tensor_cols(&a->y);
    bool slots = a->slot_row.data != NULL;
    if (K < 1 || D < 1) {
        return FAIL(ERR_SHAPE, "moe_combine: slot_row has %lld columns, y %lld; 1 is the least",
                    (long long)K, (long long)D);
    }
    int64_t N = slots ? tensor_elems(&a->slot_row) / K : tensor_elems(&a->y) / D;
    Dtype act = a->y.dtype;
    if (slots) TRY(op_expect(op, "slot_row", &a->slot_row, N, K, DTYPE_I32));
    TRY(op_expect_act(op, "y", &a->y, N, D));
    TRY(op_expect(op, "out", &a->out, slots ? -1 : N, D, act));
    if (a->weight.data != NULL) TRY(op_expect(op, "weight", &a->weight, N, K, DTYPE_F32));
    if (a->shared.data != NULL) TRY(op_expect(op, "shared", &a->shared, N, D, act));
    if (a->residual.data != NULL) TRY(op_expect(op, "residual", &a->residual, N, D, act));
    return OK;
}

/* Bytes: the row of every slot is read once; rows that no slot names are not read. */
OpCost moe_combine_cost(const MoeCombine *a)
{
    double elems = (double)tensor_elems(&a->y), D = (double)tensor_cols(&a->y);
    double slots = elems / D * (double)moe_combine_slots(a);
    if (a->rows.bound > 0) slots = moe_rows_expected(&a->rows);
    double adds = (a->shared.data != NULL) + (a->residual.data != NULL);
    return (OpCost){
        .flops = slots * D * (a->weight.data != NULL ? 2 : 1) + adds * elems,
        .bytes = slots * D * (double)dtype_bytes(a->y.dtype) + bytes_of(&a->slot_row) +
                 bytes_of(&a->weight) + bytes_of(&a->shared) + bytes_of(&a->residual) +
                 bytes_of(&a->y),
    };
}

/* Bias update: bias_e += rate * s_e, s_e = sign(mean(n) - n_e); centred: s_e - mean(s). Signs and
 * their sum are integers, so no order changes a bit. */

static int bias_step_sign(const int32_t *load, int64_t domains, int64_t E, int64_t total, int64_t e)
{
    int64_t n = 0;
    for (int64_t d = 0; d < domains; d++) n += load[d * E + e];
    int64_t under = total - n * E; /* E times the mean less n: integers, so 0 is exact */
    return (under > 0) - (under < 0);
}

/* bias_e += rate * (x_e - mean(x)), x_e = the quantile of e's margins; summed in the order of e */
static Status move_by_quantiles(const MoeBiasUpdate *a)
{
    int64_t E = tensor_elems(&a->bias);
    float *bias = a->bias.data;
    double sum = 0;
    for (int64_t e = 0; e < E; e++) {
        float x = margin_quantile((const int32_t *)a->margins.data + e * MARGIN_BINS, a->top_k, E);
        bias[e] += a->rate * x;
        sum += (double)x;
    }
    float mean = (float)sum / (float)E;
    for (int64_t e = 0; e < E; e++) bias[e] -= a->rate * mean;
    return OK;
}

/* A gate that is not finite marks a skipped step (clip_scale). */
Status moe_bias_update_cpu(Exec *ex, const MoeBiasUpdate *a)
{
    (void)ex;
    if (!isfinite(*(const float *)a->gate.data)) return OK;
    if (a->margins.data != NULL) return move_by_quantiles(a);
    int64_t E = tensor_elems(&a->bias), domains = tensor_elems(&a->load) / E, total = 0;
    const int32_t *load = a->load.data;
    float *bias = a->bias.data;
    for (int64_t i = 0; i < domains * E; i++) total += load[i];
    int signs = 0;
    for (int64_t e = 0; a->centred && e < E; e++)
        signs += bias_step_sign(load, domains, E, total, e);
    float mean = (float)signs / (float)E;
    for (int64_t e = 0; e < E; e++)
        bias[e] += a->rate * ((float)bias_step_sign(load, domains, E, total, e) - mean);
    return OK;
}

Status moe_bias_update_check(const MoeBiasUpdate *a)
{
    const char *op = "moe_bias_update";
    int64_t E = tensor_elems(&a->bias);
    TRY(op_expect(op, "bias", &a->bias, 1, E, DTYPE_F32));
    if (E < 1) return FAIL(ERR_SHAPE, "moe_bias_update: bias is empty");
    TRY(op_expect(op, "load", &a->load, -1, E, DTYPE_I32));
    if (a->margins.data == NULL) return op_expect(op, "gate", &a->gate, 1, 1, DTYPE_F32);
    TRY(op_expect(op, "margins", &a->margins, E, MARGIN_BINS, DTYPE_I32));
    if (a->top_k < 1 || a->top_k >= E)
        return FAIL(ERR_ARG, "%s: top_k is %lld, outside 1 .. %lld of %lld experts", op,
                    (long long)a->top_k, (long long)(E - 1), (long long)E);
    return op_expect(op, "gate", &a->gate, 1, 1, DTYPE_F32);
}

OpCost moe_bias_update_cost(const MoeBiasUpdate *a)
{
    const Tensor *read = a->margins.data != NULL ? &a->margins : &a->load;
    return (OpCost){ .flops = (double)(tensor_elems(read) + 2 * tensor_elems(&a->bias)),
                     .bytes = bytes_of(read) + 2 * bytes_of(&a->bias) };
}

OP_PORTS(moe_combine, IN(MoeCombine, out), IN_OPT(MoeCombine, slot_row), IN_OPT(MoeCombine, weight),
         IN_OPT(MoeCombine, shared), IN_OPT(MoeCombine, residual), OUT(MoeCombine, y));

OP_PORTS(moe_bias_update, IN(MoeBiasUpdate, load), IN_OPT(MoeBiasUpdate, margins),
         IN(MoeBiasUpdate, gate), ADD(MoeBiasUpdate, bias));
