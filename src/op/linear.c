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

static size_t product_workspace(const Exec *ex, const Product *p)
{
    Cut cut = cut_of(ex, p);
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

static Status product_run(Exec *ex, const Product *p)
{
    Cut cut = cut_of(ex, p);
    float *a = ex->workspace;
    float *b = (float *)(void *)((char *)ex->workspace + cut.a_bytes);
    char *gemm_space = (char *)ex->workspace + cut.a_bytes + cut.b_bytes;
    for (int64_t first = 0, N = product_row_count(p); first < N; first += cut.rows) {
        GemmArgs g = product_rows(p, first, N - first < cut.rows ? N - first : cut.rows).g;
        if (cut.a_bytes > 0) {
            widen(ex, a, g.a, g.a_type, (p->sum_over_rows ? g.k : g.m) * g.lda);
            g.a = a, g.a_type = DTYPE_F32;
        }
        if (cut.b_bytes > 0) {
            if (p->sum_over_rows || first == 0) widen(ex, b, g.b, g.b_type, b_elems(&g));
            g.b = b, g.b_type = DTYPE_F32;
        }
        TRY(gemm_run(ex, &g, gemm_space));
    }
    return OK;
}

/* to = r, for a residual that is not already there. */
static void copy_residual(const Exec *ex, const Tensor *r, const Tensor *to)
{
    if (r->data == NULL || r->data == to->data) return;
    int64_t n = tensor_elems(to);
    size_t each = dtype_bytes(to->dtype);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t piece = n - i < PIECE ? n - i : PIECE;
        memcpy((char *)to->data + (size_t)i * each, (const char *)r->data + (size_t)i * each,
               (size_t)piece * each);
    }
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

/* Every operand is read once and every result written once; a residual is one more operand. */
static OpCost cost_of(int64_t N, int64_t O, int64_t I, Dtype dtype, double bytes)
{
    int64_t least = N < O ? N : O;
    return (OpCost){ .flops = 2.0 * (double)N * (double)O * (double)I,
                     .bytes = bytes,
                     .work = WORK_GEMM,
                     .dtype = dtype,
                     .size = (double)(least < I ? least : I) };
}

static double bytes_of(const Tensor *t) { return t->data == NULL ? 0 : (double)tensor_bytes(t); }

/* forward: y = x W^T + r */

static Status fwd_check(const void *args)
{
    const LinearFwd *a = args;
    const char *op = "linear_fwd";
    TRY(expect_weight(op, "w", &a->w));
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I), N = rows_of(&a->x, I);
    TRY(op_expect_act(op, "x", &a->x, N, I));
    TRY(op_expect_act(op, "y", &a->y, N, O));
    if (a->r.data != NULL) TRY(op_expect(op, "r", &a->r, N, O, a->y.dtype));
    return OK;
}

Product linear_fwd_product(const LinearFwd *a)
{
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I);
    GemmArgs g = { .m = rows_of(&a->x, I),
                   .n = O,
                   .k = I,
                   .a = a->x.data,
                   .b = a->w.data,
                   .c = a->y.data,
                   .lda = I,
                   .ldb = I,
                   .ldc = O,
                   .trans_b = true,
                   .a_type = a->x.dtype,
                   .b_type = a->w.dtype,
                   .c_type = a->y.dtype,
                   .beta = a->r.data == NULL ? 0 : 1 };
    return (Product){ .g = g, .r = a->r.data };
}

static OpCost fwd_cost(const void *args)
{
    const LinearFwd *a = args;
    Product p = linear_fwd_product(a);
    return cost_of(p.g.m, p.g.n, p.g.k, p.g.a_type,
                   bytes_of(&a->x) + bytes_of(&a->w) + bytes_of(&a->r) + bytes_of(&a->y));
}

static size_t fwd_workspace(const Exec *ex, const void *args)
{
    Product p = linear_fwd_product(args);
    return product_workspace(ex, &p);
}

static Status fwd_cpu(Exec *ex, const void *args)
{
    const LinearFwd *a = args;
    Product p = linear_fwd_product(a);
    copy_residual(ex, &a->r, &a->y);
    TRY(product_run(ex, &p));
    return OK;
}

/* backward to the input: dx = dy W + r */

static Status bwd_input_check(const void *args)
{
    const LinearBwdInput *a = args;
    const char *op = "linear_bwd_input";
    TRY(expect_weight(op, "w", &a->w));
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I), N = rows_of(&a->dy, O);
    TRY(op_expect_act(op, "dy", &a->dy, N, O));
    TRY(op_expect_act(op, "dx", &a->dx, N, I));
    if (a->r.data != NULL) TRY(op_expect(op, "r", &a->r, N, I, a->dx.dtype));
    return OK;
}

Product linear_bwd_input_product(const LinearBwdInput *a)
{
    int64_t I = tensor_cols(&a->w), O = rows_of(&a->w, I);
    GemmArgs g = { .m = rows_of(&a->dy, O),
                   .n = I,
                   .k = O,
                   .a = a->dy.data,
                   .b = a->w.data,
                   .c = a->dx.data,
                   .lda = O,
                   .ldb = I,
                   .ldc = I,
                   .a_type = a->dy.dtype,
                   .b_type = a->w.dtype,
                   .c_type = a->dx.dtype,
                   .beta = a->r.data == NULL ? 0 : 1 };
    return (Product){ .g = g, .r = a->r.data };
}

static OpCost bwd_input_cost(const void *args)
{
    const LinearBwdInput *a = args;
    Product p = linear_bwd_input_product(a);
    return cost_of(p.g.m, p.g.n, p.g.k, p.g.a_type,
                   bytes_of(&a->dy) + bytes_of(&a->w) + bytes_of(&a->r) + bytes_of(&a->dx));
}

static size_t bwd_input_workspace(const Exec *ex, const void *args)
{
    Product p = linear_bwd_input_product(args);
    return product_workspace(ex, &p);
}

static Status bwd_input_cpu(Exec *ex, const void *args)
{
    const LinearBwdInput *a = args;
    Product p = linear_bwd_input_product(a);
    copy_residual(ex, &a->r, &a->dx);
    TRY(product_run(ex, &p));
    return OK;
}

/* backward to the weight: dW += dy^T x */

static Status bwd_weight_check(const void *args)
{
    const LinearBwdWeight *a = args;
    const char *op = "linear_bwd_weight";
    TRY(expect_weight(op, "dw", &a->dw));
    int64_t I = tensor_cols(&a->dw), O = rows_of(&a->dw, I), N = rows_of(&a->x, I);
    TRY(op_expect(op, "dw", &a->dw, O, I, DTYPE_F32));
    TRY(op_expect_act(op, "x", &a->x, N, I));
    TRY(op_expect_act(op, "dy", &a->dy, N, O));
    return OK;
}

Product linear_bwd_weight_product(const LinearBwdWeight *a)
{
    int64_t I = tensor_cols(&a->dw), O = rows_of(&a->dw, I);
    GemmArgs g = { .m = O,
                   .n = I,
                   .k = rows_of(&a->x, I),
                   .a = a->dy.data,
                   .b = a->x.data,
                   .c = a->dw.data,
                   .lda = O,
                   .ldb = I,
                   .ldc = I,
                   .trans_a = true,
                   .a_type = a->dy.dtype,
                   .b_type = a->x.dtype,
                   .c_type = DTYPE_F32,
                   .beta = 1 };
    return (Product){ .g = g, .sum_over_rows = true };
}

static OpCost bwd_weight_cost(const void *args)
{
    const LinearBwdWeight *a = args;
    Product p = linear_bwd_weight_product(a);
    return cost_of(p.g.k, p.g.m, p.g.n, p.g.a_type,
                   bytes_of(&a->dy) + bytes_of(&a->x) + 2 * bytes_of(&a->dw));
}

static size_t bwd_weight_workspace(const Exec *ex, const void *args)
{
    Product p = linear_bwd_weight_product(args);
    return product_workspace(ex, &p);
}

static Status bwd_weight_cpu(Exec *ex, const void *args)
{
    Product p = linear_bwd_weight_product(args);
    TRY(product_run(ex, &p));
    return OK;
}

static const OpPort fwd_ports[] = {
    PORT(LinearFwd, x, PORT_IN),
    PORT(LinearFwd, w, PORT_IN),
    PORT(LinearFwd, r, PORT_IN_OPT),
    PORT(LinearFwd, y, PORT_OUT),
    PORTS_END,
};

static const OpPort bwd_input_ports[] = {
    PORT(LinearBwdInput, dy, PORT_IN),
    PORT(LinearBwdInput, w, PORT_IN),
    PORT(LinearBwdInput, r, PORT_IN_OPT),
    PORT(LinearBwdInput, dx, PORT_OUT),
    PORTS_END,
};

static const OpPort bwd_weight_ports[] = {
    PORT(LinearBwdWeight, dy, PORT_IN),
    PORT(LinearBwdWeight, x, PORT_IN),
    PORT(LinearBwdWeight, dw, PORT_ADD),
    PORTS_END,
};

#ifdef HAVE_CUDA
Status linear_fwd_cuda(Exec *ex, const void *args);
Status linear_bwd_input_cuda(Exec *ex, const void *args);
Status linear_bwd_weight_cuda(Exec *ex, const void *args);
size_t linear_fwd_cuda_workspace(const Exec *ex, const void *args);
size_t linear_bwd_input_cuda_workspace(const Exec *ex, const void *args);
size_t linear_bwd_weight_cuda_workspace(const Exec *ex, const void *args);
#endif

extern const OpDesc linear_fwd_desc, linear_bwd_input_desc, linear_bwd_weight_desc;

const OpDesc linear_fwd_desc = {
    .name = "linear_fwd",
    .args_bytes = sizeof(LinearFwd),
    .ports = fwd_ports,
    .check = fwd_check,
    .cost = fwd_cost,
    .workspace = fwd_workspace,
    .cpu = fwd_cpu,
    .cuda = CUDA_OP(linear_fwd_cuda),
    .cuda_workspace = CUDA_OP(linear_fwd_cuda_workspace),
};

const OpDesc linear_bwd_input_desc = {
    .name = "linear_bwd_input",
    .args_bytes = sizeof(LinearBwdInput),
    .ports = bwd_input_ports,
    .check = bwd_input_check,
    .cost = bwd_input_cost,
    .workspace = bwd_input_workspace,
    .cpu = bwd_input_cpu,
    .cuda = CUDA_OP(linear_bwd_input_cuda),
    .cuda_workspace = CUDA_OP(linear_bwd_input_cuda_workspace),
};

const OpDesc linear_bwd_weight_desc = {
    .name = "linear_bwd_weight",
    .args_bytes = sizeof(LinearBwdWeight),
    .ports = bwd_weight_ports,
    .check = bwd_weight_check,
    .cost = bwd_weight_cost,
    .workspace = bwd_weight_workspace,
    .cpu = bwd_weight_cpu,
    .cuda = CUDA_OP(linear_bwd_weight_cuda),
    .cuda_workspace = CUDA_OP(linear_bwd_weight_cuda_workspace),
};
