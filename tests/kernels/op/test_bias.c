/* bias against plain loops in double; its gradient against their slopes. */
#include "harness/optest.h"
#include "kernels/norm/bias.h"

/* 1, primes, one past the rows and columns that are taken at a time on either machine. */
static const struct {
    int64_t N, O;
} sizes[] = {
    { 1, 1 }, { 7, 13 }, { 65, 257 }, { 129, 40 }, { 3, 5120 }, { 257, 264 }, { 521, 8 }
};

enum { CASES = 2 * sizeof sizes / sizeof *sizes };

static Dtype act(int i) { return i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16; }

static BiasFwd forward_args(OpTest *t, int i)
{
    int64_t n = sizes[i / 2].N, d = sizes[i / 2].O;
    return (BiasFwd){ optest_normal(t, act(i), DIMS(n, d)), optest_normal(t, DTYPE_F32, DIMS(1, d)),
                      optest_poisoned(t, act(i), DIMS(n, d)) };
}

static BiasBwd backward_args(OpTest *t, int i)
{
    int64_t n = sizes[i / 2].N, d = sizes[i / 2].O;
    return (BiasBwd){ optest_normal(t, act(i), DIMS(n, d)),
                      optest_normal(t, DTYPE_F32, DIMS(1, d)) };
}

static void every_row_gets_the_bias(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < (int)CASES; i++) {
        BiasFwd a = forward_args(t, i);
        double *want = optest_read(t, &a.x);
        for (int64_t j = 0; j < tensor_elems(&a.x); j++)
            want[j] += optest_get(&a.b, j % sizes[i / 2].O);
        CHECK_OK(bias_fwd(&t->ex, a));
        CHECK_TENSOR(&a.y, want);
    }
}

static void rows_may_be_changed_where_they_are(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < (int)CASES; i++) {
        BiasFwd a = forward_args(t, i), in_place = a;
        in_place.x = in_place.y = optest_copy(t, &a.x);
        CHECK_OK(bias_fwd(&t->ex, a));
        CHECK_OK(bias_fwd(&t->ex, in_place));
        CHECK_SAME(&in_place.y, &a.y);
    }
}

/* The loss <dy, x + b> has the slope sum of dy along b. */
static void the_gradient_is_added_to_what_was_there(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < (int)CASES; i++) {
        BiasBwd a = backward_args(t, i);
        double *want = optest_read(t, &a.db);
        for (int64_t j = 0; j < tensor_elems(&a.dy); j++)
            want[j % sizes[i / 2].O] += optest_get(&a.dy, j);
        CHECK_OK(bias_bwd(&t->ex, a));
        CHECK_TENSOR(&a.db, want);
    }
}

/* Sums of -1, 0 and 1 are exact in any order. */
static void sums_of_integers_are_exact(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < (int)CASES; i++) {
        int64_t n = sizes[i / 2].N, d = sizes[i / 2].O;
        BiasBwd a = { optest_signs(t, act(i), DIMS(n, d)), optest_signs(t, DTYPE_F32, DIMS(1, d)) };
        Tensor want = optest_copy(t, &a.db);
        for (int64_t j = 0; j < n * d; j++)
            optest_set(&want, j % d, optest_get(&want, j % d) + optest_get(&a.dy, j));
        CHECK_OK(bias_bwd(&t->ex, a));
        CHECK_SAME(&a.db, &want);
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < (int)CASES; i++) {
        BiasBwd a = backward_args(t, i), b = a;
        b.db = optest_copy(t, &a.db);
        t->ex.threads = 1;
        CHECK_OK(bias_bwd(&t->ex, a));
        t->ex.threads = 3;
        CHECK_OK(bias_bwd(&t->ex, b));
        CHECK_SAME(&b.db, &a.db);
    }
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const BiasFwd good = forward_args(t, 2);
    Tensor other = optest_normal(t, DTYPE_F32, DIMS(1, 3));
    BiasFwd a = good;
    a.b = other;
    CHECK_FAILS(bias_fwd(&t->ex, a), ERR_SHAPE, "bias_fwd: b is (1, 3)");
    a = good, a.b = optest_normal(t, DTYPE_BF16, DIMS(1, 13));
    CHECK_FAILS(bias_fwd(&t->ex, a), ERR_SHAPE, "b is (1, 13) bf16");
    a = good, a.y = optest_normal(t, DTYPE_BF16, DIMS(7, 13));
    CHECK_FAILS(bias_fwd(&t->ex, a), ERR_SHAPE, "y is (7, 13) bf16");
    BiasBwd b = backward_args(t, 2);
    b.db = other;
    CHECK_FAILS(bias_bwd(&t->ex, b), ERR_SHAPE, "bias_bwd: db is (1, 3)");
}

static void costs_are_every_tensor_once(void **state)
{
    OpTest *t = *state;
    BiasFwd f = forward_args(t, 3);
    BiasBwd b = backward_args(t, 3);
    CHECK_NEAR(op_desc(OP_BIAS_FWD)->cost(&f).bytes, 2 * 2 * 7 * 13 + 4 * 13, 0);
    CHECK_NEAR(op_desc(OP_BIAS_FWD)->cost(&f).flops, 7 * 13, 0);
    CHECK_NEAR(op_desc(OP_BIAS_BWD)->cost(&b).bytes, 2 * 7 * 13 + 2 * 4 * 13, 0);
    CHECK_NEAR(op_desc(OP_BIAS_BWD)->cost(&b).flops, 7 * 13, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(every_row_gets_the_bias, 2),
        OP_TEST(rows_may_be_changed_where_they_are, 2),
        OP_TEST(the_gradient_is_added_to_what_was_there, 2),
        OP_TEST(sums_of_integers_are_exact, 2),
        OP_TEST(bits_do_not_depend_on_threads, 1),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_are_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
