/* moe_product: the experts' plain products, each kind for two ops, as both backends see them. */
#ifndef OP_MOE_PRODUCT_H
#define OP_MOE_PRODUCT_H

#include "op/moe.h"

/* out_r = in_r W_e^T (turned) or in_r W_e, for the rows r of expert e. */
typedef struct MoeProduct {
    const char *op;
    const Tensor *in, *w, *offsets, *out;
    const Rows *rows;
    bool turned;
} MoeProduct;

/* The weight gradients, one sum seen from two sides. One operand has width D and is read by token
 * (x for dW1, dy for dW2), the other has a row for each routed row (dpre, wact):
 *
 *   dW1_e (2F, D) += sum over r of dpre_r^T x[row_token[r]]        D: columns of the result
 *   dW2_e (D, F)  += sum over r of dy[row_token[r]]^T wact_r       D: its rows (token_first) */
typedef struct MoeSum {
    const char *op;
    const Tensor *by_token, *by_row, *offsets, *row_token, *dw;
    const Rows *rows;
    bool token_first;
} MoeSum;

#ifdef __cplusplus
extern "C" {
#endif

MoeProduct moe_down_fwd_product(const MoeDownFwd *a);
MoeProduct moe_up_bwd_input_product(const MoeUpBwdInput *a);
MoeSum moe_up_bwd_weight_sum(const MoeUpBwdWeight *a);
MoeSum moe_down_bwd_weight_sum(const MoeDownBwdWeight *a);

#ifdef __cplusplus
}
#endif

#endif
