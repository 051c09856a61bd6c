/*
 * quant: converts tensors to operands with 8-bit data and scales (op/operand.h), and back.
 *
 *   scale = amax / largest finite value (448 for e4m3, 57344 for e5m2), at least 2^-126;
 *           with `pow2` the next power of two that is not smaller; 1 where amax is 0
 *   data  = round_to_nearest_even_saturating(x / scale),   x' = data * scale
 *
 * Powers of two make the division and the product with a scale exact: only the 8-bit format rounds.
 *
 * NaN in x stays NaN in data and is ignored by amax. An infinity is an error (ERR_NUMERIC) that names
 * step, layer, product and place. A GPU
 * cannot report it: there the scale and the data of its block become NaN.
 *
 * One call makes up to two operands from the same x. `quant` has the rows of x. `transposed` has
 * its columns as rows, with scales along x's rows: the weight gradient sums over rows. Both are
 * quantised from x itself, so nothing is rounded twice.
 *
 * Groups (op/moe.h): with `offsets`, `transposed` has the routed rows of each expert side by side.
 * The columns of group e begin at a multiple of 128, operand_group_start. So no block of scales
 * reaches into the next group, and rows of data lie at multiples of 16 bytes. Columns between two
 * groups are 0.
 */
#ifndef OP_QUANT_H
#define OP_QUANT_H

#include "op/moe.h"
#include "op/operand.h"

typedef struct Quantize {
    Tensor x;           /* in  (N, D) act, or (M, N, D): M matrices; a pool with rows.first */
    Operand quant;      /* out (R, D), or (M, N, D), optional; any kind but OPERAND_PLAIN */
    Operand transposed; /* out (D, R), or (M, D, N); of groups (D, operand_group_columns) */
    Tensor offsets;     /* in  (1, E+1) i32, optional: groups of `transposed` */
    Tensor row_token;   /* in  (R) i32, optional: row r is x[row_token[r]] */
    Rows rows;          /* R, and which rows are in use; bound 0: R is N, all of them */
    bool pow2;
    const char *of; /* for errors: the product whose operand x is; NULL: not known */
} Quantize;

typedef struct Dequantize {
    Operand quant; /* data, scale: in (N, D) */
    Tensor y;      /* out (N, D) act */
} Dequantize;

/* The scale of numbers of which amax is the largest magnitude and `largest` becomes the largest. */
float quantize_scale(float amax, float largest, bool pow2);

#define OPS_QUANT
#include "op/declare.h"
#undef OPS_QUANT

#endif
