#include "harness/optest.h"
#include "kernels/norm/elementwise.h"

/* Around the pieces that threads work on. */
static const int64_t counts[] = { 1, 7, 129, 4096, 4097, 9001 };

enum { COUNTS = sizeof counts / sizeof *counts };

static Dtype act(int i) { return i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16; }

static void add_matches_double_for_all_types(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < COUNTS * 4; i++) {
        int64_t n = counts[i / 4];
        Add a = { .x = optest_normal(t, act(i), DIMS(n)),
                  .y = optest_normal(t, act(i / 2), DIMS(n)) };
        double *want = optest_read(t, &a.y);
        for (int64_t j = 0; j < n; j++) want[j] += optest_get(&a.x, j);
        CHECK_OK(add(&t->ex, a));
        CHECK_TENSOR(&a.y, want);
    }
}

/* The sum is rounded once, from f32. */
static void add_is_exact_where_the_sum_is(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 4; i++) {
        Add a = { .x = optest_signs(t, act(i), DIMS(17, 9)),
                  .y = optest_signs(t, act(i / 2), DIMS(17, 9)) };
        Tensor want = optest_copy(t, &a.y);
        for (int64_t j = 0; j < 17 * 9; j++) {
            optest_set(&want, j, optest_get(&a.x, j) + optest_get(&a.y, j));
        }
        CHECK_OK(add(&t->ex, a));
        CHECK_SAME(&a.y, &want);
    }
}

static void add_may_add_a_tensor_to_itself(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        Tensor x = optest_normal(t, act(i), DIMS(4097)), want = optest_copy(t, &x);
        for (int64_t j = 0; j < 4097; j++) optest_set(&want, j, 2 * optest_get(&x, j));
        CHECK_OK(add(&t->ex, (Add){ x, x }));
        CHECK_SAME(&x, &want);
    }
}

/* The conversions themselves are tested in tests/engine/unit/base: here every element must have been
 * through them. Values stay below e4m3's largest, or the guard would find its NaN. */
static void cast_converts_every_element_between_all_types(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_E4M3, DTYPE_E5M2 };
    for (int i = 0; i < COUNTS * 25; i++) {
        int64_t n = counts[i / 25];
        ArenaMark mark = arena_mark(&t->arena);
        Tensor wide = optest_normal(t, DTYPE_F32, DIMS(n)),
               mid = optest_poisoned(t, DTYPE_F32, DIMS(n));
        Cast a = { .x = optest_poisoned(t, types[i % 5], DIMS(n)),
                   .y = optest_poisoned(t, types[i / 5 % 5], DIMS(n)) };
        Tensor want = optest_poisoned(t, a.y.dtype, DIMS(n));
        dtype_from_f32(a.x.data, a.x.dtype, wide.data, n);
        dtype_to_f32(mid.data, a.x.data, a.x.dtype, n);
        dtype_from_f32(want.data, a.y.dtype, mid.data, n);
        CHECK_OK(cast(&t->ex, a));
        int64_t at = optest_first_difference(&a.y, &want);
        if (at >= 0) {
            fail_msg("%s to %s: element %lld of %lld is wrong", dtype_name(a.x.dtype),
                     dtype_name(a.y.dtype), (long long)at, (long long)n);
        }
        arena_release(&t->arena, mark);
    }
}

static void cast_takes_another_shape_of_the_same_count(void **state)
{
    OpTest *t = *state;
    Cast a = { .x = optest_normal(t, DTYPE_BF16, DIMS(6, 4)),
               .y = optest_poisoned(t, DTYPE_F32, DIMS(2, 3, 4)) };
    CHECK_OK(cast(&t->ex, a));
    for (int64_t i = 0; i < 24; i++) CHECK_NEAR(optest_get(&a.y, i), optest_get(&a.x, i), 0);
}

static void wrong_counts_and_integer_types_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    Tensor x = optest_normal(t, DTYPE_F32, DIMS(4, 3)), y = optest_normal(t, DTYPE_F32, DIMS(4, 2));
    Tensor ids = optest_integers(t, DTYPE_I32, DIMS(4, 3), 0, 9);
    CHECK_FAILS(add(&t->ex, (Add){ x, y }), ERR_SHAPE, "add: y is (4, 2) f32, x is (4, 3) f32");
    CHECK_FAILS(cast(&t->ex, (Cast){ x, y }), ERR_SHAPE, "cast: y is (4, 2) f32, x is (4, 3) f32");
    CHECK_FAILS(cast(&t->ex, (Cast){ ids, x }), ERR_SHAPE, "x is (4, 3) i32");
    CHECK_FAILS(add(&t->ex, (Add){ x, ids }), ERR_SHAPE, "y is (4, 3) i32");
}

static void costs_are_every_tensor_once(void **state)
{
    OpTest *t = *state;
    Tensor x = optest_normal(t, DTYPE_BF16, DIMS(10)), y = optest_normal(t, DTYPE_F32, DIMS(10));
    OpCost c = op_desc(OP_ADD)->cost(&(Add){ x, y });
    CHECK_NEAR(c.bytes, 10 * (2 + 4 + 4), 0);
    CHECK_NEAR(c.flops, 10, 0);
    CHECK_NEAR(op_desc(OP_CAST)->cost(&(Cast){ x, y }).bytes, 10 * (2 + 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(add_matches_double_for_all_types, 2),
        OP_TEST(add_is_exact_where_the_sum_is, 2),
        OP_TEST(add_may_add_a_tensor_to_itself, 2),
        OP_TEST(cast_converts_every_element_between_all_types, 2),
        OP_TEST(cast_takes_another_shape_of_the_same_count, 1),
        OP_TEST(wrong_counts_and_integer_types_are_errors_with_a_message, 1),
        OP_TEST(costs_are_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
