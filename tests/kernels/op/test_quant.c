/* Quantisation to 8 bits: exact bytes and scales from tools/make_quant_golden.py, which looks for
 * the nearest code, and what the definition promises about the way there and back. */
#include "golden/golden.h"
#include "harness/gpu.h"
#include "harness/optest.h"
#include "kernels/quant/quant.h"
#include "quant_case.h"

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
    CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
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
    Golden g = golden_open("tests/golden/ops/quant.golden.zst");
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
    CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
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
    CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
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
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
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
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }));
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
        CHECK_FAILS(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q }), ERR_NUMERIC,
                    "x is infinite at row 129, column 129");
    }
}

/* 1, primes, one past a tile; and sizes that are read 16 bytes at a time. */
static const int64_t shapes[][2] = { { 1, 1 },    { 7, 5 },     { 129, 131 }, { 131, 257 },
                                     { 16, 264 }, { 144, 136 }, { 272, 8 },   { 300, 144 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The bits of a cast to bf16 before the call. Numbers that rounding makes infinite have no scale. */
static void f32_is_rounded_as_a_cast_would(void **state)
{
    OpTest *t = *state;
    static const float odd[] = { 1.99999f, 0x1.01p0f, 0x1.03p0f, -0x1p-130f, NAN, -0.0f, 3e-8f };
    optest_unguard(t);
    for (int i = 0; i < SHAPES * KINDS; i++) {
        QuantCase c = { .M = i % 3 == 0 ? 3 : 1, .N = shapes[i / KINDS][0], .pow2 = i % 2 == 0 };
        c.D = shapes[i / KINDS][1], c.live = (int32_t)c.N, c.gathers = c.M == 1 && i % 4 == 1;
        c.rows = kinds[i % KINDS].kind, c.columns = kinds[(i + i / KINDS) % KINDS].kind;
        c.type = types[i / 2 % TYPES].type;
        QuantRun run;
        quant_draw(t, &c, &run);
        for (int k = 0; k < 7; k++)
            optest_set(&run.a.x.data, 37 * k % tensor_elems(&run.a.x.data), (double)odd[k]);
        Quantize wide = run.a, low = run.a;
        wide.round = DTYPE_BF16;
        low.x.data = optest_poisoned(t, DTYPE_BF16, run.a.x.data.dim);
        low.x.data.rank = run.a.x.data.rank;
        dtype_from_f32(low.x.data.data, DTYPE_BF16, run.a.x.data.data, tensor_elems(&run.a.x.data));
        quant_outputs(t, &c, &low);
        CHECK_OK(quantize(&t->ex, wide));
        CHECK_OK(quantize(&t->ex, low));
        CHECK_SAME(&wide.quant.scale, &low.quant.scale);
        CHECK_SAME(&wide.transposed.scale, &low.transposed.scale);
        size_t bytes = tensor_bytes(&wide.quant.data);
        CHECK(memcmp(wide.quant.data.data, low.quant.data.data, bytes) == 0);
        CHECK(memcmp(wide.transposed.data.data, low.transposed.data.data, bytes) == 0);
    }
    Quantize a = { .x.data = optest_normal(t, DTYPE_F32, DIMS(2, 130)), .round = DTYPE_BF16 };
    a.quant = quant_make(t, 2, 0, 2, 130);
    optest_set(&a.x.data, 131, (double)FLT_MAX);
    CHECK_FAILS(quantize(&t->ex, a), ERR_NUMERIC, "x is infinite at row 1, column 1");
    a.round = DTYPE_E4M3;
    CHECK_FAILS(quantize(&t->ex, a), ERR_UNSUPPORTED, "rounded to bf16 or not at all, not to e4m3");
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
            CHECK_OK(quantize(&t[i].ex, (Quantize){ .x.data = x, .quant = q[i] }));
        }
        CHECK_SAME(&q[0].scale, &q[1].scale);
        CHECK(memcmp(q[0].data.data, q[1].data.data, tensor_bytes(&q[0].data)) == 0);
        for (int i = 0; i < 2; i++) optest_close(&t[i]);
    }
}

static void tensors_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Quantize a = { .x.data = optest_normal(t, DTYPE_F32, DIMS(2, 130)),
                   .quant = quant_make(t, 2, 0, 2, 130) };
    a.quant.kind = OPERAND_128X128;
    CHECK_FAILS(quantize(&t->ex, a), ERR_SHAPE, "quantize: quant.scale is (2, 2) f32");
    a.quant.kind = (OperandKind)OPERAND_KINDS;
    CHECK_FAILS(quantize(&t->ex, a), ERR_UNSUPPORTED, "quant is of kind 6 (there is no such kind)");
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

/* ---- both operands, groups, rows in use: against the definition in quant_case.h ---- */

static void both_operands_match_their_definition_for_all_pairs_of_kinds(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (int i = 0; i < SHAPES * (KINDS + 1) * (KINDS + 1); i++) {
        const int64_t *shape = shapes[i / (KINDS + 1) / (KINDS + 1)];
        QuantCase c = { .M = 1, .N = shape[0], .D = shape[1], .live = (int32_t)shape[0] };
        c.rows = (OperandKind)(i % (KINDS + 1));
        c.columns = (OperandKind)(i / (KINDS + 1) % (KINDS + 1));
        c.act = i % 3 == 0 ? DTYPE_F32 : DTYPE_BF16;
        c.type = types[i % TYPES].type;
        c.pow2 = i % 5 < 2;
        if (c.rows != OPERAND_PLAIN || c.columns != OPERAND_PLAIN) quant_check(t, &c);
    }
}

/* The experts' weights: no block reaches into the next matrix. */
static void matrices_of_three_dimensions_have_scales_of_their_own(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    const int64_t sizes[][2] = { { 130, 129 }, { 144, 136 }, { 5, 3 } };
    for (int i = 0; i < 3 * KINDS * KINDS; i++) {
        QuantCase c = { .M = 3, .N = sizes[i % 3][0], .D = sizes[i % 3][1], .pow2 = i % 2 == 0 };
        c.live = (int32_t)c.N;
        c.rows = kinds[i / 3 % KINDS].kind;
        c.columns = kinds[i / 3 / KINDS].kind;
        c.act = i % 4 == 0 ? DTYPE_F32 : DTYPE_BF16;
        c.type = types[i / 2 % TYPES].type;
        quant_check(t, &c);
    }
}

static void matrices_of_three_dimensions_come_back(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < KINDS * 2; i++) {
        Tensor x = optest_normal(t, DTYPE_BF16, DIMS(3, 130, 264));
        Tensor y = optest_poisoned(t, DTYPE_F32, DIMS(3, 130, 264));
        Operand q;
        for (int64_t k = 0; k < tensor_elems(&x); k++) /* so a scale of another matrix shows */
            optest_set(&x, k, ldexp(optest_get(&x, k), 4 * (int)(k / (130 * 264))));
        CHECK_OK(operand_new(&t->arena, kinds[i / 2].kind, types[i % 2].type, 3, x.dim, &q));
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = x, .quant = q, .pow2 = true }));
        CHECK_OK(dequantize(&t->ex, (Dequantize){ .quant = q, .y = y }));
        for (int64_t k = 0; k < tensor_elems(&x); k++) {
            double v = optest_get(&x, k), unit = types[i % 2].unit;
            double most = ldexp(8, 4 * (int)(k / (130 * 264))); /* no smaller than any of them */
            CHECK_NEAR(optest_get(&y, k), v, unit * fabs(v) + most * unit / 128);
        }
    }
}

/* Rows of x come from a pool, or a table names them. Rows that are not in use are not read, and
 * nothing is written for them. */
static void rows_may_be_few_pooled_or_gathered(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    const int32_t live[] = { 0, 1, 127, 128, 129, 160 };
    for (int i = 0; i < 6 * 2 * KINDS; i++) {
        QuantCase c = { .M = 1, .N = 160, .D = i % 4 < 2 ? 136 : 131, .live = live[i % 6] };
        c.gathers = i / 6 % 2 == 1;
        c.pool = c.gathers ? 0 : 5;
        c.rows = c.columns = kinds[i / 12].kind;
        c.act = i % 5 == 0 ? DTYPE_F32 : DTYPE_BF16;
        c.type = types[i % TYPES].type;
        quant_check(t, &c);
    }
}

static const int64_t ragged[] = { 0, 1, 63, 64, 0, 65, 127, 128, 129, 0 };
static const int64_t one_group[] = { 300 };
static const int64_t at_the_end[] = { 0, 0, 0, 70 };
static const int64_t none_at_all[] = { 0, 0 };

/* More groups than a warp has lanes, most of them empty or of one row. */
enum { MANY = 75 };

static void groups_begin_at_whole_blocks_and_gaps_are_zero(void **state)
{
    OpTest *t = *state;
    int64_t many[MANY], rows_of_many = 0;
    optest_unguard(t);
    for (int e = 0; e < MANY; e++) {
        many[e] = e % 7 == 3 ? 130 : e % 3;
        rows_of_many += many[e];
    }
    const struct {
        const int64_t *group;
        int64_t groups, rows;
    } sets[] = { { ragged, 10, 577 },
                 { one_group, 1, 300 },
                 { at_the_end, 4, 70 },
                 { none_at_all, 2, 0 },
                 { many, MANY, rows_of_many } };
    const OperandKind column_kinds[] = { OPERAND_TENSOR, OPERAND_ROW, OPERAND_1X128 };
    for (int i = 0; i < 5 * 3 * 4; i++) {
        QuantCase c = { .M = 1, .group = sets[i % 5].group, .groups = sets[i % 5].groups };
        c.live = (int32_t)sets[i % 5].rows;
        c.N = c.live + (i / 15 % 2 == 0 ? 0 : 40) + (c.live == 0);
        c.D = i % 4 < 2 ? 136 : 19;
        c.gathers = i / 30 == 0;
        c.columns = column_kinds[i / 5 % 3];
        c.rows = (OperandKind)(i * 7 % (KINDS + 1));
        c.act = i % 7 == 0 ? DTYPE_F32 : DTYPE_BF16;
        c.type = types[i % TYPES].type;
        c.pow2 = i % 2 == 0;
        quant_check(t, &c);
    }
}

/* Groups beyond the rows in use are cut off, as experts' are when a buffer overflows. */
static void groups_end_at_the_rows_in_use(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (int i = 0; i < 6; i++) {
        QuantCase c = { .M = 1, .group = ragged, .groups = 10, .N = 577, .D = 136 };
        c.live = i < 3 ? 200 : 320;
        c.columns = i % 3 == 0 ? OPERAND_TENSOR : i % 3 == 1 ? OPERAND_ROW : OPERAND_1X128;
        c.rows = OPERAND_1X128;
        c.act = DTYPE_BF16;
        c.type = types[i % TYPES].type;
        quant_check(t, &c);
    }
}

/* Quotients must be rounded as a division rounds them, for scales from the smallest to the
 * largest. */
static void numbers_of_all_sizes_are_divided_exactly(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    const int exponents[] = { -130, -124, -100, -62, -56, -50, -20, 0, 60, 120 };
    for (int i = 0; i < 10 * TYPES * 2; i++) {
        QuantCase c = { .M = 1, .N = 160, .D = 136, .live = 160, .act = DTYPE_BF16 };
        c.type = types[i % TYPES].type;
        c.rows = i / TYPES % 2 == 0 ? OPERAND_1X128 : OPERAND_PLAIN;
        c.columns = OPERAND_1X128;
        QuantRun run;
        ArenaMark mark = arena_mark(&t->arena);
        quant_draw(t, &c, &run);
        for (int64_t k = 0; k < tensor_elems(&run.a.x.data); k++) {
            double v = ldexp(optest_get(&run.a.x.data, k), exponents[i / 4]);
            if (k % 11 == 0) v = ldexp(v, -8);
            if (k % 13 == 0) v = k % 2 == 0 ? 0.0 : -0.0;
            optest_set(&run.a.x.data, k, v);
        }
        CHECK_OK(quantize(&t->ex, run.a));
        quant_compare_all(t, &run);
        arena_release(&t->arena, mark);
    }
}

/* An outlier takes the scale of its row, column or block alone. */
static void an_outlier_moves_its_own_scale_alone(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    QuantCase c = { .M = 1, .N = 272, .D = 264, .live = 272, .act = DTYPE_BF16 };
    c.type = DTYPE_E4M3;
    c.rows = c.columns = OPERAND_1X128;
    QuantRun run;
    quant_draw(t, &c, &run);
    optest_set(&run.a.x.data, (130 + c.pool) * c.D + 140, 1e4);
    CHECK_OK(quantize(&t->ex, run.a));
    quant_compare_all(t, &run);
    for (int64_t i = 0; i < tensor_elems(&run.a.quant.scale); i++)
        CHECK((optest_get(&run.a.quant.scale, i) > 1) == (i == 130 * 3 + 1));
    for (int64_t i = 0; i < tensor_elems(&run.a.transposed.scale); i++)
        CHECK((optest_get(&run.a.transposed.scale, i) > 1) == (i == 140 * 3 + 1));
}

/* A NaN keeps its bits in both operands, and its neighbours their scales. */
static void a_nan_stays_in_the_transposed_operand(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (int i = 0; i < TYPES * 2; i++) {
        QuantCase c = { .M = 1, .N = 144, .D = 136, .live = 144, .act = DTYPE_BF16 };
        c.type = types[i % TYPES].type;
        c.rows = c.columns = i / TYPES == 0 ? OPERAND_1X128 : OPERAND_128X128;
        QuantRun run;
        quant_draw(t, &c, &run);
        ((uint16_t *)run.a.x.data.data)[3 * 136 + 7] = i % 2 == 0 ? 0xFFC1 : 0x7FE0;
        CHECK_OK(quantize(&t->ex, run.a));
        uint8_t code = (uint8_t)byte_at(&run.a.quant.data, 3 * 136 + 7);
        CHECK_INT(byte_at(&run.a.transposed.data, 7 * 144 + 3), code);
        float v = 0;
        dtype_to_f32(&v, &code, c.type, 1);
        CHECK(isnan(v));
        CHECK((signbit(v) != 0) == (i % 2 == 0));
        for (int64_t k = 0; k < tensor_elems(&run.a.quant.scale); k++)
            CHECK(optest_get(&run.a.quant.scale, k) > 0);
    }
}

/* One operand alone, in several blocks of threads, some of which have a NaN. */
static void a_nan_moves_no_other_row_or_column(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (int i = 0; i < KINDS * 2 * TYPES; i++) {
        QuantCase c = { .M = 1, .N = 320, .D = 544, .live = 320, .act = DTYPE_BF16 };
        OperandKind kind = kinds[i / 2 / TYPES].kind;
        *(i / TYPES % 2 == 0 ? &c.rows : &c.columns) = kind;
        c.type = types[i % TYPES].type;
        QuantRun run;
        ArenaMark mark = arena_mark(&t->arena);
        quant_draw(t, &c, &run);
        for (int64_t j = 0; j < c.D; j += 7) optest_set(&run.a.x.data, 200 * c.D + j, NAN);
        CHECK_OK(quantize(&t->ex, run.a));
        quant_compare_all(t, &run);
        arena_release(&t->arena, mark);
    }
}

static Tensor to_device(Exec *gpu, Arena *a, const Tensor *from)
{
    Tensor out = *from;
    CHECK_OK(arena_alloc(a, tensor_bytes(from), &out.data));
    CHECK_OK(gpu->backend->copy(gpu, out.data, from->data, tensor_bytes(from)));
    return out;
}

/* A GPU cannot stop. So the infinity must reach the loss, where the step is skipped. */
static void on_a_gpu_an_infinity_makes_its_block_nan(void **state)
{
    OpTest *t = *state;
    NEEDS_GPU();
    QuantCase c = { .M = 1, .N = 144, .D = 272, .live = 144, .act = DTYPE_BF16 };
    c.type = DTYPE_E4M3;
    c.rows = c.columns = OPERAND_1X128;
    QuantRun run;
    quant_draw(t, &c, &run);
    optest_set(&run.a.x.data, 2 * 272 + 3, -INFINITY);
    Quantize host = run.a, a = run.a;
    Exec *gpu = &mirror.gpu;
    ArenaMark mark = arena_mark(&mirror.device);
    a.x.data = to_device(gpu, &mirror.device, &host.x.data);
    a.quant.data = to_device(gpu, &mirror.device, &host.quant.data);
    a.quant.scale = to_device(gpu, &mirror.device, &host.quant.scale);
    a.transposed.data = to_device(gpu, &mirror.device, &host.transposed.data);
    a.transposed.scale = to_device(gpu, &mirror.device, &host.transposed.scale);
    CHECK_OK(op_desc(OP_QUANTIZE)->gpu(gpu, &a));
    const Tensor *from[] = { &a.quant.data, &a.quant.scale, &a.transposed.scale };
    const Tensor *to[] = { &host.quant.data, &host.quant.scale, &host.transposed.scale };
    for (int i = 0; i < 3; i++)
        CHECK_OK(gpu->backend->copy(gpu, to[i]->data, from[i]->data, tensor_bytes(from[i])));
    CHECK_OK(gpu->backend->sync(gpu));
    for (int64_t i = 0; i < 144 * 272; i++)
        CHECK(((byte_at(&host.quant.data, i) & 0x7F) == 0x7F) == (i / 272 == 2 && i % 272 < 128));
    for (int64_t i = 0; i < 144 * 3; i++)
        CHECK(isnan(optest_get(&host.quant.scale, i)) == (i == 2 * 3));
    for (int64_t i = 0; i < 272 * 2; i++)
        CHECK(isnan(optest_get(&host.transposed.scale, i)) == (i == 3 * 2));
    arena_release(&mirror.device, mark);
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
        OP_TEST(f32_is_rounded_as_a_cast_would, 2),
        TEST(any_number_of_threads_gives_the_same_bits),
        OP_TEST(tensors_that_do_not_fit_are_an_error, 1),
        OP_TEST(both_operands_match_their_definition_for_all_pairs_of_kinds, 1),
        OP_TEST(matrices_of_three_dimensions_have_scales_of_their_own, 1),
        OP_TEST(matrices_of_three_dimensions_come_back, 1),
        OP_TEST(rows_may_be_few_pooled_or_gathered, 1),
        OP_TEST(groups_begin_at_whole_blocks_and_gaps_are_zero, 2),
        OP_TEST(groups_end_at_the_rows_in_use, 1),
        OP_TEST(numbers_of_all_sizes_are_divided_exactly, 1),
        OP_TEST(an_outlier_moves_its_own_scale_alone, 1),
        OP_TEST(a_nan_stays_in_the_transposed_operand, 1),
        OP_TEST(a_nan_moves_no_other_row_or_column, 2),
        OP_TEST(on_a_gpu_an_infinity_makes_its_block_nan, 1),
    };
    return TEST_RUN(tests);
}
