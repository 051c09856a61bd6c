/* MX operands: scales of 1 x 32 and numbers of 4, 6 and 8 bits, emulated on a CPU. */
#include "kernels/dense/linear.h"
#include "quant_case.h"
#include "scaled_case.h"

static const Dtype formats[] = { DTYPE_E4M3, DTYPE_E5M2, DTYPE_E2M1, DTYPE_E2M3, DTYPE_E3M2 };
enum { FORMATS = 5 };

/* The guard stays; the mirror would run the op on a GPU. */
static OpTest *on_cpu(void **state)
{
    OpTest *t = *state;
    if (t->ex.front[0] == &backend_mirror) exec_pop(&t->ex);
    return t;
}

/* 2^(floor(log2 amax) - emax): of 1.9, 1, -6 and 12 the exponents are 0, 0, 2, 3. With e2m1's 2 the
 * largest number of a block is 4 to 8, of which what is above 6 becomes 6. */
static void scales_are_those_of_the_specification(void **state)
{
    OpTest *t = on_cpu(state);
    static const double amax[] = { 1.9, 1, -6, 12, 0 }, scale[] = { 0.25, 0.25, 1, 2, 1 };
    static const double largest[] = { 6, 4, -6, 6, 0 };
    Operand q;
    Tensor x = optest_poisoned(t, DTYPE_F32, DIMS(1, 135)); /* the last block has 7 elements */
    CHECK_OK(operand_new(&t->arena, OPERAND_1X32, DTYPE_E2M1, 2, DIMS(1, 135), &q));
    for (int64_t i = 0; i < 135; i++)
        optest_set(&x, i, i % 32 == 3 ? amax[i / 32] : amax[i / 32] / 64);
    CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
    CHECK_INT(tensor_elems(&q.scale), 5);
    for (int64_t b = 0; b < 5; b++) {
        CHECK_NEAR(optest_get(&q.scale, b), scale[b], 0);
        CHECK_NEAR(optest_get(&q.data, 32 * b + 3), largest[b], 0);
        CHECK_NEAR(optest_get(&q.data, 32 * b), 0, 0); /* amax / 64 is under a quarter */
    }
}

/* emax of each format, for a block whose largest number is 1. */
static void each_format_has_its_exponent(void **state)
{
    OpTest *t = on_cpu(state);
    static const double scale[FORMATS] = { 0x1p-8, 0x1p-15, 0x1p-2, 0x1p-2, 0x1p-4 };
    for (int f = 0; f < FORMATS; f++) {
        Operand q;
        Tensor x = optest_signs(t, DTYPE_F32, DIMS(2, 32));
        for (int row = 0; row < 2; row++) optest_set(&x, 32 * row, 1);
        CHECK_OK(operand_new(&t->arena, OPERAND_1X32, formats[f], 2, DIMS(2, 32), &q));
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
        for (int row = 0; row < 2; row++) CHECK_NEAR(optest_get(&q.scale, row), scale[f], 0);
        for (int64_t i = 0; i < 64; i++)
            CHECK_NEAR(optest_get(&q.data, i) * scale[f], optest_get(&x, i), 0);
    }
}

/* Their exponents have no place in an f32 scale: the smallest normal one takes them. */
static void tiny_numbers_have_the_smallest_scale(void **state)
{
    OpTest *t = on_cpu(state);
    Operand q;
    Tensor x = optest_poisoned(t, DTYPE_F32, DIMS(1, 3));
    static const double values[] = { 0x1p-127, -0x1p-130, 0x1p-149 };
    for (int i = 0; i < 3; i++) optest_set(&x, i, values[i]);
    CHECK_OK(operand_new(&t->arena, OPERAND_1X32, DTYPE_E2M3, 2, DIMS(1, 3), &q));
    CHECK_OK(quantize(&t->ex, (Quantize){ .x = operand_plain(x), .quant = q }));
    CHECK_NEAR(optest_get(&q.scale, 0), (double)FLT_MIN, 0);
    CHECK_NEAR(optest_get(&q.data, 0), 0.5, 0);
    CHECK_NEAR(optest_get(&q.data, 1), 0, 0); /* half of the smallest: to even */
}

/* Rows, matrices of three dimensions, pools, gathered rows, groups whose last block is short. */
static void operands_match_their_definition(void **state)
{
    OpTest *t = on_cpu(state);
    static const int64_t groups[] = { 40, 0, 129, 1, 31, 64 };
    const QuantCase cases[] = {
        { .M = 1, .N = 5, .D = 33, .live = 5 },
        { .M = 1, .N = 70, .D = 137, .live = 70, .gathers = true },
        { .M = 3, .N = 45, .D = 70, .live = 135 },
        { .M = 1, .N = 100, .D = 65, .pool = 9, .live = 77 },
        { .M = 1, .N = 265, .D = 37, .group = groups, .groups = 6, .live = 265 },
        { .M = 1, .N = 265, .D = 70, .group = groups, .groups = 6, .live = 150, .gathers = true },
    };
    for (int i = 0; i < 6 * FORMATS; i++) {
        QuantCase c = cases[i / FORMATS];
        c.rows = c.columns = OPERAND_1X32;
        c.type = formats[i % FORMATS];
        c.act = i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        quant_check(t, &c);
    }
}

/* A product is that of the numbers that its operands stand for. 77 terms: two blocks and a short one;
 * in f32 they are added in another order. */
static void products_are_those_of_the_numbers(void **state)
{
    OpTest *t = on_cpu(state);
    for (int f = 0; f < FORMATS; f++) {
        enum { N = 19, O = 45, I = 77 };
        Operand x, w;
        Tensor have = optest_poisoned(t, DTYPE_F32, DIMS(N, O));
        Tensor want = optest_poisoned(t, DTYPE_F32, DIMS(N, O));
        Tensor a = optest_normal(t, DTYPE_BF16, DIMS(N, I)),
               b = optest_normal(t, DTYPE_BF16, DIMS(O, I));
        CHECK_OK(operand_new(&t->arena, OPERAND_1X32, formats[f], 2, DIMS(N, I), &x));
        CHECK_OK(operand_new(&t->arena, OPERAND_1X32, formats[f], 2, DIMS(O, I), &w));
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = a, .quant = x }));
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = b, .quant = w }));
        CHECK_OK(linear_fwd(&t->ex, (LinearFwd){ .x = x, .w = w, .y = have }));
        CHECK_OK(linear_fwd(&t->ex, (LinearFwd){ .x = operand_plain(scaled_plain(t, &x, 0)),
                                                 .w = operand_plain(scaled_plain(t, &w, 0)),
                                                 .y = want }));
        CHECK_TENSOR(&have, optest_read(t, &want));
    }
}

/* 20 log10 of |x| / |x - x'| of normal numbers: e4m3's is bounded in kernels of others at 25 dB. Each
 * mantissa bit less costs 6 dB; a scale of 1 x 32 that is rounded down also cuts off the largest. */
static void formats_are_as_precise_as_their_bits(void **state)
{
    OpTest *t = on_cpu(state);
    static const double least[FORMATS] = { 30, 24, 17, 28, 24 };
    for (int f = 0; f < FORMATS; f++) {
        Operand q;
        Tensor x = optest_normal(t, DTYPE_F32, DIMS(64, 256)),
               y = optest_poisoned(t, DTYPE_F32, DIMS(64, 256));
        CHECK_OK(operand_new(&t->arena, OPERAND_1X32, formats[f], 2, DIMS(64, 256), &q));
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
        CHECK_OK(dequantize(&t->ex, (Dequantize){ .quant = q, .y = y }));
        double norm[2], *want = optest_read(t, &x);
        optest_norms(&y, want, 256, (OpPart){ 0, 0, 64, 256 }, norm);
        double snr = 20 * log10(norm[1] / norm[0]);
        if (!(snr >= least[f] && snr < least[f] + 4))
            fail_msg("%s: %.1f dB", dtype_name(formats[f]), snr);
    }
}

/* As hardware holds them: half a byte and a byte for 32 of them. */
static void costs_are_those_of_packed_numbers(void **state)
{
    OpTest *t = on_cpu(state);
    static const double bits[FORMATS] = { 8, 8, 4, 6, 6 };
    for (int f = 0; f < FORMATS; f++) {
        Operand q;
        CHECK_OK(operand_new(&t->arena, OPERAND_1X32, formats[f], 2, DIMS(10, 64), &q));
        CHECK_NEAR(operand_bytes(&q), 640 * bits[f] / 8 + 20, 0);
        CHECK_NEAR(operand_rows_bytes(&q, 5), 320 * bits[f] / 8 + 10, 0);
        CHECK_NEAR(operand_element_bytes(OPERAND_1X32, formats[f]), bits[f] / 8 + 1.0 / 32, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(scales_are_those_of_the_specification, 1),
        OP_TEST(each_format_has_its_exponent, 1),
        OP_TEST(tiny_numbers_have_the_smallest_scale, 1),
        OP_TEST(operands_match_their_definition, 2),
        OP_TEST(products_are_those_of_the_numbers, 2),
        OP_TEST(formats_are_as_precise_as_their_bits, 2),
        OP_TEST(costs_are_those_of_packed_numbers, 1),
    };
    return TEST_RUN(tests);
}
