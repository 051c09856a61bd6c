/* Quantisation to 8 bits: exact bytes and scales from tools/make_quant_golden.py, which looks for
 * the nearest code, and what the definition promises about the way there and back. */
#include "golden/golden.h"
#include "harness/optest.h"
#include "op/quant.h"

#include <float.h>

static const struct {
    const char *name;
    OperandKind kind;
} kinds[] = {
    { "tensor", OPERAND_TENSOR },
    { "row", OPERAND_ROW },
    { "1x128", OPERAND_1X128 },
    { "128x128", OPERAND_128X128 },
};

static const struct {
    const char *name;
    Dtype type;
    double largest;
    double unit;  /* largest relative error of rounding: half a last place */
    double least; /* half the smallest number above 0 */
} types[] = {
    { "e4m3", DTYPE_E4M3, 448, 1.0 / 16, 1.0 / 1024 },
    { "e5m2", DTYPE_E5M2, 57344, 1.0 / 8, 1.0 / 131072 },
};

enum { KINDS = 4, TYPES = 2 };

static Operand quant_make(OpTest *t, int kind, int type, int64_t n, int64_t d)
{
    OperandGrid g = operand_grid(kinds[kind].kind, n, d);
    return (Operand){ .data = optest_poisoned(t, types[type].type, DIMS(n, d)),
                      .scale = optest_poisoned(t, DTYPE_F32, DIMS(g.rows, g.cols)),
                      .kind = kinds[kind].kind };
}

static int byte_at(const Tensor *t, int64_t i) { return ((const uint8_t *)t->data)[i]; }

static void check_golden(OpTest *t, const Golden *g, const char *shape, int kind, int type)
{
    char group[GOLDEN_NAME_MAX];
    snprintf(group, sizeof group, "%s.%s.%s", shape, kinds[kind].name, types[type].name);
    Tensor x = golden_get(g, shape, "x"), data = golden_get(g, group, "data");
    Tensor scale = golden_get(g, group, "scale");
    Operand q = quant_make(t, kind, type, x.dim[0], x.dim[1]);
    CHECK_OK(quantize(&t->ex, (Quantize){ .x = x, .quant = q }));
    CHECK_INT(tensor_elems(&q.scale), tensor_elems(&scale));
    CHECK_SAME(&q.scale, &scale);
    for (int64_t i = 0; i < tensor_elems(&x); i++) {
        int want = ((const int32_t *)data.data)[i];
        if (byte_at(&q.data, i) == want) continue;
        fail_msg("%s: element %lld, %.9g, is 0x%02x, want 0x%02x", group, (long long)i,
                 optest_get(&x, i), byte_at(&q.data, i), want);
    }
}

static void bytes_and_scales_are_exactly_the_nearest(void **state)
{
    OpTest *t = *state;
    const char *shapes[] = { "3x130", "130x3", "2x300" };
    optest_unguard(t);
    Golden g = golden_open("tests/golden/ops/quant.golden");
    for (int i = 0; i < 3 * KINDS * TYPES; i++) {
        check_golden(t, &g, shapes[i / (KINDS * TYPES)], i / TYPES % KINDS, i % TYPES);
    }
    golden_close(&g);
}

static void scales_have_the_shape_of_the_blocks(void **state)
{
    (void)state;
    const int64_t want[KINDS][2] = { { 1, 1 }, { 129, 1 }, { 129, 3 }, { 2, 3 } };
    for (int k = 0; k < KINDS; k++) {
        OperandGrid g = operand_grid(kinds[k].kind, 129, 257);
        CHECK_INT(g.rows, want[k][0]);
        CHECK_INT(g.cols, want[k][1]);
    }
}

/* The largest magnitude of x in the block of (row, col), looked for among all elements. */
static double amax_around(const Tensor *x, OperandKind kind, int64_t row, int64_t col)
{
    double most = 0;
    int64_t d = tensor_cols(x);
    for (int64_t i = 0; i < tensor_elems(x); i++) {
        int64_t r = i / d, c = i % d;
        bool same_row = kind == OPERAND_TENSOR || r == row;
        bool same_col = kind == OPERAND_TENSOR || kind == OPERAND_ROW || c / 128 == col / 128;
        if (kind == OPERAND_128X128) same_row = r / 128 == row / 128;
        if (same_row && same_col) most = fmax(most, fabs(optest_get(x, i)));
    }
    return most;
}

static void check_way_back(OpTest *t, int kind, int type, Dtype act, const int64_t *shape)
{
    Tensor x = optest_normal(t, act, shape), y = optest_poisoned(t, act, shape);
    Operand q = quant_make(t, kind, type, shape[0], shape[1]);
    CHECK_OK(quantize(&t->ex, (Quantize){ .x = x, .quant = q }));
    CHECK_OK(dequantize(&t->ex, (Dequantize){ .quant = q, .y = y }));
    double act_unit = act == DTYPE_BF16 ? 1.0 / 256 : 0x1p-23;
    for (int64_t i = 0; i < tensor_elems(&x); i += 1 + i / 64) {
        double amax = amax_around(&x, kinds[kind].kind, i / shape[1], i % shape[1]);
        double v = optest_get(&x, i), limit = types[type].unit * fabs(v);
        limit = fmax(limit, types[type].least * amax / types[type].largest);
        CHECK_NEAR(optest_get(&y, i), v, limit * (1 + 1e-6) + act_unit * fabs(v));
        if (fabs(v) == amax) CHECK_NEAR(optest_get(&y, i), v, 2 * act_unit * fabs(v));
    }
}

static void the_way_back_is_off_by_half_a_last_place_at_most(void **state)
{
    OpTest *t = *state;
    const int64_t *shapes[] = { DIMS(1, 1),   DIMS(7, 131), DIMS(129, 2),
                                DIMS(3, 257), DIMS(9, 264), DIMS(131, 12) };
    for (int i = 0; i < 6 * KINDS * TYPES * 2; i++) {
        Dtype act = i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
        check_way_back(t, i / 4 % KINDS, i / 2 % TYPES, act, shapes[i / 16]);
    }
}

static void a_block_of_zeros_has_the_scale_one(void **state)
{
    OpTest *t = *state;
    Tensor x = optest_normal(t, DTYPE_F32, DIMS(2, 130));
    Operand q = quant_make(t, 2, 0, 2, 130);
    for (int64_t i = 0; i < 128; i++) optest_set(&x, i, 0);
    CHECK_OK(quantize(&t->ex, (Quantize){ .x = x, .quant = q }));
    CHECK_NEAR(optest_get(&q.scale, 0), 1, 0);
    for (int64_t i = 0; i < 128; i++) CHECK_INT(byte_at(&q.data, i), 0);
    for (int64_t i = 1; i < 4; i++) CHECK(optest_get(&q.scale, i) < 0.1);
}

/* amax / 448 of these would lose its digits, and at the end be 0. */
static void tiny_numbers_have_the_smallest_normal_scale(void **state)
{
    OpTest *t = *state;
    const double values[] = { 0x1p-128, -0x1.8p-131, 0x1p-149 };
    for (int type = 0; type < TYPES; type++) {
        Tensor x = optest_poisoned(t, DTYPE_F32, DIMS(1, 3));
        Tensor y = optest_poisoned(t, DTYPE_F32, DIMS(1, 3));
        Operand q = quant_make(t, 1, type, 1, 3);
        for (int i = 0; i < 3; i++) optest_set(&x, i, values[i]);
        CHECK_OK(quantize(&t->ex, (Quantize){ .x = x, .quant = q }));
        CHECK_OK(dequantize(&t->ex, (Dequantize){ .quant = q, .y = y }));
        CHECK_NEAR(optest_get(&q.scale, 0), (double)FLT_MIN, 0);
        double limit = types[type].least * (double)FLT_MIN;
        for (int i = 0; i < 3; i++) CHECK_NEAR(optest_get(&y, i), values[i], limit);
    }
}

static void a_nan_stays_and_moves_no_scale(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (int i = 0; i < KINDS * TYPES; i++) {
        Tensor x = optest_normal(t, DTYPE_BF16, DIMS(3, 5));
        Tensor y = optest_poisoned(t, DTYPE_F32, DIMS(3, 5));
        for (int64_t k = 5; k < 10; k++) optest_set(&x, k, NAN); /* a whole row too */
        optest_set(&x, 2, NAN);
        Operand q = quant_make(t, i / TYPES, i % TYPES, 3, 5);
        CHECK_OK(quantize(&t->ex, (Quantize){ .x = x, .quant = q }));
        CHECK_OK(dequantize(&t->ex, (Dequantize){ .quant = q, .y = y }));
        for (int64_t k = 0; k < 15; k++) {
            CHECK(isnan(optest_get(&y, k)) == (k == 2 || (k >= 5 && k < 10)));
        }
        for (int64_t k = 0; k < tensor_elems(&q.scale); k++) {
            CHECK(optest_get(&q.scale, k) > 0 && optest_get(&q.scale, k) <= 1);
        }
    }
}

static void an_infinity_is_an_error_that_says_where(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < KINDS * TYPES; i++) {
        Tensor x = optest_normal(t, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, DIMS(130, 131));
        Operand q = quant_make(t, i / TYPES, i % TYPES, 130, 131);
        optest_set(&x, 129 * 131 + 129, -INFINITY);
        CHECK_FAILS(quantize(&t->ex, (Quantize){ .x = x, .quant = q }), ERR_NUMERIC,
                    "x is infinite at row 129, column 129");
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        OpTest t[2];
        Operand q[2];
        for (int i = 0; i < 2; i++) {
            optest_open(&t[i], 1 + 2 * i);
            Tensor x = optest_normal(&t[i], DTYPE_F32, DIMS(131, 137));
            q[i] = quant_make(&t[i], k, 0, 131, 137);
            CHECK_OK(quantize(&t[i].ex, (Quantize){ .x = x, .quant = q[i] }));
        }
        CHECK_SAME(&q[0].scale, &q[1].scale);
        CHECK(memcmp(q[0].data.data, q[1].data.data, tensor_bytes(&q[0].data)) == 0);
        for (int i = 0; i < 2; i++) optest_close(&t[i]);
    }
}

static void tensors_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Quantize a = { .x = optest_normal(t, DTYPE_F32, DIMS(2, 130)),
                   .quant = quant_make(t, 2, 0, 2, 130) };
    a.quant.kind = OPERAND_128X128;
    CHECK_FAILS(quantize(&t->ex, a), ERR_SHAPE, "quantize: quant.scale is (2, 2) f32");
    a.quant.kind = (OperandKind)OPERAND_KINDS;
    CHECK_FAILS(quantize(&t->ex, a), ERR_UNSUPPORTED, "quant is of kind 5 (there is no such kind)");
    a.quant.kind = OPERAND_PLAIN;
    CHECK_FAILS(quantize(&t->ex, a), ERR_UNSUPPORTED,
                "quant is of kind 0 (plain), the op takes: one scale, a scale a row, 1 x 128, "
                "128 x 128");
    a.quant = quant_make(t, 2, 0, 2, 130), a.quant.data.dtype = DTYPE_U8;
    CHECK_FAILS(quantize(&t->ex, a), ERR_SHAPE, "quant is u8, wanted e4m3 or e5m2");
    Dequantize b = { .quant = quant_make(t, 2, 1, 2, 130),
                     .y = optest_poisoned(t, DTYPE_F32, DIMS(2, 131)) };
    CHECK_FAILS(dequantize(&t->ex, b), ERR_SHAPE, "dequantize: y is (2, 131) f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(bytes_and_scales_are_exactly_the_nearest, 2),
        TEST(scales_have_the_shape_of_the_blocks),
        OP_TEST(the_way_back_is_off_by_half_a_last_place_at_most, 2),
        OP_TEST(a_block_of_zeros_has_the_scale_one, 2),
        OP_TEST(tiny_numbers_have_the_smallest_normal_scale, 1),
        OP_TEST(a_nan_stays_and_moves_no_scale, 2),
        OP_TEST(an_infinity_is_an_error_that_says_where, 2),
        TEST(any_number_of_threads_gives_the_same_bits),
        OP_TEST(tensors_that_do_not_fit_are_an_error, 1),
    };
    return TEST_RUN(tests);
}
