/* The experts' ops on rows that lie in a pool: as on rows of their own, wherever they begin. */
#include "moe_case.h"

/* Rows [first, first + n) of a pool that nothing else has written. */
static void check_pool(const char *name, const Tensor *pool, int64_t first, const Tensor *rows,
                       int64_t n)
{
    Tensor head = tensor_rows(pool, 0, first), mine = tensor_rows(pool, first, n);
    Tensor want = tensor_rows(rows, 0, n);
    check_untouched(name, &head, 0);
    check_untouched(name, pool, first + n);
    CHECK_SAME(&mine, &want);
}

/* The same rows somewhere in a pool, which ends with the last of them: the same bits. */
static void check_pooled_rows(OpTest *t, const KernelCase *c, int32_t first)
{
    Moe m = deal_make(t, c->act, &deals[c->deal], false), in_pool = m;
    int64_t n = moe_slots(&m.s), F = m.s.F;
    in_pool.rows.first = &first;
    in_pool.pre = optest_poisoned(t, c->act, DIMS(first + n, 2 * F));
    in_pool.dx_rows = optest_poisoned(t, c->act, m.dx_rows.dim);
    in_pool.act_rows = optest_poisoned(t, c->act, m.act_rows.dim);
    in_pool.wact = optest_poisoned(t, c->act, m.wact.dim);
    in_pool.dweight = optest_poisoned(t, DTYPE_F32, m.dweight.dim);
    in_pool.dw1 = optest_copy(t, &m.dw1);
    in_pool.live = m.live = (int32_t)n;
    m.rows.device = &m.live, in_pool.rows.device = &in_pool.live;
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)));
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&in_pool)));
    check_pool("pre", &in_pool.pre, first, &m.pre, n);
    CHECK_SAME(&in_pool.act_rows, &m.act_rows);
    m.dpre = m.pre, in_pool.dpre = in_pool.pre;
    CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&m)));
    CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&in_pool)));
    check_pool("dpre", &in_pool.dpre, first, &m.dpre, n);
    CHECK_SAME(&in_pool.wact, &m.wact);
    CHECK_SAME(&in_pool.dweight, &m.dweight);
    CHECK_OK(moe_up_bwd_input(&t->ex, moe_up_bwd_input_of(&m)));
    CHECK_OK(moe_up_bwd_input(&t->ex, moe_up_bwd_input_of(&in_pool)));
    CHECK_SAME(&in_pool.dx_rows, &m.dx_rows);
    CHECK_OK(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(&m)));
    CHECK_OK(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(&in_pool)));
    CHECK_SAME(&in_pool.dw1, &m.dw1);
}

static void rows_of_a_pool_have_the_bits_of_rows_of_their_own(void **state)
{
    (void)state;
    static const int32_t first[] = { 0, 1, 131 };
    for (int i = 0; i < KERNEL_CASES * 3; i++) {
        OpTest t;
        moe_open(&t, 2);
        check_pooled_rows(&t, &kernel_cases[i / 3], first[i % 3]);
        optest_close(&t);
    }
}

/* What needs no indices: rows of x and dy in order, beside a pool. */
static void a_pool_leaves_rows_without_an_index_where_they_are(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < KERNEL_CASES; i++) {
        const KernelCase *c = &kernel_cases[i];
        Moe m = deal_make(t, c->act, &deals[c->deal], false), in_pool;
        int64_t n = moe_slots(&m.s);
        int32_t first = 70;
        Tensor none = { 0 };
        m.rows.bound = n;
        m.x = optest_normal(t, c->act, DIMS(n, m.s.D));
        m.dy = optest_normal(t, c->act, DIMS(n, m.s.D));
        m.row_token = none;
        in_pool = m;
        in_pool.rows.first = &first;
        in_pool.pre = optest_poisoned(t, c->act, DIMS(first + n + 3, 2 * m.s.F));
        in_pool.dw1 = optest_copy(t, &m.dw1);
        CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)));
        CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&in_pool)));
        check_pool("pre", &in_pool.pre, first, &m.pre, n);
        in_pool.dpre = in_pool.pre, m.dpre = m.pre;
        CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&m)));
        CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&in_pool)));
        check_pool("dpre", &in_pool.dpre, first, &m.dpre, n);
        CHECK_OK(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(&m)));
        CHECK_OK(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(&in_pool)));
        CHECK_SAME(&in_pool.dw1, &m.dw1);
    }
}

/* What lies beside a layer's rows may be anything; in them a bad number is found. */
static void the_guard_looks_at_the_rows_that_a_layer_has_of_a_pool(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_F32, &deals[1], false);
    int32_t first = 9;
    m.live = (int32_t)moe_slots(&m.s);
    m.rows.device = &m.live, m.rows.first = &first;
    m.pre = optest_poisoned(t, DTYPE_F32, DIMS(first + m.live + 5, 2 * m.s.F));
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)));
    optest_set(&m.x, 0, NAN);
    CHECK_FAILS(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)), ERR_NUMERIC, "wrote nan into pre[");
}

typedef struct Taken {
    int32_t before, pool; /* rows that are taken, of how many */
    int32_t rows;         /* that this call gets */
    bool overflow;
} Taken;

/* Four layers in turn take their rows from the top; what does not fit is cut. */
static void rows_are_taken_from_the_top_of_a_pool_as_long_as_it_has_some(void **state)
{
    OpTest *t = *state;
    enum { SLOTS = 452 };
    static const Taken cases[] = { { 0, 2 * SLOTS, SLOTS, false },
                                   { SLOTS, 2 * SLOTS, SLOTS, false }, /* then it is full */
                                   { SLOTS, 2 * SLOTS - 1, SLOTS - 1, true },
                                   { 2 * SLOTS, 2 * SLOTS, 0, true },
                                   { 7, 7 + 100, 100, true } };
    mirror_gives();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Taken *k = &cases[i];
        Moe m = moe_make(t, DTYPE_F32, deals[0].s, deals[0].group, false);
        Tensor top = optest_poisoned(t, DTYPE_I32, DIMS(1)), first = optest_copy(t, &top);
        Tensor overflow = optest_poisoned(t, DTYPE_F32, DIMS(1));
        optest_set(&top, 0, k->before);
        optest_set(&overflow, 0, 0);
        CHECK_INT(moe_slots(&m.s), SLOTS);
        CHECK_OK(moe_sort(&t->ex, (MoeSort){ .index = m.index,
                                             .offsets = m.offsets,
                                             .row_token = m.row_token,
                                             .row_slot = m.row_slot,
                                             .slot_row = m.slot_row,
                                             .overflow = overflow,
                                             .top = top,
                                             .first = first,
                                             .pool = k->pool }));
        CHECK_INT(optest_get(&first, 0), k->before);
        CHECK_INT(optest_get(&top, 0), k->before + k->rows);
        CHECK_INT(optest_get(&overflow, 0), k->overflow);
        CHECK_INT(optest_get(&m.offsets, m.s.E), k->rows);
        check_untouched("row_token", &m.row_token, k->rows);
        for (int64_t s = 0; s < SLOTS; s++) CHECK(optest_get(&m.slot_row, s) < k->rows);
    }
}

static void a_pool_of_too_few_rows_is_an_error_that_names_them(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_F32, &deals[4], false);
    int32_t first = 3;
    m.rows.bound = moe_slots(&m.s);
    m.rows.first = &first;
    m.pre = optest_poisoned(t, DTYPE_F32, DIMS(2 + moe_slots(&m.s), 2 * m.s.F));
    CHECK_FAILS(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)), ERR_ARG,
                "moe_up_fwd: rows 3 to 18 of a pool of 17");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_of_a_pool_have_the_bits_of_rows_of_their_own),
        MOE_TEST(a_pool_leaves_rows_without_an_index_where_they_are, 2),
        OP_TEST(the_guard_looks_at_the_rows_that_a_layer_has_of_a_pool, 1),
        MOE_TEST(rows_are_taken_from_the_top_of_a_pool_as_long_as_it_has_some, 1),
        MOE_TEST(a_pool_of_too_few_rows_is_an_error_that_names_them, 2),
    };
    return TEST_RUN(tests);
}
