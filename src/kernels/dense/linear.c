/* linear: check, cost and CPU version of the three ops, as one family: they differ in which of the
 * three matrices they write. The products themselves are gemm's. */
#include "kernels/dense/linear.h"

#include "kernels/core/op.h"
#include "kernels/dense/product.h"
#include "kernels/dense/scaled.h"

#include <string.h>

enum {
    MIXED_ROWS = 1024, /* rows of N that a call of mixed types widens at a time */
    PIECE = 1 << 14    /* elements that a thread copies or widens at a time */
};

/* A product whose operands differ in type is cut along N, so that f32 copies of a whole batch never
 * exist. a_bytes and b_bytes: the copies of one part; 0: the operand is used without a copy. */
typedef struct Cut {
    int64_t rows; /* of N at a time */
    size_t a_bytes, b_bytes;
} Cut;

/* gemm needs one type, so the narrower operand is then widened. */
static bool types_differ(const GemmArgs *g) { return g->a.type != g->b.type; }

/* Rows of N are rows of the result, or terms of the sum where the result is a weight's gradient. */
Product product_rows(const Product *p, int64_t first, int64_t n)
{
    Product part = *p;
    part.g = p->sum_over_rows ? gemm_terms(p->g, first, n) : gemm_rows(p->g, first, n);
    size_t skipped = (size_t)(first * p->g.c.ld) * dtype_bytes(p->g.c.type);
    if (p->r != NULL) part.r = (const char *)p->r + skipped; /* r is NULL if rows are summed */
    return part;
}

static size_t wide_bytes(int64_t elems) { return arena_rounded((size_t)elems * sizeof(float)); }

/* Only the operand that is not f32 needs a copy, and only of the rows of one part. */
static Cut cut_of(const Product *p)
{
    GemmArgs g = p->g;
    Cut cut = { .rows = product_row_count(p) };
    if (!types_differ(&g)) return cut;
    if (cut.rows > MIXED_ROWS) cut.rows = MIXED_ROWS;
    *(p->sum_over_rows ? &g.k : &g.m) = cut.rows;
    if (g.a.type != DTYPE_F32) cut.a_bytes = wide_bytes(product_a_elems(&g));
    if (g.b.type != DTYPE_F32) cut.b_bytes = wide_bytes(product_b_elems(&g));
    return cut;
}

/* The operand of gemm's A and B, as they are read. */
static const Operand *first_operand(const Linear *l)
{
    return l->kind == LINEAR_WRITES_Y ? &l->x : &l->y;
}

static const Operand *second_operand(const Linear *l)
{
    return l->kind == LINEAR_ADDS_W ? &l->x : &l->w;
}

ScaledArgs linear_scaled_args(const Linear *l)
{
    Product p = linear_product(l);
    const void *r = p.g.beta == 0 ? NULL : p.r != NULL ? p.r : p.g.c.at;
    return (ScaledArgs){ .m = p.g.m,
                         .n = p.g.n,
                         .k = p.g.k,
                         .a = { .q = first_operand(l) },
                         .b = { .q = second_operand(l) },
                         .c = p.g.c,
                         .r = r };
}

size_t linear_workspace(const Exec *ex, const Linear *l)
{
    if (linear_is_scaled(l)) {
        ScaledArgs s = linear_scaled_args(l);
        return scaled_workspace(ex, &s);
    }
    Product p = linear_product(l);
    Cut cut = cut_of(&p);
    GemmArgs g = p.g;
    *(p.sum_over_rows ? &g.k : &g.m) = cut.rows;
    if (types_differ(&g)) g.a.type = g.b.type = DTYPE_F32;
    return cut.a_bytes + cut.b_bytes + gemm_workspace(ex, &g);
}

static void widen(const Exec *ex, float *to, const void *from, Dtype type, int64_t n)
{
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i += PIECE) {
        const char *at = (const char *)from + (size_t)i * dtype_bytes(type);
        dtype_to_f32(to + i, at, type, n - i < PIECE ? n - i : PIECE);
    }
}

/* c = r, unless c already is r; gemm then adds the product to c. */
static void copy_residual(const Exec *ex, const Product *p)
{
    if (p->r == NULL || p->r == p->g.c.at) return;
    int64_t n = p->g.m * p->g.n;
    size_t each = dtype_bytes(p->g.c.type);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t piece = n - i < PIECE ? n - i : PIECE;
        memcpy((char *)p->g.c.at + (size_t)i * each, (const char *)p->r + (size_t)i * each,
               (size_t)piece * each);
    }
}

/* The widened weight is kept for all parts; widened rows are made anew for each. */
Status linear_cpu(Exec *ex, const Linear *l)
{
    if (linear_is_scaled(l)) {
        ScaledArgs s = linear_scaled_args(l);
        return scaled_run(ex, &s, ex->workspace);
    }
    Product p = linear_product(l);
    Cut cut = cut_of(&p);
    float *a = ex->workspace;
    float *b = (float *)(void *)((char *)ex->workspace + cut.a_bytes);
    char *gemm_space = (char *)ex->workspace + cut.a_bytes + cut.b_bytes;
    copy_residual(ex, &p);
    for (int64_t first = 0, N = product_row_count(&p); first < N; first += cut.rows) {
        GemmArgs g = product_rows(&p, first, N - first < cut.rows ? N - first : cut.rows).g;
        if (cut.a_bytes > 0) {
            widen(ex, a, g.a.at, g.a.type, product_a_elems(&g));
            g.a.at = a;
            g.a.type = DTYPE_F32;
        }
        if (cut.b_bytes > 0) {
            if (p.sum_over_rows || first == 0) widen(ex, b, g.b.at, g.b.type, product_b_elems(&g));
            g.b.at = b;
            g.b.type = DTYPE_F32;
        }
        TRY(gemm_run(ex, &g, gemm_space));
    }
    return OK;
}

/* N, I and O of a linear op. */
typedef struct LinearDims {
    int64_t n, i, o, w_cols; /* w_cols: of all of w */
} LinearDims;

/* The other dimension of an operand's matrix, of which one is known. */
static int64_t other_dim(const Operand *q, int64_t known)
{
    return known == 0 ? 0 : tensor_elems(&q->data) / known;
}

static LinearDims dims_of(const Linear *l)
{
    const Tensor *w = &l->w.data;
    int64_t cols = l->w.transposed ? w->dim[0] : tensor_cols(w);
    LinearDims d = { .w_cols = cols, .i = l->cols > 0 ? l->cols : cols };
    d.o = other_dim(&l->w, cols);
    d.n = l->kind == LINEAR_WRITES_X ? other_dim(&l->y, d.o) : other_dim(&l->x, d.i);
    return d;
}

static Status expect_weight(const char *op, const char *port, const Operand *weight, unsigned takes)
{
    const Tensor *w = &weight->data;
    TRY(operand_expect(op, port, weight, -1, -1, takes));
    if (tensor_elems(w) > 0) return OK;
    char shape[96];
    return FAIL(ERR_SHAPE, "%s: %s is empty, %s", op, port,
                tensor_shape_text(w, shape, sizeof shape));
}

/* An optional tensor without data is none. */
static const Tensor *or_null(const Tensor *r) { return r->data == NULL ? NULL : r; }

/* forward: y = x W^T + r */
Linear linear_fwd_view(const LinearFwd *a)
{
    return (Linear){
        "linear_fwd",    "x",      "y",      "w", a->x, operand_plain(a->y), a->w, or_null(&a->r),
        LINEAR_WRITES_Y, a->w_col, a->w_cols
    };
}

/* backward to the input: dx = dy W + r */
Linear linear_bwd_input_view(const LinearBwdInput *a)
{
    return (Linear){ "linear_bwd_input",   "dx",     "dy",     "w",
                     operand_plain(a->dx), a->dy,    a->w,     or_null(&a->r),
                     LINEAR_WRITES_X,      a->w_col, a->w_cols };
}

/* backward to the weight: dW += dy^T x */
Linear linear_bwd_weight_view(const LinearBwdWeight *a)
{
    return (Linear){ "linear_bwd_weight",  "x",  "dy",          "dw",     a->x,     a->dy,
                     operand_plain(a->dw), NULL, LINEAR_ADDS_W, a->w_col, a->w_cols };
}

/* The window lies in W. Only whole rows can be widened (CPU) or split into parts (GPU), so a true
 * window needs plain operands of one type. */
static Status check_window(const Linear *l, const LinearDims *d)
{
    if (l->col < 0 || l->cols < 0 || l->col + d->i > d->w_cols)
        return FAIL(ERR_SHAPE, "%s: columns %lld + %lld of %s, which has %lld", l->op,
                    (long long)l->col, (long long)d->i, l->w_port, (long long)d->w_cols);
    bool same = l->x.data.dtype == l->y.data.dtype &&
                (l->kind == LINEAR_ADDS_W || l->w.data.dtype == l->x.data.dtype);
    if (d->i == d->w_cols || (same && !linear_is_scaled(l))) return OK;
    return FAIL(ERR_ARG, "%s: a window of %s takes plain x, y and w of one type", l->op, l->w_port);
}

/* What a linear op reads must be all plain or all with scales, each as its sum over k needs it. */
static Status check_operand(const Linear *l, const char *port, const Operand *q, int64_t rows,
                            int64_t cols, bool is_read, bool transposed)
{
    bool scaled = is_read && linear_is_scaled(l);
    if (scaled && q->transposed != transposed)
        return FAIL(ERR_ARG, "%s: %s with scales must %sbe transposed here", l->op, port,
                    transposed ? "" : "not ");
    if (scaled && transposed) return operand_expect(l->op, port, q, cols, rows, OPERANDS_SCALED);
    return operand_expect(l->op, port, q, rows, cols, scaled ? OPERANDS_SCALED : OPERANDS_PLAIN);
}

Status linear_check(const Linear *l)
{
    bool reads_w = l->kind != LINEAR_ADDS_W, sums_rows = l->kind == LINEAR_ADDS_W;
    unsigned takes = reads_w && linear_is_scaled(l) ? OPERANDS_SCALED : OPERANDS_PLAIN;
    TRY(expect_weight(l->op, l->w_port, &l->w, takes));
    const LinearDims d = dims_of(l);
    TRY(check_window(l, &d));
    TRY(check_operand(l, l->w_port, &l->w, d.o, d.w_cols, reads_w, l->kind == LINEAR_WRITES_X));
    TRY(check_operand(l, l->x_port, &l->x, d.n, d.i, l->kind != LINEAR_WRITES_X, sums_rows));
    TRY(check_operand(l, l->y_port, &l->y, d.n, d.o, l->kind != LINEAR_WRITES_Y, sums_rows));
    if (sums_rows) return op_expect(l->op, l->w_port, &l->w.data, d.o, d.w_cols, DTYPE_F32);
    Dtype out = (l->kind == LINEAR_WRITES_Y ? l->y : l->x).data.dtype;
    int64_t cols = l->kind == LINEAR_WRITES_Y ? d.o : d.i;
    return l->r == NULL ? OK : op_expect(l->op, "r", l->r, d.n, cols, out);
}

Product linear_product(const Linear *l)
{
    bool to_y = l->kind == LINEAR_WRITES_Y, to_w = l->kind == LINEAR_ADDS_W;
    const Tensor *a = &first_operand(l)->data, *b = &second_operand(l)->data;
    const Tensor *w = &l->w.data, *c = to_y ? &l->y.data : to_w ? w : &l->x.data;
    const LinearDims d = dims_of(l);
    void *window = tensor_at(w, l->col);
    GemmArgs g = { .m = to_w ? d.o : d.n,
                   .n = to_y ? d.o : d.i,
                   .k = to_w   ? d.n
                        : to_y ? d.i
                               : d.o,
                   .a = { a->data, a->dtype, to_y ? d.i : d.o, to_w },
                   .b = { to_w ? b->data : window, b->dtype, to_w ? d.i : d.w_cols, to_y },
                   .c = { to_w ? window : c->data, c->dtype,
                          to_y   ? d.o
                          : to_w ? d.w_cols
                                 : d.i },
                   .beta = to_w || l->r != NULL ? 1.0f : 0.0f };
    return (Product){ g, l->r == NULL ? NULL : l->r->data, to_w };
}

/* Every operand is read once and every result written once; a residual is one more operand. Both 8-bit
 * types have one rate. */
OpCost linear_cost(const Linear *l)
{
    Product p = linear_product(l);
    bool together = product_mixed(&p.g) && !linear_is_scaled(l);
    int64_t least = p.g.m < p.g.n ? p.g.m : p.g.n;
    const LinearDims d = dims_of(l);
    double w = operand_bytes(&l->w) / (double)d.w_cols * (double)d.i;
    size_t r = l->r == NULL ? 0 : tensor_bytes(l->r);
    if (l->kind == LINEAR_ADDS_W) w *= 2; /* read and written */
    return (OpCost){ .flops = 2.0 * (double)p.g.m * (double)p.g.n * (double)p.g.k,
                     .sum_bytes = l->kind == LINEAR_ADDS_W ? w / 2 : 0,
                     .bytes = w + (double)r + operand_bytes(&l->x) + operand_bytes(&l->y),
                     .work = together ? WORK_GEMM_MIXED : WORK_GEMM,
                     .dtype = together ? DTYPE_BF16 : p.g.a.type,
                     .size = (double)(least < p.g.k ? least : p.g.k) };
}

OP_PORTS(linear_fwd, IN_OPERAND(LinearFwd, x), IN_OPERAND(LinearFwd, w), IN_OPT(LinearFwd, r),
         OUT(LinearFwd, y));

OP_PORTS(linear_bwd_input, IN_OPERAND(LinearBwdInput, dy), IN_OPERAND(LinearBwdInput, w),
         IN_OPT(LinearBwdInput, r), OUT(LinearBwdInput, dx));

OP_PORTS(linear_bwd_weight, IN_OPERAND(LinearBwdWeight, dy), IN_OPERAND(LinearBwdWeight, x),
         ADD_OPT(LinearBwdWeight, dw));
