/* The expert ops against their dense definition in double (moe_case.h). */
#include "moe_case.h"
#include "operand_case.h"

/* The routed rows of a buffer, without its pads. */
static Tensor routed(const Moe *m, const Tensor *t) { return tensor_rows(t, 0, moe_slots(&m->s)); }

/* Sorting */

static void check_sorted(const Moe *m)
{
    const int32_t *index = m->index.data, *offsets = m->offsets.data;
    const int32_t *token = m->row_token.data, *slot = m->row_slot.data, *row = m->slot_row.data;
    CHECK_INT(offsets[0], 0);
    CHECK_INT(offsets[m->s.E], moe_slots(&m->s));
    for (int64_t e = 0; e < m->s.E; e++) {
        int64_t n = 0;
        for (int64_t s = 0; s < moe_slots(&m->s); s++) n += index[s] == e;
        CHECK_INT(offsets[e + 1] - offsets[e], n);
        for (int32_t r = offsets[e]; r < offsets[e + 1]; r++) {
            CHECK_INT(index[slot[r]], e);
            CHECK_INT(token[r], slot[r] / m->s.K);
            CHECK_INT(row[slot[r]], r);
            CHECK(r == offsets[e] || slot[r] > slot[r - 1]);
        }
    }
}

static void rows_of_an_expert_stand_together_in_the_order_of_tokens(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < DEALS; i++) {
        Moe m = deal_make(t, DTYPE_F32, &deals[i], false);
        check_sorted(&m);
        check_untouched("row_token", &m.row_token, moe_slots(&m.s));
        check_untouched("row_slot", &m.row_slot, moe_slots(&m.s));
    }
}

/* Over one block of the GPU's sort, and over more slots than its blocks take at a time; spread
 * evenly, skewed, and all in one expert. */
static void many_slots_over_many_experts_are_sorted_the_same_way_each_time(void **state)
{
    OpTest *t = *state;
    static const MoeSizes sizes[] = {
        { .N = 1, .K = 1, .E = 1 },      { .N = 1031, .K = 8, .E = 256 },
        { .N = 2731, .K = 6, .E = 64 },  { .N = 331, .K = 16, .E = 512 },
        { .N = 65600, .K = 2, .E = 32 }, { .N = 500, .K = 3, .E = 1000 }
    };
    mirror_gives();
    for (int i = 0; i < 18; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Moe m = { .s = sizes[i / 3] };
        int64_t slots = moe_slots(&m.s);
        m.index = optest_poisoned(t, DTYPE_I32, DIMS(m.s.N, m.s.K));
        for (int64_t s = 0; s < slots; s++) {
            double u = i % 3 == 2 ? 0.5 : rng_uniform(1, (uint64_t)i, (uint64_t)s);
            optest_set(&m.index, s, floor((i % 3 == 1 ? u * u * u : u) * (double)m.s.E));
        }
        m.offsets = optest_poisoned(t, DTYPE_I32, DIMS(1, m.s.E + 1));
        m.row_token = optest_poisoned(t, DTYPE_I32, DIMS(slots));
        m.row_slot = optest_poisoned(t, DTYPE_I32, DIMS(slots));
        m.slot_row = optest_poisoned(t, DTYPE_I32, DIMS(m.s.N, m.s.K));
        CHECK_OK(moe_sort_run(t, &m));
        check_sorted(&m);
        Tensor slot = optest_copy(t, &m.row_slot);
        CHECK_OK(moe_sort_run(t, &m));
        CHECK_SAME(&m.row_slot, &slot);
        arena_release(&t->arena, mark);
    }
}

static void no_slots_are_sorted_into_no_rows(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_F32, &deals[4], false);
    m.index.dim[0] = m.slot_row.dim[0] = 0;
    CHECK_OK(moe_sort_run(t, &m));
    for (int64_t e = 0; e <= m.s.E; e++) CHECK_INT(optest_get(&m.offsets, e), 0);
}

static void an_expert_that_is_not_there_cannot_be_sorted(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_F32, &deals[4], false);
    optest_set(&m.index, 3, 2);
    CHECK_FAILS(moe_sort_run(t, &m), ERR_ARG, "moe_sort: element 3 of index is 2, outside 0 .. 1");
    optest_set(&m.index, 3, 1);
    m.row_slot = tensor_rows(&m.row_slot, 0, 14);
    CHECK_FAILS(moe_sort_run(t, &m), ERR_SHAPE, "row_slot 14 for 15 slots");
}

/* Every third slot has its expert on another rank, and there is room for `room` rows. */
static void check_sorted_part(OpTest *t, const Deal *d, int64_t room)
{
    Moe m = moe_make(t, DTYPE_F32, d->s, d->group, false);
    Tensor overflow = optest_poisoned(t, DTYPE_F32, DIMS(1));
    int64_t slots = moe_slots(&m.s), next[GROUPS_MAX] = { 0 }, before = 0;
    for (int64_t s = 0; s < slots; s += 3) optest_set(&m.index, s, -1);
    optest_set(&overflow, 0, 0);
    CHECK_OK(moe_sort(&t->ex, (MoeSort){ .index = m.index,
                                         .offsets = m.offsets,
                                         .row_token = tensor_rows(&m.row_token, 0, room),
                                         .row_slot = tensor_rows(&m.row_slot, 0, room),
                                         .slot_row = m.slot_row,
                                         .overflow = overflow,
                                         .elsewhere = true }));
    for (int64_t e = 0; e <= m.s.E; e++) {
        CHECK_INT(optest_get(&m.offsets, e), before < room ? before : room);
        if (e == m.s.E) break;
        next[e] = before;
        for (int64_t s = 0; s < slots; s++) before += (int64_t)optest_get(&m.index, s) == e;
    }
    CHECK_NEAR(optest_get(&overflow, 0), before > room ? 1 : 0, 0);
    for (int64_t s = 0; s < slots; s++) {
        int64_t e = (int64_t)optest_get(&m.index, s), row = e < 0 ? -1 : next[e]++;
        if (row >= room) row = -1;
        CHECK_INT(optest_get(&m.slot_row, s), row);
        if (row < 0) continue;
        CHECK_INT(optest_get(&m.row_slot, row), s);
        CHECK_INT(optest_get(&m.row_token, row), s / m.s.K);
    }
    check_untouched("row_slot", &m.row_slot, before < room ? before : room);
}

static void slots_without_an_expert_or_room_have_no_row(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 3; i++) {
        int64_t slots = moe_slots(&deals[i].s);
        check_sorted_part(t, &deals[i], slots);
        check_sorted_part(t, &deals[i], slots / 2);
        check_sorted_part(t, &deals[i], 1);
    }
}

/* Token 1 has one row of its two slots, token 2 none; nothing is read of rows that do not count. */
static void slots_without_a_row_add_nothing(void **state)
{
    OpTest *t = *state;
    static const int32_t row[] = { 1, 0, -1, 2, -1, -1 };
    MoeCombine a = { .out = optest_normal(t, DTYPE_F32, DIMS(4, 8)),
                     .slot_row = optest_poisoned(t, DTYPE_I32, DIMS(3, 2)),
                     .y = optest_poisoned(t, DTYPE_F32, DIMS(3, 8)) };
    memcpy(a.slot_row.data, row, sizeof row);
    for (int i = 24; i < 32; i++) optest_set(&a.out, i, NAN);
    CHECK_OK(moe_combine(&t->ex, a));
    for (int i = 0; i < 8; i++) {
        CHECK_NEAR(optest_get(&a.y, i), optest_get(&a.out, i) + optest_get(&a.out, 8 + i), 1e-6);
        CHECK_NEAR(optest_get(&a.y, 8 + i), optest_get(&a.out, 16 + i), 0);
        CHECK_NEAR(optest_get(&a.y, 16 + i), 0, 0);
    }
}

/* 3 tokens, 2 summands: weights are 1 a token, and out has as many rows as y. */
static void without_slots_a_token_has_its_own_row(void **state)
{
    OpTest *t = *state;
    MoeCombine a = { .out = optest_normal(t, DTYPE_F32, DIMS(3, 521)),
                     .shared = optest_normal(t, DTYPE_F32, DIMS(3, 521)),
                     .weight = optest_normal(t, DTYPE_F32, DIMS(3, 1)),
                     .y = optest_poisoned(t, DTYPE_F32, DIMS(3, 521)) };
    double *want = optest_doubles(t, 3 * 521);
    for (int64_t i = 0; i < 3 * 521; i++)
        want[i] = optest_get(&a.weight, i / 521) * optest_get(&a.out, i) + optest_get(&a.shared, i);
    CHECK_OK(moe_combine(&t->ex, a));
    CHECK_TENSOR(&a.y, want);
    CHECK_NEAR(op_desc(OP_MOE_COMBINE)->cost(&a).flops, 3 * 521 * 3, 0);
    a.out = tensor_rows(&a.out, 0, 2);
    CHECK_FAILS(moe_combine(&t->ex, a), ERR_SHAPE, "moe_combine: out");
}

/* All ops */

static void check_forward(OpTest *t, const Moe *m, const MoeReference *want, double limit)
{
    Tensor pre = routed(m, &m->pre), act = routed(m, &m->act_rows), out = routed(m, &m->out);
    CHECK_TENSOR_WITHIN(&pre, by_row(t, m, want->pre, 2 * m->s.F), limit);
    CHECK_TENSOR_WITHIN(&act, by_row(t, m, want->act, m->s.F), limit);
    CHECK_TENSOR_WITHIN(&out, by_row(t, m, want->out, m->s.D), limit);
    CHECK_TENSOR_WITHIN(&m->y, want->y, limit);
}

/* A dot product may cancel to little, with a rounding error of what it was summed from: so the
 * gradients of all weights are one row. */
static Tensor one_row(const Tensor *t) { return tensor_as2(t, 1, tensor_elems(t)); }

static void check_backward(OpTest *t, const Moe *m, const MoeReference *want, double limit)
{
    Tensor dpre = routed(m, &m->dpre), wact = routed(m, &m->wact), dx = routed(m, &m->dx_rows);
    Tensor dweight = one_row(&m->dweight);
    CHECK_TENSOR_WITHIN(&dpre, by_row(t, m, want->dpre, 2 * m->s.F), limit);
    CHECK_TENSOR_WITHIN(&wact, by_row(t, m, want->wact, m->s.F), limit);
    CHECK_TENSOR_WITHIN(&dweight, want->dweight, limit);
    CHECK_TENSOR_WITHIN(&dx, by_row(t, m, want->dx_slots, m->s.D), limit);
    CHECK_TENSOR_WITHIN(&m->dx, want->dx, limit);
    CHECK_TENSOR_WITHIN(&m->dw1, want->dw1, limit);
    CHECK_TENSOR_WITHIN(&m->dw2, want->dw2, limit);
}

static void check_pads(const Moe *m)
{
    int64_t n = moe_slots(&m->s);
    check_untouched("pre", &m->pre, n);
    check_untouched("act", &m->act_rows, n);
    check_untouched("out", &m->out, n);
    check_untouched("dpre", &m->dpre, n);
    check_untouched("wact", &m->wact, n);
    check_untouched("dx by row", &m->dx_rows, n);
}

static void every_op_gives_what_its_definition_says(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    for (int i = 0; i < 2 * DEALS; i += RUNS(1, 5)) {
        ArenaMark mark = arena_mark(&t->arena);
        double limit = types[i % 2] == DTYPE_F32 ? 1e-5 : 5e-3;
        Moe m = deal_make(t, types[i % 2], &deals[i / 2], false);
        MoeReference want = moe_reference(t, &m);
        moe_forward(t, &m);
        check_forward(t, &m, &want, limit);
        moe_backward(t, &m);
        check_backward(t, &m, &want, limit);
        check_pads(&m); /* whose NaNs were there to be read by mistake */
        arena_release(&t->arena, mark);
    }
}

static void check_exact(const char *name, const Tensor *t, const double *want)
{
    for (int64_t i = 0; i < tensor_elems(t); i++) {
        if (optest_get(t, i) == (double)(float)want[i]) continue;
        fail_msg("%s: element %lld is %.9g, want %.9g", name, (long long)i, optest_get(t, i),
                 want[i]);
    }
}

/* With gates of 0 and +-128 the sigmoid is exactly 1/2, 0 or 1, so every result is a small number
 * of halves. Each op is given the reference's own operands. */
static void make_exact(Moe *m)
{
    for (int64_t i = 0; i < tensor_elems(&m->x); i++) {
        if (i % m->s.D == 0) optest_set(&m->x, i, 1);
    }
    for (int64_t i = 0; i < m->s.E * 2 * m->s.F; i++) {
        bool gate = i % (2 * m->s.F) < m->s.F;
        for (int64_t d = 0; gate && d < m->s.D; d++) optest_set(&m->w1, i * m->s.D + d, 0);
        if (gate) optest_set(&m->w1, i * m->s.D, (double)(128 * (i % 3 - 1)));
    }
    for (int64_t i = 0; i < tensor_elems(&m->weight); i++) {
        optest_set(&m->weight, i, i % 3 == 0 ? 2 : -1);
    }
}

static void integers_come_out_exactly(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    for (int i = 0; i < 8; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Moe m = deal_make(t, types[i % 2], &deals[i < 6 ? i / 2 : DEALS - 1], true);
        make_exact(&m);
        MoeReference want = moe_reference(t, &m);
        int64_t D = m.s.D, F = m.s.F;
        moe_forward(t, &m);
        moe_backward(t, &m);
        Tensor pre = routed(&m, &m.pre), act = routed(&m, &m.act_rows), out = routed(&m, &m.out);
        Tensor dpre = routed(&m, &m.dpre), wact = routed(&m, &m.wact);
        Tensor dx = routed(&m, &m.dx_rows);
        check_exact("pre", &pre, by_row(t, &m, want.pre, 2 * F));
        check_exact("act", &act, by_row(t, &m, want.act, F));
        check_exact("out", &out, by_row(t, &m, want.out, D));
        check_exact("dpre", &dpre, by_row(t, &m, want.dpre, 2 * F));
        check_exact("wact", &wact, by_row(t, &m, want.wact, F));
        check_exact("dweight", &m.dweight, want.dweight);
        check_exact("dx by row", &dx, by_row(t, &m, want.dx_slots, D));
        check_exact("dw1", &m.dw1, want.dw1);
        check_exact("dw2", &m.dw2, want.dw2);
        arena_release(&t->arena, mark);
    }
}

/* Rows that do not count */

static void check_live_rows(OpTest *t, const KernelCase *c)
{
    Moe m = deal_make(t, c->act, &deals[c->deal], false), all = m;
    int64_t live = 1 + 63 + 64 + 65 + 50; /* in the middle of a group */
    all.pre = optest_poisoned(t, c->act, m.pre.dim);
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&all)));
    m.live = (int32_t)live, m.rows.device = &m.live;
    memset(m.act_rows.data, 0xFF, tensor_bytes(&m.act_rows));
    /* a place that no row may follow: reading it would be an error */
    for (int64_t r = live; r < m.rows.bound; r++) optest_set(&m.row_token, r, -1);
    for (int64_t r = live; r < m.rows.bound; r++) optest_set(&m.row_slot, r, -1);
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)));
    CHECK_OK(moe_down_fwd(&t->ex, moe_down_fwd_of(&m)));
    CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&m)));
    CHECK_OK(moe_up_bwd_input(&t->ex, moe_up_bwd_input_of(&m)));
    Tensor some = tensor_rows(&m.pre, 0, live), same = tensor_rows(&all.pre, 0, live);
    CHECK_SAME(&some, &same);
    check_untouched("pre", &m.pre, live);
    check_untouched("act", &m.act_rows, live);
    check_untouched("out", &m.out, live);
    check_untouched("dpre", &m.dpre, live);
    check_untouched("wact", &m.wact, live);
    check_untouched("dx by row", &m.dx_rows, live);
    for (int64_t s = 0; s < moe_slots(&m.s); s++) { /* slots without a row have no gradient */
        double gradient = optest_get(&m.dweight, s);
        CHECK(isfinite(gradient) &&
              (gradient == 0) == (optest_get(&m.slot_row, s) >= (double)live));
    }
}

static void rows_past_the_live_ones_are_neither_read_nor_written(void **state)
{
    (void)state;
    for (int i = 0; i < KERNEL_CASES; i++) {
        OpTest t;
        moe_open(&t, 2);
        check_live_rows(&t, &kernel_cases[i]);
        optest_close(&t);
    }
}

static void check_live_sums(OpTest *t, const KernelCase *c)
{
    Moe m = deal_make(t, c->act, &deals[c->deal], false);
    m.live = 1 + 63 + 10, m.rows.device = &m.live;
    m.dpre = optest_normal(t, c->act, m.dpre.dim);
    m.wact = optest_normal(t, c->act, m.wact.dim);
    for (int64_t i = m.live * 2 * m.s.F; i < tensor_elems(&m.dpre); i++)
        optest_set(&m.dpre, i, NAN);
    for (int64_t i = m.live * m.s.F; i < tensor_elems(&m.wact); i++) optest_set(&m.wact, i, NAN);
    Tensor before1 = optest_copy(t, &m.dw1), before2 = optest_copy(t, &m.dw2);
    CHECK_OK(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(&m)));
    CHECK_OK(moe_down_bwd_weight(&t->ex, moe_down_bwd_weight_of(&m)));
    int64_t reached = 4, one = m.s.D * m.s.F; /* experts 0 to 3 have rows below `live` */
    for (int64_t i = 0; i < m.s.E * one; i++) {
        CHECK(isfinite(optest_get(&m.dw2, i)));
        CHECK((optest_get(&m.dw2, i) == optest_get(&before2, i)) ==
              (i < one || i >= reached * one));
    }
    for (int64_t i = 0; i < m.s.E * 2 * one; i++) {
        CHECK(isfinite(optest_get(&m.dw1, i)));
        CHECK((optest_get(&m.dw1, i) == optest_get(&before1, i)) ==
              (i < 2 * one || i >= reached * 2 * one));
    }
}

static void weight_gradients_leave_out_rows_past_the_live_ones(void **state)
{
    (void)state;
    for (int i = 0; i < KERNEL_CASES; i++) {
        OpTest t;
        moe_open(&t, 2);
        check_live_sums(&t, &kernel_cases[i]);
        optest_close(&t);
    }
}

/* Whatever stands there, NaN too, and zero where an expert has no rows or none of them exists. */
static void check_overwritten(OpTest *t, const KernelCase *c, bool live)
{
    Moe m = deal_make(t, c->act, &deals[c->deal], false);
    if (live) m.live = 1 + 63 + 10, m.rows.device = &m.live;
    m.dpre = optest_normal(t, c->act, m.dpre.dim);
    m.wact = optest_normal(t, c->act, m.wact.dim);
    MoeUpBwdWeight up = moe_up_bwd_weight_of(&m);
    MoeDownBwdWeight down = moe_down_bwd_weight_of(&m);
    memset(m.dw1.data, 0, tensor_bytes(&m.dw1));
    memset(m.dw2.data, 0, tensor_bytes(&m.dw2));
    CHECK_OK(moe_up_bwd_weight(&t->ex, up));
    CHECK_OK(moe_down_bwd_weight(&t->ex, down));
    up.dw = optest_poisoned(t, DTYPE_F32, m.dw1.dim);
    down.dw = optest_poisoned(t, DTYPE_F32, m.dw2.dim);
    up.overwrite = down.overwrite = true;
    CHECK_OK(moe_up_bwd_weight(&t->ex, up));
    CHECK_OK(moe_down_bwd_weight(&t->ex, down));
    CHECK_SAME(&up.dw, &m.dw1);
    CHECK_SAME(&down.dw, &m.dw2);
}

static void weight_gradients_can_be_written_over_what_is_there(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * KERNEL_CASES; i++) {
        OpTest t;
        moe_open(&t, 2);
        check_overwritten(&t, &kernel_cases[i / 2], i % 2 == 1);
        optest_close(&t);
    }
}

static void no_row_at_all_changes_nothing(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_BF16, &deals[WIDE], false);
    m.live = 0, m.rows.device = &m.live;
    Tensor before = optest_copy(t, &m.dw1);
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)));
    CHECK_OK(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(&m)));
    check_untouched("pre", &m.pre, 0);
    CHECK_SAME(&m.dw1, &before);
}

static int64_t nan_count(const Tensor *t, int64_t first, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = first; i < first + n; i++) count += isnan(optest_get(t, i)) ? 1 : 0;
    return count;
}

/* One expert's weights are NaN: its rows are, and no row beside them. */
static void a_group_reads_no_expert_but_its_own(void **state)
{
    OpTest *t = *state;
    for (int64_t sick = 1; sick < 8; sick++) {
        ArenaMark mark = arena_mark(&t->arena);
        const KernelCase *c = &kernel_cases[sick % 2];
        Moe m = deal_make(t, c->act, &deals[c->deal], false);
        const int32_t *offsets = m.offsets.data;
        int64_t one = m.s.D * m.s.F, D = m.s.D, F = m.s.F;
        for (int64_t i = sick * 2 * one; i < (sick + 1) * 2 * one; i++) optest_set(&m.w1, i, NAN);
        for (int64_t i = sick * one; i < (sick + 1) * one; i++) optest_set(&m.w2, i, NAN);
        moe_forward(t, &m);
        moe_backward(t, &m);
        int64_t first = offsets[sick], rows = offsets[sick + 1] - first, all = moe_slots(&m.s);
        CHECK_INT(nan_count(&m.pre, first * 2 * F, rows * 2 * F), rows * 2 * F);
        CHECK_INT(nan_count(&m.pre, 0, all * 2 * F), rows * 2 * F);
        CHECK_INT(nan_count(&m.out, first * D, rows * D), rows * D);
        CHECK_INT(nan_count(&m.out, 0, all * D), rows * D);
        CHECK_INT(nan_count(&m.dx_rows, first * D, rows * D), rows * D);
        CHECK_INT(nan_count(&m.dx_rows, 0, all * D), rows * D);
        CHECK_INT(nan_count(&m.dw1, sick * 2 * one, 2 * one), 2 * one);
        CHECK_INT(nan_count(&m.dw1, 0, m.s.E * 2 * one), 2 * one);
        CHECK_INT(nan_count(&m.dw2, 0, m.s.E * one), one);
        arena_release(&t->arena, mark);
    }
}

/* Ways to call */

static void check_rows_in_order(OpTest *t, const Deal *d)
{
    Moe m = deal_make(t, DTYPE_BF16, d, false), g = m;
    MoeReference want = moe_reference(t, &m);
    int64_t D = m.s.D, R = m.rows.bound, n = moe_slots(&m.s);
    /* what an exchange would deliver: rows, and a weight for each */
    g.x = optest_poisoned(t, m.act, DIMS(R, D));
    g.dy = optest_poisoned(t, m.act, DIMS(R, D));
    g.weight = optest_poisoned(t, DTYPE_F32, DIMS(R));
    g.dweight = optest_poisoned(t, DTYPE_F32, DIMS(R));
    for (int64_t r = 0; r < n; r++) {
        int64_t token = (int64_t)optest_get(&m.row_token, r),
                slot = (int64_t)optest_get(&m.row_slot, r);
        memcpy(tensor_at(&g.x, r * D), tensor_at(&m.x, token * D), (size_t)D * 2);
        memcpy(tensor_at(&g.dy, r * D), tensor_at(&m.dy, token * D), (size_t)D * 2);
        optest_set(&g.weight, r, optest_get(&m.weight, slot));
    }
    g.row_token = g.row_slot = (Tensor){ 0 };
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(&g)));
    CHECK_OK(moe_down_fwd(&t->ex, moe_down_fwd_of(&g)));
    Tensor out = routed(&m, &m.out), dweight = tensor_rows(&g.dweight, 0, n);
    CHECK_TENSOR_WITHIN(&out, by_row(t, &m, want.out, D), 5e-3);
    moe_backward(t, &g);
    dweight = one_row(&dweight);
    CHECK_TENSOR_WITHIN(&dweight, by_row(t, &m, want.dweight, 1), 5e-3);
    check_untouched("dweight", &g.dweight, n);
    CHECK_TENSOR_WITHIN(&m.dx, want.dx, 5e-3);
    CHECK_TENSOR_WITHIN(&m.dw1, want.dw1, 5e-3);
    CHECK_TENSOR_WITHIN(&m.dw2, want.dw2, 5e-3);
}

static void rows_that_are_not_gathered_are_read_where_they_stand(void **state)
{
    (void)state;
    const int deal[] = { 0, WIDE, WIDE + 2 };
    for (int i = 0; i < 3; i++) {
        OpTest t;
        moe_open(&t, 2);
        check_rows_in_order(&t, &deals[deal[i]]);
        optest_close(&t);
    }
}

static void the_gradient_may_take_the_place_of_the_pre_activation(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    for (int i = 0; i < 6; i++) {
        Moe m = deal_make(t, types[i % 2], &deals[i < 2 ? 0 : i < 4 ? 4 : WIDE], false);
        moe_forward(t, &m);
        CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&m)));
        MoeDownBwdInput a = moe_down_bwd_input_of(&m);
        a.pre = a.dpre = operand_plain(optest_copy(t, &m.pre));
        CHECK_OK(moe_down_bwd_input(&t->ex, a));
        CHECK_SAME(&a.dpre.data, &m.dpre);
    }
}

static void combine_takes_what_is_given(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    const MoeSizes s = { 7, 3, 2, 521, 1, 0 }; /* D past a piece of 512 */
    for (int given = 0; given < 32; given++) {
        ArenaMark mark = arena_mark(&t->arena);
        Moe m = moe_make(t, types[given >> 4], s, (int64_t[]){ 11, 10 }, false);
        CHECK_OK(moe_sort_run(t, &m));
        MoeCombine a = { .out = optest_normal(t, m.act, m.out.dim), .slot_row = m.slot_row };
        a.y = given & 8 ? m.residual : m.y;
        if (given & 1) a.weight = m.weight;
        if (given & 2) a.shared = m.shared;
        if (given & 12) a.residual = m.residual;
        double *want = optest_doubles(t, s.N * s.D);
        for (int64_t i = 0; i < s.N * s.D; i++) {
            int64_t n = i / s.D, d = i % s.D;
            want[i] = 0;
            if (given & 2) want[i] += optest_get(&m.shared, i);
            if (given & 12) want[i] += optest_get(&m.residual, i);
            for (int64_t k = n * s.K; k < (n + 1) * s.K; k++) {
                double w = given & 1 ? optest_get(&m.weight, k) : 1;
                int64_t row = (int64_t)optest_get(&m.slot_row, k);
                want[i] += w * optest_get(&a.out, row * s.D + d);
            }
        }
        CHECK_OK(moe_combine(&t->ex, a));
        CHECK_TENSOR_WITHIN(&a.y, want, given >> 4 ? 5e-3 : 1e-5);
        arena_release(&t->arena, mark);
    }
}

static Moe dealt(OpTest *t, int i)
{
    return deal_make(t, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, &deals[i / 2], false);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    moe_check_threads(dealt, 4);
}

static void operations_are_counted_by_the_rows_that_are_expected(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_BF16, &deals[0], false);
    MoeUpFwd up = moe_up_fwd_of(&m);
    CHECK_NEAR(op_desc(OP_MOE_UP_FWD)->cost(&up).flops, 457.0 * 2 * 33 * 34, 0);
    m.rows.expected = 300;
    MoeDownFwd down = moe_down_fwd_of(&m);
    CHECK_NEAR(op_desc(OP_MOE_DOWN_FWD)->cost(&down).flops, 300.0 * 2 * 33 * 17, 0);
    CHECK_NEAR(op_desc(OP_MOE_DOWN_FWD)->cost(&down).bytes,
               2.0 * (8 * 33 * 17 + 300.0 * 17 + 300.0 * 33), 0);
    MoeUpBwdWeight dw1 = moe_up_bwd_weight_of(&m);
    CHECK_NEAR(op_desc(OP_MOE_UP_BWD_WEIGHT)->cost(&dw1).flops, 300.0 * 2 * 33 * 34, 0);
    MoeDownBwdInput back = moe_down_bwd_input_of(&m);
    CHECK_NEAR(op_desc(OP_MOE_DOWN_BWD_INPUT)->cost(&back).flops, 300.0 * 2 * 33 * 17, 0);
}

static void places_that_are_not_there_are_an_error(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_F32, &deals[0], false);
    optest_set(&m.row_token, 200, 226);
    CHECK_FAILS(moe_up_fwd(&t->ex, moe_up_fwd_of(&m)), ERR_ARG,
                "moe_up_fwd: row 200 reads token 226, outside 0 .. 225");
    CHECK_FAILS(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(&m)), ERR_ARG, "reads token 226");
    optest_set(&m.row_token, 200, 0);
    optest_set(&m.row_slot, 7, -3);
    CHECK_FAILS(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(&m)), ERR_ARG,
                "row 7 has the weight -3, outside 0 .. 451");
    optest_set(&m.slot_row, 1, 457);
    MoeCombine a = { .out = m.out, .slot_row = m.slot_row, .y = m.y };
    CHECK_FAILS(moe_combine(&t->ex, a), ERR_ARG, "element 1 of slot_row is 457, outside -1 .. 456");
    optest_set(&m.offsets, 3, 0);
    CHECK_FAILS(moe_down_fwd(&t->ex, moe_down_fwd_of(&m)), ERR_ARG, "offsets fall from 1 to 0");
}

static void tensors_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_F32, &deals[0], false);
    MoeUpFwd up = moe_up_fwd_of(&m);
    up.w = operand_plain(m.w2);
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_SHAPE, "moe_up_fwd: w is (8, 33, 17) f32");
    up = moe_up_fwd_of(&m), up.rows.bound = 458;
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_SHAPE, "rows.bound is 458, the buffers have 457 rows");
    up = moe_up_fwd_of(&m), up.row_token = (Tensor){ 0 };
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_SHAPE, "457 rows, but what they read has only 226");
    MoeDownBwdWeight dw2 = moe_down_bwd_weight_of(&m);
    dw2.dw.dtype = DTYPE_BF16;
    CHECK_FAILS(moe_down_bwd_weight(&t->ex, dw2), ERR_SHAPE, "moe_down_bwd_weight: dw is");
    MoeDownBwdInput back = moe_down_bwd_input_of(&m);
    back.row_slot = (Tensor){ 0 };
    CHECK_FAILS(moe_down_bwd_input(&t->ex, back), ERR_SHAPE, "but weight has only 452");
}

/* Operands with scales. */

static void operands_are_refused_if_only_one_has_scales(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_BF16, &deals[0], false);
    MoeUpFwd up = moe_up_fwd_of(&m);
    MoeDownFwd down = moe_down_fwd_of(&m);
    MoeDownBwdInput down_input = moe_down_bwd_input_of(&m);
    MoeUpBwdInput up_input = moe_up_bwd_input_of(&m);
    MoeDownBwdWeight down_weight = moe_down_bwd_weight_of(&m);
    MoeUpBwdWeight up_weight = moe_up_bwd_weight_of(&m);
    CHECK_INT(operands_refused(t, OP_MOE_UP_FWD, &up), 2);
    CHECK_INT(operands_refused(t, OP_MOE_DOWN_FWD, &down), 2);
    CHECK_INT(operands_refused(t, OP_MOE_DOWN_BWD_INPUT, &down_input), 3);
    CHECK_INT(operands_refused(t, OP_MOE_UP_BWD_INPUT, &up_input), 2);
    CHECK_INT(operands_refused(t, OP_MOE_DOWN_BWD_WEIGHT, &down_weight), 2);
    CHECK_INT(operands_refused(t, OP_MOE_UP_BWD_WEIGHT, &up_weight), 2);
    up.w.scale = m.weight;
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_ARG, "moe_up_fwd: w is plain, but has scales");
    up.w = (Operand){ 0 };
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_ARG, "moe_up_fwd: w is not set");
}

/* Operands are counted in the bytes of their own types, and with their scales: 3 x 1 blocks for the
 * 8 * 33 rows of w2, a scale a row for those of act. */
static void costs_count_operands_in_their_own_types(void **state)
{
    OpTest *t = *state;
    Moe m = deal_make(t, DTYPE_BF16, &deals[0], false);
    m.rows.expected = 300;
    MoeDownFwd down = moe_down_fwd_of(&m);
    double plain = op_desc(OP_MOE_DOWN_FWD)->cost(&down).bytes;
    down.w = operand_scaled(t, m.w2);
    OpCost c = op_desc(OP_MOE_DOWN_FWD)->cost(&down);
    CHECK_INT(c.dtype, DTYPE_E4M3);
    CHECK_NEAR(c.bytes, plain - 8 * 33 * 17 + 3 * 4, 0);
    down.act = (Operand){ .data = m.act_rows, .kind = OPERAND_ROW };
    down.act.data.dtype = DTYPE_E4M3;
    down.act.scale = optest_normal(t, DTYPE_F32, DIMS(m.act_rows.dim[0], 1));
    CHECK_NEAR(op_desc(OP_MOE_DOWN_FWD)->cost(&down).bytes,
               plain - 8 * 33 * 17 + 3 * 4 - 300 * 17 + 300 * 4, 1e-9);
    double ports = op_port_bytes(OP_MOE_DOWN_FWD, &down);
    down.w.scale = (Tensor){ 0 };
    CHECK_NEAR(ports - op_port_bytes(OP_MOE_DOWN_FWD, &down), 3 * 4, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MOE_TEST(rows_of_an_expert_stand_together_in_the_order_of_tokens, 1),
        MOE_TEST(many_slots_over_many_experts_are_sorted_the_same_way_each_time, 1),
        MOE_TEST(no_slots_are_sorted_into_no_rows, 1),
        MOE_TEST(slots_without_an_expert_or_room_have_no_row, 1),
        MOE_TEST(slots_without_a_row_add_nothing, 1),
        MOE_TEST(without_slots_a_token_has_its_own_row, 1),
        MOE_TEST(an_expert_that_is_not_there_cannot_be_sorted, 1),
        MOE_TEST(every_op_gives_what_its_definition_says, 2),
        MOE_TEST(integers_come_out_exactly, 2),
        TEST(rows_past_the_live_ones_are_neither_read_nor_written),
        TEST(weight_gradients_leave_out_rows_past_the_live_ones),
        TEST(weight_gradients_can_be_written_over_what_is_there),
        MOE_TEST(no_row_at_all_changes_nothing, 2),
        MOE_TEST(a_group_reads_no_expert_but_its_own, 2),
        TEST(rows_that_are_not_gathered_are_read_where_they_stand),
        MOE_TEST(the_gradient_may_take_the_place_of_the_pre_activation, 2),
        MOE_TEST(combine_takes_what_is_given, 2),
        TEST(any_number_of_threads_gives_the_same_bits),
        MOE_TEST(operations_are_counted_by_the_rows_that_are_expected, 1),
        MOE_TEST(places_that_are_not_there_are_an_error, 2),
        MOE_TEST(tensors_that_do_not_fit_are_an_error, 1),
        MOE_TEST(operands_are_refused_if_only_one_has_scales, 1),
        MOE_TEST(costs_count_operands_in_their_own_types, 1),
    };
    return TEST_RUN(tests);
}
