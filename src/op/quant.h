/*
 * quant: 8-bit floating point with scales: the seam for 8-bit matrix products.
 *
 *   scale = amax / largest finite value (448 for e4m3, 57344 for e5m2), at least 2^-126;
 *           1 where amax is 0
 *   data  = round_to_nearest_even_saturating(x / scale),   x' = data * scale
 *
 * One scale for the whole tensor, each row, each 1 x 128 piece of a row (activations), or each
 * 128 x 128 block (weights): DeepSeek-V3, arXiv:2412.19437 §3.3. Last pieces may be smaller.
 * NaN in x stays NaN in data and does not enter amax; an infinity is an error (ERR_NUMERIC), or, on
 * a GPU, which cannot report it, makes the scale and the data of its block NaN.
 */
#ifndef OP_QUANT_H
#define OP_QUANT_H

#include "base/tensor.h"

typedef enum QuantKind { QUANT_TENSOR, QUANT_ROW, QUANT_1X128, QUANT_128X128 } QuantKind;

typedef struct Quant {
    Tensor data;  /* (N, D) e4m3 or e5m2 */
    Tensor scale; /* f32, quant_scale_shape */
    QuantKind kind;
} Quant;

typedef struct Quantize {
    Tensor x;    /* in (N, D) act */
    Quant quant; /* data, scale: out */
} Quantize;

typedef struct Dequantize {
    Quant quant; /* data, scale: in */
    Tensor y;    /* out (N, D) act */
} Dequantize;

/* Rows and columns of the scale tensor for an (n, d) matrix. */
void quant_scale_shape(QuantKind kind, int64_t n, int64_t d, int64_t *rows, int64_t *cols);

#endif
