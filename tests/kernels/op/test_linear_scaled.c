/* Dense products of 8-bit operands, against plain sums in double of the numbers that they stand for. */
#include "scaled_case.h"

#include "kernels/dense/linear.h"
#include "kernels/dense/product.h"

typedef struct Shape {
    int64_t N, I, O;
} Shape;

/* Several blocks and a last piece of each side; the last ones as a GPU's products want them. */
static const Shape shapes[] = { { 1, 1, 1 },     { 7, 300, 5 },     { 259, 131, 129 },
                                { 131, 7, 260 }, { 144, 272, 128 }, { 512, 128, 400 } };

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* One product: operands, and what is added. */
typedef struct Case {
    Operand x, dy, w, w_turned, x_columns, dy_columns;
    Tensor y, dx, dw, r_y, r_x;
} Case;

static Case case_make(OpTest *t, const Shape *s, const ScaledForm *f, Dtype act, bool signs)
{
    Tensor x, dy, w;
    if (signs) {
        x = optest_signs(t, act, DIMS(s->N, s->I)), dy = optest_signs(t, act, DIMS(s->N, s->O));
        w = optest_signs(t, act, DIMS(s->O, s->I));
    } else {
        x = optest_normal(t, act, DIMS(s->N, s->I)), dy = optest_normal(t, act, DIMS(s->N, s->O));
        w = optest_normal(t, act, DIMS(s->O, s->I));
    }
    return (Case){
        .x = scaled_rows(t, f->rows, DTYPE_E4M3, f->pow2, x, (Rows){ 0 }),
        .dy = scaled_rows(t, f->rows, f->gradient, f->pow2, dy, (Rows){ 0 }),
        .w = scaled_weight(t, f, w, false),
        .w_turned = scaled_weight(t, f, w, true),
        .x_columns =
            scaled_columns(t, f->columns, DTYPE_E4M3, (Quantize){ .x.data = x, .pow2 = f->pow2 }),
        .dy_columns =
            scaled_columns(t, f->columns, f->gradient, (Quantize){ .x.data = dy, .pow2 = f->pow2 }),
        .y = optest_poisoned(t, act, DIMS(s->N, s->O)),
        .dx = optest_poisoned(t, act, DIMS(s->N, s->I)),
        .dw = optest_signs(t, DTYPE_F32, DIMS(s->O, s->I)),
        .r_y = optest_signs(t, act, DIMS(s->N, s->O)),
        .r_x = optest_signs(t, act, DIMS(s->N, s->I)),
    };
}

/* c = a b^T + r: a (m, k), b (n, k), as they lie. */
static double *sums(OpTest *t, const Operand *a, const Operand *b, const Tensor *r)
{
    Operand left = *a, right = *b;
    left.transposed = right.transposed = false;
    Tensor x = scaled_plain(t, &left, 0), y = scaled_plain(t, &right, 0);
    int64_t m = x.dim[0], n = y.dim[0], k = x.dim[1];
    double *out = optest_doubles(t, m * n);
    for (int64_t i = 0; i < m * n; i++) {
        out[i] = r->data == NULL ? 0 : optest_get(r, i);
        for (int64_t j = 0; j < k; j++)
            out[i] += optest_get(&x, i / n * k + j) * optest_get(&y, i % n * k + j);
    }
    return out;
}

static void products_match_double_for_every_kind_of_scale(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SHAPES * SCALED_FORMS * 2; i += RUNS(1, 3)) {
        ArenaMark mark = arena_mark(&t->arena);
        const Shape *s = &shapes[i / 2 / SCALED_FORMS];
        Case c = case_make(t, s, &scaled_forms[i / 2 % SCALED_FORMS],
                           i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, false);
        const Tensor none = { 0 };
        double *y = sums(t, &c.x, &c.w, &none), *dx = sums(t, &c.dy, &c.w_turned, &c.r_x);
        double *dw = sums(t, &c.dy_columns, &c.x_columns, &c.dw);
        CHECK_OK(linear_fwd(&t->ex, (LinearFwd){ .x = c.x, .w = c.w, .y = c.y }));
        CHECK_TENSOR(&c.y, y);
        CHECK_OK(linear_bwd_input(
            &t->ex, (LinearBwdInput){ .dy = c.dy, .w = c.w_turned, .r = c.r_x, .dx = c.dx }));
        CHECK_TENSOR(&c.dx, dx);
        CHECK_OK(linear_bwd_weight(
            &t->ex, (LinearBwdWeight){ .dy = c.dy_columns, .x = c.x_columns, .dw = c.dw }));
        CHECK_TENSOR(&c.dw, dw);
        arena_release(&t->arena, mark);
    }
}

/* Signs with scales that are powers of two: codes, products and sums are exact, and a bf16 result is
 * rounded once. A residual may be the result itself. */
static void integers_come_out_exactly(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SHAPES * 3; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        ScaledForm form = scaled_forms[i % 3];
        form.pow2 = true;
        Case c = case_make(t, &shapes[i / 3], &form, DTYPE_F32, true);
        double *y = sums(t, &c.x, &c.w, &c.r_y), *dw = sums(t, &c.dy_columns, &c.x_columns, &c.dw);
        CHECK_OK(linear_fwd(&t->ex, (LinearFwd){ .x = c.x, .w = c.w, .r = c.r_y, .y = c.r_y }));
        for (int64_t k = 0; k < tensor_elems(&c.y); k++) CHECK_NEAR(optest_get(&c.r_y, k), y[k], 0);
        CHECK_OK(linear_bwd_weight(
            &t->ex, (LinearBwdWeight){ .dy = c.dy_columns, .x = c.x_columns, .dw = c.dw }));
        for (int64_t k = 0; k < tensor_elems(&c.dw); k++)
            CHECK_NEAR(optest_get(&c.dw, k), dw[k], 0);
        arena_release(&t->arena, mark);
    }
}

/* GPUs make the parts of a weight gradient of many tokens at a time. Here 34 blocks of 128 tokens are four parts, and
 * the last block has 16. */
static void parts_of_many_tokens_add_up(void **state)
{
    OpTest *t = *state;
    const Shape s = { 4240, 144, 16 };
    CHECK_INT(weight_parts(s.O, s.I, s.N), 4);
    for (int i = 0; i < SCALED_FORMS * 2; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        ScaledForm form = scaled_forms[i / 2];
        const bool exact = i % 2 == 1;
        form.pow2 = form.pow2 || exact;
        Case c = case_make(t, &s, &form, DTYPE_F32, exact);
        Tensor again = optest_poisoned(t, DTYPE_F32, DIMS(s.O, s.I));
        memcpy(again.data, c.dw.data, tensor_bytes(&c.dw));
        double *dw = sums(t, &c.dy_columns, &c.x_columns, &c.dw);
        LinearBwdWeight g = { .dy = c.dy_columns, .x = c.x_columns, .dw = c.dw };
        CHECK_OK(linear_bwd_weight(&t->ex, g));
        if (!exact) CHECK_TENSOR(&c.dw, dw);
        for (int64_t k = 0; exact && k < tensor_elems(&c.dw); k++)
            CHECK_NEAR(optest_get(&c.dw, k), dw[k], 0);
        g.dw = again;
        CHECK_OK(linear_bwd_weight(&t->ex, g));
        CHECK_SAME(&again, &c.dw);
        arena_release(&t->arena, mark);
    }
}

/* None is empty, since a tile without terms ends the kernel. Together they have at most 128 tiles of 128 x 256. */
static void parts_fill_a_gpu_and_none_is_empty(void **state)
{
    (void)state;
    const int64_t many = 65536;
    CHECK_INT(weight_parts(512, 512, many), 16);
    CHECK_INT(weight_parts(512, 256, many), 32);
    CHECK_INT(weight_parts(768, 512, many), 10);
    /* DeepSeek-V2-Lite's kv_a: three would gain nothing */
    CHECK_INT(weight_parts(576, 2048, many), 1);
    CHECK_INT(weight_parts(3072, 2048, many), 1);
    CHECK_INT(weight_parts(512, 512, 4096), 4);
    CHECK_INT(weight_parts(512, 512, 3968), 1);
    CHECK_INT(weight_parts(0, 512, many), 1);
    for (int64_t side = 128; side <= 2048; side += 128) {
        for (int64_t k = 16; k < many; k += 112) {
            int64_t parts = weight_parts(side, 128, k),
                    each = ((k + parts - 1) / parts + 127) / 128;
            CHECK(parts >= 1 && (parts == 1 || each >= 8) && parts * each * 128 >= k);
            CHECK((parts - 1) * each * 128 < k);
            CHECK(parts * (side / 128) <= 256);
        }
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < SCALED_FORMS; i++) {
        OpTest t[2];
        Case c[2];
        for (int k = 0; k < 2; k++) {
            optest_open(&t[k], 1 + 2 * k);
            c[k] = case_make(&t[k], &shapes[2], &scaled_forms[i], DTYPE_F32, false);
            CHECK_OK(linear_fwd(&t[k].ex, (LinearFwd){ .x = c[k].x, .w = c[k].w, .y = c[k].y }));
            CHECK_OK(linear_bwd_weight(
                &t[k].ex,
                (LinearBwdWeight){ .dy = c[k].dy_columns, .x = c[k].x_columns, .dw = c[k].dw }));
        }
        CHECK_SAME(&c[1].y, &c[0].y);
        CHECK_SAME(&c[1].dw, &c[0].dw);
        for (int k = 0; k < 2; k++) optest_close(&t[k]);
    }
}

static void operands_that_lie_the_wrong_way_are_an_error(void **state)
{
    OpTest *t = *state;
    Case c = case_make(t, &shapes[1], &scaled_forms[1], DTYPE_F32, false);
    CHECK_FAILS(linear_fwd(&t->ex, (LinearFwd){ .x = c.x, .w = c.w_turned, .y = c.y }), ERR_ARG,
                "linear_fwd: w with scales must not be transposed here");
    CHECK_FAILS(linear_bwd_input(&t->ex, (LinearBwdInput){ .dy = c.dy, .w = c.w, .dx = c.dx }),
                ERR_ARG, "linear_bwd_input: w with scales must be transposed here");
    LinearBwdWeight g = { .dy = c.dy, .x = c.x_columns, .dw = c.dw };
    CHECK_FAILS(linear_bwd_weight(&t->ex, g), ERR_ARG, "dy with scales must be transposed here");
    LinearFwd f = { .x = c.x, .w = c.w, .y = optest_poisoned(t, DTYPE_F32, DIMS(7, 6)) };
    CHECK_FAILS(linear_fwd(&t->ex, f), ERR_SHAPE, "linear_fwd: y is (7, 6) f32");
}

/* 7 x 300 by 5 x 300 in bytes, with a scale for each row of both. Gradients are e5m2 and weights e4m3: still
 * no mixed product. */
static void costs_are_of_the_narrow_type_and_count_scales(void **state)
{
    OpTest *t = *state;
    Case c = case_make(t, &shapes[1], &scaled_forms[1], DTYPE_F32, false);
    LinearFwd f = { .x = c.x, .w = c.w, .y = c.y };
    OpCost cost = op_desc(OP_LINEAR_FWD)->cost(&f);
    CHECK_INT(cost.dtype, DTYPE_E4M3);
    CHECK_INT(cost.work, WORK_GEMM);
    CHECK_NEAR(cost.flops, 2.0 * 7 * 300 * 5, 0);
    LinearBwdInput b = { .dy = c.dy, .w = c.w_turned, .dx = c.dx };
    CHECK_INT(c.dy.data.dtype, DTYPE_E5M2);
    CHECK_INT(op_desc(OP_LINEAR_BWD_INPUT)->cost(&b).work, WORK_GEMM);
    CHECK_NEAR(cost.bytes, 7 * 300 + 7 * 4 + 5 * 300 + 5 * 4 + 7 * 5 * 4, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(products_match_double_for_every_kind_of_scale, 2),
        OP_TEST(integers_come_out_exactly, 2),
        OP_TEST(parts_of_many_tokens_add_up, 2),
        TEST(parts_fill_a_gpu_and_none_is_empty),
        TEST(any_number_of_threads_gives_the_same_bits),
        OP_TEST(operands_that_lie_the_wrong_way_are_an_error, 1),
        OP_TEST(costs_are_of_the_narrow_type_and_count_scales, 1),
    };
    return TEST_RUN(tests);
}
