/*
 * quant_case: quantize by its definition, as plain loops. Each element of an operand is asked where
 * it comes from (a row and a column of x, or nowhere) and which scale it has. From these answers
 * follow the largest magnitudes, the scales, and the bytes, one at a time.
 */
#ifndef KERNELS_OP_QUANT_CASE_H
#define KERNELS_OP_QUANT_CASE_H

#include "harness/optest.h"
#include "kernels/quant/quant.h"

#include <float.h>

enum { QUANT_GAP = -1, QUANT_UNTOUCHED = -2, QUANT_POISON = 0xFF };

/* M matrices of N rows; pool: rows of x before the first one that is read. */
typedef struct QuantCase {
    int64_t M, N, D, pool;
    const int64_t *group; /* sizes, NULL: there are no groups */
    int64_t groups;
    int32_t live; /* rows in use */
    bool gathers, pow2;
    OperandKind rows, columns; /* OPERAND_PLAIN: it is not asked for */
    Dtype act, type;
} QuantCase;

typedef struct QuantRun {
    const QuantCase *c;
    Quantize a;
    int32_t live, first;
} QuantRun;

static inline Tensor quant_indices(OpTest *t, const int64_t *dims)
{
    return optest_poisoned(t, DTYPE_I32, dims);
}

static inline Tensor quant_offsets(OpTest *t, const QuantCase *c)
{
    Tensor offsets = quant_indices(t, DIMS(1, c->groups + 1));
    int32_t sum = 0;
    for (int64_t e = 0; e <= c->groups; e++) {
        ((int32_t *)offsets.data)[e] = sum;
        sum += e < c->groups ? (int32_t)c->group[e] : 0;
    }
    return offsets;
}

static inline void quant_outputs(OpTest *t, const QuantCase *c, Quantize *a)
{
    const int64_t *rows = c->M > 1 ? DIMS(c->M, c->N, c->D) : DIMS(c->N, c->D);
    const int64_t *turned = c->M > 1 ? DIMS(c->M, c->D, c->N) : DIMS(c->D, c->N);
    int rank = c->M > 1 ? 3 : 2;
    if (c->rows != OPERAND_PLAIN)
        CHECK_OK(operand_new(&t->arena, c->rows, c->type, rank, rows, &a->quant));
    if (c->columns != OPERAND_PLAIN && c->groups > 0)
        CHECK_OK(operand_new_groups(&t->arena, c->columns, c->type, c->D, c->N, c->groups,
                                    &a->transposed));
    else if (c->columns != OPERAND_PLAIN)
        CHECK_OK(operand_new(&t->arena, c->columns, c->type, rank, turned, &a->transposed));
    a->transposed.transposed = true;
    const Operand *both[] = { &a->quant, &a->transposed };
    for (int i = 0; i < 2; i++) {
        if (both[i]->data.data == NULL) continue;
        memset(both[i]->data.data, QUANT_POISON, tensor_bytes(&both[i]->data));
        memset(both[i]->scale.data, 0xFF, tensor_bytes(&both[i]->scale));
    }
}

/* x has random numbers, and more rows than are read. */
static inline void quant_draw(OpTest *t, const QuantCase *c, QuantRun *run)
{
    int64_t sources = c->M > 1 ? c->N : c->N + c->pool + 3;
    Quantize *a = &run->a;
    *run = (QuantRun){ .c = c, .live = c->live, .first = (int32_t)c->pool };
    a->x.data = optest_normal(t, c->act, c->M > 1 ? DIMS(c->M, c->N, c->D) : DIMS(sources, c->D));
    a->pow2 = c->pow2;
    quant_outputs(t, c, a);
    if (c->M > 1) return;
    a->rows = (Rows){ .bound = c->N, .device = c->live < c->N ? &run->live : NULL };
    if (c->pool > 0) a->rows.first = &run->first;
    if (c->groups > 0) a->offsets = quant_offsets(t, c);
    if (c->gathers) a->row_token = optest_integers(t, DTYPE_I32, DIMS(c->N), 0, sources);
}

/* ---- the definition ---- */

/* x's element (r, j) of matrix m; r counts routed rows. */
static inline double quant_x(const QuantRun *run, int64_t m, int64_t r, int64_t j)
{
    const QuantCase *c = run->c;
    int64_t row = c->gathers ? ((const int32_t *)run->a.row_token.data)[r] : r + c->pool;
    return optest_get(&run->a.x.data, (m * c->N + row) * c->D + j);
}

/* The row that column k of a transposed matrix comes from, and its group. */
static inline int64_t quant_row_of(const QuantCase *c, int64_t k, int64_t *group)
{
    int64_t start = 0, row = 0, live = c->live;
    *group = 0;
    for (int64_t e = 0; e < (c->groups > 0 ? c->groups : 1); e++) {
        int64_t n = c->groups > 0 ? c->group[e] : c->N;
        n = row + n > live ? (live > row ? live - row : 0) : n;
        if (k >= start && k < start + n) return *group = e, row + k - start;
        if (k >= start && k < start + operand_whole_blocks(n)) return QUANT_GAP;
        start += operand_whole_blocks(n);
        row += n;
    }
    return QUANT_UNTOUCHED;
}

typedef struct QuantElement {
    int64_t m, row, j; /* of x; row may be QUANT_GAP or QUANT_UNTOUCHED */
    int64_t scale;     /* index */
} QuantElement;

/* Element i of quant (transposed false) or of transposed. */
static inline QuantElement quant_element(const QuantRun *run, bool transposed, int64_t i)
{
    const QuantCase *c = run->c;
    const Operand *q = transposed ? &run->a.transposed : &run->a.quant;
    int64_t across = tensor_cols(&q->data), high = transposed ? c->D : c->N, group = 0;
    int64_t m = i / across / high, y = i / across % high, x = i % across;
    QuantElement e = { .m = m, .row = y < c->live ? y : QUANT_UNTOUCHED, .j = x };
    if (transposed) e.row = quant_row_of(c, x, &group), e.j = y;
    int64_t wide = (across + 127) / 128, tall = (high + 127) / 128, line = m * high + y;
    if (q->kind == OPERAND_TENSOR) e.scale = m;
    if (q->kind == OPERAND_ROW)
        e.scale = line * (c->groups > 0 && transposed ? c->groups : 1) + group;
    if (q->kind == OPERAND_1X128) e.scale = line * wide + x / 128;
    if (q->kind == OPERAND_1X32) e.scale = line * ((across + 31) / 32) + x / 32;
    if (q->kind == OPERAND_128X128) e.scale = (m * tall + y / 128) * wide + x / 128;
    return e;
}

static inline float quant_largest(Dtype type)
{
    const float largest[] = { 448, 57344, 6, 7.5f, 28 };
    return largest[type - DTYPE_E4M3];
}

/* mx: the difference of two exponents, which is never rounded up. */
static inline float quant_scale(double amax, Dtype type, bool pow2, bool mx)
{
    float quotient = (float)amax / quant_largest(type);
    int exponent = 0;
    if (amax == 0) return 1;
    if (mx) {
        exponent = ilogb(amax) - ilogbf(quant_largest(type));
        return exponent < -126 ? FLT_MIN : ldexpf(1, exponent);
    }
    if (quotient < FLT_MIN) return FLT_MIN;
    if (!pow2) return quotient;
    float part = frexpf(quotient, &exponent); /* 0.5 <= part < 1 */
    return ldexpf(1, part == 0.5f ? exponent - 1 : exponent);
}

static inline int quant_code(double x, float scale, Dtype type)
{
    float largest = quant_largest(type), v = (float)x / scale;
    uint8_t code = 0;
    v = v > largest ? largest : v < -largest ? -largest : v;
    dtype_from_f32(&code, type, &v, 1);
    return code;
}

/* Compares one operand with the definition, scales first. */
static inline void quant_compare(OpTest *t, const QuantRun *run, bool transposed)
{
    const QuantCase *c = run->c;
    const Operand *q = transposed ? &run->a.transposed : &run->a.quant;
    int64_t n = tensor_elems(&q->data), scales = tensor_elems(&q->scale);
    double *amax = optest_doubles(t, scales);
    for (int64_t i = 0; i < scales; i++) amax[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        QuantElement e = quant_element(run, transposed, i);
        if (e.row < 0) continue;
        amax[e.scale] = fmax(amax[e.scale], fabs(quant_x(run, e.m, e.row, e.j)));
    }
    for (int64_t i = 0; i < scales; i++) {
        double want = (double)quant_scale(amax[i], c->type, c->pow2, q->kind == OPERAND_1X32);
        if (optest_get(&q->scale, i) == want) continue;
        fail_msg("%s scale %lld is %.9g, want %.9g", transposed ? "transposed" : "quant",
                 (long long)i, optest_get(&q->scale, i), want);
    }
    for (int64_t i = 0; i < n; i++) {
        QuantElement e = quant_element(run, transposed, i);
        int want = e.row == QUANT_GAP ? 0 : QUANT_POISON;
        if (e.row >= 0)
            want = quant_code(quant_x(run, e.m, e.row, e.j), (float)optest_get(&q->scale, e.scale),
                              c->type);
        int got = ((const uint8_t *)q->data.data)[i];
        if (got == want) continue;
        fail_msg("%s[%lld], row %lld, is 0x%02x, want 0x%02x", transposed ? "transposed" : "quant",
                 (long long)i, (long long)e.row, got, want);
    }
}

static inline void quant_compare_all(OpTest *t, const QuantRun *run)
{
    if (run->c->rows != OPERAND_PLAIN) quant_compare(t, run, false);
    if (run->c->columns != OPERAND_PLAIN) quant_compare(t, run, true);
}

static inline void quant_check(OpTest *t, const QuantCase *c)
{
    QuantRun run;
    ArenaMark mark = arena_mark(&t->arena);
    quant_draw(t, c, &run);
    CHECK_OK(quantize(&t->ex, run.a));
    quant_compare_all(t, &run);
    arena_release(&t->arena, mark);
}

#endif
