/* The experts' products with 8-bit results: not a bit differs from the plain op and quantize. Where
 * there is a GPU, its results are compared with each other, not with the CPU's: a product's last bit
 * turns a code. */
#include "moe_case.h"
#include "scaled_case.h"

typedef struct Case {
    Deal deal;
    Dtype act, gradient;
    bool pow2, in_place, biases;
    float limit;
    int32_t first, live; /* first: of a pool that ends with the last row; 0: there is none */
    double outlier;
} Case;

/* clang-format off */
#define ALL_SIZES { 0, 1, 63, 64, 65, 127, 129, 3 }
static const Case cases[] = {
    { { { 226, 2, 8, 272, 128, 5 }, ALL_SIZES }, DTYPE_BF16, DTYPE_E4M3, .pow2 = true, .in_place = true },
    { { { 226, 2, 8, 144, 384, 5 }, ALL_SIZES }, DTYPE_BF16, DTYPE_E5M2, .biases = true, .first = 131 },
    { { { 226, 2, 8, 144, 384, 0 }, ALL_SIZES }, DTYPE_BF16, DTYPE_E4M3, .in_place = true, .first = 9,
      .live = 1 + 63 + 64 + 65 + 50 },
    { { { 700, 1, 4, 144, 256, 0 }, { 0, 0, 700, 0 } }, DTYPE_BF16, DTYPE_E4M3, .pow2 = true,
      .biases = true, .limit = 1.25f, .live = 500 },
    { { { 8, 1, 8, 16, 128, 3 }, { 1, 1, 1, 1, 1, 1, 1, 1 } }, DTYPE_BF16, DTYPE_E5M2, .pow2 = true,
      .outlier = 1e4 },
    { { { 226, 2, 8, 272, 256, 5 }, ALL_SIZES }, DTYPE_BF16, DTYPE_E4M3, .in_place = true,
      .outlier = 1e4 },
    { { { 226, 2, 8, 272, 128, 5 }, ALL_SIZES }, DTYPE_BF16, DTYPE_E4M3, .outlier = 1e-17 },
    /* no whole packs */
    { { { 150, 3, 5, 33, 128, 1 }, { 0, 237, 119, 79, 15 } }, DTYPE_BF16, DTYPE_E4M3, .pow2 = true,
      .in_place = true, .first = 5, .limit = 2 },
    { { { 50, 3, 3, 17, 128, 1 }, { 129, 0, 21 } }, DTYPE_F32, DTYPE_E5M2, .in_place = false },
};
/* clang-format on */
enum { CASES = sizeof cases / sizeof *cases };

/* One entry of a row, a column and a block is `factor` times as large; a factor below 1 is for all. */
static void spoil(const Tensor *x, double factor)
{
    int64_t d = tensor_cols(x), n = tensor_elems(x), rows = n / d;
    const int64_t at[] = { d / 3, rows / 2 * d + d - 1, (rows - 1) * d };
    for (int64_t i = 0; factor < 1 && i < n; i++) optest_set(x, i, factor * optest_get(x, i));
    for (int i = 0; i < 3 && factor > 1; i++) optest_set(x, at[i], factor * optest_get(x, at[i]));
}

/* A case's tensors, and its operands of 8 bits. */
typedef struct Run {
    const Case *c;
    Moe m;
    Operand x, dy, w1, w2;
    int32_t first;
    int64_t n; /* rows in use */
} Run;

static void run_make(OpTest *t, const Case *c, Run *r)
{
    const ScaledForm form = { "block",       OPERAND_1X128, OPERAND_128X128,
                              OPERAND_1X128, c->gradient,   c->pow2 };
    *r = (Run){ .c = c, .m = deal_make(t, c->act, &c->deal, false), .first = c->first };
    Moe *m = &r->m;
    moe_form(t, m, c->biases, c->limit);
    if (c->outlier > 0) spoil(&m->x, c->outlier), spoil(&m->dy, c->outlier);
    r->n = c->live > 0 ? c->live : moe_slots(&m->s);
    m->live = (int32_t)r->n;
    if (c->live > 0 || c->first > 0) m->rows.device = &m->live;
    r->x = scaled_rows(t, OPERAND_1X128, DTYPE_E4M3, c->pow2, m->x, (Rows){ 0 });
    r->dy = scaled_rows(t, OPERAND_1X128, c->gradient, c->pow2, m->dy, (Rows){ 0 });
    r->w1 = scaled_weight(t, &form, m->w1, false);
    r->w2 = scaled_weight(t, &form, m->w2, true);
    mirror.unlike = true;
}

/* An 8-bit tensor of routed rows; of a pool if `pools` and the case has one. */
static Operand rows_new(OpTest *t, const Run *r, Dtype type, int64_t cols, bool pools)
{
    Operand q;
    int64_t n = pools && r->first > 0 ? r->first + r->n : r->m.rows.bound;
    CHECK_OK(operand_new(&t->arena, OPERAND_1X128, type, 2, DIMS(n, cols), &q));
    scaled_poison(&q);
    return q;
}

static Operand columns_new(OpTest *t, const Run *r, Dtype type, int64_t d)
{
    Operand q;
    CHECK_OK(operand_new_groups(&t->arena, OPERAND_1X128, type, d, r->m.rows.bound, r->m.s.E, &q));
    scaled_poison(&q);
    return q;
}

/* Rows from `first` on are those of x, quantised; the others are untouched. */
static void check_rows(OpTest *t, const Run *r, const Operand *q, Tensor x, int32_t first)
{
    Rows rows = r->m.rows;
    rows.first = NULL;
    Operand want = scaled_rows(t, OPERAND_1X128, q->data.dtype, r->c->pow2, x, rows);
    const Tensor *have[] = { &q->data, &q->scale }, *ref[] = { &want.data, &want.scale };
    for (int i = 0; i < 2; i++) {
        Tensor mine = tensor_rows(have[i], first, r->n), like = tensor_rows(ref[i], 0, r->n);
        Tensor head = tensor_rows(have[i], 0, first);
        CHECK_SAME(&mine, &like);
        check_untouched("rows before", &head, 0);
    }
    check_untouched("rows after", &q->data, first + r->n);
}

static void check_columns(OpTest *t, const Run *r, const Operand *q, Tensor x)
{
    Quantize a = { .x.data = x, .offsets = r->m.offsets, .rows = r->m.rows, .pow2 = r->c->pow2 };
    a.rows.first = NULL;
    Operand want = scaled_columns(t, OPERAND_1X128, q->data.dtype, a);
    CHECK_SAME(&q->data, &want.data);
    CHECK_SAME(&q->scale, &want.scale);
}

/* Leaves the 8-bit pre. */
static Operand check_forward(OpTest *t, Run *r)
{
    int64_t F = r->m.s.F;
    MoeUpFwd plain = moe_up_fwd_of(&r->m), a;
    plain.x = r->x, plain.w = r->w1;
    a = plain;
    a.pre = rows_new(t, r, DTYPE_E4M3, 2 * F, true);
    a.act = rows_new(t, r, DTYPE_E4M3, F, false);
    a.pow2 = r->c->pow2;
    a.f32 = r->c->act == DTYPE_F32;
    if (r->first > 0) a.rows.first = &r->first;
    CHECK_OK(moe_up_fwd(&t->ex, plain));
    CHECK_OK(moe_up_fwd(&t->ex, a));
    check_rows(t, r, &a.pre, plain.pre.data, r->first);
    check_rows(t, r, &a.act, plain.act.data, 0);
    return a.pre;
}

static void check_backward(OpTest *t, Run *r, Operand pre)
{
    int64_t F = r->m.s.F;
    bool in_place = r->c->in_place;
    MoeDownBwdInput plain = moe_down_bwd_input_of(&r->m), a;
    plain.dy = r->dy, plain.w = r->w2;
    a = plain;
    a.pre = pre;
    a.dpre = in_place ? pre : rows_new(t, r, r->c->gradient, 2 * F, true);
    a.dpre_columns = columns_new(t, r, r->c->gradient, 2 * F);
    a.wact = columns_new(t, r, DTYPE_E4M3, F);
    a.dweight = optest_poisoned(t, DTYPE_F32, plain.dweight.dim);
    a.pow2 = r->c->pow2;
    a.f32 = r->c->act == DTYPE_F32;
    if (r->first > 0) a.rows.first = &r->first;
    plain.pre = operand_plain(optest_poisoned(t, r->c->act, r->m.pre.dim));
    CHECK_OK(dequantize(&t->ex, (Dequantize){ .quant = pre, .y = plain.pre.data, .rows = a.rows }));
    CHECK_OK(moe_down_bwd_input(&t->ex, plain));
    CHECK_OK(moe_down_bwd_input(&t->ex, a));
    check_rows(t, r, &a.dpre, plain.dpre.data, r->first);
    check_columns(t, r, &a.dpre_columns, plain.dpre.data);
    check_columns(t, r, &a.wact, plain.wact.data);
    Tensor dweight = tensor_as2(&a.dweight, 1, tensor_elems(&a.dweight));
    if (r->c->live == 0) CHECK_TENSOR_WITHIN(&dweight, optest_read(t, &plain.dweight), 1e-5);
}

static void results_have_the_bits_of_the_plain_op_and_quantize(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i += RUNS(1, 2)) {
        OpTest t;
        Run r;
        moe_open(&t, 2);
        mirror_gives();
        run_make(&t, &cases[i], &r);
        check_backward(&t, &r, check_forward(&t, &r));
        optest_close(&t);
    }
}

/* Some results plain: each 8-bit one is what it is beside others. */
static void every_result_may_have_8_bits_alone(void **state)
{
    (void)state;
    OpTest t;
    Run r;
    moe_open(&t, 2);
    mirror_gives();
    run_make(&t, &cases[0], &r);
    int64_t F = r.m.s.F;
    MoeUpFwd up = moe_up_fwd_of(&r.m), half = up;
    up.x = half.x = r.x, up.w = half.w = r.w1;
    half.pre = rows_new(&t, &r, DTYPE_E4M3, 2 * F, true);
    half.act = operand_plain(optest_poisoned(&t, r.c->act, up.act.data.dim));
    up.pow2 = half.pow2 = true;
    CHECK_OK(moe_up_fwd(&t.ex, up));
    CHECK_OK(moe_up_fwd(&t.ex, half));
    check_rows(&t, &r, &half.pre, up.pre.data, 0);
    CHECK_SAME(&half.act.data, &up.act.data);
    MoeDownBwdInput down = moe_down_bwd_input_of(&r.m), columns = down, rows = down;
    down.dy = columns.dy = rows.dy = r.dy, down.w = columns.w = rows.w = r.w2;
    columns.pow2 = rows.pow2 = true;
    columns.dpre = operand_plain(optest_poisoned(&t, r.c->act, down.dpre.data.dim));
    columns.dpre_columns = columns_new(&t, &r, DTYPE_E4M3, 2 * F);
    rows.dpre = rows_new(&t, &r, DTYPE_E4M3, 2 * F, true);
    CHECK_OK(moe_down_bwd_input(&t.ex, down));
    CHECK_OK(moe_down_bwd_input(&t.ex, columns));
    CHECK_OK(moe_down_bwd_input(&t.ex, rows));
    CHECK_SAME(&columns.dpre.data, &down.dpre.data);
    check_columns(&t, &r, &columns.dpre_columns, down.dpre.data);
    check_rows(&t, &r, &rows.dpre, down.dpre.data, 0);
    optest_close(&t);
}

/* dpre in 8 bits that lies in a pool is the next product's operand. */
static void gradients_of_a_pool_are_read_where_they_lie(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        if (cases[i].first == 0) continue;
        OpTest t;
        Run r;
        moe_open(&t, 2);
        mirror_gives();
        run_make(&t, &cases[i], &r);
        mirror.unlike = false;
        const ScaledForm form = { "block", OPERAND_1X128, OPERAND_128X128, OPERAND_1X128, 0, true };
        Tensor dpre = optest_normal(&t, r.c->act, DIMS(r.m.rows.bound, 2 * r.m.s.F));
        MoeUpBwdInput own = moe_up_bwd_input_of(&r.m), pooled = own;
        own.w = pooled.w = scaled_weight(&t, &form, r.m.w1, true);
        own.dpre = scaled_rows(&t, OPERAND_1X128, r.c->gradient, true, dpre, r.m.rows);
        pooled.dpre = rows_new(&t, &r, r.c->gradient, 2 * r.m.s.F, true);
        pooled.rows.first = &r.first;
        pooled.dx = optest_poisoned(&t, r.c->act, own.dx.dim);
        int depth = t.ex.depth; /* no port tells the mirror of `to` */
        Quantize q = { .x.data = dpre, .quant = pooled.dpre, .rows = r.m.rows, .pow2 = true };
        q.to = &r.first;
        t.ex.depth = 0;
        CHECK_OK(quantize(&t.ex, q));
        t.ex.depth = depth;
        CHECK_OK(moe_up_bwd_input(&t.ex, own));
        CHECK_OK(moe_up_bwd_input(&t.ex, pooled));
        CHECK_SAME(&pooled.dx, &own.dx);
        optest_close(&t);
    }
}

/* They are not written, and so poison may stand there. */
static void the_guard_leaves_columns_past_the_last_group_alone(void **state)
{
    (void)state;
    const Case c = { .deal = { { 226, 2, 8, 16, 128, 0 }, ALL_SIZES },
                     .act = DTYPE_BF16,
                     .gradient = DTYPE_E4M3,
                     .pow2 = true };
    OpTest t;
    Run r;
    optest_open(&t, 2);
    mirror_gives();
    run_make(&t, &c, &r);
    check_backward(&t, &r, check_forward(&t, &r));
    optest_close(&t);
}

static void what_cannot_have_8_bits_is_refused(void **state)
{
    OpTest *t = *state;
    Run r;
    run_make(t, &cases[1], &r);
    int64_t F = r.m.s.F;
    MoeUpFwd up = moe_up_fwd_of(&r.m);
    up.act = rows_new(t, &r, DTYPE_E4M3, F, false);
    CHECK_FAILS(
        moe_up_fwd(&t->ex, up), ERR_ARG,
        "moe_up_fwd: 8-bit results need x with scales of 1 x 128, w with scales of 128 x 128, "
        "and experts whose width is a multiple of 128, not 384");
    MoeDownBwdInput down = moe_down_bwd_input_of(&r.m);
    down.dy = r.dy, down.w = r.w2;
    down.wact = rows_new(t, &r, DTYPE_E4M3, F, false);
    CHECK_FAILS(moe_down_bwd_input(&t->ex, down), ERR_ARG, "wact must be transposed");
    down.wact = columns_new(t, &r, DTYPE_E4M3, F);
    down.rows.first = &r.first;
    down.dpre = rows_new(t, &r, DTYPE_E4M3, 2 * F, false);
    CHECK_FAILS(moe_down_bwd_input(&t->ex, down), ERR_ARG, "both plain, or both 8-bit");
    down.rows.first = NULL;
    down.dpre = columns_new(t, &r, DTYPE_E4M3, 2 * F);
    CHECK_FAILS(moe_down_bwd_input(&t->ex, down), ERR_ARG, "dpre is marked as transposed");
    down.dpre = operand_plain(r.m.dpre);
    down.wact = columns_new(t, &r, DTYPE_E4M3, 2 * F);
    CHECK_FAILS(moe_down_bwd_input(&t->ex, down), ERR_SHAPE, "moe_down_bwd_input: wact is (768,");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(results_have_the_bits_of_the_plain_op_and_quantize),
        TEST(every_result_may_have_8_bits_alone),
        TEST(gradients_of_a_pool_are_read_where_they_lie),
        TEST(the_guard_leaves_columns_past_the_last_group_alone),
        MOE_TEST(what_cannot_have_8_bits_is_refused, 2),
    };
    return TEST_RUN(tests);
}
