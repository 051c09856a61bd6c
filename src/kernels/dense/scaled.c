/* scaled: widens blocks of 8-bit operands, multiplies them with gemm, and applies their scales. */
#include "kernels/dense/scaled.h"

#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum { ROWS = 256 }; /* of c at a time: their sums stay in the cache */

/* Terms that are summed before their scales are applied: those that share scales on both sides. */
static int64_t terms_of(const ScaledArgs *s)
{
    int64_t terms = s->k, step[] = { operand_step(s->a.q->kind), operand_step(s->b.q->kind) };
    for (int i = 0; i < 2; i++) terms = step[i] > 0 ? least(step[i], terms) : terms;
    return terms;
}

/* Where a call's numbers lie in its workspace, as f32. */
typedef struct Space {
    size_t b, product, sum, scales, gemm, total; /* offsets; widened rows of a come first */
} Space;

static GemmArgs block_gemm(const ScaledArgs *s, int64_t rows, int64_t terms)
{
    return (GemmArgs){ .m = rows,
                       .n = s->n,
                       .k = terms,
                       .a = { NULL, DTYPE_F32, terms, false },
                       .b = { NULL, DTYPE_F32, terms, true },
                       .c = { NULL, DTYPE_F32, s->n } };
}

static size_t floats(int64_t n) { return arena_rounded((size_t)n * sizeof(float)); }

static Space space_of(const struct Exec *ex, const ScaledArgs *s)
{
    int64_t rows = least(ROWS, s->m), terms = terms_of(s);
    GemmArgs g = block_gemm(s, rows, terms);
    Space out;
    out.b = floats(rows * terms);
    out.product = out.b + floats(s->n * terms);
    out.sum = out.product + floats(rows * s->n);
    out.scales = out.sum + floats(rows * s->n);
    out.gemm = out.scales + floats(s->n);
    out.total = out.gemm + arena_rounded(gemm_workspace(ex, &g));
    return out;
}

size_t scaled_workspace(const struct Exec *ex, const ScaledArgs *s)
{
    return space_of(ex, s).total;
}

static int64_t row_of(const ScaledSide *s, int64_t i)
{
    return s->index != NULL ? s->index[i] : s->first + i;
}

/* The scale of row i for terms [k, ...). */
static float scale_at(const ScaledSide *s, int64_t i, int64_t k)
{
    const Operand *q = s->q;
    const OperandGrid g = operand_grid_of(q);
    int64_t row = row_of(s, i), block = row / g.n * g.rows + row % g.n / g.height;
    int64_t cols = tensor_cols(&q->scale); /* of OPERAND_ROW one for each group */
    int64_t step = operand_step(q->kind);
    int64_t col = step > 0 ? (s->column + k) / step : q->kind == OPERAND_ROW ? s->group : 0;
    return ((const float *)q->scale.data)[block * cols + col];
}

/* Rows [first, first + n) of terms [k, k + terms), without their scales. */
static void widen(const struct Exec *ex, const ScaledSide *s, int64_t first, int64_t n, int64_t k,
                  int64_t terms, float *out)
{
    int64_t ld = tensor_cols(&s->q->data);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i++) {
        const void *at = tensor_at(&s->q->data, row_of(s, first + i) * ld + s->column + k);
        dtype_to_f32(out + i * terms, at, s->q->data.dtype, terms);
    }
}

/* Rows [first, first + n) of c, and the first of the terms that were just summed. */
typedef struct Part {
    int64_t first, n, k;
} Part;

/* sum += product * scales of its rows and columns. */
static void add_scaled(const struct Exec *ex, const ScaledArgs *s, const Part *p,
                       const float *product, const float *column_scale, float *sum)
{
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < p->n; i++) {
        float scale = scale_at(&s->a, p->first + i, p->k);
        const float *from = product + i * s->n;
        float *to = sum + i * s->n;
#pragma omp simd
        for (int64_t j = 0; j < s->n; j++) to[j] += from[j] * (scale * column_scale[j]);
    }
}

/* Bytes from the first row of c, or of r, which has its layout. */
static size_t row_offset(const GemmResult *c, int64_t row)
{
    return (size_t)(row * c->ld) * dtype_bytes(c->type);
}

static void load_sums(const struct Exec *ex, const ScaledArgs *s, int64_t first, int64_t n,
                      float *sum)
{
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i++) {
        float *to = sum + i * s->n;
        if (s->r == NULL)
            memset(to, 0, (size_t)s->n * sizeof *to);
        else
            dtype_to_f32(to, (const char *)s->r + row_offset(&s->c, first + i), s->c.type, s->n);
    }
}

static void store_sums(const struct Exec *ex, const ScaledArgs *s, int64_t first, int64_t n,
                       const float *sum)
{
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i++) {
        char *row = (char *)s->c.at + row_offset(&s->c, first + i);
        dtype_from_f32(row, s->c.type, sum + i * s->n, s->n);
    }
}

Status scaled_run(struct Exec *ex, const ScaledArgs *s, void *workspace)
{
    const Space at = space_of(ex, s);
    char *base = workspace;
    float *a = (float *)(void *)base, *b = (float *)(void *)(base + at.b);
    float *product = (float *)(void *)(base + at.product), *sum = (float *)(void *)(base + at.sum);
    float *column_scale = (float *)(void *)(base + at.scales);
    int64_t each = terms_of(s);
    for (int64_t first = 0; first < s->m; first += ROWS) {
        int64_t rows = least(ROWS, s->m - first);
        load_sums(ex, s, first, rows, sum);
        for (int64_t k = 0; k < s->k; k += each) {
            int64_t terms = least(each, s->k - k);
            GemmArgs g = block_gemm(s, rows, terms);
            widen(ex, &s->a, first, rows, k, terms, a);
            widen(ex, &s->b, 0, s->n, k, terms, b);
            for (int64_t j = 0; j < s->n; j++) column_scale[j] = scale_at(&s->b, j, k);
            g.a.at = a, g.b.at = b, g.c.at = product;
            TRY(gemm_run(ex, &g, base + at.gemm));
            add_scaled(ex, s, &(Part){ first, rows, k }, product, column_scale, sum);
        }
        store_sums(ex, s, first, rows, sum);
    }
    return OK;
}
