#include "op/linear.h"

#include "op/op.h"
#include "op/product.h"

#include <string.h>

enum {
    MIXED_ROWS = 1024, /* rows of N that a call of mixed types widens at a time */
    PIECE = 1 << 14    /* elements that a thread copies or widens at a time */
};

/* Where the types of A and B differ the call is cut along N, so that the widened copy of a batch
 * never exists as a whole. */
typedef struct Cut {
    int64_t rows; /* of N in one call of gemm_run */
    size_t a_bytes, b_bytes, gemm_bytes;
} Cut;

static bool mixed(const GemmArgs *g) { return g->a_type != g->b_type; }

Product product_rows(const Product *p, int64_t first, int64_t n)
{
    Product part = *p;
    GemmArgs *g = &part.g;
    g->a = (const char *)g->a + (size_t)(first * g->lda) * dtype_bytes(g->a_type);
    if (p->sum_over_rows) {
        g->b = (const char *)g->b + (size_t)(first * g->ldb) * dtype_bytes(g->b_type);
        g->k = n;
        return part;
    }
    size_t skipped = (size_t)(first * g->ldc) * dtype_bytes(g->c_type);
    g->c = (char *)g->c + skipped;
    if (p->r != NULL) part.r = (const char *)p->r + skipped;
    g->m = n;
    return part;
}

/* Elements of B that one call reads. */
static int64_t b_elems(const GemmArgs *g) { return (g->trans_b ? g->n : g->k) * g->ldb; }

static Cut cut_of(const Exec *ex, const Product *p)
{
    int64_t N = product_row_count(p);
    Cut cut = { .rows = mixed(&p->g) && N > MIXED_ROWS ? MIXED_ROWS : N };
    GemmArgs g = p->g;
    if (p->sum_over_rows) g.k = cut.rows;
    if (!p->sum_over_rows) g.m = cut.rows;
    if (mixed(&g)) {
        size_t a = (size_t)(cut.rows * g.lda) * sizeof(float);
        size_t b = (size_t)b_elems(&g) * sizeof(float);
        if (g.a_type != DTYPE_F32) cut.a_bytes = arena_rounded(a);
        if (g.b_type != DTYPE_F32) cut.b_bytes = arena_rounded(b);
        g.a_type = g.b_type = DTYPE_F32;
    }
    cut.gemm_bytes = gemm_workspace(ex, &g);
    return cut;
}

static size_t workspace(const Exec *ex, Product p)
{
    Cut cut = cut_of(ex, &p);
    return cut.a_bytes + cut.b_bytes + cut.gemm_bytes;
}

static void widen(const Exec *ex, float *to, const void *from, Dtype type, int64_t n)
{
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i += PIECE) {
        const char *at = (const char *)from + (size_t)i * dtype_bytes(type);
        dtype_to_f32(to + i, at, type, n - i < PIECE ? n - i : PIECE);
    }
}

/* c = r, for a residual that is not already there. */
static void copy_residual(const Exec *ex, const Product *p)
{
    if (p->r == NULL || p->r == p->g.c) return;
    int64_t n = p->g.m * p->g.n;
    size_t each = dtype_bytes(p->g.c_type);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t piece = n - i < PIECE ? n - i : PIECE;
        memcpy((char *)p->g.c + (size_t)i * each, (const char *)p->r + (size_t)i * each,
               (size_t)piece * each);
    }
}

static Status run(Exec *ex, Product p)
{
    Cut cut = cut_of(ex, &p);
    float *a = ex->workspace;
    float *b = (float *)(void *)((char *)ex->workspace + cut.a_bytes);
    char *gemm_space = (char *)ex->workspace + cut.a_bytes + cut.b_bytes;
    copy_residual(ex, &p);
    for (int64_t first = 0, N = product_row_count(&p); first < N; first += cut.rows) {
        GemmArgs g = product_rows(&p, first, N - first < cut.rows ? N - first : cut.rows).g;
        if (cut.a_bytes > 0) {
            widen(ex, a, g.a, g.a_type, (p.sum_over_rows ? g.k : g.m) * g.lda);
            g.a = a, g.a_type = DTYPE_F32;
        }
        if (cut.b_bytes > 0) {
            if (p.sum_over_rows || first == 0) widen(ex, b, g.b, g.b_type, b_elems(&g));
            g.b = b, g.b_type = DTYPE_F32;
        }
        TRY(gemm_run(ex, &g, gemm_space));
    }
    return OK;
}

/* Every operand is read once and every result written once; a residual is one more operand. */
static OpCost cost(OpId id, const void *args, Product p)
{
    int64_t least = p.g.m < p.g.n ? p.g.m : p.g.n;
    return (OpCost){ .flops = 2.0 * (double)p.g.m * (double)p.g.n * (double)p.g.k,
                     .bytes = op_port_bytes(id, args),
                     .work = WORK_GEMM,
                     .dtype = mixed(&p.g) ? DTYPE_F32 : p.g.a_type,
                     .size = (double)(least < p.g.k ? least : p.g.k) };
}

/* Rows of a tensor seen as (rows, cols). */
static int64_t rows_of(const Tensor *t, int64_t cols) { return tensor_elems(t) / cols; }

static Status expect_weight(const char *op, const char *port, const Tensor *w)
{
    TRY(op_expect_act(op, port, w, -1, -1));
    if (tensor_elems(w) > 0) return OK;
    char shape[96];
    return FAIL(ERR_SHAPE, "%s: %s is empty, %s", op, port,
                tensor_shape_text(w, shape, sizeof shape));
}

/* Without sizes and strides; r NULL: none. */
static Product product_of(const Tensor *a, const Tensor *b, const Tensor *c, const Tensor *r)
{
    GemmArgs g = { .a = a->data, .b = b->data, .c = c->data };
    g.a_type = a->dtype, g.b_type = b->dtype, g.c_type = c->dtype;
    g.beta = r->data == NULL ? 0 : 1;
    return (Product){ .g = g, .r = r->data };
}

/* forward: y = x W^T + r */

Status linear_fwd_check(const void *args)
{
    const LinearFwd *a = args;
    const char *op = "linear_fwd";
    TRY(expect_weight(op, "w", &a->w));
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I), N = rows_of(&a->x, I);
    TRY(op_expect_act(op, "x", &a->x, N, I));
    TRY(op_expect_act(op, "y", &a->y, N, O));
    return a->r.data == NULL ? OK : op_expect(op, "r", &a->r, N, O, a->y.dtype);
}

Product linear_fwd_product(const LinearFwd *a)
{
    Product p = product_of(&a->x, &a->w, &a->y, &a->r);
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I);
    p.g.m = rows_of(&a->x, I), p.g.n = O, p.g.k = I;
    p.g.lda = I, p.g.ldb = I, p.g.ldc = O, p.g.trans_b = true;
    return p;
}

/* backward to the input: dx = dy W + r */

Status linear_bwd_input_check(const void *args)
{
    const LinearBwdInput *a = args;
    const char *op = "linear_bwd_input";
    TRY(expect_weight(op, "w", &a->w));
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I), N = rows_of(&a->dy, O);
    TRY(op_expect_act(op, "dy", &a->dy, N, O));
    TRY(op_expect_act(op, "dx", &a->dx, N, I));
    return a->r.data == NULL ? OK : op_expect(op, "r", &a->r, N, I, a->dx.dtype);
}

Product linear_bwd_input_product(const LinearBwdInput *a)
{
    Product p = product_of(&a->dy, &a->w, &a->dx, &a->r);
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I);
    p.g.m = rows_of(&a->dy, O), p.g.n = I, p.g.k = O;
    p.g.lda = O, p.g.ldb = I, p.g.ldc = I;
    return p;
}

/* backward to the weight: dW += dy^T x */

Status linear_bwd_weight_check(const void *args)
{
    const LinearBwdWeight *a = args;
    const char *op = "linear_bwd_weight";
    TRY(expect_weight(op, "dw", &a->dw));
    int64_t I = tensor_cols(&a->dw), O = rows_of(&a->dw, I), N = rows_of(&a->x, I);
    TRY(op_expect(op, "dw", &a->dw, O, I, DTYPE_F32));
    TRY(op_expect_act(op, "x", &a->x, N, I));
    return op_expect_act(op, "dy", &a->dy, N, O);
}

Product linear_bwd_weight_product(const LinearBwdWeight *a)
{
    Product p = product_of(&a->dy, &a->x, &a->dw, &(Tensor){ 0 });
    int64_t I = tensor_cols(&a->dw), O = rows_of(&a->dw, I);
    p.g.m = O, p.g.n = I, p.g.k = rows_of(&a->x, I);
    p.g.lda = O, p.g.ldb = I, p.g.ldc = I, p.g.trans_a = true;
    p.g.beta = 1, p.sum_over_rows = true;
    return p;
}

OpCost linear_fwd_cost(const void *args)
{
    return cost(OP_LINEAR_FWD, args, linear_fwd_product(args));
}

size_t linear_fwd_workspace(const Exec *ex, const void *args)
{
    return workspace(ex, linear_fwd_product(args));
}

Status linear_fwd_cpu(Exec *ex, const void *args) { return run(ex, linear_fwd_product(args)); }

OpCost linear_bwd_input_cost(const void *args)
{
    return cost(OP_LINEAR_BWD_INPUT, args, linear_bwd_input_product(args));
}

size_t linear_bwd_input_workspace(const Exec *ex, const void *args)
{
    return workspace(ex, linear_bwd_input_product(args));
}

Status linear_bwd_input_cpu(Exec *ex, const void *args)
{
    return run(ex, linear_bwd_input_product(args));
}

OpCost linear_bwd_weight_cost(const void *args)
{
    return cost(OP_LINEAR_BWD_WEIGHT, args, linear_bwd_weight_product(args));
}

size_t linear_bwd_weight_workspace(const Exec *ex, const void *args)
{
    return workspace(ex, linear_bwd_weight_product(args));
}

Status linear_bwd_weight_cpu(Exec *ex, const void *args)
{
    return run(ex, linear_bwd_weight_product(args));
}

OP_PORTS(linear_fwd, IN(LinearFwd, x), IN(LinearFwd, w), IN_OPT(LinearFwd, r), OUT(LinearFwd, y));

OP_PORTS(linear_bwd_input, IN(LinearBwdInput, dy), IN(LinearBwdInput, w), IN_OPT(LinearBwdInput, r),
         OUT(LinearBwdInput, dx));

OP_PORTS(linear_bwd_weight, IN(LinearBwdWeight, dy), IN(LinearBwdWeight, x),
         ADD(LinearBwdWeight, dw));
