/*
 * quant: converts tensors to operands with 8-bit data and scales (kernels/core/operand.h), and back.
 *
 *   scale = amax / largest finite value (448 for e4m3, 57344 for e5m2), at least 2^-126;
 *           with `pow2` the next power of two that is not smaller; 1 where amax is 0
 *           of OPERAND_1X32 2^(floor(log2 amax) - floor(log2 largest)), as MX has it: what is then above
 *           the largest value becomes that
 *   data  = round_to_nearest_even_saturating(x / scale),   x' = data * scale
 *
 * Powers of two make the division and the product with a scale exact: only the 8-bit format rounds.
 *
 * NaN in x stays NaN in data and is ignored by amax. An infinity is an error (ERR_NUMERIC) that names step, layer,
 * product and place. A GPU cannot report it: there the scale and the data of its block become NaN.
 *
 * One call makes up to two operands from the same x. `quant` has the rows of x. `transposed` has
 * its columns as rows, with scales along x's rows: the weight gradient sums over rows. Both are
 * quantised from x itself, so nothing is rounded twice.
 *
 * x may itself be 8-bit rows with scales of 1 x 128: rows that travelled in 8 bits. Then `transposed`
 * alone can be made of it. Where all scales are powers of two, only exponents change: a number is
 * rounded again only if it leaves the normal numbers of the format. Other scales round twice.
 *
 * Groups (kernels/moe/moe.h): with `offsets`, `transposed` has the routed rows of each expert side by side. The columns
 * of group e begin at a multiple of 128, operand_group_start. So no block of scales reaches into the next group, and
 * rows of data lie at multiples of 16 bytes. Columns between two groups are 0.
 */
#ifndef KERNELS_QUANT_QUANT_H
#define KERNELS_QUANT_QUANT_H

#include "kernels/core/operand.h"
#include "kernels/moe/moe.h"

typedef struct Quantize {
    Operand x;          /* in  (N, D) act, or (M, N, D): M matrices; a pool with rows.first */
    Dtype round;        /* f32 or bf16: x in f32 is rounded to it first, as a cast would */
    Operand quant;      /* out (R, D), or (M, N, D), optional; any kind but OPERAND_PLAIN */
    Operand transposed; /* out (D, R), or (M, D, N); of groups (D, operand_group_columns) */
    Tensor offsets;     /* in  (1, E+1) i32, optional: groups of `transposed` */
    Tensor row_token;   /* in  (R) i32, optional: row r is x[row_token[r]] */
    Rows rows;          /* R, and which rows are in use; bound 0: R is N, all of them */
    const int32_t *to;  /* row r of quant (1 x 128) is row *to + r of a pool, of which only rows in
                         * use are written; NULL: there is no pool */
    bool pow2;
    const char *of; /* for errors: the product whose operand x is; NULL: not known */
} Quantize;

/* 8-bit copies of an output, for ops that make what products read: what quantize makes of the plain output (N, D) in
 * its type, bit by bit. The plain output may then be absent: it has a shape and a type, but no data. */
typedef struct QuantOut {
    Operand rows, columns; /* out (N, D) and (D, N), each optional, as in Quantize */
    Dtype round;           /* as in Quantize, of a plain output in f32 */
    bool pow2;
    const char *of; /* as in Quantize */
} QuantOut;

typedef struct Dequantize {
    Operand quant; /* data, scale: in (N, D) */
    Tensor y;      /* out (N, D) act, or (R, D); rows that hold no numbers give none */
    Rows rows;     /* R, and which rows are in use, of a pool with rows.first; bound 0: R is N */
} Dequantize;

/* For ops that have a QuantOut. Its ports are two OUT_OPERAND_OPT: ports of the rows, and of the columns.
 *
 * The workspace of an output begins with the plain one, if that is absent; behind it is quantize's. */

static inline bool quant_out_wanted(const QuantOut *q)
{
    return q->rows.data.data != NULL || q->columns.data.data != NULL;
}

/* Bytes of the plain output in the workspace. */
static inline size_t quant_out_plain_bytes(const QuantOut *q, const Tensor *plain)
{
    return plain->data != NULL || !quant_out_wanted(q) ? 0 : arena_rounded(tensor_bytes(plain));
}

/* The plain output with a place in the workspace, if it needs one. */
static inline Tensor quant_out_open(const QuantOut *q, Tensor plain, void *space)
{
    if (quant_out_plain_bytes(q, &plain) > 0) plain.data = space;
    return plain;
}

struct Exec;
struct OpCost;
#ifdef __cplusplus
extern "C" {
#endif
/* The scale of numbers of which amax is the largest magnitude and `largest` becomes the largest. */
float quantize_scale(float amax, float largest, bool pow2);

Quantize quant_out_call(const QuantOut *q, Tensor plain);
/* port: the plain output's name. */
Status quant_out_check(const char *op, const char *port, const QuantOut *q, const Tensor *plain);
/* Adds what the output costs, the plain one included if it is given. */
void quant_out_cost(struct OpCost *cost, const QuantOut *q, const Tensor *plain);
size_t quant_out_workspace(const struct Exec *ex, const QuantOut *q, const Tensor *plain);
size_t quant_out_gpu_workspace(const struct Exec *ex, const QuantOut *q, const Tensor *plain);
/* Make the copies from what quant_out_open returned. `space`: the workspace of this output. */
Status quant_out_cpu(struct Exec *ex, const QuantOut *q, const Tensor *plain, void *space);
Status quant_out_gpu(struct Exec *ex, const QuantOut *q, const Tensor *plain, void *space);
#ifdef __cplusplus
}
#endif

#define OPS_QUANT
#include "kernels/core/declare.h"
#undef OPS_QUANT

#endif
