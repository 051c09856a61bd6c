/*
 * quant: operands of matrix products, plain or in 8-bit floating point with scales.
 *
 * A Quant is what a product reads: a tensor and, if its kind is not QUANT_NONE, the scales that go
 * with it. Which kinds an op takes its check says (quant_expect): the grouped products take plain
 * ones alone so far.
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

typedef enum QuantKind {
    QUANT_NONE,
    QUANT_TENSOR,
    QUANT_ROW,
    QUANT_1X128,
    QUANT_128X128,
    QUANT_KINDS
} QuantKind;

/* Sets of kinds. */
enum { QUANT_PLAIN = 1 << QUANT_NONE, QUANT_SCALED = (1 << QUANT_KINDS) - 1 - QUANT_PLAIN };

typedef struct Quant {
    Tensor data;  /* comes first: ports rely on it. (N, D); QUANT_NONE: act, others: e4m3 or e5m2 */
    Tensor scale; /* f32, quant_scale_shape; QUANT_NONE: absent */
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

#ifdef __cplusplus
extern "C" {
#endif

/* The tensor as it is: QUANT_NONE. */
Quant quant_plain(Tensor t);

/* Rows and columns of the scale tensor for an (n, d) matrix; 0 and 0 for QUANT_NONE. */
void quant_scale_shape(QuantKind kind, int64_t n, int64_t d, int64_t *rows, int64_t *cols);

/* For check functions: FAIL unless the kind is one of the set `takes`, data is (rows, cols), -1:
 * any, and the scales fit them. A plain operand has the type `plain`, f32 or bf16. */
Status quant_expect(const char *op, const char *port, const Quant *q, int64_t rows, int64_t cols,
                    Dtype plain, unsigned takes);

/* For costs: bytes of the first `rows` rows of data and of the scales that go with them. */
double quant_rows_bytes(const Quant *q, double rows);
double quant_bytes(const Quant *q); /* of all rows */

#ifdef __cplusplus
}
#endif

#define OPS_QUANT
#include "op/declare.h"
#undef OPS_QUANT

#endif
