/* scale against plain loops in double. */
#include "harness/optest.h"
#include "kernels/quant/scale.h"

#include <math.h>

/* 1, primes, one past the columns that are taken at a time on either machine. */
static const struct {
    int64_t N, D;
} sizes[] = {
    { 1, 1 }, { 7, 13 }, { 65, 257 }, { 3, 5120 }, { 257, 264 }, { 521, 8 }, { 2, 1025 }
};

enum { CASES = 4 * sizeof sizes / sizeof *sizes };

static Dtype act(int i) { return i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16; }
static bool by_sigmoid(int i) { return i / 2 % 2 == 1; }

static ScaleFwd forward_args(OpTest *t, int i)
{
    int64_t n = sizes[i / 4].N, d = sizes[i / 4].D;
    return (ScaleFwd){ .x = optest_normal(t, act(i), DIMS(n, d)),
                       .w = optest_normal(t, DTYPE_F32, DIMS(n, 1)),
                       .y = optest_poisoned(t, act(i), DIMS(n, d)),
                       .sigmoid = by_sigmoid(i) };
}

/* All above 0: then sums are far from 0, and rounding far from their size. */
static Tensor positive(OpTest *t, Dtype type, const int64_t *dim)
{
    Tensor x = optest_normal(t, type, dim);
    for (int64_t i = 0; i < tensor_elems(&x); i++) optest_set(&x, i, 0.1 + fabs(optest_get(&x, i)));
    return x;
}

static ScaleBwd backward_args(OpTest *t, int i, bool residual)
{
    int64_t n = sizes[i / 4].N, d = sizes[i / 4].D;
    ScaleBwd a = { .dy = positive(t, act(i), DIMS(n, d)),
                   .x = positive(t, act(i), DIMS(n, d)),
                   .w = optest_normal(t, DTYPE_F32, DIMS(n, 1)),
                   .dx = optest_poisoned(t, act(i), DIMS(n, d)),
                   .dw = optest_poisoned(t, DTYPE_F32, DIMS(n, 1)),
                   .sigmoid = by_sigmoid(i) };
    if (residual) a.r = optest_normal(t, act(i), DIMS(n, d));
    return a;
}

static double factor(const Tensor *w, int64_t row, bool sigmoid)
{
    double v = optest_get(w, row);
    return sigmoid ? 1 / (1 + exp(-v)) : v;
}

static void every_row_is_scaled(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < (int)CASES; i++) {
        ScaleFwd a = forward_args(t, i);
        double *want = optest_read(t, &a.x);
        for (int64_t j = 0; j < tensor_elems(&a.x); j++)
            want[j] *= factor(&a.w, j / sizes[i / 4].D, a.sigmoid);
        CHECK_OK(scale_fwd(&t->ex, a));
        CHECK_TENSOR(&a.y, want);
        ScaleFwd in_place = a;
        in_place.x = in_place.y = optest_copy(t, &a.x);
        CHECK_OK(scale_fwd(&t->ex, in_place));
        CHECK_SAME(&in_place.y, &a.y);
    }
}

static void gradients_are_those_of_the_definition(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * (int)CASES; i++) {
        ScaleBwd a = backward_args(t, i / 2, i % 2 == 1);
        int64_t n = sizes[i / 8].N, d = sizes[i / 8].D;
        double *dx = optest_read(t, &a.dy), *dw = optest_read(t, &a.w);
        for (int64_t row = 0; row < n; row++) {
            double s = factor(&a.w, row, a.sigmoid), sum = 0;
            for (int64_t j = row * d; j < (row + 1) * d; j++) {
                sum += dx[j] * optest_get(&a.x, j);
                dx[j] = s * dx[j] + (a.r.data == NULL ? 0 : optest_get(&a.r, j));
            }
            dw[row] = a.sigmoid ? s * (1 - s) * sum : sum;
        }
        CHECK_OK(scale_bwd(&t->ex, a));
        CHECK_TENSOR(&a.dx, dx);
        CHECK_TENSOR(&a.dw, dw);
        ScaleBwd in_place = a;
        in_place.dy = in_place.dx = optest_copy(t, &a.dy);
        CHECK_OK(scale_bwd(&t->ex, in_place));
        CHECK_SAME(&in_place.dx, &a.dx);
        CHECK_SAME(&in_place.dw, &a.dw);
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    OpTest one, four;
    optest_open(&one, 1);
    optest_open(&four, 4);
    for (int i = 0; i < (int)CASES; i++) {
        ScaleBwd a = backward_args(&one, i, true), b = backward_args(&four, i, true);
        CHECK_OK(scale_bwd(&one.ex, a));
        CHECK_OK(scale_bwd(&four.ex, b));
        CHECK_SAME(&a.dx, &b.dx);
        CHECK_SAME(&a.dw, &b.dw);
    }
    optest_close(&one);
    optest_close(&four);
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    ScaleFwd f = forward_args(t, 4);
    f.w = optest_normal(t, DTYPE_F32, DIMS(7, 2));
    CHECK_FAILS(scale_fwd(&t->ex, f), ERR_SHAPE, "scale_fwd: w is (7, 2)");
    ScaleBwd b = backward_args(t, 4, true);
    b.r = optest_normal(t, DTYPE_F32, DIMS(7, 12));
    CHECK_FAILS(scale_bwd(&t->ex, b), ERR_SHAPE, "scale_bwd: r is (7, 12)");
}

static void costs_are_every_tensor_once(void **state)
{
    OpTest *t = *state;
    ScaleFwd f = forward_args(t, 5);
    ScaleBwd b = backward_args(t, 5, true);
    CHECK_NEAR(op_desc(OP_SCALE_FWD)->cost(&f).bytes, 2 * 2 * 7 * 13 + 4 * 7, 0);
    CHECK_NEAR(op_desc(OP_SCALE_BWD)->cost(&b).bytes, 4 * 2 * 7 * 13 + 2 * 4 * 7, 0);
    CHECK_NEAR(op_desc(OP_SCALE_BWD)->cost(&b).flops, 4 * 7 * 13, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(every_row_is_scaled, 2),         OP_TEST(gradients_are_those_of_the_definition, 2),
        TEST(bits_do_not_depend_on_threads),     OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_are_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
