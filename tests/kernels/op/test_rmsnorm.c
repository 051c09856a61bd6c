/* rmsnorm against plain loops in double and against the slopes of those. */
#include "harness/optest.h"
#include "kernels/norm/rmsnorm.h"

/* x has `left` columns before and `right` columns behind its window of H heads of D. */
typedef struct Sizes {
    int64_t N, D, left, right, H;
} Sizes;

/* 1, primes, one past a tile, one past the pieces that rows are worked on in, several blocks of
 * rows and one past; windows at the start, in the middle and at the end. The last ones are rows
 * that a GPU reads 16 bytes at a time, and more blocks of rows than it adds at once; then heads: of
 * odd width, a whole row, more than a block of rows to a token, q and k of a fused projection; at
 * last more rows than a GPU has on their way at a time, and one too wide for its threads. */
static const Sizes sizes[] = {
    { 1, 1, 0, 0, 1 },        { 7, 13, 0, 0, 1 },   { 129, 65, 0, 0, 1 },   { 3, 1025, 0, 0, 1 },
    { 257, 130, 0, 0, 1 },    { 65, 17, 0, 5, 1 },  { 5, 513, 31, 0, 1 },   { 66, 37, 3, 2, 1 },
    { 35, 264, 0, 0, 1 },     { 18, 40, 8, 16, 1 }, { 3, 2056, 0, 0, 1 },   { 1031, 11, 0, 0, 1 },
    { 7, 13, 5, 3, 3 },       { 5, 17, 0, 0, 4 },   { 3, 6, 0, 7, 131 },    { 33, 128, 0, 512, 6 },
    { 33, 128, 768, 256, 2 }, { 2, 520, 8, 8, 5 },  { 805, 4096, 0, 0, 1 }, { 269, 4104, 0, 0, 1 },
    { 2, 8200, 0, 0, 1 },
};

enum { SIZES = sizeof sizes / sizeof *sizes };

static const double EPS = 0.25; /* large, so that a forgotten eps shows and D = 1 has a gradient */

typedef enum Residual { ABSENT, GIVEN, IN_PLACE, RESIDUALS } Residual;

static bool windowed(const Sizes *s) { return s->left + s->right > 0; }
static int64_t span_of(const Sizes *s) { return s->H * s->D; }
static int64_t width_of(const Sizes *s) { return s->left + span_of(s) + s->right; }

/* (N, left + H*D + right): random inside the window, NaN beside it. */
static Tensor windowed_input(OpTest *t, Dtype dtype, const Sizes *s)
{
    int64_t width = width_of(s);
    Tensor x = optest_normal(t, dtype, DIMS(s->N, width));
    for (int64_t i = 0; i < s->N * width; i++) {
        int64_t col = i % width - s->left;
        if (col < 0 || col >= span_of(s)) optest_set(&x, i, NAN);
    }
    return x;
}

/* The window of a wide tensor, as (N*H, D) doubles. */
static double *window_of(OpTest *t, const Tensor *wide, const Sizes *s)
{
    int64_t width = width_of(s), span = span_of(s);
    double *out = optest_doubles(t, s->N * span);
    for (int64_t i = 0; i < s->N * span; i++) {
        out[i] = optest_get(wide, i / span * width + s->left + i % span);
    }
    return out;
}

/* y = x rstd w */
static void forward_double(const Sizes *s, const double *h, const double *w, double *y,
                           double *rstd)
{
    for (int64_t n = 0; n < s->N * s->H; n++) {
        const double *row = h + n * s->D;
        double sum = 0;
        for (int64_t d = 0; d < s->D; d++) sum += row[d] * row[d];
        rstd[n] = 1 / sqrt(sum / (double)s->D + EPS);
        for (int64_t d = 0; d < s->D; d++) y[n * s->D + d] = row[d] * rstd[n] * w[d];
    }
}

/* forward */

static RmsnormFwd forward_args(OpTest *t, const Sizes *s, Dtype dtype)
{
    return (RmsnormFwd){ .x = windowed_input(t, dtype, s),
                         .w = optest_normal(t, DTYPE_F32, DIMS(1, s->D)),
                         .y = optest_poisoned(t, dtype, DIMS(s->N, span_of(s))),
                         .rstd = optest_poisoned(t, DTYPE_F32, DIMS(s->N, s->H)),
                         .x_col = s->left,
                         .eps = (float)EPS };
}

static void check_forward(OpTest *t, const Sizes *s, Dtype dtype)
{
    RmsnormFwd a = forward_args(t, s, dtype);
    double *x = window_of(t, &a.x, s), *w = optest_read(t, &a.w);
    double *y = optest_doubles(t, s->N * span_of(s)), *rstd = optest_doubles(t, s->N * s->H);
    CHECK_OK(rmsnorm_fwd(&t->ex, a));
    forward_double(s, x, w, y, rstd);
    CHECK_TENSOR(&a.y, y);
    CHECK_TENSOR(&a.rstd, rstd);
}

static void forward_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 2; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        check_forward(t, &sizes[i / 2], i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        arena_release(&t->arena, mark);
    }
}

/* Row (3, 4) has mean square 12.5. */
static void a_row_worked_by_hand(void **state)
{
    OpTest *t = *state;
    float x[2] = { 3, 4 }, w[2] = { 1, 2 }, y[2], rstd[1];
    RmsnormFwd a = { .x = { x, DTYPE_F32, 2, { 1, 2 } },
                     .w = { w, DTYPE_F32, 2, { 1, 2 } },
                     .y = { y, DTYPE_F32, 2, { 1, 2 } },
                     .rstd = { rstd, DTYPE_F32, 2, { 1, 1 } } };
    CHECK_OK(rmsnorm_fwd(&t->ex, a));
    CHECK_NEAR(rstd[0], 1 / sqrt(12.5), 1e-7);
    CHECK_NEAR(y[0], 3 / sqrt(12.5), 1e-6);
    CHECK_NEAR(y[1], 8 / sqrt(12.5), 1e-6);
}

/* backward */

static RmsnormBwd backward_args(OpTest *t, const Sizes *s, Dtype dtype, Residual residual)
{
    int64_t width = width_of(s);
    RmsnormBwd a = { .dy = optest_normal(t, dtype, DIMS(s->N, span_of(s))),
                     .x = windowed_input(t, dtype, s),
                     .w = optest_normal(t, DTYPE_F32, DIMS(1, s->D)),
                     .rstd = optest_poisoned(t, DTYPE_F32, DIMS(s->N, s->H)),
                     .dx = optest_poisoned(t, dtype, DIMS(s->N, width)),
                     .dw = optest_normal(t, DTYPE_F32, DIMS(1, s->D)),
                     .x_col = s->left };
    double *h = window_of(t, &a.x, s), *w = optest_read(t, &a.w);
    double *y = optest_doubles(t, s->N * span_of(s)), *rstd = optest_doubles(t, s->N * s->H);
    forward_double(s, h, w, y, rstd);
    optest_write(&a.rstd, rstd);
    if (residual != ABSENT) a.dres = optest_normal(t, dtype, DIMS(s->N, span_of(s)));
    if (residual == IN_PLACE) a.dx = a.dres;
    return a;
}

/* Adds to dw; sets dx (N*H, D) to dres + what comes through the norm. */
static void backward_double(const Sizes *s, const RmsnormBwd *a, const double *h, double *dx,
                            double *dw)
{
    for (int64_t n = 0; n < s->N * s->H; n++) {
        double mean = 0, rstd = optest_get(&a->rstd, n);
        for (int64_t d = 0; d < s->D; d++) {
            int64_t i = n * s->D + d;
            double dy = optest_get(&a->dy, i);
            mean += dy * optest_get(&a->w, d) * h[i] / (double)s->D;
            dw[d] += dy * h[i] * rstd;
        }
        for (int64_t d = 0; d < s->D; d++) {
            int64_t i = n * s->D + d;
            double g = optest_get(&a->dy, i) * optest_get(&a->w, d);
            dx[i] = rstd * (g - h[i] * rstd * rstd * mean);
            if (a->dres.data != NULL) dx[i] += optest_get(&a->dres, i);
        }
    }
}

/* Columns beside the window are still the NaN that they were. */
static void check_untouched(const Tensor *wide, const Sizes *s)
{
    int64_t width = width_of(s);
    for (int64_t i = 0; i < s->N * width; i++) {
        int64_t col = i % width - s->left;
        if (col < 0 || col >= span_of(s)) CHECK(isnan(optest_get(wide, i)));
    }
}

static void check_backward(OpTest *t, const Sizes *s, Dtype dtype, Residual residual)
{
    RmsnormBwd a = backward_args(t, s, dtype, residual);
    double *h = window_of(t, &a.x, s);
    double *dx = optest_doubles(t, s->N * span_of(s)), *dw = optest_read(t, &a.dw);
    backward_double(s, &a, h, dx, dw);
    CHECK_OK(rmsnorm_bwd(&t->ex, a));
    CHECK_TENSOR(&a.dw, dw);
    Tensor window = optest_poisoned(t, dtype, DIMS(s->N, span_of(s)));
    optest_write(&window, window_of(t, &a.dx, s));
    CHECK_TENSOR(&window, dx);
    check_untouched(&a.dx, s);
}

static void backward_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 2 * RESIDUALS; i += RUNS(1, 5)) {
        const Sizes *s = &sizes[i / 2 / RESIDUALS];
        Residual residual = (Residual)(i / 2 % RESIDUALS);
        if (windowed(s) && residual != ABSENT) continue;
        ArenaMark mark = arena_mark(&t->arena);
        check_backward(t, s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, residual);
        arena_release(&t->arena, mark);
    }
}

/* sum of dy y as a function of x, or of w. */
typedef struct Loss {
    const Sizes *s;
    const double *x, *w, *dy;
    double *y, *rstd;
} Loss;

static double loss(const Loss *l, const double *x, const double *w)
{
    double sum = 0;
    forward_double(l->s, x, w, l->y, l->rstd);
    for (int64_t i = 0; i < l->s->N * span_of(l->s); i++) sum += l->dy[i] * l->y[i];
    return sum;
}

static double loss_of_x(const void *context, const double *x)
{
    return loss(context, x, ((const Loss *)context)->w);
}

static double loss_of_w(const void *context, const double *w)
{
    return loss(context, ((const Loss *)context)->x, w);
}

static void backward_is_the_slope_of_forward(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 5, 11, 0, 0, 3 };
    RmsnormBwd a = backward_args(t, &s, DTYPE_F32, ABSENT);
    double *x = optest_read(t, &a.x), *w = optest_read(t, &a.w);
    Loss l = { &s,
               x,
               w,
               optest_read(t, &a.dy),
               optest_doubles(t, s.N * span_of(&s)),
               optest_doubles(t, s.N * s.H) };
    double *dx = optest_doubles(t, s.N * span_of(&s)), *dw = optest_doubles(t, s.D);
    optest_slopes(loss_of_x, &l, x, s.N * span_of(&s), dx);
    optest_slopes(loss_of_w, &l, w, s.D, dw);
    memset(a.dw.data, 0, tensor_bytes(&a.dw));
    CHECK_OK(rmsnorm_bwd(&t->ex, a));
    CHECK_TENSOR(&a.dx, dx);
    CHECK_TENSOR(&a.dw, dw);
}

static void bits_do_not_depend_on_threads(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 331, 519, 0, 0, 1 };
    RmsnormBwd a = backward_args(t, &s, DTYPE_F32, GIVEN);
    Tensor before = optest_copy(t, &a.dw);
    CHECK_OK(rmsnorm_bwd(&t->ex, a));
    for (int threads = 2; threads <= 5; threads++) {
        RmsnormBwd b = a;
        b.dw = optest_copy(t, &before);
        b.dx = optest_poisoned(t, DTYPE_F32, DIMS(s.N, s.D));
        t->ex.threads = threads;
        CHECK_OK(rmsnorm_bwd(&t->ex, b));
        CHECK_SAME(&b.dw, &a.dw);
        CHECK_SAME(&b.dx, &a.dx);
    }
}

/* Without w: as with ones, in the same bits. */
static void w_is_optional(void **state)
{
    OpTest *t = *state;
    const Sizes *s = &sizes[12];
    for (int i = 0; i < 2; i++) {
        RmsnormFwd f = forward_args(t, s, i == 0 ? DTYPE_F32 : DTYPE_BF16), plain = f;
        RmsnormBwd b = backward_args(t, s, i == 0 ? DTYPE_F32 : DTYPE_BF16, ABSENT), back = b;
        for (int64_t d = 0; d < s->D; d++) optest_set(&f.w, d, 1), optest_set(&b.w, d, 1);
        plain.w = back.w = back.dw = (Tensor){ 0 };
        plain.y = optest_poisoned(t, f.y.dtype, DIMS(s->N, span_of(s)));
        back.dx = optest_copy(t, &b.dx);
        CHECK_OK(rmsnorm_fwd(&t->ex, f));
        CHECK_OK(rmsnorm_fwd(&t->ex, plain));
        CHECK_SAME(&plain.y, &f.y);
        CHECK_OK(rmsnorm_bwd(&t->ex, b));
        CHECK_OK(rmsnorm_bwd(&t->ex, back));
        CHECK_SAME(&back.dx, &b.dx);
    }
}

static void dw_is_optional(void **state)
{
    OpTest *t = *state;
    RmsnormBwd a = backward_args(t, &sizes[2], DTYPE_F32, ABSENT), b = a;
    b.dw = (Tensor){ 0 };
    b.dx = optest_poisoned(t, DTYPE_F32, DIMS(sizes[2].N, sizes[2].D));
    CHECK_OK(rmsnorm_bwd(&t->ex, a));
    CHECK_OK(rmsnorm_bwd(&t->ex, b));
    CHECK_SAME(&b.dx, &a.dx);
}

/* errors and costs */

static void wrong_forward_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 4, 3, 0, 0, 1 };
    const RmsnormFwd good = forward_args(t, &s, DTYPE_F32);
    Tensor wide = optest_normal(t, DTYPE_F32, DIMS(4, 5));
    Tensor half = optest_normal(t, DTYPE_BF16, DIMS(4, 3));
    RmsnormFwd a = good;
    a.w = optest_normal(t, DTYPE_F32, DIMS(1, 4));
    CHECK_FAILS(rmsnorm_fwd(&t->ex, a), ERR_SHAPE, "rmsnorm_fwd: w is (1, 4) f32, wanted (1, 3)");
    a = good, a.x_col = 1;
    CHECK_FAILS(rmsnorm_fwd(&t->ex, a), ERR_SHAPE, "columns 1 to 4 of x, which has 3");
    a = good, a.x_col = -1;
    CHECK_FAILS(rmsnorm_fwd(&t->ex, a), ERR_SHAPE, "columns -1 to 2");
    a = good, a.y = half;
    CHECK_FAILS(rmsnorm_fwd(&t->ex, a), ERR_SHAPE, "rmsnorm_fwd: y is (4, 3) bf16");
    a = good, a.rstd = wide;
    CHECK_FAILS(rmsnorm_fwd(&t->ex, a), ERR_SHAPE,
                "rstd has 5 heads, which do not divide the 3 columns of y");
    a = good, a.rstd = optest_normal(t, DTYPE_F32, DIMS(4, 3));
    CHECK_FAILS(rmsnorm_fwd(&t->ex, a), ERR_SHAPE, "w is (1, 3) f32, wanted (1, 1)");
    a = good, a.rstd = optest_normal(t, DTYPE_F32, DIMS(5, 1));
    CHECK_FAILS(rmsnorm_fwd(&t->ex, a), ERR_SHAPE, "rmsnorm_fwd: rstd is (5, 1)");
}

static void wrong_backward_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 4, 3, 0, 0, 1 };
    const RmsnormBwd good = backward_args(t, &s, DTYPE_F32, GIVEN);
    Tensor wide = optest_normal(t, DTYPE_F32, DIMS(4, 5));
    Tensor half = optest_normal(t, DTYPE_BF16, DIMS(4, 3));
    RmsnormBwd a = good;
    a.x_col = 2;
    CHECK_FAILS(rmsnorm_bwd(&t->ex, a), ERR_SHAPE, "columns 2 to 5 of x, which has 3");
    a = good, a.dy = half;
    CHECK_FAILS(rmsnorm_bwd(&t->ex, a), ERR_SHAPE, "rmsnorm_bwd: dy is (4, 3) bf16");
    a = good, a.dx = wide;
    CHECK_FAILS(rmsnorm_bwd(&t->ex, a), ERR_SHAPE, "rmsnorm_bwd: dx is (4, 5)");
    a = good, a.dw = wide;
    CHECK_FAILS(rmsnorm_bwd(&t->ex, a), ERR_SHAPE, "rmsnorm_bwd: dw is (4, 5)");
    a = good, a.dres = half;
    CHECK_FAILS(rmsnorm_bwd(&t->ex, a), ERR_SHAPE, "rmsnorm_bwd: dres is (4, 3) bf16");
    a = good, a.x = a.dx = wide;
    CHECK_FAILS(rmsnorm_bwd(&t->ex, a), ERR_SHAPE, "a window of x cannot have a residual");
}

static void costs_are_every_tensor_once(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 4, 3, 1, 1, 1 }, whole = { 4, 3, 0, 0, 1 };
    RmsnormFwd f = forward_args(t, &s, DTYPE_BF16);
    OpCost c = op_desc(OP_RMSNORM_FWD)->cost(&f);
    CHECK_NEAR(c.bytes, 2 * 12 * 2 + 3 * 4 + 4 * 4, 0); /* of x the window only */
    CHECK_NEAR(c.flops, 4 * 12, 0);
    f.w = (Tensor){ 0 };
    CHECK_NEAR(op_desc(OP_RMSNORM_FWD)->cost(&f).bytes, c.bytes - 3 * 4, 0);
    RmsnormBwd b = backward_args(t, &s, DTYPE_BF16, ABSENT);
    c = op_desc(OP_RMSNORM_BWD)->cost(&b);
    CHECK_NEAR(c.bytes, 3 * 12 * 2 + 3 * 4 + 4 * 4 + 2 * 3 * 4, 0);
    b = backward_args(t, &whole, DTYPE_BF16, GIVEN);
    CHECK_NEAR(op_desc(OP_RMSNORM_BWD)->cost(&b).bytes, c.bytes + 12 * 2, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(forward_matches_double, 2),
        OP_TEST(a_row_worked_by_hand, 1),
        OP_TEST(backward_matches_double, 2),
        OP_TEST(backward_is_the_slope_of_forward, 2),
        OP_TEST(bits_do_not_depend_on_threads, 1),
        OP_TEST(w_is_optional, 2),
        OP_TEST(dw_is_optional, 2),
        OP_TEST(wrong_forward_shapes_are_errors_with_a_message, 1),
        OP_TEST(wrong_backward_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_are_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
