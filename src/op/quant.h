/*
 * quant: converts tensors to operands with 8-bit data and scales (op/operand.h), and back.
 *
 *   scale = amax / largest finite value (448 for e4m3, 57344 for e5m2), at least 2^-126;
 *           1 where amax is 0
 *   data  = round_to_nearest_even_saturating(x / scale),   x' = data * scale
 *
 * NaN in x stays NaN in data and is ignored by amax. An infinity is an error (ERR_NUMERIC). A GPU
 * cannot report it: there the scale and the data of its block become NaN.
 */
#ifndef OP_QUANT_H
#define OP_QUANT_H

#include "op/operand.h"

typedef struct Quantize {
    Tensor x;      /* in (N, D) act */
    Operand quant; /* data, scale: out; any kind but OPERAND_PLAIN */
} Quantize;

typedef struct Dequantize {
    Operand quant; /* data, scale: in */
    Tensor y;      /* out (N, D) act */
} Dequantize;

#define OPS_QUANT
#include "op/declare.h"
#undef OPS_QUANT

#endif
