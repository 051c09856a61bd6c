/* Experts with biases and the clamped SwiGLU, as gpt-oss has them: all ops against their definition
 * in double (moe_case.h), and the gradient of the biases by itself. */
#include "moe_case.h"

/* Biases, a limit that many gates and ups reach, both; biases with GELU. */
typedef struct Form {
    bool given;
    float limit;
} Form;

static const Form forms[] = { { true, 0 }, { false, 0.75f }, { true, 1.25f }, { true, INFINITY } };

enum { FORMS = sizeof forms / sizeof *forms, BOTH = 2 };

static Moe form_make(OpTest *t, Dtype act, int deal, int form)
{
    Moe m = deal_make(t, act, &deals[deal], false);
    moe_form(t, &m, forms[form].given, forms[form].limit);
    return m;
}

/* A sum over the rows of an expert may cancel: its elements are held to the norm of all of them. */
static Tensor one_row(const Tensor *t) { return tensor_as2(t, 1, tensor_elems(t)); }

static void check_rows(OpTest *t, const Moe *m, const Tensor *have, const double *slots,
                       double limit)
{
    Tensor rows = tensor_rows(have, 0, moe_slots(&m->s));
    CHECK_TENSOR_WITHIN(&rows, by_row(t, m, slots, tensor_cols(have)), limit);
}

static void check_all(OpTest *t, const Moe *m, const MoeReference *want, double limit)
{
    check_rows(t, m, &m->pre, want->pre, limit);
    check_rows(t, m, &m->act_rows, want->act, limit);
    check_rows(t, m, &m->out, want->out, limit);
    CHECK_TENSOR_WITHIN(&m->y, want->y, limit);
    check_rows(t, m, &m->dpre, want->dpre, limit);
    check_rows(t, m, &m->wact, want->wact, limit);
    check_rows(t, m, &m->dx_rows, want->dx_slots, limit);
    Tensor dweight = one_row(&m->dweight);
    CHECK_TENSOR_WITHIN(&dweight, want->dweight, limit);
    CHECK_TENSOR_WITHIN(&m->dw1, want->dw1, limit);
    CHECK_TENSOR_WITHIN(&m->dw2, want->dw2, limit);
    if (m->b1.data == NULL) return;
    CHECK_TENSOR_WITHIN(&m->db1, want->db1, limit);
    CHECK_TENSOR_WITHIN(&m->db2, want->db2, limit);
}

static void every_op_gives_what_its_definition_says(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    for (int i = 0; i < FORMS * 2 * DEALS; i += RUNS(1, 3)) {
        ArenaMark mark = arena_mark(&t->arena);
        Dtype type = types[i % 2];
        Moe m = form_make(t, type, i / 2 % DEALS, i / 2 / DEALS);
        MoeReference want = moe_reference(t, &m);
        moe_forward(t, &m);
        moe_backward(t, &m);
        check_all(t, &m, &want, type == DTYPE_F32 ? 1e-5 : 5e-3);
        check_untouched("pre", &m.pre, moe_slots(&m.s));
        check_untouched("out", &m.out, moe_slots(&m.s));
        check_untouched("dpre", &m.dpre, moe_slots(&m.s));
        arena_release(&t->arena, mark);
    }
}

/* Gates of 0 and ups and biases that are integers: act is 0 and dup 0, so out is b2, dweight <dy, b2>,
 * and both bias gradients are sums of integers. */
static void integers_come_out_exactly(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    const int dealt[] = { 0, 1, 2, WIDE, WIDE + 1, WIDE + 2 };
    for (int i = 0; i < 12; i += RUNS(1, 3)) {
        ArenaMark mark = arena_mark(&t->arena);
        Moe m = deal_make(t, types[i % 2], &deals[dealt[i / 2]], true);
        int64_t D = m.s.D, F = m.s.F, slots = moe_slots(&m.s);
        m.limit = 7;
        memset(m.w1.data, 0, tensor_bytes(&m.w1));
        m.b1 = optest_signs(t, m.act, DIMS(m.s.E, 2 * F));
        m.b2 = optest_signs(t, m.act, DIMS(m.s.E, D));
        m.db1 = optest_signs(t, DTYPE_F32, DIMS(m.s.E, 2 * F));
        m.db2 = optest_signs(t, DTYPE_F32, DIMS(m.s.E, D));
        for (int64_t k = 0; k < m.s.E * 2 * F; k++) {
            if (k % (2 * F) < F) optest_set(&m.b1, k, 0);
        }
        MoeReference want = moe_reference(t, &m);
        moe_forward(t, &m);
        moe_backward(t, &m);
        double *pre = by_row(t, &m, want.pre, 2 * F), *out = by_row(t, &m, want.out, D);
        for (int64_t k = 0; k < slots * 2 * F; k++) CHECK_NEAR(optest_get(&m.pre, k), pre[k], 0);
        for (int64_t k = 0; k < slots * D; k++) CHECK_NEAR(optest_get(&m.out, k), out[k], 0);
        for (int64_t k = 0; k < slots; k++)
            CHECK_NEAR(optest_get(&m.dweight, k), want.dweight[k], 0);
        for (int64_t k = 0; k < m.s.E * D; k++) CHECK_NEAR(optest_get(&m.db2, k), want.db2[k], 0);
        arena_release(&t->arena, mark);
    }
}

/* Only what an exchange would deliver: rows, and a weight for each. */
static void rows_that_are_not_gathered_are_read_where_they_stand(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < KERNEL_CASES; i++) {
        Moe m = form_make(t, kernel_cases[i].act, kernel_cases[i].deal, BOTH), g = m;
        int64_t D = m.s.D, R = m.rows.bound, n = moe_slots(&m.s);
        g.dy = optest_poisoned(t, m.act, DIMS(R, D));
        g.weight = optest_poisoned(t, DTYPE_F32, DIMS(R));
        g.dweight = optest_poisoned(t, DTYPE_F32, DIMS(R));
        g.db2 = optest_copy(t, &m.db2);
        moe_forward(t, &m);
        CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&m)));
        CHECK_OK(moe_bias_bwd(&t->ex, moe_down_bias_of(&m)));
        for (int64_t r = 0; r < n; r++) {
            int64_t token = (int64_t)optest_get(&m.row_token, r);
            for (int64_t d = 0; d < D; d++)
                optest_set(&g.dy, r * D + d, optest_get(&m.dy, token * D + d));
            optest_set(&g.weight, r, optest_get(&m.weight, (int64_t)optest_get(&m.row_slot, r)));
        }
        g.row_token = g.row_slot = (Tensor){ 0 };
        CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&g)));
        CHECK_OK(moe_bias_bwd(&t->ex, moe_down_bias_of(&g)));
        CHECK_SAME(&g.db2, &m.db2);
        for (int64_t r = 0; r < n; r++)
            CHECK_NEAR(optest_get(&g.dweight, r),
                       optest_get(&m.dweight, (int64_t)optest_get(&m.row_slot, r)), 0);
    }
}

/* Rows past the live ones are NaN or name places that are not there. */
static void check_live(OpTest *t, const KernelCase *c, bool pooled)
{
    Moe m = form_make(t, c->act, c->deal, BOTH);
    int64_t live = 1 + 63 + 64 + 65 + 50, reached = 6, F = m.s.F, D = m.s.D; /* in a group */
    int32_t first = pooled ? 131 : 0;
    m.live = (int32_t)live, m.rows.device = &m.live;
    if (pooled) m.rows.first = &first;
    m.pre = m.dpre = optest_poisoned(t, c->act, DIMS(first + m.rows.bound, 2 * F));
    MoeReference want = { .db1 = optest_read(t, &m.db1), .db2 = optest_read(t, &m.db2) };
    moe_forward(t, &m);
    CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&m)));
    for (int64_t r = 0; r < live; r++) {
        int64_t slot = (int64_t)optest_get(&m.row_slot, r), n = slot / m.s.K;
        int64_t e = (int64_t)optest_get(&m.index, slot);
        for (int64_t f = 0; f < 2 * F; f++)
            want.db1[e * 2 * F + f] += optest_get(&m.dpre, (first + r) * 2 * F + f);
        for (int64_t d = 0; d < D; d++)
            want.db2[e * D + d] += optest_get(&m.weight, slot) * optest_get(&m.dy, n * D + d);
    }
    for (int64_t r = live; r < m.rows.bound; r++) optest_set(&m.row_token, r, -1);
    for (int64_t r = live; r < m.rows.bound; r++) optest_set(&m.row_slot, r, -1);
    Tensor before = optest_copy(t, &m.db2);
    CHECK_OK(moe_bias_bwd(&t->ex, moe_up_bias_of(&m)));
    CHECK_OK(moe_bias_bwd(&t->ex, moe_down_bias_of(&m)));
    CHECK_TENSOR_WITHIN(&m.db1, want.db1, 1e-5);
    CHECK_TENSOR_WITHIN(&m.db2, want.db2, 1e-5);
    for (int64_t i = reached * D; i < m.s.E * D; i++)
        CHECK_NEAR(optest_get(&m.db2, i), optest_get(&before, i), 0);
}

static void rows_past_the_live_ones_count_in_no_bias(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * KERNEL_CASES; i++) {
        OpTest t;
        moe_open(&t, 2);
        check_live(&t, &kernel_cases[i / 2], i % 2 == 1);
        optest_close(&t);
    }
}

/* Whatever stands there, NaN too, and zero where an expert has no rows. */
static void gradients_can_be_written_over_what_is_there(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < KERNEL_CASES; i++) {
        Moe m = form_make(t, kernel_cases[i].act, kernel_cases[i].deal, BOTH);
        m.dpre = optest_normal(t, m.act, m.dpre.dim);
        memset(m.db1.data, 0, tensor_bytes(&m.db1));
        MoeBiasBwd a = moe_up_bias_of(&m);
        a.rows.bound = moe_slots(&m.s);
        CHECK_OK(moe_bias_bwd(&t->ex, a));
        a.db = optest_poisoned(t, DTYPE_F32, m.db1.dim);
        a.overwrite = true;
        CHECK_OK(moe_bias_bwd(&t->ex, a));
        CHECK_SAME(&a.db, &m.db1);
    }
}

static Moe with_both(OpTest *t, int i)
{
    return form_make(t, kernel_cases[i].act, kernel_cases[i].deal, BOTH);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    moe_check_threads(with_both, KERNEL_CASES);
}

/* A NaN of one expert's biases is in its own rows alone. */
static void a_group_reads_no_biases_but_its_own(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < KERNEL_CASES; i++) {
        Moe m = form_make(t, kernel_cases[i].act, kernel_cases[i].deal, BOTH);
        const int32_t *offsets = m.offsets.data;
        const int64_t sick = 4, D = m.s.D, F = m.s.F, slots = moe_slots(&m.s);
        for (int64_t k = sick * 2 * F; k < (sick + 1) * 2 * F; k++) optest_set(&m.b1, k, NAN);
        CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)));
        for (int64_t k = 0; k < slots * 2 * F; k++) {
            int64_t r = k / (2 * F);
            bool own = r >= offsets[sick] && r < offsets[sick + 1];
            CHECK_INT(isnan(optest_get(&m.pre, k)), own);
            CHECK_INT(isnan(optest_get(&m.act_rows, r * F + k % F)), own);
        }
        m.act_rows = optest_normal(t, m.act, m.act_rows.dim);
        for (int64_t k = sick * D; k < (sick + 1) * D; k++) optest_set(&m.b2, k, NAN);
        CHECK_OK(moe_down_fwd(&t->ex, moe_down_fwd_of(&m)));
        for (int64_t k = 0; k < slots * D; k++)
            CHECK_INT(isnan(optest_get(&m.out, k)),
                      k / D >= offsets[sick] && k / D < offsets[sick + 1]);
    }
}

static void tensors_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Moe m = form_make(t, DTYPE_F32, 0, BOTH); /* E 8, D 33, F 17 */
    MoeUpFwd up = moe_up_fwd_of(&m);
    up.bias = m.b2;
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_SHAPE, "moe_up_fwd: bias is (8, 33) f32");
    MoeDownFwd down = moe_down_fwd_of(&m);
    down.bias = m.b1;
    CHECK_FAILS(moe_down_fwd(&t->ex, down), ERR_SHAPE, "moe_down_fwd: bias is (8, 34) f32");
    MoeDownBwdInput back = moe_down_bwd_input_of(&m);
    back.bias.dtype = DTYPE_BF16;
    CHECK_FAILS(moe_down_bwd_input(&t->ex, back), ERR_SHAPE, "moe_down_bwd_input: bias is (8, 33)");
    MoeBiasBwd a = moe_down_bias_of(&m);
    a.db = m.db1;
    CHECK_FAILS(moe_bias_bwd(&t->ex, a), ERR_SHAPE, "moe_bias_bwd: db is (8, 34) f32");
    a = moe_down_bias_of(&m), a.row_slot = (Tensor){ 0 };
    CHECK_FAILS(moe_bias_bwd(&t->ex, a), ERR_SHAPE, "457 rows, but weight has only 452");
    a = moe_down_bias_of(&m), a.row_token = (Tensor){ 0 };
    CHECK_FAILS(moe_bias_bwd(&t->ex, a), ERR_SHAPE, "457 rows, but what they read has only 226");
    optest_set(&m.row_token, 200, 226);
    CHECK_FAILS(moe_bias_bwd(&t->ex, moe_down_bias_of(&m)), ERR_ARG,
                "row 200 reads row 226 of dy, outside 0 .. 225");
    optest_set(&m.row_token, 200, 0);
    optest_set(&m.row_slot, 7, 452);
    CHECK_FAILS(moe_bias_bwd(&t->ex, moe_down_bias_of(&m)), ERR_ARG,
                "row 7 has the weight 452, outside 0 .. 451");
}

static void costs_count_biases_and_the_rows_that_are_expected(void **state)
{
    OpTest *t = *state;
    Moe plain = deal_make(t, DTYPE_BF16, &deals[0], false), m = plain;
    moe_form(t, &m, true, 7);
    MoeUpFwd up = moe_up_fwd_of(&m), bare = moe_up_fwd_of(&plain);
    const OpDesc *op = op_desc(OP_MOE_UP_FWD);
    CHECK_NEAR(op->cost(&up).bytes - op->cost(&bare).bytes, 8 * 34 * 2, 0);
    m.rows.expected = 300;
    MoeBiasBwd db1 = moe_up_bias_of(&m), db2 = moe_down_bias_of(&m);
    op = op_desc(OP_MOE_BIAS_BWD);
    CHECK_NEAR(op->cost(&db1).flops, 300 * 34, 0);
    CHECK_NEAR(op->cost(&db1).bytes, 300 * 34 * 2 + 2 * 8 * 34 * 4, 0);
    CHECK_NEAR(op->cost(&db2).flops, 300 * 33 * 2, 0);
    db2.overwrite = true;
    CHECK_NEAR(op->cost(&db2).bytes, 226 * 33 * 2 + 8 * 33 * 4, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MOE_TEST(every_op_gives_what_its_definition_says, 2),
        MOE_TEST(integers_come_out_exactly, 2),
        MOE_TEST(rows_that_are_not_gathered_are_read_where_they_stand, 2),
        TEST(rows_past_the_live_ones_count_in_no_bias),
        MOE_TEST(gradients_can_be_written_over_what_is_there, 2),
        TEST(any_number_of_threads_gives_the_same_bits),
        MOE_TEST(a_group_reads_no_biases_but_its_own, 2),
        MOE_TEST(tensors_that_do_not_fit_are_an_error, 1),
        MOE_TEST(costs_count_biases_and_the_rows_that_are_expected, 1),
    };
    return TEST_RUN(tests);
}
