/*
 * quant: check, cost and CPU version of quantize and dequantize. All kinds of scales are one case:
 * the matrix is cut into blocks of height x width elements with one scale each. The largest
 * magnitude is first taken for each row of a block, so that rows can be spread over threads for
 * every kind. A maximum does not depend on its order, so bits do not depend on threads.
 */
#include "op/quant.h"

#include "op/cpu_math.h"
#include "op/op.h"

#include <float.h>

enum { PIECE = 256 }; /* elements that a thread widens at a time */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The largest magnitude, as bits: magnitudes have the order of their bits. The bits of NaNs are
 * above all others, so NaNs are left out by a comparison. */
static uint32_t max_bits(const float *x, int64_t n)
{
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
        bits = bits > 0x7F800000u ? 0 : bits;
        most = bits > most ? bits : most;
    }
    return most;
}

/* amax of row i, for each column of blocks. */
static void row_amax(const Tensor *x, const OperandGrid *g, int64_t i, float *amax)
{
    float buffer[PIECE];
    for (int64_t c = 0; c < g->cols; c++) {
        uint32_t most = 0;
        int64_t end = least((c + 1) * g->width, g->d);
        for (int64_t j = c * g->width; j < end; j += PIECE) {
            int64_t n = least(PIECE, end - j);
            uint32_t bits = max_bits(row_load(x, i * g->d + j, n, buffer), n);
            most = bits > most ? bits : most;
        }
        amax[c] = f32_from_bits(most);
    }
}

static Status refuse_infinity(const Tensor *x, const OperandGrid *g, const float *amax)
{
    for (int64_t i = 0; i < g->n; i++) {
        for (int64_t c = 0; c < g->cols; c++) {
            if (isfinite(amax[i * g->cols + c])) continue;
            int64_t j = c * g->width;
            float v = 0;
            for (; !isinf(v); j++) dtype_to_f32(&v, tensor_at(x, i * g->d + j), x->dtype, 1);
            return FAIL(ERR_NUMERIC,
                        "quantize: x is infinite at row %lld, column %lld: it has no scale",
                        (long long)i, (long long)j - 1);
        }
    }
    return OK;
}

/* Computes the scale of each block from the amax of its rows. */
static void set_scales(const OperandGrid *g, const float *amax, float largest, float *scale)
{
    for (int64_t b = 0; b < g->rows; b++) {
        for (int64_t c = 0; c < g->cols; c++) {
            float most = 0;
            int64_t end = least((b + 1) * g->height, g->n);
            for (int64_t i = b * g->height; i < end; i++) {
                float row = amax[i * g->cols + c];
                most = row > most ? row : most;
            }
            float quotient = most / largest;
            if (quotient < FLT_MIN) quotient = FLT_MIN; /* a subnormal scale could round to 0 */
            scale[b * g->cols + c] = most == 0 ? 1 : quotient;
        }
    }
}

/* A division and not a product with the inverse, so that the bits are those of the definition. */
static void quantize_row(const Quantize *a, const OperandGrid *g, float largest, int64_t i)
{
    const float *scales = (const float *)a->quant.scale.data + i / g->height * g->cols;
    float buffer[PIECE], scaled[PIECE];
    int64_t step = least(g->width, PIECE); /* pieces never straddle two blocks of 128 */
    for (int64_t j = 0; j < g->d; j += step) {
        int64_t n = least(step, g->d - j);
        float scale = scales[j / g->width];
        const float *x = row_load(&a->x, i * g->d + j, n, buffer);
#pragma omp simd
        for (int64_t k = 0; k < n; k++) {
            float v = x[k] / scale;
            v = v > largest ? largest : v; /* comparisons are false for NaN, which stays NaN */
            scaled[k] = v < -largest ? -largest : v;
        }
        row_store(&a->quant.data, i * g->d + j, n, scaled);
    }
}

static float largest_of(Dtype type) { return type == DTYPE_E4M3 ? 448.0f : 57344.0f; }

Status quantize_cpu(Exec *ex, const Quantize *a)
{
    OperandGrid g = operand_grid_of(&a->quant);
    float *amax = ex->workspace, largest = largest_of(a->quant.data.dtype);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < g.n; i++) row_amax(&a->x, &g, i, amax + i * g.cols);
    TRY(refuse_infinity(&a->x, &g, amax));
    set_scales(&g, amax, largest, a->quant.scale.data);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < g.n; i++) quantize_row(a, &g, largest, i);
    return OK;
}

/* amax of each row of each block. */
size_t quantize_workspace(const Exec *ex, const Quantize *a)
{
    OperandGrid g = operand_grid_of(&a->quant);
    (void)ex;
    return (size_t)(g.n * g.cols) * sizeof(float);
}

static void dequantize_row(const Dequantize *a, const OperandGrid *g, int64_t i)
{
    const float *scales = (const float *)a->quant.scale.data + i / g->height * g->cols;
    float buffer[PIECE], wide[PIECE];
    int64_t step = least(g->width, PIECE);
    for (int64_t j = 0; j < g->d; j += step) {
        int64_t n = least(step, g->d - j), at = i * g->d + j;
        float scale = scales[j / g->width];
        const float *data = row_load(&a->quant.data, at, n, wide);
        float *y = row_open(&a->y, at, buffer);
#pragma omp simd
        for (int64_t k = 0; k < n; k++) y[k] = data[k] * scale;
        row_store(&a->y, at, n, y);
    }
}

Status dequantize_cpu(Exec *ex, const Dequantize *a)
{
    OperandGrid g = operand_grid_of(&a->quant);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < g.n; i++) dequantize_row(a, &g, i);
    return OK;
}

static Status wide_check(const char *op, const char *port, const Tensor *wide, const Operand *q)
{
    TRY(operand_expect(op, "quant", q, -1, -1, OPERANDS_SCALED));
    OperandGrid g = operand_grid_of(q);
    return op_expect_act(op, port, wide, g.n, g.d);
}

Status quantize_check(const Quantize *a) { return wide_check("quantize", "x", &a->x, &a->quant); }

Status dequantize_check(const Dequantize *a)
{
    return wide_check("dequantize", "y", &a->y, &a->quant);
}

/* One product or quotient an element; the wide side, the narrow side and the scales once. */
static OpCost wide_cost(const Tensor *wide, const Operand *q)
{
    return (OpCost){ .flops = (double)tensor_elems(wide),
                     .bytes = (double)tensor_bytes(wide) + operand_bytes(q) };
}

OpCost quantize_cost(const Quantize *a) { return wide_cost(&a->x, &a->quant); }

OpCost dequantize_cost(const Dequantize *a) { return wide_cost(&a->y, &a->quant); }

OP_PORTS(quantize, IN(Quantize, x), OUT_OPERAND(Quantize, quant));

OP_PORTS(dequantize, IN_OPERAND(Dequantize, quant), OUT(Dequantize, y));
