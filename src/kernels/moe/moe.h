/*
 * moe: the ops of a MoE layer's experts, cut where a GPU fuses them (SonicMoE, arXiv:2512.14080,
 * has the same cut). Routing is in route.h, traffic between ranks in exchange.h.
 *
 * Routed rows are sorted by expert: rows [offsets[e], offsets[e+1]) belong to expert e. For row r, row_token[r] is the
 * row of x that it reads, and row_slot[r] = token * K + k is its slot, the index of its weight. slot_row[n][k] is the
 * row of a slot. Kept for backward: x, the pre-activation and the routing, never the experts' outputs.
 *
 *   forward, with w_r = weight[row_slot[r]]:
 *     moe_up_fwd           pre_r = x[row_token[r]] W1_e^T + b1_e
 *                          act_r = silu(pre_r[:F]) * pre_r[F:]
 *     moe_down_fwd         out_r = act_r W2_e^T + b2_e
 *     moe_combine          y_n = sum over k of weight[n][k] * out[slot_row[n][k]]
 *                                + shared_n + residual_n
 *   backward:
 *     moe_down_bwd_input   da_r = dy[row_token[r]] W2_e
 *                          dweight[row_slot[r]] = <da_r, act_r> + <dy[row_token[r]], b2_e>
 *                          dpre_r = swiglu'(pre_r) * w_r * da_r
 *                          wact_r = w_r * act_r
 *     moe_down_bwd_weight  dW2_e += sum over r of dy[row_token[r]]^T wact_r
 *     moe_up_bwd_input     dx_r = dpre_r W1_e
 *     moe_up_bwd_weight    dW1_e += sum over r of dpre_r^T x[row_token[r]]
 *     moe_bias_bwd         db1_e += sum over r of dpre_r,  db2_e += sum over r of w_r dy[row_token[r]]
 *   moe_combine without weights then sums the dx_r of a token. Biases b are optional. With a `glu`,
 *   act is another gated activation (glu.h).
 *
 * Operands of products are Operands (kernels/core/operand.h): all plain and of one type, or all 8-bit with
 * scales. 8-bit weights of backward are transposed. 8-bit operands of weight gradients are
 * transposed and gathered (kernels/quant/quant.h): then row_token is not read.
 *
 * A result may have 8 bits if the product's operands have. It holds what quantize makes of the value
 * rounded to act's type: the next product's operand is written while the value is in registers. A
 * scale covers 128 columns of a row, or with transposed results 128 rows of a column. An 8-bit pre
 * is dequantised and rounded to act's type before it is used.
 *
 * Groups may have any size, also 0. Rows from *rows.device (or rows.bound) on affect no result and are not written.
 */
#ifndef KERNELS_MOE_MOE_H
#define KERNELS_MOE_MOE_H

#include "engine/base/tensor.h"
#include "kernels/core/operand.h"
#include "kernels/moe/glu.h"

#include <stdbool.h>

/* How many rows of a MoE buffer are in use. Kernels read `device`; a plan's costs use `expected`, a
 * report's costs the counts that were read back. Nothing reads past the rows in use.
 *
 * The rows that all layers keep may share one pool (moe.buffers=pooled). Then row r of this call is row *first + r of a
 * pooled tensor (pre and dpre below), and the tensor has all rows of the pool. */
typedef struct Rows {
    int64_t bound;
    double expected;
    const int32_t *device; /* NULL: all of bound */
    const int32_t *first;  /* NULL: there is no pool; pre and dpre have R rows */
} Rows;

/* Counting sort of the routed slots by expert, stable in the token number. A slot gets row -1 if it
 * has no expert, or if there is no room for its row. The last offset is the number of rows. With a
 * pool the rows are allocated at its top, and room is what is left above the top. */
typedef struct MoeSort {
    Tensor index;     /* in  (N, K) i32; elsewhere: -1 for none */
    Tensor offsets;   /* out (1, E+1) i32 */
    Tensor row_token; /* out (R) i32 */
    Tensor row_slot;  /* out (R) i32 */
    Tensor slot_row;  /* out (N, K) i32 */
    Tensor overflow;  /* add (1) f32, optional: 1 if a row had no room, else left as it is */
    Tensor top;     /* add (1) i32, optional: rows of the pool in use; this call's rows are added */
    Tensor first;   /* out (1) i32, with top: its old value, which is Rows.first of these rows */
    int64_t pool;   /* with top: the pool's rows */
    bool elsewhere; /* some experts are on other ranks: there may be fewer rows than slots */
} MoeSort;

/* The number of rows that fit into the outputs. */
static inline int64_t moe_sort_room(const MoeSort *a)
{
    int64_t tokens = tensor_elems(&a->row_token), slots = tensor_elems(&a->row_slot);
    return tokens < slots ? tokens : slots;
}

typedef struct MoeUpFwd {
    Operand x;        /* in  (N, D) act */
    Operand w;        /* in  (E, 2F, D) act: gate rows, then up rows */
    Tensor offsets;   /* in  (1, E+1) i32 */
    Tensor row_token; /* in  (R) i32, optional: row r reads x[r] */
    Operand pre;      /* out (R, 2F) act, or 8-bit; or of a pool */
    Operand act;      /* out (R, F) act, or 8-bit */
    Tensor bias;      /* in  (E, 2F) act, optional */
    Rows rows;
    Glu glu;
    bool pow2; /* scales of pre and act, if they have 8 bits, are powers of two */
    bool f32;  /* act's type if pre and act have 8 bits: f32 instead of bf16 */
} MoeUpFwd;

typedef struct MoeDownFwd {
    Operand act;    /* in  (R, F) act */
    Operand w;      /* in  (E, D, F) act */
    Tensor offsets; /* in  (1, E+1) i32 */
    Tensor out;     /* out (R, D) act */
    Tensor bias;    /* in  (E, D) act, optional */
    Rows rows;
} MoeDownFwd;

typedef struct MoeCombine {
    Tensor out;      /* in  (R, D) act */
    Tensor slot_row; /* in  (N, K) i32, optional; -1: nothing. Without it token n has row n */
    Tensor weight;   /* in  (N, K) f32, optional: 1 */
    Tensor shared;   /* in  (N, D) act, optional */
    Tensor residual; /* in  (N, D) act, optional; may be y */
    Tensor y;        /* out (N, D) act */
    Rows rows;       /* rows of out; bound 0: one for each slot */
} MoeCombine;

/* K, the slots of a token. */
static inline int64_t moe_combine_slots(const MoeCombine *a)
{
    return a->slot_row.data == NULL ? 1 : tensor_cols(&a->slot_row);
}

typedef struct MoeDownBwdInput {
    Operand dy;       /* in  (N, D) act */
    Operand w;        /* in  (E, D, F) act */
    Operand pre;      /* in  (R, 2F) act, or 8-bit; or of a pool */
    Tensor offsets;   /* in  (1, E+1) i32 */
    Tensor row_token; /* in  (R) i32, optional: row r reads dy[r] */
    Tensor row_slot;  /* in  (R) i32, optional: row r has weight[r] */
    Tensor weight;    /* in  (N, K) f32 */
    Operand dpre;     /* out (R, 2F) act, or 8-bit; may be pre; of a pool if pre is */
    Operand wact;     /* out (R, F) act, or 8-bit and transposed: (F, columns of groups) */
    Tensor dweight;   /* out (N, K) f32; with rows.device and row_slot, 0 for slots without a row */
    Tensor bias;      /* in  (E, D) act, optional: what moe_down_fwd added */
    Operand dpre_columns; /* out (2F, columns of groups), optional: dpre, 8-bit and transposed */
    Rows rows;
    Glu glu;        /* as in moe_up_fwd, */
    bool pow2, f32; /* as are these; f32: if pre, dpre and wact have 8 bits */
} MoeDownBwdInput;

typedef struct MoeDownBwdWeight {
    Operand dy;       /* in  (N, D) act */
    Operand wact;     /* in  (R, F) act */
    Tensor offsets;   /* in  (1, E+1) i32 */
    Tensor row_token; /* in  (R) i32, optional */
    Tensor dw;        /* add (E, D, F) f32 */
    Rows rows;
    bool overwrite; /* dw is written instead, whatever it holds */
} MoeDownBwdWeight;

typedef struct MoeUpBwdInput {
    Operand dpre;   /* in  (R, 2F) act; or of a pool */
    Operand w;      /* in  (E, 2F, D) act */
    Tensor offsets; /* in  (1, E+1) i32 */
    Tensor dx;      /* out (R, D) act, by row: moe_combine adds the rows of a token */
    Rows rows;
} MoeUpBwdInput;

typedef struct MoeUpBwdWeight {
    Operand dpre;     /* in  (R, 2F) act; or of a pool */
    Operand x;        /* in  (N, D) act */
    Tensor offsets;   /* in  (1, E+1) i32 */
    Tensor row_token; /* in  (R) i32, optional */
    Tensor dw;        /* add (E, 2F, D) f32 */
    Rows rows;
    bool overwrite; /* dw is written instead, whatever it holds */
} MoeUpBwdWeight;

/* db_e += the sum over its rows r of w_r * dy[row_token[r]]: the gradient of an expert's bias. */
typedef struct MoeBiasBwd {
    Tensor dy;        /* in  (R, O) act, or of a pool; with row_token (N, O) */
    Tensor offsets;   /* in  (1, E+1) i32 */
    Tensor row_token; /* in  (R) i32, optional: row r reads dy[r] */
    Tensor row_slot;  /* in  (R) i32, optional: row r has weight[r] */
    Tensor weight;    /* in  (N, K) f32, optional: 1 */
    Tensor db;        /* add (E, O) f32 */
    Rows rows;
    bool overwrite; /* db is written instead, whatever it holds */
} MoeBiasBwd;

/* Aux-loss-free balancing (arXiv:2408.15664), once a step. With n_e = load summed over domains:
 *   bias_e += rate * s_e,  s_e = sign(mean(n) - n_e);  centred: s_e - mean(s) instead of s_e
 * Centring keeps the sum of the biases constant (TorchTitan); choices of experts are the same
 * except for rounding. With margins the bias moves by their quantiles instead, and load is not
 * read (kernels/route/route_margin.h). If gate is not finite (a skipped step), nothing changes. */
typedef struct MoeBiasUpdate {
    Tensor load;    /* in  (domains, E) i32 */
    Tensor margins; /* in  (E, MARGIN_BINS) i32, optional */
    Tensor gate;    /* in  (1) f32 */
    Tensor bias;    /* add (1, E) f32 */
    float rate;
    bool centred;
    int64_t top_k; /* K, with margins */
} MoeBiasUpdate;

#define OPS_MOE
#include "kernels/core/declare.h"
#undef OPS_MOE

#endif
