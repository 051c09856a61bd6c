/* The three linear ops against plain loops in double. */
#include "harness/optest.h"
#include "kernels/dense/linear.h"
#include "operand_case.h"

typedef struct Sizes {
    int64_t N, O, I;
} Sizes;

/* 1, primes, one past a tile, more rows than a call of mixed types widens at a time, and whole packs of
 * 16 bytes, as kernels on matrix cores want them. */
static const Sizes sizes[] = {
    { 1, 1, 1 }, { 7, 13, 5 }, { 129, 65, 31 }, { 64, 16, 127 }, { 1031, 8, 33 }, { 136, 200, 88 },
};

enum { SIZES = sizeof sizes / sizeof *sizes };

/* Waiting for each other costs two threads more than a small case takes. */
static int threads_for(const Sizes *s) { return s->N < 100 ? 1 : 2; }

/* Bit i of `types` makes a tensor bf16. */
static Dtype type_of(int types, int bit) { return types >> bit & 1 ? DTYPE_BF16 : DTYPE_F32; }

/* sum over l of a[i * step_i + l * step_l] * b[j * step_j + l * step_m], and r[i][j]. */
typedef struct Sum {
    const Tensor *a, *b, *r;
    int64_t rows, cols, terms, a_row, a_term, b_col, b_term;
} Sum;

static double *sums(OpTest *t, const Sum *s)
{
    double *want = optest_doubles(t, s->rows * s->cols);
    for (int64_t i = 0; i < s->rows; i++) {
        for (int64_t j = 0; j < s->cols; j++) {
            double sum = s->r == NULL || s->r->data == NULL ? 0 : optest_get(s->r, i * s->cols + j);
            for (int64_t l = 0; l < s->terms; l++) {
                sum += optest_get(s->a, i * s->a_row + l * s->a_term) *
                       optest_get(s->b, j * s->b_col + l * s->b_term);
            }
            want[i * s->cols + j] = sum;
        }
    }
    return want;
}

/* The residual: not given, given, or the output itself. */
typedef enum Residual { ABSENT, GIVEN, IN_PLACE } Residual;

static void residual_make(OpTest *t, Residual kind, const Tensor *out, Tensor *r)
{
    *r = (Tensor){ 0 };
    if (kind == ABSENT) return;
    *r = optest_normal(t, out->dtype, out->dim);
    if (kind == GIVEN) return;
    memcpy(out->data, r->data, tensor_bytes(out));
}

static void check_fwd(OpTest *t, const Sizes *s, int types, Residual residual)
{
    LinearFwd a = { .x = operand_plain(optest_normal(t, type_of(types, 0), DIMS(s->N, s->I))),
                    .w = operand_plain(optest_normal(t, type_of(types, 1), DIMS(s->O, s->I))),
                    .y = optest_poisoned(t, type_of(types, 2), DIMS(s->N, s->O)) };
    Tensor r;
    residual_make(t, residual, &a.y, &r);
    a.r = residual == IN_PLACE ? a.y : r;
    Sum sum = { &a.x.data, &a.w.data, &r, s->N, s->O, s->I, s->I, 1, s->I, 1 };
    double *want = sums(t, &sum);
    CHECK_OK(linear_fwd(&t->ex, a));
    CHECK_TENSOR(&a.y, want);
}

static void check_bwd_input(OpTest *t, const Sizes *s, int types, Residual residual)
{
    LinearBwdInput a = { .dy = operand_plain(optest_normal(t, type_of(types, 0), DIMS(s->N, s->O))),
                         .w = operand_plain(optest_normal(t, type_of(types, 1), DIMS(s->O, s->I))),
                         .dx = optest_poisoned(t, type_of(types, 2), DIMS(s->N, s->I)) };
    Tensor r;
    residual_make(t, residual, &a.dx, &r);
    a.r = residual == IN_PLACE ? a.dx : r;
    Sum sum = { &a.dy.data, &a.w.data, &r, s->N, s->I, s->O, s->O, 1, 1, s->I };
    double *want = sums(t, &sum);
    CHECK_OK(linear_bwd_input(&t->ex, a));
    CHECK_TENSOR(&a.dx, want);
}

static void check_bwd_weight(OpTest *t, const Sizes *s, int types)
{
    LinearBwdWeight a = { .dy =
                              operand_plain(optest_normal(t, type_of(types, 0), DIMS(s->N, s->O))),
                          .x = operand_plain(optest_normal(t, type_of(types, 1), DIMS(s->N, s->I))),
                          .dw = optest_normal(t, DTYPE_F32, DIMS(s->O, s->I)) };
    Tensor before = optest_copy(t, &a.dw);
    Sum sum = { &a.dy.data, &a.x.data, &before, s->O, s->I, s->N, 1, s->O, 1, s->I };
    double *want = sums(t, &sum);
    CHECK_OK(linear_bwd_weight(&t->ex, a));
    CHECK_TENSOR(&a.dw, want);
}

static void forward_matches_double_for_all_types_and_residuals(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 8 * 3; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        t->ex.threads = threads_for(&sizes[i / 24]);
        check_fwd(t, &sizes[i / 24], i / 3 % 8, (Residual)(i % 3));
        arena_release(&t->arena, mark);
    }
}

static void input_gradient_matches_double_for_all_types_and_residuals(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 8 * 3; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        t->ex.threads = threads_for(&sizes[i / 24]);
        check_bwd_input(t, &sizes[i / 24], i / 3 % 8, (Residual)(i % 3));
        arena_release(&t->arena, mark);
    }
}

static void weight_gradient_is_added_and_matches_double_for_all_types(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 4; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        check_bwd_weight(t, &sizes[i / 4], i % 4);
        arena_release(&t->arena, mark);
    }
}

/* Enough tokens for parts (weight_parts): four, then eight of a first piece of 8,192 rows of mixed types. */
static void weight_gradient_of_many_tokens_matches_double_twice(void **state)
{
    static const Sizes many[] = { { 4240, 144, 16 }, { 8240, 16, 24 } };
    OpTest *t = *state;
    for (int i = 0; i < 8; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        const Sizes *s = &many[i / 4];
        Tensor dy = optest_normal(t, type_of(i % 4, 0), DIMS(s->N, s->O));
        Tensor x = optest_normal(t, type_of(i % 4, 1), DIMS(s->N, s->I));
        Tensor before = optest_normal(t, DTYPE_F32, DIMS(s->O, s->I)), dw[2];
        Sum sum = { &dy, &x, &before, s->O, s->I, s->N, 1, s->O, 1, s->I };
        double *want = sums(t, &sum);
        for (int k = 0; k < 2; k++) {
            dw[k] = optest_copy(t, &before);
            LinearBwdWeight a = { .dy = operand_plain(dy), .x = operand_plain(x), .dw = dw[k] };
            CHECK_OK(linear_bwd_weight(&t->ex, a));
        }
        CHECK_TENSOR(&dw[0], want);
        CHECK_SAME(&dw[1], &dw[0]);
        arena_release(&t->arena, mark);
    }
}

/* |out - want| / |want| */
static double error_of(const Tensor *out, const double *want)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < tensor_elems(out); i++) {
        double e = optest_get(out, i) - want[i];
        error += e * e;
        norm += want[i] * want[i];
    }
    return sqrt(error / norm);
}

/* The same sums, one term after the other in f32. */
static Tensor plain_sums(OpTest *t, const Sum *s, Dtype type)
{
    Tensor out = optest_poisoned(t, type, DIMS(s->rows, s->cols));
    for (int64_t i = 0; i < s->rows * s->cols; i++) {
        float sum = 0;
        for (int64_t l = 0; l < s->terms; l++) {
            sum += (float)optest_get(s->a, i / s->cols * s->a_row + l * s->a_term) *
                   (float)optest_get(s->b, i % s->cols * s->b_col + l * s->b_term);
        }
        optest_set(&out, i, (double)sum);
    }
    return out;
}

static void check_exact(OpTest *t, const Sum *s, const Tensor *out)
{
    double *want = sums(t, s);
    Tensor plain = plain_sums(t, s, out->dtype);
    double limit = 2 * error_of(&plain, want), error = error_of(out, want);
    if (!(error <= limit)) fail_msg("error %.3g, plain sums half of %.3g", error, limit);
}

/* bf16 rows and f32 weights; on a GPU these products are made of bf16 parts. */
static void a_router_is_as_exact_as_plain_sums_of_f32(void **state)
{
    OpTest *t = *state;
    static const Sizes routers[] = { { 33, 64, 2048 }, { 9, 24, 7168 }, { 16384, 4, 8 } };
    mirror_gives();
    for (int i = 0; i < 3; i++) {
        const Sizes *s = &routers[i];
        ArenaMark mark = arena_mark(&t->arena);
        LinearFwd y = { .x = operand_plain(optest_normal(t, DTYPE_BF16, DIMS(s->N, s->I))),
                        .w = operand_plain(optest_normal(t, DTYPE_F32, DIMS(s->O, s->I))),
                        .y = optest_poisoned(t, DTYPE_F32, DIMS(s->N, s->O)) };
        LinearBwdInput dx = { .dy = operand_plain(optest_normal(t, DTYPE_F32, DIMS(s->N, s->O))),
                              .w = y.w,
                              .dx = optest_poisoned(t, DTYPE_BF16, DIMS(s->N, s->I)) };
        LinearBwdWeight dw = { .dy = dx.dy,
                               .x = y.x,
                               .dw = optest_poisoned(t, DTYPE_F32, DIMS(s->O, s->I)) };
        memset(dw.dw.data, 0, tensor_bytes(&dw.dw));
        CHECK_OK(linear_fwd(&t->ex, y));
        CHECK_OK(linear_bwd_input(&t->ex, dx));
        CHECK_OK(linear_bwd_weight(&t->ex, dw));
        check_exact(t, &(Sum){ &y.x.data, &y.w.data, NULL, s->N, s->O, s->I, s->I, 1, s->I, 1 },
                    &y.y);
        check_exact(t, &(Sum){ &dx.dy.data, &dx.w.data, NULL, s->N, s->I, s->O, s->O, 1, 1, s->I },
                    &dx.dx);
        check_exact(t, &(Sum){ &dw.dy.data, &dw.x.data, NULL, s->O, s->I, s->N, 1, s->O, 1, s->I },
                    &dw.dw);
        arena_release(&t->arena, mark);
    }
}

static void tokens_of_a_batch_are_rows(void **state)
{
    OpTest *t = *state;
    LinearFwd a = { .x = operand_plain(optest_normal(t, DTYPE_F32, DIMS(2, 3, 5))),
                    .w = operand_plain(optest_normal(t, DTYPE_F32, DIMS(4, 5))),
                    .y = optest_poisoned(t, DTYPE_F32, DIMS(2, 3, 2, 2)) };
    Sum sum = { &a.x.data, &a.w.data, NULL, 6, 4, 5, 5, 1, 5, 1 };
    double *want = sums(t, &sum);
    CHECK_OK(linear_fwd(&t->ex, a));
    CHECK_TENSOR(&a.y, want);
}

/* Three of seven columns, from the third on: the products of a narrow matrix, which leave the other
 * columns of a gradient as they were. */
static void a_window_of_the_matrix_is_a_matrix(void **state)
{
    OpTest *t = *state;
    enum { N = 67, O = 9, W = 7, COL = 2, COLS = 3 };
    for (int type = DTYPE_F32; type <= DTYPE_BF16; type++) {
        Dtype act = (Dtype)type;
        LinearFwd f = { .x = operand_plain(optest_normal(t, act, DIMS(N, COLS))),
                        .w = operand_plain(optest_normal(t, act, DIMS(O, W))),
                        .y = optest_poisoned(t, act, DIMS(N, O)),
                        .w_col = COL,
                        .w_cols = COLS };
        LinearBwdInput b = { .dy = operand_plain(optest_normal(t, act, DIMS(N, O))),
                             .w = f.w,
                             .dx = optest_poisoned(t, act, DIMS(N, COLS)),
                             .w_col = COL,
                             .w_cols = COLS };
        LinearBwdWeight g = { .dy = b.dy,
                              .x = f.x,
                              .dw = optest_normal(t, DTYPE_F32, DIMS(O, W)),
                              .w_col = COL,
                              .w_cols = COLS };
        Tensor window = { tensor_at(&f.w.data, COL), act, 2, { O, W } }, r = { 0 };
        Sum y = { &f.x.data, &window, &r, N, O, COLS, COLS, 1, W, 1 };
        Sum dx = { &b.dy.data, &window, &r, N, COLS, O, O, 1, 1, W };
        Sum dw = { &g.dy.data, &f.x.data, &r, O, COLS, N, 1, O, 1, COLS };
        double *want_y = sums(t, &y), *want_dx = sums(t, &dx), *more = sums(t, &dw);
        double *want_dw = optest_doubles(t, O * W);
        for (int i = 0; i < O * W; i++) {
            int col = i % W - COL;
            want_dw[i] = optest_get(&g.dw, i);
            if (col >= 0 && col < COLS) want_dw[i] += more[i / W * COLS + col];
        }
        CHECK_OK(linear_fwd(&t->ex, f));
        CHECK_TENSOR(&f.y, want_y);
        CHECK_OK(linear_bwd_input(&t->ex, b));
        CHECK_TENSOR(&b.dx, want_dx);
        CHECK_OK(linear_bwd_weight(&t->ex, g));
        CHECK_TENSOR(&g.dw, want_dw);
        CHECK_NEAR(op_desc(OP_LINEAR_FWD)->cost(&f).flops, 2.0 * N * O * COLS, 0);
    }
}

static void a_window_beyond_the_matrix_or_of_other_types_is_refused(void **state)
{
    OpTest *t = *state;
    LinearFwd f = { .x = operand_plain(optest_normal(t, DTYPE_F32, DIMS(4, 3))),
                    .w = operand_plain(optest_normal(t, DTYPE_F32, DIMS(2, 6))),
                    .y = optest_poisoned(t, DTYPE_F32, DIMS(4, 2)),
                    .w_col = 4,
                    .w_cols = 3 };
    CHECK_FAILS(linear_fwd(&t->ex, f), ERR_SHAPE, "columns 4 + 3 of w, which has 6");
    f.w_col = -1;
    CHECK_FAILS(linear_fwd(&t->ex, f), ERR_SHAPE, "columns -1 + 3 of w, which has 6");
    f.w_col = 3;
    f.y = optest_poisoned(t, DTYPE_BF16, DIMS(4, 2));
    CHECK_FAILS(linear_fwd(&t->ex, f), ERR_ARG, "a window of w takes plain x, y and w of one type");
}

static void no_rows_leave_the_weight_gradient_alone(void **state)
{
    OpTest *t = *state;
    LinearBwdWeight a = { .dy = operand_plain(optest_normal(t, DTYPE_BF16, DIMS(1, 2))),
                          .x = operand_plain(optest_normal(t, DTYPE_F32, DIMS(1, 3))),
                          .dw = optest_normal(t, DTYPE_F32, DIMS(2, 3)) };
    a.dy.data.dim[0] = a.x.data.dim[0] = 0;
    Tensor before = optest_copy(t, &a.dw);
    CHECK_OK(linear_bwd_weight(&t->ex, a));
    CHECK_SAME(&a.dw, &before);
}

static void shapes_that_do_not_fit_are_errors_that_name_the_tensor(void **state)
{
    OpTest *t = *state;
    Tensor y = optest_poisoned(t, DTYPE_F32, DIMS(4, 2)), half = y;
    Tensor dw = optest_normal(t, DTYPE_F32, DIMS(2, 3)), dw16 = dw;
    Tensor wide = optest_normal(t, DTYPE_F32, DIMS(4, 5));
    Operand x = operand_plain(optest_normal(t, DTYPE_F32, DIMS(4, 3))), w = operand_plain(dw);
    Operand dy = operand_plain(y), other = operand_plain(wide);
    half.dtype = dw16.dtype = DTYPE_BF16;
    CHECK_FAILS(linear_fwd(&t->ex, (LinearFwd){ .x = other, .w = w, .y = y }), ERR_SHAPE,
                "linear_fwd: x is");
    CHECK_FAILS(linear_fwd(&t->ex, (LinearFwd){ .x = x, .w = w, .y = wide }), ERR_SHAPE,
                "linear_fwd: y is");
    CHECK_FAILS(linear_fwd(&t->ex, (LinearFwd){ .x = x, .w = w, .y = y, .r = half }), ERR_SHAPE,
                "linear_fwd: r is");
    CHECK_FAILS(linear_bwd_input(&t->ex, (LinearBwdInput){ .dy = dy, .w = w, .dx = wide }),
                ERR_SHAPE, "linear_bwd_input: dx is");
    CHECK_FAILS(linear_bwd_weight(&t->ex, (LinearBwdWeight){ .dy = other, .x = x, .dw = dw }),
                ERR_SHAPE, "linear_bwd_weight: dy is");
    CHECK_FAILS(linear_bwd_weight(&t->ex, (LinearBwdWeight){ .dy = dy, .x = x, .dw = dw16 }),
                ERR_SHAPE, "linear_bwd_weight: dw is");
    w.data.dim[1] = 0;
    CHECK_FAILS(linear_fwd(&t->ex, (LinearFwd){ .x = x, .w = w, .y = y }), ERR_SHAPE, "w is empty");
}

static void operands_are_refused_if_only_one_has_scales(void **state)
{
    OpTest *t = *state;
    Tensor x = optest_normal(t, DTYPE_F32, DIMS(4, 3)), w = optest_normal(t, DTYPE_F32, DIMS(2, 3));
    Tensor y = optest_normal(t, DTYPE_F32, DIMS(4, 2));
    LinearFwd f = { .x = operand_plain(x), .w = operand_plain(w), .y = y };
    LinearBwdInput b = { .dy = operand_plain(y), .w = operand_plain(w), .dx = x };
    LinearBwdWeight g = { .dy = operand_plain(y), .x = operand_plain(x), .dw = w };
    CHECK_INT(operands_refused(t, OP_LINEAR_FWD, &f), 2);
    CHECK_INT(operands_refused(t, OP_LINEAR_BWD_INPUT, &b), 2);
    CHECK_INT(operands_refused(t, OP_LINEAR_BWD_WEIGHT, &g), 2);
}

/* 4 x 3 by 3 x 2: 24 multiply-adds; 12 + 6 + 8 elements, twice 8 more for a residual. */
static void costs_are_the_products_and_every_tensor_once(void **state)
{
    OpTest *t = *state;
    LinearFwd a = { .x = operand_plain(optest_normal(t, DTYPE_BF16, DIMS(4, 3))),
                    .w = operand_plain(optest_normal(t, DTYPE_F32, DIMS(2, 3))),
                    .y = optest_poisoned(t, DTYPE_F32, DIMS(4, 2)) };
    OpCost cost = op_desc(OP_LINEAR_FWD)->cost(&a);
    CHECK_NEAR(cost.flops, 48, 0);
    CHECK_NEAR(cost.bytes, 12 * 2 + 6 * 4 + 8 * 4, 0);
    a.r = a.y;
    CHECK_NEAR(op_desc(OP_LINEAR_FWD)->cost(&a).bytes, cost.bytes + 8 * 4, 0);
    LinearBwdWeight b = { .dy = operand_plain(a.y), .x = a.x, .dw = a.w.data };
    CHECK_NEAR(op_desc(OP_LINEAR_BWD_WEIGHT)->cost(&b).flops, 48, 0);
    CHECK_NEAR(op_desc(OP_LINEAR_BWD_WEIGHT)->cost(&b).bytes, 12 * 2 + 2 * 6 * 4 + 8 * 4, 0);
    LinearBwdInput d = { .dy = operand_plain(a.y), .w = a.w, .dx = a.x.data };
    CHECK_NEAR(op_desc(OP_LINEAR_BWD_INPUT)->cost(&d).flops, 48, 0);
    CHECK_NEAR(op_desc(OP_LINEAR_BWD_INPUT)->cost(&d).bytes, cost.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(forward_matches_double_for_all_types_and_residuals, 2),
        OP_TEST(input_gradient_matches_double_for_all_types_and_residuals, 2),
        OP_TEST(weight_gradient_is_added_and_matches_double_for_all_types, 2),
        OP_TEST(weight_gradient_of_many_tokens_matches_double_twice, 2),
        OP_TEST(a_router_is_as_exact_as_plain_sums_of_f32, 2),
        OP_TEST(tokens_of_a_batch_are_rows, 2),
        OP_TEST(a_window_of_the_matrix_is_a_matrix, 2),
        OP_TEST(a_window_beyond_the_matrix_or_of_other_types_is_refused, 1),
        OP_TEST(no_rows_leave_the_weight_gradient_alone, 2),
        OP_TEST(shapes_that_do_not_fit_are_errors_that_name_the_tensor, 1),
        OP_TEST(operands_are_refused_if_only_one_has_scales, 1),
        OP_TEST(costs_are_the_products_and_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
