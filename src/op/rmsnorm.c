/*
 * A row is walked twice, a piece at a time: once for its sum, once for the result. Widened pieces
 * live on the stack and stay in the first-level cache, however wide the row is; widening a piece a
 * second time costs less than keeping whole rows of f32 around.
 */
#include "op/cpu_math.h"
#include "op/op.h"

enum {
    PIECE = 512,    /* columns */
    ROW_BLOCK = 64, /* rows whose share of dw is summed apart: fixed, so the bits are too */
};

static int64_t piece_of(int64_t first, int64_t d) { return d - first < PIECE ? d - first : PIECE; }

/* Forward. */

Status rmsnorm_fwd_check(const void *args)
{
    const RmsnormFwd *a = args;
    int64_t n = a->x.dim[0], width = tensor_row_elems(&a->x), d = tensor_elems(&a->w);
    TRY(op_expect_act("rmsnorm_fwd", "x", &a->x, n, width));
    if (a->x_col < 0 || a->x_col + d > width) {
        return FAIL(ERR_SHAPE, "rmsnorm_fwd: w has %lld columns from %lld on, x has %lld",
                    (long long)d, (long long)a->x_col, (long long)width);
    }
    TRY(op_expect("rmsnorm_fwd", "w", &a->w, 1, d, DTYPE_F32));
    TRY(op_expect("rmsnorm_fwd", "y", &a->y, n, d, a->x.dtype));
    TRY(op_expect("rmsnorm_fwd", "rstd", &a->rstd, n, 1, DTYPE_F32));
    if ((a->r.data == NULL) != (a->h.data == NULL)) {
        return FAIL(ERR_ARG, "rmsnorm_fwd: r and h go together");
    }
    if (a->r.data == NULL) return OK;
    TRY(op_expect("rmsnorm_fwd", "r", &a->r, n, width, a->x.dtype));
    if (width != d) return FAIL(ERR_SHAPE, "rmsnorm_fwd: a window of x cannot have a residual");
    return op_expect("rmsnorm_fwd", "h", &a->h, n, d, a->x.dtype);
}

OpCost rmsnorm_fwd_cost(const void *args)
{
    const RmsnormFwd *a = args;
    double elems = (double)tensor_elems(&a->y), bytes = (double)tensor_bytes(&a->y);
    double small = (double)(tensor_bytes(&a->w) + tensor_bytes(&a->rstd));
    bool residual = a->r.data != NULL; /* reads r, writes h */
    return (OpCost){ .flops = (residual ? 5 : 4) * elems,
                     .bytes = (residual ? 4 : 2) * bytes + small };
}

/* h = x + r in the type of h: backward, and y here, see the rounded values. */
static void add_residual(const RmsnormFwd *a, int64_t at, int64_t n)
{
    float x_buffer[PIECE], r_buffer[PIECE];
    const float *x = row_load(&a->x, at, n, x_buffer);
    const float *r = row_load(&a->r, at, n, r_buffer);
    float *h = row_open(&a->h, at, r_buffer);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) h[i] = x[i] + r[i];
    row_store(&a->h, at, n, h);
}

static float sum_of_squares(const Tensor *h, int64_t at, int64_t n)
{
    float buffer[PIECE], sum = 0;
    const float *x = row_load(h, at, n, buffer);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

static void forward_row(const RmsnormFwd *a, int64_t row, int64_t width, int64_t d)
{
    const Tensor *h = a->r.data != NULL ? &a->h : &a->x;
    int64_t at = row * width + a->x_col;
    float sum = 0, buffer[PIECE];
    for (int64_t col = 0; col < d; col += PIECE) {
        int64_t n = piece_of(col, d);
        if (a->r.data != NULL) add_residual(a, at + col, n);
        sum += sum_of_squares(h, at + col, n);
    }
    float rstd = 1 / sqrtf(sum / (float)d + a->eps);
    ((float *)a->rstd.data)[row] = rstd;
    for (int64_t col = 0; col < d; col += PIECE) {
        int64_t n = piece_of(col, d);
        const float *x = row_load(h, at + col, n, buffer), *w = (const float *)a->w.data + col;
        float *y = row_open(&a->y, row * d + col, buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * rstd * w[i];
        row_store(&a->y, row * d + col, n, y);
    }
}

Status rmsnorm_fwd_cpu(Exec *ex, const void *args)
{
    const RmsnormFwd *a = args;
    int64_t n = a->x.dim[0], width = tensor_row_elems(&a->x), d = tensor_elems(&a->w);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < n; row++) forward_row(a, row, width, d);
    return OK;
}

OP_PORTS(rmsnorm_fwd, IN(RmsnormFwd, x), IN_OPT(RmsnormFwd, r), IN(RmsnormFwd, w),
         OUT_OPT(RmsnormFwd, h), OUT(RmsnormFwd, y), OUT(RmsnormFwd, rstd));

/* Backward. */

Status rmsnorm_bwd_check(const void *args)
{
    const RmsnormBwd *a = args;
    int64_t n = a->x.dim[0], width = tensor_row_elems(&a->x), d = tensor_elems(&a->w);
    TRY(op_expect_act("rmsnorm_bwd", "x", &a->x, n, width));
    if (a->x_col < 0 || a->x_col + d > width) {
        return FAIL(ERR_SHAPE, "rmsnorm_bwd: w has %lld columns from %lld on, x has %lld",
                    (long long)d, (long long)a->x_col, (long long)width);
    }
    TRY(op_expect("rmsnorm_bwd", "w", &a->w, 1, d, DTYPE_F32));
    TRY(op_expect("rmsnorm_bwd", "dy", &a->dy, n, d, a->x.dtype));
    TRY(op_expect("rmsnorm_bwd", "rstd", &a->rstd, n, 1, DTYPE_F32));
    TRY(op_expect("rmsnorm_bwd", "dx", &a->dx, n, width, a->x.dtype));
    if (a->dw.data != NULL) TRY(op_expect("rmsnorm_bwd", "dw", &a->dw, 1, d, DTYPE_F32));
    if (a->dres.data == NULL) return OK;
    if (width != d) return FAIL(ERR_SHAPE, "rmsnorm_bwd: a window of x cannot have a residual");
    return op_expect("rmsnorm_bwd", "dres", &a->dres, n, d, a->x.dtype);
}

OpCost rmsnorm_bwd_cost(const void *args)
{
    const RmsnormBwd *a = args;
    double elems = (double)tensor_elems(&a->dy), bytes = (double)tensor_bytes(&a->dy);
    double small = (double)(tensor_bytes(&a->w) + tensor_bytes(&a->rstd));
    bool residual = a->dres.data != NULL;
    if (a->dw.data != NULL) small += 2 * (double)tensor_bytes(&a->dw);
    return (OpCost){ .flops = (residual ? 11 : 10) * elems,
                     .bytes = (residual ? 4 : 3) * bytes + small };
}

static int64_t row_blocks(int64_t n) { return (n + ROW_BLOCK - 1) / ROW_BLOCK; }

/* One share of dw a block of rows. */
size_t rmsnorm_bwd_workspace(const Exec *ex, const void *args)
{
    (void)ex;
    const RmsnormBwd *a = args;
    return (size_t)(row_blocks(a->x.dim[0]) * tensor_elems(&a->w)) * sizeof(float);
}

/* sum of g h over a piece, g = w dy. */
static float sum_of_products(const RmsnormBwd *a, int64_t at, int64_t dy_at, int64_t col, int64_t n)
{
    float h_buffer[PIECE], dy_buffer[PIECE], sum = 0;
    const float *h = row_load(&a->x, at + col, n, h_buffer);
    const float *dy = row_load(&a->dy, dy_at + col, n, dy_buffer);
    const float *w = (const float *)a->w.data + col;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += w[i] * dy[i] * h[i];
    return sum;
}

/* dx = dres + rstd (g - h rstd^2 mean(g h)),  dw += dy h rstd */
typedef struct BackwardRow {
    int64_t at, dy_at;  /* first element in x and dx; in dy and dres */
    float rstd, shrink; /* shrink: rstd^3 mean(g h) */
} BackwardRow;

static void backward_piece(const RmsnormBwd *a, const BackwardRow *r, int64_t col, int64_t n,
                           float *dw)
{
    float h_buffer[PIECE], dy_buffer[PIECE], dx_buffer[PIECE];
    const float *h = row_load(&a->x, r->at + col, n, h_buffer);
    const float *dy = row_load(&a->dy, r->dy_at + col, n, dy_buffer);
    const float *w = (const float *)a->w.data + col, rstd = r->rstd, shrink = r->shrink;
    float *dx = row_open(&a->dx, r->at + col, dx_buffer);
    if (a->dres.data == NULL) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dw[i] += dy[i] * h[i] * rstd;
            dx[i] = rstd * w[i] * dy[i] - shrink * h[i];
        }
    } else {
        const float *dres = row_load(&a->dres, r->dy_at + col, n, dx_buffer);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dw[i] += dy[i] * h[i] * rstd;
            dx[i] = dres[i] + rstd * w[i] * dy[i] - shrink * h[i];
        }
    }
    row_store(&a->dx, r->at + col, n, dx);
}

static void backward_row(const RmsnormBwd *a, int64_t row, float *dw)
{
    int64_t d = tensor_elems(&a->w);
    BackwardRow r = { row * tensor_row_elems(&a->x) + a->x_col, row * d,
                      ((const float *)a->rstd.data)[row], 0 };
    float sum = 0;
    for (int64_t col = 0; col < d; col += PIECE) {
        sum += sum_of_products(a, r.at, r.dy_at, col, piece_of(col, d));
    }
    r.shrink = sum / (float)d * r.rstd * r.rstd * r.rstd;
    for (int64_t col = 0; col < d; col += PIECE) {
        backward_piece(a, &r, col, piece_of(col, d), dw + col);
    }
}

static void backward_block(const RmsnormBwd *a, int64_t block, float *dw)
{
    int64_t n = a->x.dim[0], d = tensor_elems(&a->w);
    int64_t end = (block + 1) * ROW_BLOCK < n ? (block + 1) * ROW_BLOCK : n;
    memset(dw, 0, (size_t)d * sizeof *dw);
    for (int64_t row = block * ROW_BLOCK; row < end; row++) backward_row(a, row, dw);
}

/* dw += the blocks' shares, in the order of the blocks for each column. */
static void add_blocks(const Exec *ex, float *dw, const float *part, int64_t blocks, int64_t d)
{
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t col = 0; col < d; col += PIECE) {
        int64_t n = piece_of(col, d);
        for (int64_t b = 0; b < blocks; b++) {
#pragma omp simd
            for (int64_t i = col; i < col + n; i++) dw[i] += part[b * d + i];
        }
    }
}

Status rmsnorm_bwd_cpu(Exec *ex, const void *args)
{
    const RmsnormBwd *a = args;
    int64_t d = tensor_elems(&a->w), blocks = row_blocks(a->x.dim[0]);
    float *part = ex->workspace;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) backward_block(a, b, part + b * d);
    if (a->dw.data != NULL) add_blocks(ex, a->dw.data, part, blocks, d);
    return OK;
}

OP_PORTS(rmsnorm_bwd, IN(RmsnormBwd, dy), IN(RmsnormBwd, x), IN(RmsnormBwd, w),
         IN(RmsnormBwd, rstd), IN_OPT(RmsnormBwd, dres), OUT_PART(RmsnormBwd, dx),
         ADD_OPT(RmsnormBwd, dw));
