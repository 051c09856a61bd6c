/*
 * rmsnorm: check, cost and CPU version. A row is walked twice, piece by piece: once for its sum, once for the result.
 * Widened pieces are on the stack and stay in the L1 cache, however wide the row is. Widening a piece twice costs less
 * than keeping whole rows in f32. If rows have heads, each head is a row of its own here.
 */
#include "kernels/norm/rmsnorm.h"

#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"

enum {
    PIECE = 512,    /* columns */
    ROW_BLOCK = 64, /* rows with a partial sum of dw of their own: a constant, for constant bits */
};

/* Row i is head i % heads of token i / heads. */
typedef struct Shape {
    int64_t rows, heads, d;
    int64_t width, col, step; /* of x, where the window begins, from a head to the next */
} Shape;

static Shape shape_of(const Tensor *x, int64_t x_col, int64_t x_step, const Tensor *y,
                      const Tensor *rstd)
{
    int64_t heads = tensor_row_elems(rstd), d = tensor_row_elems(y) / heads;
    return (
        Shape){ x->dim[0] * heads, heads, d, tensor_row_elems(x), x_col, x_step > 0 ? x_step : d };
}

/* First element of a row in x. */
static int64_t x_at(const Shape *s, int64_t row)
{
    return row / s->heads * s->width + s->col + row % s->heads * s->step;
}

/* n weights from column `col` on; ones if there is no w. */
static const float *load_weight(const Tensor *w, int64_t col, int64_t n, float *buffer)
{
    if (w->data != NULL) return (const float *)w->data + col;
    for (int64_t i = 0; i < n; i++) buffer[i] = 1;
    return buffer;
}

/* Checks what forward and backward have in common. y: the port's name, "y" or "dy". */
static Status norm_check(const char *op, const RmsnormFwd *a, const char *y)
{
    int64_t n = a->x.dim[0], span = tensor_row_elems(&a->y), heads = tensor_row_elems(&a->rstd);
    TRY(op_expect_act(op, "x", &a->x, n, -1));
    TRY(op_expect(op, y, &a->y, n, -1, a->x.dtype));
    TRY(op_expect(op, "rstd", &a->rstd, n, -1, DTYPE_F32));
    if (heads < 1 || span % heads != 0) {
        return FAIL(ERR_SHAPE,
                    "%s: rstd has %lld heads, which do not divide the %lld columns of %s", op,
                    (long long)heads, (long long)span, y);
    }
    TRY(op_expect_window(op, "x", &a->x, a->x_col, a->x_step > 0 ? heads * a->x_step : span));
    return a->w.data == NULL ? OK : op_expect(op, "w", &a->w, 1, span / heads, DTYPE_F32);
}

/* Forward. */

Status rmsnorm_fwd_check(const RmsnormFwd *a)
{
    TRY(norm_check("rmsnorm_fwd", a, "y"));
    return quant_out_check("rmsnorm_fwd", "y", &a->quant, &a->y);
}

/* FLOPs for each element: a square, a sum and two products. x is read once. */
OpCost rmsnorm_fwd_cost(const RmsnormFwd *a)
{
    double small = (double)tensor_bytes(&a->rstd);
    if (a->w.data != NULL) small += (double)tensor_bytes(&a->w);
    OpCost cost = { .flops = 4 * (double)tensor_elems(&a->y),
                    .bytes = (double)tensor_bytes(&a->y) + small };
    quant_out_cost(&cost, &a->quant, &a->y);
    return cost;
}

size_t rmsnorm_fwd_workspace(const Exec *ex, const RmsnormFwd *a)
{
    return quant_out_workspace(ex, &a->quant, &a->y);
}

static float sum_of_squares(const Tensor *t, int64_t at, int64_t n)
{
    float buffer[PIECE], sum = 0;
    const float *x = row_load(t, at, n, buffer);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

static void rmsnorm_forward_row(const RmsnormFwd *a, const Shape *s, int64_t row)
{
    int64_t at = x_at(s, row), d = s->d;
    float sum = 0, buffer[PIECE], w_buffer[PIECE];
    for (int64_t col = 0; col < d; col += PIECE) {
        sum += sum_of_squares(&a->x, at + col, least(d - col, PIECE));
    }
    float rstd = 1 / sqrtf(sum / (float)d + a->eps);
    ((float *)a->rstd.data)[row] = rstd;
    for (int64_t col = 0; col < d; col += PIECE) {
        int64_t n = least(d - col, PIECE);
        const float *x = row_load(&a->x, at + col, n, buffer);
        const float *w = load_weight(&a->w, col, n, w_buffer);
        /* In bf16, x and y are one buffer: element i is read before it is written. */
        float *y = row_open(&a->y, row * d + col, buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * rstd * w[i];
        row_store(&a->y, row * d + col, n, y);
    }
}

Status rmsnorm_fwd_cpu(Exec *ex, const RmsnormFwd *a)
{
    Shape s = shape_of(&a->x, a->x_col, a->x_step, &a->y, &a->rstd);
    RmsnormFwd open = *a;
    open.y = quant_out_open(&a->quant, a->y, ex->workspace);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < s.rows; row++) rmsnorm_forward_row(&open, &s, row);
    return quant_out_cpu(ex, &a->quant, &open.y, ex->workspace);
}

OP_PORTS(rmsnorm_fwd, IN(RmsnormFwd, x), IN_OPT(RmsnormFwd, w), OUT_OPT(RmsnormFwd, y),
         OUT(RmsnormFwd, rstd), OUT_OPERAND_OPT(RmsnormFwd, quant.rows),
         OUT_OPERAND_OPT(RmsnormFwd, quant.columns));

/* Backward. */

static Shape backward_shape(const RmsnormBwd *a)
{
    return shape_of(&a->x, a->x_col, a->x_step, &a->dy, &a->rstd);
}

Status rmsnorm_bwd_check(const RmsnormBwd *a)
{
    const char *op = "rmsnorm_bwd";
    int64_t n = a->x.dim[0], width = tensor_row_elems(&a->x);
    RmsnormFwd of = { .x = a->x, .w = a->w, .y = a->dy, .rstd = a->rstd, .x_col = a->x_col };
    of.x_step = a->x_step;
    TRY(norm_check(op, &of, "dy"));
    TRY(op_expect(op, "dx", &a->dx, n, width, a->x.dtype));
    if (a->dw.data != NULL) TRY(op_expect(op, "dw", &a->dw, 1, backward_shape(a).d, DTYPE_F32));
    if (a->dres.data == NULL) return OK;
    if (width != tensor_row_elems(&a->dy))
        return FAIL(ERR_SHAPE, "rmsnorm_bwd: a window of x cannot have a residual");
    return op_expect(op, "dres", &a->dres, n, width, a->x.dtype);
}

/* FLOPs for each element: three each for the sum and for dw, four for dx, one for the residual. dy,
 * x and dres are read and dx is written; dw is read and written. */
OpCost rmsnorm_bwd_cost(const RmsnormBwd *a)
{
    double elems = (double)tensor_elems(&a->dy), bytes = (double)tensor_bytes(&a->dy);
    double small = (double)tensor_bytes(&a->rstd);
    bool residual = a->dres.data != NULL;
    if (a->w.data != NULL) small += (double)tensor_bytes(&a->w);
    if (a->dw.data != NULL) small += 2 * (double)tensor_bytes(&a->dw);
    return (OpCost){ .flops = (residual ? 11 : 10) * elems,
                     .bytes = (residual ? 4 : 3) * bytes + small };
}

static int64_t row_blocks(int64_t n) { return (n + ROW_BLOCK - 1) / ROW_BLOCK; }

/* One partial sum of dw for each block of rows. They are computed even if dw is not wanted,
 * so that there is only one loop. */
size_t rmsnorm_bwd_workspace(const Exec *ex, const RmsnormBwd *a)
{
    (void)ex;
    Shape s = backward_shape(a);
    return (size_t)(row_blocks(s.rows) * s.d) * sizeof(float);
}

/* sum of g x over a piece, g = w dy. */
static float sum_of_products(const RmsnormBwd *a, int64_t at, int64_t dy_at, int64_t col, int64_t n)
{
    float x_buffer[PIECE], dy_buffer[PIECE], w_buffer[PIECE], sum = 0;
    const float *x = row_load(&a->x, at + col, n, x_buffer);
    const float *dy = row_load(&a->dy, dy_at + col, n, dy_buffer);
    const float *w = load_weight(&a->w, col, n, w_buffer);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += w[i] * dy[i] * x[i];
    return sum;
}

/* dx = dres + rstd (g - x rstd^2 mean(g x)),  dw += dy x rstd */
typedef struct BackwardRow {
    int64_t at, dy_at;  /* first element in x and dx; in dy and dres */
    float rstd, shrink; /* shrink: rstd^3 mean(g x) */
} BackwardRow;

static void backward_piece(const RmsnormBwd *a, const BackwardRow *r, int64_t col, int64_t n,
                           float *dw)
{
    float x_buffer[PIECE], dy_buffer[PIECE], dx_buffer[PIECE], w_buffer[PIECE];
    const float *x = row_load(&a->x, r->at + col, n, x_buffer);
    const float *dy = row_load(&a->dy, r->dy_at + col, n, dy_buffer);
    const float *w = load_weight(&a->w, col, n, w_buffer), rstd = r->rstd, shrink = r->shrink;
    float *dx = row_open(&a->dx, r->at + col, dx_buffer);
    if (a->dres.data == NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dw[i] += dy[i] * x[i] * rstd;
            dx[i] = rstd * w[i] * dy[i] - shrink * x[i];
        }
    } else {
        /* In bf16, dres and dx are one buffer, too. */
        const float *dres = row_load(&a->dres, r->dy_at + col, n, dx_buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dw[i] += dy[i] * x[i] * rstd;
            dx[i] = dres[i] + rstd * w[i] * dy[i] - shrink * x[i];
        }
    }
    row_store(&a->dx, r->at + col, n, dx);
}

static void rmsnorm_backward_row(const RmsnormBwd *a, const Shape *s, int64_t row, float *dw)
{
    int64_t d = s->d;
    BackwardRow r = { x_at(s, row), row * d, ((const float *)a->rstd.data)[row], 0 };
    float sum = 0;
    for (int64_t col = 0; col < d; col += PIECE) {
        sum += sum_of_products(a, r.at, r.dy_at, col, least(d - col, PIECE));
    }
    r.shrink = sum / (float)d * r.rstd * r.rstd * r.rstd;
    for (int64_t col = 0; col < d; col += PIECE) {
        backward_piece(a, &r, col, least(d - col, PIECE), dw + col);
    }
}

/* The rows of one block, in order, on one thread; dw is the block's own partial sum. */
static void backward_block(const RmsnormBwd *a, const Shape *s, int64_t block, float *dw)
{
    int64_t end = (block + 1) * ROW_BLOCK < s->rows ? (block + 1) * ROW_BLOCK : s->rows;
    memset(dw, 0, (size_t)s->d * sizeof *dw);
    for (int64_t row = block * ROW_BLOCK; row < end; row++) rmsnorm_backward_row(a, s, row, dw);
}

/* dw += the partial sums of the blocks, for each column in the order of the blocks. */
static void add_blocks(const Exec *ex, float *dw, const float *part, int64_t blocks, int64_t d)
{
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t col = 0; col < d; col += PIECE) {
        int64_t n = least(d - col, PIECE);
        for (int64_t b = 0; b < blocks; b++) {
#pragma omp simd
            for (int64_t i = col; i < col + n; i++) dw[i] += part[b * d + i];
        }
    }
}

Status rmsnorm_bwd_cpu(Exec *ex, const RmsnormBwd *a)
{
    Shape s = backward_shape(a);
    int64_t blocks = row_blocks(s.rows);
    float *part = ex->workspace;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) backward_block(a, &s, b, part + b * s.d);
    if (a->dw.data != NULL) add_blocks(ex, a->dw.data, part, blocks, s.d);
    return OK;
}

OP_PORTS(rmsnorm_bwd, IN(RmsnormBwd, dy), IN(RmsnormBwd, x), IN_OPT(RmsnormBwd, w),
         IN(RmsnormBwd, rstd), IN_OPT(RmsnormBwd, dres), OUT_PART(RmsnormBwd, dx),
         ADD_OPT(RmsnormBwd, dw));
