/* The transposed operand of quantize: as the rows of a matrix that was turned first, group by group. */
#include "kernels/quant/quant.h"

#include "scaled_case.h"

static const OperandKind kinds[] = { OPERAND_TENSOR, OPERAND_ROW, OPERAND_1X128, OPERAND_128X128 };
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Rows [first, first + n) of x, gathered, as columns. */
static Tensor turned(OpTest *t, const Tensor *x, const int32_t *row_token, int64_t first, int64_t n)
{
    int64_t D = tensor_cols(x);
    Tensor out = optest_poisoned(t, x->dtype, DIMS(D, n));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = row_token == NULL ? first + i : row_token[first + i];
        for (int64_t d = 0; d < D; d++) optest_set(&out, d * n + i, optest_get(x, row * D + d));
    }
    return out;
}

static int byte_at(const Tensor *t, int64_t i) { return ((const uint8_t *)t->data)[i]; }

static void columns_are_the_rows_of_the_turned_matrix(void **state)
{
    OpTest *t = *state;
    static const int64_t shapes[][2] = { { 1, 1 }, { 131, 7 }, { 130, 259 }, { 384, 16 } };
    for (int i = 0; i < 4 * KINDS * 4; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        const int64_t *s = shapes[i / 16];
        OperandKind kind = kinds[i / 4 % KINDS];
        Dtype type = i % 2 == 0 ? DTYPE_E4M3 : DTYPE_E5M2;
        Tensor x = optest_normal(t, i / 2 % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, DIMS(s[0], s[1]));
        Operand have = scaled_columns(t, kind, type, (Quantize){ .x.data = x, .pow2 = i % 3 == 0 });
        Tensor turn = turned(t, &x, NULL, 0, s[0]);
        Operand want = scaled_rows(t, kind, type, i % 3 == 0, turn, (Rows){ 0 });
        CHECK_SAME(&have.scale, &want.scale);
        CHECK(memcmp(have.data.data, want.data.data, tensor_bytes(&want.data)) == 0);
        arena_release(&t->arena, mark);
    }
}

/* Both operands of one call, and matrices side by side. */
static void each_matrix_has_scales_of_its_own(void **state)
{
    OpTest *t = *state;
    enum { M = 3, N = 130, D = 70 };
    for (int k = 0; k < KINDS; k++) {
        ArenaMark mark = arena_mark(&t->arena);
        Tensor x = optest_normal(t, DTYPE_F32, DIMS(M, N, D));
        Quantize a = { .x.data = x };
        for (int64_t i = 0; i < N * D; i++) optest_set(&x, i, 64 * optest_get(&x, i));
        CHECK_OK(operand_new(&t->arena, kinds[k], DTYPE_E4M3, 3, DIMS(M, N, D), &a.quant));
        CHECK_OK(operand_new(&t->arena, kinds[k], DTYPE_E5M2, 3, DIMS(M, D, N), &a.transposed));
        a.transposed.transposed = true;
        scaled_poison(&a.quant), scaled_poison(&a.transposed);
        CHECK_OK(quantize(&t->ex, a));
        for (int64_t m = 0; m < M; m++) {
            Tensor one = tensor_rows(&x, m, 1), flat = tensor_as2(&one, N, D);
            Operand rows = scaled_rows(t, kinds[k], DTYPE_E4M3, false, flat, (Rows){ 0 });
            Operand columns = scaled_columns(t, kinds[k], DTYPE_E5M2, (Quantize){ .x.data = flat });
            size_t each = (size_t)tensor_bytes(&rows.scale);
            CHECK(memcmp((char *)a.quant.scale.data + m * (int64_t)each, rows.scale.data, each) ==
                  0);
            CHECK(memcmp(tensor_at(&a.quant.data, m * N * D), rows.data.data, N * D) == 0);
            each = tensor_bytes(&columns.scale);
            CHECK(memcmp((char *)a.transposed.scale.data + m * (int64_t)each, columns.scale.data,
                         each) == 0);
            CHECK(memcmp(tensor_at(&a.transposed.data, m * N * D), columns.data.data, N * D) == 0);
        }
        arena_release(&t->arena, mark);
    }
}

enum { E = 6, R = 400, D = 70 };

/* Routed rows: x of their tokens, or rows of a pool; some of R are in use. */
typedef struct Routed {
    Tensor x, offsets, row_token;
    Rows rows;
    int32_t live, first;
} Routed;

static void routed_make(OpTest *t, Routed *r, bool gathered)
{
    static const int32_t ends[E + 1] = { 0, 0, 1, 129, 257, 320, 400 };
    *r = (Routed){ .rows = { .bound = R }, .live = 300, .first = 9 };
    r->offsets = optest_poisoned(t, DTYPE_I32, DIMS(1, E + 1));
    memcpy(r->offsets.data, ends, sizeof ends);
    r->x = optest_normal(t, DTYPE_BF16, DIMS(gathered ? 90 : R + 9, D));
    r->rows.device = &r->live;
    if (!gathered) {
        r->rows.first = &r->first;
        return;
    }
    r->row_token = optest_integers(t, DTYPE_I32, DIMS(R), 0, 90);
    for (int64_t i = r->live; i < R; i++) optest_set(&r->row_token, i, -1);
}

/* Group e's columns, which begin at `start`; the columns up to the next group are 0. */
static void check_group(OpTest *t, const Routed *r, const Operand *have, int64_t e, int64_t start)
{
    const int32_t *offsets = r->offsets.data, *token = r->row_token.data;
    int64_t first = offsets[e], end = offsets[e + 1] < r->live ? offsets[e + 1] : r->live;
    int64_t n = end - first, columns = tensor_cols(&have->data),
            base = token == NULL ? r->first : 0;
    Tensor turn = turned(t, &r->x, token, base + first, n);
    Operand want = scaled_rows(t, have->kind, have->data.dtype, false, turn, (Rows){ 0 });
    const OperandGrid g = operand_grid_of(&want);
    for (int64_t i = 0; i < D * n; i++)
        CHECK_INT(byte_at(&have->data, i / n * columns + start + i % n), byte_at(&want.data, i));
    for (int64_t d = 0; d < D; d++)
        for (int64_t k = n; k < operand_whole_blocks(n); k++)
            CHECK_INT(byte_at(&have->data, d * columns + start + k), 0);
    for (int64_t i = 0; i < D * g.cols; i++) {
        int64_t column = have->kind == OPERAND_ROW ? e : start / OPERAND_BLOCK + i % g.cols;
        int64_t at = i / g.cols * tensor_cols(&have->scale) + column;
        CHECK_NEAR(optest_get(&have->scale, at), optest_get(&want.scale, i), 0);
    }
}

static void groups_are_quantised_one_by_one(void **state)
{
    OpTest *t = *state;
    static const OperandKind grouped[] = { OPERAND_ROW, OPERAND_1X128 };
    for (int i = 0; i < 4; i++) {
        Routed r;
        routed_make(t, &r, i / 2 == 0);
        Operand q = scaled_columns(
            t, grouped[i % 2], i % 2 == 0 ? DTYPE_E5M2 : DTYPE_E4M3,
            (Quantize){
                .x.data = r.x, .offsets = r.offsets, .row_token = r.row_token, .rows = r.rows });
        int64_t start = 0;
        CHECK_INT(q.data.dim[1], operand_group_columns(R, E));
        for (int64_t e = 0; e < E; e++) {
            const int32_t *offsets = r.offsets.data;
            int64_t end = offsets[e + 1] < r.live ? offsets[e + 1] : r.live;
            CHECK_INT(operand_group_start(offsets, e, r.live), start);
            if (end <= offsets[e]) continue;
            check_group(t, &r, &q, e, start);
            start += operand_whole_blocks(end - offsets[e]);
        }
        CHECK(start <= q.data.dim[1]);
    }
}

/* One scale for all groups is that of the rows in use, whatever the others hold. */
static void one_scale_of_groups_is_that_of_the_rows_in_use(void **state)
{
    OpTest *t = *state;
    Routed r;
    routed_make(t, &r, false);
    for (int64_t i = (r.first + r.live) * D; i < tensor_elems(&r.x); i++)
        optest_set(&r.x, i, i % 2 == 0 ? (double)INFINITY : 1e30);
    for (int64_t i = 0; i < r.first * D; i++) optest_set(&r.x, i, (double)INFINITY);
    double most = 0;
    for (int64_t i = r.first * D; i < (r.first + r.live) * D; i++)
        most = fmax(most, fabs(optest_get(&r.x, i)));
    Quantize a = { .x.data = r.x, .offsets = r.offsets, .rows = r.rows };
    Operand q = scaled_columns(t, OPERAND_TENSOR, DTYPE_E4M3, a);
    CHECK_INT(tensor_elems(&q.scale), 1);
    CHECK_NEAR(optest_get(&q.scale, 0), (float)most / 448, 1e-7 * most);
    Operand rows = scaled_rows(t, OPERAND_TENSOR, DTYPE_E4M3, false, r.x, r.rows);
    CHECK_SAME(&rows.scale, &q.scale);
}

/* 8-bit rows of x and the numbers they stand for. */
static Operand rows_of(OpTest *t, Dtype type, bool pow2, const Tensor *x, Tensor *numbers)
{
    Operand q = scaled_rows(t, OPERAND_1X128, type, pow2, *x, (Rows){ 0 });
    *numbers = optest_poisoned(t, DTYPE_F32, x->dim);
    CHECK_OK(dequantize(&t->ex, (Dequantize){ .quant = q, .y = *numbers }));
    return q;
}

/* Columns are those of the numbers that rows stand for, with both kinds of scales. Some rows are far
 * larger than others, so that some numbers of a column become 0 and others subnormal. */
static void check_columns_of_rows(OpTest *t, Quantize a, Operand rows, Tensor numbers, int i)
{
    Dtype to = i / 2 % 2 == 0 ? DTYPE_E4M3 : DTYPE_E5M2;
    OperandKind kind = kinds[i / 4 % KINDS];
    a.pow2 = i % 2 == 0;
    if (kind == OPERAND_128X128 && a.offsets.data != NULL) return;
    a.x = operand_plain(numbers);
    Operand want = scaled_columns(t, kind, to, a);
    a.x = rows;
    Operand have = scaled_columns(t, kind, to, a);
    CHECK_SAME(&have.scale, &want.scale);
    CHECK(memcmp(have.data.data, want.data.data, tensor_bytes(&want.data)) == 0);
}

static void rows_grow(const Tensor *x)
{
    int64_t d = tensor_cols(x);
    for (int64_t i = 0; i < tensor_elems(x); i++)
        optest_set(x, i, ldexp(optest_get(x, i), (int)(i / d % 5 * 4 - i / d % 7)));
}

static void columns_may_come_from_8_bit_rows(void **state)
{
    OpTest *t = *state;
    static const int64_t shapes[][2] = { { 1, 1 }, { 131, 67 }, { 144, 136 }, { 272, 16 } };
    for (int i = 0; i < 4 * 4 * KINDS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        const int64_t *s = shapes[i / 4 / KINDS];
        Tensor numbers, x = optest_normal(t, DTYPE_BF16, DIMS(s[0], s[1]));
        rows_grow(&x);
        Operand rows = rows_of(t, i % 3 == 0 ? DTYPE_E5M2 : DTYPE_E4M3, i % 2 == 0, &x, &numbers);
        check_columns_of_rows(t, (Quantize){ 0 }, rows, numbers, i);
        arena_release(&t->arena, mark);
    }
}

static void gathered_columns_may_come_from_8_bit_rows(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 4 * 4 * KINDS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Routed r;
        routed_make(t, &r, i / 4 / KINDS % 2 == 0);
        Tensor numbers;
        if (i / 4 / KINDS < 2) r.x = optest_normal(t, DTYPE_BF16, DIMS(r.x.dim[0], 144));
        rows_grow(&r.x);
        Operand rows = rows_of(t, i % 3 == 0 ? DTYPE_E5M2 : DTYPE_E4M3, i % 2 == 0, &r.x, &numbers);
        check_columns_of_rows(
            t, (Quantize){ .offsets = r.offsets, .row_token = r.row_token, .rows = r.rows }, rows,
            numbers, i);
        arena_release(&t->arena, mark);
    }
}

/* A number that is a power of two times a code is the same number in columns. */
static void powers_of_two_change_no_number_on_the_way(void **state)
{
    OpTest *t = *state;
    Tensor numbers, x = optest_normal(t, DTYPE_BF16, DIMS(144, 272));
    Operand rows = rows_of(t, DTYPE_E4M3, true, &x, &numbers);
    Operand columns =
        scaled_columns(t, OPERAND_1X128, DTYPE_E4M3, (Quantize){ .x = rows, .pow2 = true });
    double worst = 0;
    for (int64_t i = 0; i < 144 * 272; i++) {
        int64_t row = i / 272, column = i % 272;
        double v = scaled_value(&columns, column, row, row / 128), want = optest_get(&numbers, i);
        double least = optest_get(&columns.scale, column * 2 + row / 128) / 64; /* of normals */
        if (fabs(want) >= least) worst = fmax(worst, fabs(v - want));
    }
    CHECK_NEAR(worst, 0, 0);
}

static void a_nan_of_8_bit_rows_stays(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    Tensor x = optest_normal(t, DTYPE_BF16, DIMS(144, 144)), numbers;
    optest_set(&x, 130 * 144 + 5, NAN);
    Operand rows = rows_of(t, DTYPE_E4M3, true, &x, &numbers);
    for (int i = 0; i < 4 * KINDS; i++) check_columns_of_rows(t, (Quantize){ 0 }, rows, numbers, i);
}

/* Every number of rows in every number of groups fits into the columns that are always enough. */
static void the_columns_of_groups_always_suffice(void **state)
{
    (void)state;
    for (int64_t rows = 0; rows < 700; rows += 7) {
        for (int64_t groups = 1; groups < 9; groups++) {
            int64_t filled = rows < groups ? rows : groups,
                    used = 0; /* one row each, then the rest */
            for (int64_t e = 0; e < filled; e++) {
                int64_t n = e + 1 < filled ? 1 : rows - filled + 1;
                used += operand_whole_blocks(n);
            }
            CHECK(used <= operand_group_columns(rows, groups));
        }
    }
}

static void tensors_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Routed r;
    routed_make(t, &r, true);
    Quantize a = { .x.data = r.x, .row_token = r.row_token, .rows = r.rows, .offsets = r.offsets };
    CHECK_OK(operand_new_groups(&t->arena, OPERAND_ROW, DTYPE_E4M3, D, R, E, &a.transposed));
    Quantize b = a;
    b.transposed.transposed = false;
    CHECK_FAILS(quantize(&t->ex, b), ERR_ARG, "transposed is not marked as transposed");
    b = a, b.transposed.kind = OPERAND_128X128;
    CHECK_FAILS(quantize(&t->ex, b), ERR_UNSUPPORTED, "groups have no scales of 128 x 128");
    b = a, b.rows.bound = R + 1;
    CHECK_FAILS(quantize(&t->ex, b), ERR_SHAPE, "401 rows, but row_token has only 400");
    b.rows.first = &r.first, b.row_token = (Tensor){ 0 }, b.rows.bound = R;
    b.x.data = tensor_rows(&r.x, 0, 80);
    CHECK_OK(op_desc(OP_QUANTIZE)->check(&b)); /* a pool may have fewer rows than can come */
    b = a, b.transposed.scale.dim[1] = E + 1;
    CHECK_FAILS(quantize(&t->ex, b), ERR_SHAPE, "quantize: transposed.scale is");
    b = a, b.x.data.rank = 3, b.x.data.dim[0] = 9, b.x.data.dim[1] = 10, b.x.data.dim[2] = D;
    CHECK_FAILS(quantize(&t->ex, b), ERR_SHAPE, "x has three dimensions: its rows are not routed");
    b = a, b.x = scaled_rows(t, OPERAND_ROW, DTYPE_E4M3, false, r.x, (Rows){ 0 });
    CHECK_FAILS(quantize(&t->ex, b), ERR_UNSUPPORTED, "quantize: x is of kind 2 (a scale a row)");
    b = a, b.x = scaled_rows(t, OPERAND_1X128, DTYPE_E4M3, false, r.x, (Rows){ 0 });
    CHECK_OK(op_desc(OP_QUANTIZE)->check(&b));
    b.quant = b.x;
    CHECK_FAILS(quantize(&t->ex, b), ERR_ARG, "8-bit x must be rows, and only its columns can be");
    b = a, b.x.kind = OPERAND_1X128, b.x.data = b.transposed.data;
    CHECK_FAILS(quantize(&t->ex, b), ERR_SHAPE, "quantize: x.scale is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(columns_are_the_rows_of_the_turned_matrix, 2),
        OP_TEST(each_matrix_has_scales_of_its_own, 2),
        OP_TEST(groups_are_quantised_one_by_one, 2),
        OP_TEST(one_scale_of_groups_is_that_of_the_rows_in_use, 2),
        OP_TEST(columns_may_come_from_8_bit_rows, 2),
        OP_TEST(gathered_columns_may_come_from_8_bit_rows, 2),
        OP_TEST(powers_of_two_change_no_number_on_the_way, 2),
        OP_TEST(a_nan_of_8_bit_rows_stays, 2),
        TEST(the_columns_of_groups_always_suffice),
        OP_TEST(tensors_that_do_not_fit_are_an_error, 1),
    };
    return TEST_RUN(tests);
}
