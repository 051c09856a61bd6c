/* The comparison that all op tests rest on: what it must find, and what it must let pass. */
#include "harness/optest.h"

/* 1000 x 300 random numbers and their own values as the reference. */
typedef struct Pair {
    OpTest t;
    Tensor out;
    double *ref;
} Pair;

enum { ROWS = 1000, COLS = 300 };

static void pair_open(Pair *p, Dtype dtype)
{
    optest_open(&p->t, 1);
    p->out = optest_normal(&p->t, dtype, DIMS(ROWS, COLS));
    p->ref = optest_read(&p->t, &p->out);
}

static double ratio(const Pair *p) { return optest_match(&p->out, p->ref).ratio; }

static void equal_tensors_match_exactly(void **state)
{
    (void)state;
    Pair p;
    pair_open(&p, DTYPE_F32);
    CHECK_NEAR(ratio(&p), 0, 0);
    optest_close(&p.t);
}

static void one_wrong_row_of_a_thousand_is_found_and_named(void **state)
{
    (void)state;
    Pair p;
    pair_open(&p, DTYPE_F32);
    for (int64_t i = 0; i < COLS; i++) p.ref[700 * COLS + i] *= 1 + 4e-5;
    OpMatch m = optest_match(&p.out, p.ref);
    CHECK_INT(m.part.row, 700);
    CHECK_INT(m.part.rows, 1);
    CHECK_NEAR(m.ratio, 4e-5, 1e-6); /* over the whole tensor it would be 1.3e-6, and pass */
    optest_close(&p.t);
}

/* One column, wrong in the last 104 rows only, in a tile that is 44 columns wide: the tile shows it
 * more than twice as much as the rows, and the tensor hides it. */
static void one_wrong_tile_is_found_and_named(void **state)
{
    (void)state;
    Pair p;
    pair_open(&p, DTYPE_F32);
    for (int64_t r = 896; r < ROWS; r++) {
        double *row = p.ref + r * COLS;
        for (int64_t i = 0; i < COLS; i++) row[i] = i < 256 ? 1 : 1e-2;
        for (int64_t i = 0; i < COLS; i++) optest_set(&p.out, r * COLS + i, row[i]);
        row[299] += 1e-3;
    }
    OpMatch m = optest_match(&p.out, p.ref);
    CHECK_INT(m.part.row, 896);
    CHECK_INT(m.part.rows, ROWS - 896);
    CHECK_INT(m.part.col, 256);
    CHECK_INT(m.part.cols, COLS - 256);
    CHECK_NEAR(m.ratio, 1e-3 / (1e-2 * sqrt(44)), 1e-4);
    optest_close(&p.t);
}

static void a_nan_is_infinitely_wrong(void **state)
{
    (void)state;
    Pair p;
    pair_open(&p, DTYPE_BF16);
    optest_set(&p.out, 5 * COLS + 7, NAN);
    CHECK(isinf(ratio(&p)));
    optest_set(&p.out, 5 * COLS + 7, p.ref[5 * COLS + 7]);
    CHECK_NEAR(ratio(&p), 0, 0);
    p.ref[3] = NAN; /* a reference that was not worked out must not pass either */
    CHECK(isinf(ratio(&p)));
    optest_close(&p.t);
}

static void anything_beside_a_zero_reference_is_wrong(void **state)
{
    (void)state;
    Pair p;
    pair_open(&p, DTYPE_F32);
    memset(p.ref, 0, ROWS * COLS * sizeof *p.ref);
    CHECK(isinf(ratio(&p)));
    optest_close(&p.t);
}

/* A row a millionth of the others, off by a tenth of itself: held to 1e-3 of the mean row. */
static void a_tiny_row_is_held_to_the_mean_row(void **state)
{
    (void)state;
    Pair p;
    pair_open(&p, DTYPE_F32);
    for (int64_t i = 0; i < COLS; i++) {
        p.ref[i] *= 1e-6;
        optest_set(&p.out, i, 1.1 * p.ref[i]);
    }
    CHECK_NEAR(ratio(&p), 0.1 * 1e-6 / 1e-3, 0.2e-4);
    optest_close(&p.t);
}

static void
rounding_to_bf16_is_within_the_limit_and_two_roundings_of_one_element_are_not(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    Tensor x = optest_normal(&t, DTYPE_F32, DIMS(ROWS, 1)),
           low = optest_poisoned(&t, DTYPE_BF16, DIMS(ROWS, 1));
    double *ref = optest_read(&t, &x);
    optest_write(&low, ref);
    CHECK_TENSOR(&low, ref);
    ((uint16_t *)low.data)[500] += 2;
    CHECK(optest_match(&low, ref).ratio > optest_limit(LIMIT_PLAIN, DTYPE_BF16));
    optest_close(&t);
}

static void one_bit_is_a_difference(void **state)
{
    (void)state;
    Pair p;
    pair_open(&p, DTYPE_BF16);
    Tensor copy = optest_copy(&p.t, &p.out);
    CHECK_INT(optest_first_difference(&p.out, &copy), -1);
    ((uint16_t *)copy.data)[12345] ^= 1;
    CHECK_INT(optest_first_difference(&p.out, &copy), 12345);
    optest_close(&p.t);
}

static double cubes(const void *context, const double *x)
{
    const double *weight = context;
    return weight[0] * x[0] * x[0] * x[0] + weight[1] * x[1] * x[0];
}

static void slopes_are_the_derivatives_and_leave_x_alone(void **state)
{
    (void)state;
    const double weight[2] = { 2, 5 };
    double x[2] = { 1.5, -2 }, slope[2];
    optest_slopes(cubes, weight, x, 2, slope);
    CHECK_NEAR(slope[0], 2 * 3 * 1.5 * 1.5 + 5 * -2, 1e-6);
    CHECK_NEAR(slope[1], 5 * 1.5, 1e-6);
    CHECK_NEAR(x[0], 1.5, 0);
    CHECK_NEAR(x[1], -2, 0);
}

static void random_tensors_have_no_zero_and_differ(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    Tensor a = optest_normal(&t, DTYPE_BF16, DIMS(ROWS, 7));
    Tensor b = optest_normal(&t, DTYPE_BF16, DIMS(ROWS, 7));
    for (int64_t i = 0; i < tensor_elems(&a); i++) CHECK(optest_get(&a, i) != 0);
    CHECK(optest_first_difference(&a, &b) >= 0);
    Tensor signs = optest_signs(&t, DTYPE_F32, DIMS(ROWS));
    int64_t count[3] = { 0 };
    for (int64_t i = 0; i < ROWS; i++) count[(int)optest_get(&signs, i) + 1]++;
    for (int i = 0; i < 3; i++) CHECK(count[i] > ROWS / 4);
    optest_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_tensors_match_exactly),
        TEST(one_wrong_row_of_a_thousand_is_found_and_named),
        TEST(one_wrong_tile_is_found_and_named),
        TEST(a_nan_is_infinitely_wrong),
        TEST(anything_beside_a_zero_reference_is_wrong),
        TEST(a_tiny_row_is_held_to_the_mean_row),
        TEST(rounding_to_bf16_is_within_the_limit_and_two_roundings_of_one_element_are_not),
        TEST(one_bit_is_a_difference),
        TEST(slopes_are_the_derivatives_and_leave_x_alone),
        TEST(random_tensors_have_no_zero_and_differ),
    };
    return TEST_RUN(tests);
}
