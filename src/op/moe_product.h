/* moe_product: the experts' plain products, each kind for two ops, as both backends see them. */
#ifndef OP_MOE_PRODUCT_H
#define OP_MOE_PRODUCT_H

#include "op/moe.h"

/* out_r = in_r W_e^T (turned) or in_r W_e, for the rows r of expert e. */
typedef struct MoeProduct {
    const char *op, *in_port, *out_port;
    const Quant *in, *w;
    const Tensor *offsets, *out;
    const Rows *rows;
    int64_t wide; /* rows of `in` have so many times F columns */
    bool turned;
} MoeProduct;

/* The weight gradients, one sum seen from two sides. One operand has width D and is read by token
 * (x for dW1, dy for dW2), the other has a row for each routed row (dpre, wact):
 *
 *   dW1_e (2F, D) += sum over r of dpre_r^T x[row_token[r]]        D: columns of the result
 *   dW2_e (D, F)  += sum over r of dy[row_token[r]]^T wact_r       D: its rows (token_first) */
typedef struct MoeSum {
    const char *op, *token_port, *row_port;
    const Quant *by_token, *by_row;
    const Tensor *offsets, *row_token, *dw;
    const Rows *rows;
    bool token_first;
} MoeSum;

#endif
