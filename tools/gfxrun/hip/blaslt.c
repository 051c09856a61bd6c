/*
 * blaslt: a stand-in for hipBLASLt, as a shared library with the name of AMD's. It multiplies on the host,
 * since the device memory of gfxrun's runtime is the host's. Sums are in double, in plain loops.
 *
 * It is stricter than AMD's. What it does not know, or what contradicts itself, is refused by a status.
 * A handle serves one stream, since kernels of one handle of AMD's must not run at a time.
 *
 * What it proposes is what a caller must be ready for, in this order:
 *
 *     PARTS    needs workspace. It rounds sums of parts of k, and joins them in an order that changes
 *     FORWARD  the plain one
 *     UNSAID   a result with a state that is no success
 *     BROKEN   fails when it is launched
 *     BACKWARD the same, from the last term on
 *
 * It proposes nothing for sums of one term.
 */
#include "engine/base/dtype.h"
#include "gfxrun/hip/runtime.h"
#include "kernels-amd/hipblaslt.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CALL(name, arguments)                                                                      \
    __attribute__((visibility("default"))) hipblasStatus_t hipblasLt##name arguments;
HIPBLASLT_CALLS(CALL)
#undef CALL

enum { PARTS, FORWARD, UNSAID, BROKEN, BACKWARD, PROPOSALS };
enum { VERSION = 1000 /* 0.10.0 */, DEPTH_LEAST = 2, ROWS = 256, K_PARTS = 3 };
static const size_t PARTS_BYTES = 4096;

typedef struct Handle {
    hipStream_t stream; /* the one that it serves */
    unsigned products;
} Handle;

struct hipblasLtMatmulDescOpaque_t {
    int32_t op[2];
};

struct hipblasLtMatrixLayoutOpaque_t {
    hipDataType type;
    int64_t rows, cols, ld;
};

struct hipblasLtMatmulPreferenceOpaque_t {
    uint64_t workspace_bytes;
};

typedef struct hipblasLtMatrixLayoutOpaque_t Layout;

/* Handles and descriptors */

static hipblasStatus_t make(void **out, size_t bytes)
{
    if (out == NULL) return HIPBLAS_STATUS_INVALID_VALUE;
    *out = calloc(1, bytes);
    return *out == NULL ? HIPBLAS_STATUS_ALLOC_FAILED : HIPBLAS_STATUS_SUCCESS;
}

static hipblasStatus_t destroy(void *at)
{
    free(at);
    return at == NULL ? HIPBLAS_STATUS_INVALID_VALUE : HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasLtCreate(hipblasLtHandle_t *out) { return make(out, sizeof(Handle)); }
hipblasStatus_t hipblasLtDestroy(hipblasLtHandle_t handle) { return destroy(handle); }

hipblasStatus_t hipblasLtGetVersion(hipblasLtHandle_t handle, int *version)
{
    if (handle == NULL) return HIPBLAS_STATUS_NOT_INITIALIZED;
    *version = VERSION;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasLtGetGitRevision(hipblasLtHandle_t handle, char *revision)
{
    if (handle == NULL) return HIPBLAS_STATUS_NOT_INITIALIZED;
    memcpy(revision, "gfxrun", sizeof "gfxrun");
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasLtMatrixLayoutCreate(hipblasLtMatrixLayout_t *out, hipDataType type,
                                            uint64_t rows, uint64_t columns, int64_t ld)
{
    hipblasStatus_t e = make((void **)out, sizeof **out);
    if (e != HIPBLAS_STATUS_SUCCESS) return e;
    **out = (Layout){ type, (int64_t)rows, (int64_t)columns, ld };
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasLtMatrixLayoutDestroy(hipblasLtMatrixLayout_t layout)
{
    return destroy(layout);
}

hipblasStatus_t hipblasLtMatmulDescCreate(hipblasLtMatmulDesc_t *out, hipblasComputeType_t sums,
                                          hipDataType scale)
{
    if (sums != HIPBLAS_COMPUTE_32F || scale != HIP_R_32F) return HIPBLAS_STATUS_INVALID_VALUE;
    hipblasStatus_t e = make((void **)out, sizeof **out);
    if (e != HIPBLAS_STATUS_SUCCESS) return e;
    (*out)->op[0] = (*out)->op[1] = HIPBLAS_OP_N;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasLtMatmulDescDestroy(hipblasLtMatmulDesc_t op) { return destroy(op); }

hipblasStatus_t hipblasLtMatmulDescSetAttribute(hipblasLtMatmulDesc_t op,
                                                hipblasLtMatmulDescAttributes_t name,
                                                const void *value, size_t bytes)
{
    int32_t v = 0;
    bool known = name == HIPBLASLT_MATMUL_DESC_TRANSA || name == HIPBLASLT_MATMUL_DESC_TRANSB;
    if (op == NULL || !known || value == NULL || bytes != sizeof v)
        return HIPBLAS_STATUS_INVALID_VALUE;
    memcpy(&v, value, sizeof v);
    if (v != HIPBLAS_OP_N && v != HIPBLAS_OP_T) return HIPBLAS_STATUS_INVALID_VALUE;
    op->op[name] = v;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasLtMatmulPreferenceCreate(hipblasLtMatmulPreference_t *out)
{
    return make((void **)out, sizeof **out);
}

hipblasStatus_t hipblasLtMatmulPreferenceDestroy(hipblasLtMatmulPreference_t limits)
{
    return destroy(limits);
}

hipblasStatus_t hipblasLtMatmulPreferenceSetAttribute(hipblasLtMatmulPreference_t limits,
                                                      hipblasLtMatmulPreferenceAttributes_t name,
                                                      const void *value, size_t bytes)
{
    if (limits == NULL || name != HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES || value == NULL ||
        bytes != sizeof limits->workspace_bytes)
        return HIPBLAS_STATUS_INVALID_VALUE;
    memcpy(&limits->workspace_bytes, value, bytes);
    return HIPBLAS_STATUS_SUCCESS;
}

/* What is a product */

static bool same_shape(const Layout *x, const Layout *y)
{
    return x->type == y->type && x->rows == y->rows && x->cols == y->cols;
}

/* D = alpha op(A) op(B) + beta C: (m, n) from (m, k) and (k, n). */
typedef struct Product {
    bool a_turned, b_turned;
    Layout a, b, c, d;
    const void *at_a, *at_b, *at_c;
    void *at_d;
    int64_t m, n, k;
    float alpha, beta;
    int algo;
    unsigned turn; /* differs from product to product */
    bool done;
} Product;

static hipblasStatus_t product_make(const struct hipblasLtMatmulDescOpaque_t *op, const Layout *a,
                                    const Layout *b, const Layout *c, const Layout *d, Product *out)
{
    const Layout *each[] = { a, b, c, d };
    for (int i = 0; i < 4; i++) {
        const Layout *x = each[i];
        if (op == NULL || x == NULL || x->rows < 1 || x->cols < 1 || x->ld < x->rows)
            return HIPBLAS_STATUS_INVALID_VALUE;
        if (x->type != HIP_R_32F && x->type != HIP_R_16BF) return HIPBLAS_STATUS_NOT_SUPPORTED;
    }
    bool turned[] = { op->op[0] == HIPBLAS_OP_T, op->op[1] == HIPBLAS_OP_T };
    *out = (Product){ .a_turned = turned[0], .b_turned = turned[1], *a, *b, *c, *d };
    out->m = turned[0] ? a->cols : a->rows;
    out->k = turned[0] ? a->rows : a->cols;
    out->n = turned[1] ? b->rows : b->cols;
    int64_t k = turned[1] ? b->cols : b->rows;
    if (k != out->k || d->rows != out->m || d->cols != out->n || !same_shape(c, d))
        return HIPBLAS_STATUS_INVALID_VALUE;
    if (a->type != b->type || (a->type == HIP_R_32F && d->type != HIP_R_32F))
        return HIPBLAS_STATUS_NOT_SUPPORTED;
    return HIPBLAS_STATUS_SUCCESS;
}

/* Algorithms have numbers from this one on, other ones for other types and transpositions. */
static int first_algo(const Product *p)
{
    int kind = p->a_turned | p->b_turned << 1 | (p->a.type == HIP_R_32F) << 2 |
               (p->d.type == HIP_R_32F) << 3;
    return (kind + 1) * PROPOSALS;
}

/* NOLINTBEGIN(readability-function-size): AMD's interface has so many parameters */
hipblasStatus_t
hipblasLtMatmulAlgoGetHeuristic(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t op,
                                hipblasLtMatrixLayout_t a, hipblasLtMatrixLayout_t b,
                                hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d,
                                hipblasLtMatmulPreference_t limits, int asked,
                                hipblasLtMatmulHeuristicResult_t *out, int *returned)
{
    Product p;
    if (handle == NULL) return HIPBLAS_STATUS_NOT_INITIALIZED;
    if (limits == NULL || asked < 1 || out == NULL || returned == NULL)
        return HIPBLAS_STATUS_INVALID_VALUE;
    hipblasStatus_t e = product_make(op, a, b, c, d, &p);
    *returned = 0;
    if (e != HIPBLAS_STATUS_SUCCESS) return e;
    if (p.k < DEPTH_LEAST) return HIPBLAS_STATUS_INTERNAL_ERROR; /* as AMD's: not implemented */
    for (int i = 0; i < PROPOSALS && *returned < asked; i++) {
        hipblasLtMatmulHeuristicResult_t *r = &out[*returned];
        int algo = first_algo(&p) + i;
        size_t bytes = i == PARTS ? PARTS_BYTES : 0;
        if (bytes > limits->workspace_bytes) continue;
        memcpy(r->algo.data, &algo, sizeof algo);
        r->algo.max_workspace_bytes = limits->workspace_bytes;
        r->workspaceSize = bytes;
        r->state = i == UNSAID ? HIPBLAS_STATUS_NOT_SUPPORTED : HIPBLAS_STATUS_SUCCESS;
        (*returned)++;
    }
    return HIPBLAS_STATUS_SUCCESS;
}
/* NOLINTEND(readability-function-size) */

/* Multiplying */

static double element(const Layout *x, const void *at, int64_t row, int64_t col)
{
    int64_t i = row + col * x->ld;
    if (x->type == HIP_R_32F) return (double)((const float *)at)[i];
    return (double)f32_from_bf16(((const uint16_t *)at)[i]);
}

/* op(X), (rows, cols), without gaps, column by column. */
static double *operand_copy(const Layout *x, const void *at, bool turned, int64_t rows,
                            int64_t cols)
{
    double *to = malloc((size_t)(rows * cols) * sizeof *to);
    if (to == NULL) abort(); /* a graph's product has nobody to tell */
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            to[i + j * rows] = turned ? element(x, at, j, i) : element(x, at, i, j);
    return to;
}

/* Rows [first, first + rows) of column `col` of the product, from copies of op(A) and op(B). */
typedef struct Strip {
    const Product *p;
    const double *a, *b;
    int64_t first, rows, col;
    double sum[ROWS];
} Strip;

/* sum += the terms from k on, n of them in steps. */
static void add_terms(Strip *s, int64_t k, int64_t n, int64_t step)
{
    for (int64_t t = 0; t < n; t++, k += step) {
        const double *column = s->a + s->first + k * s->p->m, factor = s->b[k + s->col * s->p->k];
        for (int64_t i = 0; i < s->rows; i++) s->sum[i] += column[i] * factor;
    }
}

/* Parts are rounded before they are joined, and the first one is another one each time. */
static void add_parts(Strip *s)
{
    float joined[ROWS] = { 0 };
    for (int part = 0; part < K_PARTS; part++) {
        int which = (int)((s->p->turn + (unsigned)part) % K_PARTS);
        int64_t k = s->p->k * which / K_PARTS, end = s->p->k * (which + 1) / K_PARTS;
        memset(s->sum, 0, sizeof s->sum);
        add_terms(s, k, end - k, 1);
        for (int64_t i = 0; i < s->rows; i++) joined[i] += (float)s->sum[i];
    }
    for (int64_t i = 0; i < s->rows; i++) s->sum[i] = (double)joined[i];
}

/* C is not read if beta is 0. */
static void store(const Product *p, int64_t row, int64_t col, double sum)
{
    double v = (double)p->alpha * sum;
    int64_t at = row + col * p->d.ld;
    if (p->beta != 0) v += (double)p->beta * element(&p->c, p->at_c, row, col);
    if (p->d.type == HIP_R_32F)
        ((float *)p->at_d)[at] = (float)v;
    else
        ((uint16_t *)p->at_d)[at] = bf16_from_f32((float)v);
}

static void multiply(void *data)
{
    Product *p = data;
    double *a = operand_copy(&p->a, p->at_a, p->a_turned, p->m, p->k);
    double *b = operand_copy(&p->b, p->at_b, p->b_turned, p->k, p->n);
    for (int64_t first = 0; first < p->m; first += ROWS) {
        for (int64_t j = 0; j < p->n; j++) {
            int64_t rows = p->m - first < ROWS ? p->m - first : ROWS;
            Strip s = { .p = p, .a = a, .b = b, .first = first, .rows = rows, .col = j };
            if (p->algo == PARTS)
                add_parts(&s);
            else if (p->algo == BACKWARD)
                add_terms(&s, p->k - 1, p->k, -1);
            else
                add_terms(&s, 0, p->k, 1);
            for (int64_t i = 0; i < rows; i++) store(p, first + i, j, s.sum[i]);
        }
    }
    p->done = true;
    free(a);
    free(b);
}

/* In a capture the product runs later, and again: then it stays in memory. */
static hipblasStatus_t submit_product(const Product *p, hipStream_t stream)
{
    Product *kept = malloc(sizeof *kept);
    if (kept == NULL) return HIPBLAS_STATUS_ALLOC_FAILED;
    *kept = *p;
    hipError_t e = hipLaunchHostFunc(stream, multiply, kept);
    if (kept->done) free(kept);
    return e == hipSuccess ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_EXECUTION_FAILED;
}

/* NOLINTNEXTLINE(readability-function-size): AMD's interface has so many parameters */
hipblasStatus_t hipblasLtMatmul(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t op,
                                const void *alpha, const void *a, hipblasLtMatrixLayout_t a_layout,
                                const void *b, hipblasLtMatrixLayout_t b_layout, const void *beta,
                                const void *c, hipblasLtMatrixLayout_t c_layout, void *d,
                                hipblasLtMatrixLayout_t d_layout, const hipblasLtMatmulAlgo_t *algo,
                                void *workspace, size_t workspace_bytes,
                                struct ihipStream_t *stream)
{
    Product p;
    int number = 0;
    Handle *h = handle;
    if (h == NULL) return HIPBLAS_STATUS_NOT_INITIALIZED;
    if (alpha == NULL || beta == NULL || algo == NULL || a == NULL || b == NULL || c == NULL ||
        d == NULL || (uintptr_t)workspace % 16 != 0)
        return HIPBLAS_STATUS_INVALID_VALUE;
    hipblasStatus_t e = product_make(op, a_layout, b_layout, c_layout, d_layout, &p);
    if (e != HIPBLAS_STATUS_SUCCESS) return e;
    memcpy(&number, algo->data, sizeof number);
    p.algo = number - first_algo(&p);
    if (p.algo < 0 || p.algo >= PROPOSALS || p.algo == UNSAID || p.k < DEPTH_LEAST)
        return HIPBLAS_STATUS_NOT_SUPPORTED;
    if (p.algo == PARTS && (workspace == NULL || workspace_bytes < PARTS_BYTES))
        return HIPBLAS_STATUS_INVALID_VALUE;
    if (p.algo == BROKEN || (h->stream != NULL && h->stream != stream))
        return HIPBLAS_STATUS_EXECUTION_FAILED;
    h->stream = stream;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    p.at_a = a, p.at_b = b, p.at_c = c, p.at_d = d;
    p.turn = h->products++;
    return submit_product(&p, stream);
}
