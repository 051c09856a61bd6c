/* The experts' ops on 8-bit operands: as the plain ops on the numbers that the operands stand for, in f32. */
#include "moe_case.h"
#include "scaled_case.h"

/* Groups of every size, one token each, all in one; widths of several blocks, with a last piece, and of
 * less than one. From the fourth on widths are multiples of 16, as a GPU's products want them. */
static const Deal cases[] = {
    { { 226, 2, 8, 133, 17, 5 }, { 0, 1, 63, 64, 65, 127, 129, 3 } },
    { { 300, 1, 4, 7, 131, 0 }, { 0, 0, 300, 0 } },
    { { 8, 1, 8, 257, 70, 3 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },
    { { 226, 2, 8, 144, 272, 5 }, { 0, 1, 63, 64, 65, 127, 129, 3 } },
    { { 8, 1, 8, 272, 128, 0 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },
    { { 150, 3, 5, 16, 80, 1 }, { 0, 237, 119, 79, 15 } },
};

enum { CASES = sizeof cases / sizeof *cases };

typedef struct Run {
    const ScaledForm *form;
    int deal;
    Dtype act;
    bool biases;
    float limit;
} Run;

/* Every deal with every form; types, biases and limits change along. */
static Run run_at(int i)
{
    return (Run){ .form = &scaled_forms[i % SCALED_FORMS],
                  .deal = i / SCALED_FORMS,
                  .act = i % 2 == i / SCALED_FORMS % 2 ? DTYPE_F32 : DTYPE_BF16,
                  .biases = i % 3 != 0,
                  .limit = i % 5 < 2 ? 1.25f : 0 };
}

enum { ALL_RUNS = SCALED_FORMS * CASES };

static Moe run_make(OpTest *t, const Run *r)
{
    Moe m = deal_make(t, r->act, &cases[r->deal], false);
    moe_form(t, &m, r->biases, r->limit);
    return m;
}

/* m with the plain f32 tensors of the same numbers, and outputs of its own. */
static Moe plain_of(OpTest *t, const Moe *m)
{
    Moe p = *m;
    Tensor *const outputs[] = { &p.pre, &p.act_rows, &p.out, &p.dpre, &p.wact, &p.dx_rows };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        *outputs[i] = optest_poisoned(t, DTYPE_F32, outputs[i]->dim);
    Tensor *const biases[] = { &p.b1, &p.b2 };
    for (int i = 0; i < 2 && m->b1.data != NULL; i++) {
        Tensor b = *biases[i];
        *biases[i] = optest_poisoned(t, DTYPE_F32, b.dim);
        for (int64_t k = 0; k < tensor_elems(&b); k++) optest_set(biases[i], k, optest_get(&b, k));
    }
    p.act = DTYPE_F32;
    p.dweight = optest_poisoned(t, DTYPE_F32, m->dweight.dim);
    p.dw1 = optest_copy(t, &m->dw1);
    p.dw2 = optest_copy(t, &m->dw2);
    return p;
}

static Tensor widened(OpTest *t, const Tensor *from)
{
    Tensor out = optest_poisoned(t, DTYPE_F32, from->dim);
    for (int64_t i = 0; i < tensor_elems(from); i++) optest_set(&out, i, optest_get(from, i));
    return out;
}

static int64_t live_of(const Moe *m) { return m->rows.device != NULL ? m->live : moe_slots(&m->s); }

/* The rows in use, against the plain op's. */
static void check_rows(OpTest *t, const Moe *m, const Tensor *have, const Tensor *want)
{
    Tensor rows = tensor_rows(have, 0, live_of(m)), ref = tensor_rows(want, 0, live_of(m));
    CHECK_TENSOR(&rows, optest_read(t, &ref));
    check_untouched("a result", have, live_of(m));
}

static Operand by_row_of(OpTest *t, const Run *r, const Moe *m, Dtype type, Tensor x)
{
    return scaled_rows(t, r->form->rows, type, r->form->pow2, x, m->rows);
}

static Operand columns_of(OpTest *t, const Run *r, const Moe *m, Dtype type, Tensor x,
                          Tensor row_token)
{
    Quantize a = { .x.data = x,
                   .offsets = m->offsets,
                   .row_token = row_token,
                   .rows = m->rows,
                   .pow2 = r->form->pow2 };
    return scaled_columns(t, r->form->columns, type, a);
}

static void check_forward(OpTest *t, const Run *r, Moe *m)
{
    Moe p = plain_of(t, m);
    MoeUpFwd up = moe_up_fwd_of(m), plain_up = moe_up_fwd_of(&p);
    up.x = scaled_rows(t, r->form->rows, DTYPE_E4M3, r->form->pow2, m->x, (Rows){ 0 });
    up.w = scaled_weight(t, r->form, m->w1, false);
    plain_up.x = operand_plain(scaled_plain(t, &up.x, 0));
    plain_up.w = operand_plain(scaled_plain(t, &up.w, 0));
    CHECK_OK(moe_up_fwd(&t->ex, up));
    CHECK_OK(moe_up_fwd(&t->ex, plain_up));
    check_rows(t, m, &m->pre, &p.pre);
    check_rows(t, m, &m->act_rows, &p.act_rows);
    MoeDownFwd down = moe_down_fwd_of(m), plain_down = moe_down_fwd_of(&p);
    down.act = by_row_of(t, r, m, DTYPE_E4M3, m->act_rows);
    down.w = scaled_weight(t, r->form, m->w2, false);
    plain_down.act = operand_plain(scaled_plain(t, &down.act, live_of(m)));
    plain_down.w = operand_plain(scaled_plain(t, &down.w, 0));
    CHECK_OK(moe_down_fwd(&t->ex, down));
    CHECK_OK(moe_down_fwd(&t->ex, plain_down));
    check_rows(t, m, &m->out, &p.out);
}

/* dweight is one sum of terms of both signs: its elements are held to the norm of all of them. */
static void check_backward_input(OpTest *t, const Run *r, Moe *m)
{
    Moe p = plain_of(t, m);
    p.pre = widened(t, &m->pre);
    MoeDownBwdInput down = moe_down_bwd_input_of(m), plain_down = moe_down_bwd_input_of(&p);
    down.dy = scaled_rows(t, r->form->rows, r->form->gradient, r->form->pow2, m->dy, (Rows){ 0 });
    down.w = scaled_weight(t, r->form, m->w2, true);
    plain_down.dy = operand_plain(scaled_plain(t, &down.dy, 0));
    plain_down.w = operand_plain(scaled_plain(t, &down.w, 0));
    CHECK_OK(moe_down_bwd_input(&t->ex, down));
    CHECK_OK(moe_down_bwd_input(&t->ex, plain_down));
    check_rows(t, m, &m->dpre, &p.dpre);
    check_rows(t, m, &m->wact, &p.wact);
    Tensor dweight = tensor_as2(&m->dweight, 1, tensor_elems(&m->dweight));
    CHECK_TENSOR_WITHIN(&dweight, optest_read(t, &p.dweight), 1e-5);
    MoeUpBwdInput up = moe_up_bwd_input_of(m), plain_up = moe_up_bwd_input_of(&p);
    up.dpre = by_row_of(t, r, m, r->form->gradient, m->dpre);
    up.w = scaled_weight(t, r->form, m->w1, true);
    plain_up.dpre = operand_plain(scaled_plain(t, &up.dpre, live_of(m)));
    plain_up.w = operand_plain(scaled_plain(t, &up.w, 0));
    CHECK_OK(moe_up_bwd_input(&t->ex, up));
    CHECK_OK(moe_up_bwd_input(&t->ex, plain_up));
    check_rows(t, m, &m->dx_rows, &p.dx_rows);
}

/* The plain op reads the gathered rows as they stand. */
static Tensor ungrouped(OpTest *t, const Moe *m, const Operand *q)
{
    return scaled_ungrouped(t, q, &m->offsets, live_of(m), m->rows.bound);
}

static void check_backward_weight(OpTest *t, const Run *r, Moe *m)
{
    Moe p = plain_of(t, m);
    Tensor none = { 0 };
    p.row_token = none;
    MoeDownBwdWeight down = moe_down_bwd_weight_of(m), plain_down = moe_down_bwd_weight_of(&p);
    down.dy = columns_of(t, r, m, r->form->gradient, m->dy, m->row_token);
    down.wact = columns_of(t, r, m, DTYPE_E4M3, m->wact, none);
    plain_down.dy = operand_plain(ungrouped(t, m, &down.dy));
    plain_down.wact = operand_plain(ungrouped(t, m, &down.wact));
    CHECK_OK(moe_down_bwd_weight(&t->ex, down));
    CHECK_OK(moe_down_bwd_weight(&t->ex, plain_down));
    CHECK_TENSOR(&m->dw2, optest_read(t, &p.dw2));
    MoeUpBwdWeight up = moe_up_bwd_weight_of(m), plain_up = moe_up_bwd_weight_of(&p);
    up.dpre = columns_of(t, r, m, r->form->gradient, m->dpre, none);
    up.x = columns_of(t, r, m, DTYPE_E4M3, m->x, m->row_token);
    up.overwrite = plain_up.overwrite = true;
    plain_up.dpre = operand_plain(ungrouped(t, m, &up.dpre));
    plain_up.x = operand_plain(ungrouped(t, m, &up.x));
    CHECK_OK(moe_up_bwd_weight(&t->ex, up));
    CHECK_OK(moe_up_bwd_weight(&t->ex, plain_up));
    CHECK_TENSOR(&m->dw1, optest_read(t, &p.dw1));
}

static void products_are_those_of_the_numbers_that_operands_stand_for(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < ALL_RUNS; i += RUNS(1, 3)) {
        ArenaMark mark = arena_mark(&t->arena);
        Run r = run_at(i);
        Moe m = run_make(t, &r);
        check_forward(t, &r, &m);
        check_backward_input(t, &r, &m);
        check_backward_weight(t, &r, &m);
        arena_release(&t->arena, mark);
    }
}

/* Rows past the live ones are NaN or name tokens that are not there. */
static void rows_past_the_live_ones_are_neither_read_nor_written(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SCALED_FORMS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Run r = { &scaled_forms[i], i % 2 == 0 ? 0 : 3, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, true,
                  0 };
        Moe m = run_make(t, &r);
        m.live = 1 + 63 + 64 + 65 + 50; /* ends in group 5 */
        m.rows.device = &m.live;
        for (int64_t k = m.live; k < m.rows.bound; k++) optest_set(&m.row_token, k, -1);
        for (int64_t k = m.live; k < m.rows.bound; k++) optest_set(&m.row_slot, k, -1);
        Tensor before = optest_copy(t, &m.dw2);
        check_forward(t, &r, &m);
        check_backward_input(t, &r, &m);
        check_backward_weight(t, &r, &m);
        int64_t each = m.s.D * m.s.F;
        for (int64_t k = 6 * each; k < m.s.E * each; k++)
            CHECK_NEAR(optest_get(&m.dw2, k), optest_get(&before, k), 0);
        arena_release(&t->arena, mark);
    }
}

/* Up, and back to the rows and weights; of down only what writes dpre. */
static void run_up(OpTest *t, const Run *r, const Moe *m)
{
    const Tensor none = { 0 };
    const ScaledForm *f = r->form;
    Moe tokens = *m; /* x and dy lie in no pool, and neither do quantised rows */
    tokens.rows.first = NULL;
    MoeUpFwd up = moe_up_fwd_of(m);
    up.x = scaled_rows(t, f->rows, DTYPE_E4M3, f->pow2, m->x, (Rows){ 0 });
    up.w = scaled_weight(t, f, m->w1, false);
    CHECK_OK(moe_up_fwd(&t->ex, up));
    MoeDownBwdInput down = moe_down_bwd_input_of(m);
    down.dy = scaled_rows(t, f->rows, f->gradient, f->pow2, m->dy, (Rows){ 0 });
    down.w = scaled_weight(t, f, m->w2, true);
    CHECK_OK(moe_down_bwd_input(&t->ex, down));
    MoeUpBwdInput back = moe_up_bwd_input_of(&tokens);
    back.dpre = by_row_of(t, r, m, f->gradient, m->dpre);
    back.w = scaled_weight(t, f, m->w1, true);
    CHECK_OK(moe_up_bwd_input(&t->ex, back));
    MoeUpBwdWeight weight = moe_up_bwd_weight_of(&tokens);
    weight.dpre = columns_of(t, r, m, f->gradient, m->dpre, none);
    weight.x = columns_of(t, r, &tokens, DTYPE_E4M3, m->x, m->row_token);
    CHECK_OK(moe_up_bwd_weight(&t->ex, weight));
}

/* The rows of pre and dpre lie somewhere in a pool. */
static void pooled_rows_have_the_bits_of_rows_of_their_own(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SCALED_FORMS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Run r = { &scaled_forms[i], 3, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, false, 0 };
        Moe own = run_make(t, &r), pooled = own;
        int32_t first = 131;
        int64_t n = own.rows.bound, F = own.s.F, slots = moe_slots(&own.s);
        own.live = (int32_t)slots;
        own.rows.device = pooled.rows.device = &own.live;
        pooled.rows.first = &first;
        pooled.pre = pooled.dpre = optest_poisoned(t, r.act, DIMS(first + n, 2 * F));
        own.dpre = own.pre;
        pooled.dx_rows = optest_poisoned(t, r.act, own.dx_rows.dim);
        pooled.dw1 = optest_copy(t, &own.dw1);
        run_up(t, &r, &own);
        run_up(t, &r, &pooled);
        Tensor mine = tensor_rows(&pooled.pre, first, slots),
               want = tensor_rows(&own.pre, 0, slots);
        CHECK_SAME(&mine, &want);
        mine = tensor_rows(&pooled.dx_rows, 0, slots), want = tensor_rows(&own.dx_rows, 0, slots);
        CHECK_SAME(&mine, &want);
        CHECK_SAME(&pooled.dw1, &own.dw1);
        Tensor head = tensor_rows(&pooled.pre, 0, first);
        check_untouched("pre", &head, 0);
        check_untouched("pre", &pooled.pre, first + slots);
        arena_release(&t->arena, mark);
    }
}

/* Received rows are gathered before they are quantised, so that gaps between them are not read. */
static void rows_may_be_gathered_before_they_are_quantised(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SCALED_FORMS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Run r = { &scaled_forms[i], 3, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, false, 0 };
        Moe m = run_make(t, &r);
        m.live = (int32_t)moe_slots(&m.s);
        m.rows.device = &m.live;
        MoeUpFwd up = moe_up_fwd_of(&m), gathered = up;
        up.x = scaled_rows(t, r.form->rows, DTYPE_E4M3, r.form->pow2, m.x, (Rows){ 0 });
        up.w = gathered.w = scaled_weight(t, r.form, m.w1, false);
        CHECK_OK(operand_new(&t->arena, r.form->rows, DTYPE_E4M3, 2, DIMS(m.rows.bound, m.s.D),
                             &gathered.x));
        scaled_poison(&gathered.x);
        CHECK_OK(quantize(&t->ex, (Quantize){ .x.data = m.x,
                                              .quant = gathered.x,
                                              .row_token = m.row_token,
                                              .rows = m.rows,
                                              .pow2 = r.form->pow2 }));
        gathered.row_token = (Tensor){ 0 };
        gathered.pre = operand_plain(optest_poisoned(t, r.act, up.pre.data.dim));
        CHECK_OK(moe_up_fwd(&t->ex, up));
        CHECK_OK(moe_up_fwd(&t->ex, gathered));
        CHECK_SAME(&gathered.pre.data, &up.pre.data);
        arena_release(&t->arena, mark);
    }
}

/* m's operands as signs, and p with the same operands and outputs of its own. */
static void signs_make(OpTest *t, const Run *r, Moe *m, Moe *p)
{
    *m = deal_make(t, r->act, &cases[r->deal], true);
    m->act_rows = m->wact = optest_signs(t, r->act, m->wact.dim);
    m->dpre = optest_signs(t, r->act, m->dpre.dim);
    *p = *m;
    p->out = optest_poisoned(t, r->act, m->out.dim);
    p->dx_rows = optest_poisoned(t, r->act, m->dx_rows.dim);
    p->dw2 = optest_copy(t, &m->dw2);
}

/* Signs with scales that are powers of two: codes, products and sums are exact. */
static void integers_come_out_exactly(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 3 * CASES; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        ScaledForm form = scaled_forms[i % 3];
        form.pow2 = true;
        Run r = { &form, i / 3, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, false, 0 };
        Moe m, p;
        signs_make(t, &r, &m, &p);
        MoeDownFwd down = moe_down_fwd_of(&m);
        down.act = by_row_of(t, &r, &m, DTYPE_E4M3, m.act_rows);
        down.w = scaled_weight(t, &form, m.w2, false);
        CHECK_OK(moe_down_fwd(&t->ex, down));
        CHECK_OK(moe_down_fwd(&t->ex, moe_down_fwd_of(&p)));
        CHECK_SAME(&m.out, &p.out);
        MoeUpBwdInput back = moe_up_bwd_input_of(&m);
        back.dpre = by_row_of(t, &r, &m, form.gradient, m.dpre);
        back.w = scaled_weight(t, &form, m.w1, true);
        CHECK_OK(moe_up_bwd_input(&t->ex, back));
        CHECK_OK(moe_up_bwd_input(&t->ex, moe_up_bwd_input_of(&p)));
        CHECK_SAME(&m.dx_rows, &p.dx_rows);
        MoeDownBwdWeight dw2 = moe_down_bwd_weight_of(&m);
        dw2.dy = columns_of(t, &r, &m, form.gradient, m.dy, m.row_token);
        dw2.wact = columns_of(t, &r, &m, DTYPE_E4M3, m.wact, (Tensor){ 0 });
        CHECK_OK(moe_down_bwd_weight(&t->ex, dw2));
        CHECK_OK(moe_down_bwd_weight(&t->ex, moe_down_bwd_weight_of(&p)));
        CHECK_SAME(&m.dw2, &p.dw2);
        arena_release(&t->arena, mark);
    }
}

/* 1, 2 and 5 threads. */
static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 5 };
    for (int i = 0; i < SCALED_FORMS; i++) {
        OpTest t[3];
        Moe m[3];
        for (int k = 0; k < 3; k++) {
            Run r = { &scaled_forms[i], 0, DTYPE_F32, true, 0 };
            moe_open(&t[k], threads[k]);
            m[k] = run_make(&t[k], &r);
            run_up(&t[k], &r, &m[k]);
            CHECK_SAME(&m[k].pre, &m[0].pre);
            CHECK_SAME(&m[k].dx_rows, &m[0].dx_rows);
            CHECK_SAME(&m[k].dweight, &m[0].dweight);
            CHECK_SAME(&m[k].dw1, &m[0].dw1);
        }
        for (int k = 0; k < 3; k++) optest_close(&t[k]);
    }
}

/* NaN in one expert's weights and in its rows of dpre shows in its own results alone. Groups 4 and 5
 * share no block of columns. One scale for all would be NaN's as well, but amax leaves NaN out. */
static void a_group_reads_nothing_but_its_own(void **state)
{
    OpTest *t = *state;
    const int64_t sick = 4;
    for (int i = 0; i < SCALED_FORMS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        Run r = { &scaled_forms[i], 3, DTYPE_BF16, false, 0 };
        Moe m = run_make(t, &r);
        const int32_t *offsets = m.offsets.data;
        int64_t D = m.s.D, F = m.s.F;
        m.dpre = optest_normal(t, r.act, m.dpre.dim);
        for (int64_t k = sick * 2 * F * D; k < (sick + 1) * 2 * F * D; k++)
            optest_set(&m.w1, k, NAN);
        MoeUpBwdInput back = moe_up_bwd_input_of(&m);
        back.dpre = by_row_of(t, &r, &m, r.form->gradient, m.dpre);
        back.w = scaled_weight(t, r.form, m.w1, true);
        CHECK_OK(moe_up_bwd_input(&t->ex, back));
        for (int64_t k = 0; k < moe_slots(&m.s) * D; k++) {
            bool own = k / D >= offsets[sick] && k / D < offsets[sick + 1];
            CHECK_INT(isnan(optest_get(&m.dx_rows, k)), own);
        }
        for (int64_t k = offsets[sick] * 2 * F; k < offsets[sick + 1] * 2 * F; k++)
            optest_set(&m.dpre, k, NAN);
        MoeUpBwdWeight weight = moe_up_bwd_weight_of(&m);
        weight.dpre = columns_of(t, &r, &m, r.form->gradient, m.dpre, (Tensor){ 0 });
        weight.x = columns_of(t, &r, &m, DTYPE_E4M3, m.x, m.row_token);
        CHECK_OK(moe_up_bwd_weight(&t->ex, weight));
        for (int64_t k = 0; k < m.s.E * 2 * F * D; k++)
            CHECK_INT(isnan(optest_get(&m.dw1, k)), k / (2 * F * D) == sick);
        arena_release(&t->arena, mark);
    }
}

static void operands_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Run r = { &scaled_forms[1], 0, DTYPE_F32, false, 0 };
    Moe m = run_make(t, &r);
    const int32_t first = 0;
    m.dpre = optest_normal(t, r.act, m.dpre.dim);
    MoeUpBwdInput back = moe_up_bwd_input_of(&m);
    back.dpre = by_row_of(t, &r, &m, DTYPE_E4M3, m.dpre);
    back.w = scaled_weight(t, r.form, m.w1, false);
    CHECK_FAILS(moe_up_bwd_input(&t->ex, back), ERR_ARG, "w with scales must be transposed here");
    back.w = scaled_weight(t, r.form, m.w1, true);
    MoeUpFwd up = moe_up_fwd_of(&m);
    up.x = scaled_rows(t, OPERAND_ROW, DTYPE_E4M3, false, m.x, (Rows){ 0 });
    up.w = back.w;
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_ARG, "w with scales must not be transposed here");
    up.w = scaled_weight(t, r.form, m.w1, false);
    optest_set(&m.row_token, 200, 226);
    CHECK_FAILS(moe_up_fwd(&t->ex, up), ERR_ARG, "row 200 reads token 226, outside 0 .. 225");
    MoeUpBwdWeight weight = moe_up_bwd_weight_of(&m);
    weight.dpre = columns_of(t, &r, &m, DTYPE_E4M3, m.dpre, (Tensor){ 0 });
    weight.x = up.x;
    CHECK_FAILS(moe_up_bwd_weight(&t->ex, weight), ERR_ARG, "x must be transposed, with scales");
    weight.x = weight.dpre;
    weight.x.scale = m.weight;
    CHECK_FAILS(moe_up_bwd_weight(&t->ex, weight), ERR_SHAPE, "x is (226, 2) f32, wanted");
    weight.x = weight.dpre;
    weight.rows.first = &first;
    CHECK_FAILS(moe_up_bwd_weight(&t->ex, weight), ERR_ARG,
                "dpre with scales cannot lie in a pool");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MOE_TEST(products_are_those_of_the_numbers_that_operands_stand_for, 2),
        MOE_TEST(rows_past_the_live_ones_are_neither_read_nor_written, 2),
        MOE_TEST(pooled_rows_have_the_bits_of_rows_of_their_own, 2),
        MOE_TEST(rows_may_be_gathered_before_they_are_quantised, 2),
        MOE_TEST(integers_come_out_exactly, 2),
        TEST(any_number_of_threads_gives_the_same_bits),
        MOE_TEST(a_group_reads_nothing_but_its_own, 2),
        MOE_TEST(operands_that_do_not_fit_are_an_error, 1),
    };
    return TEST_RUN(tests);
}
