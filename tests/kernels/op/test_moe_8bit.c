/* The experts' products of 8-bit operands against their definition: products of the numbers that the
 * operands stand for, in double. Where there is a GPU, its kernels run, too, and are compared with
 * the CPU. Operands are made on the CPU alone: what they hold is tested in test_quant.c. */
#include "kernels/dense/linear.h"
#include "kernels/quant/quant.h"
#include "moe_case.h"

typedef struct ScaledCase {
    Deal deal;
    OperandKind rows, weight;
    Dtype gradient; /* of dy and dpre; all else is e4m3 */
    Dtype act;
} ScaledCase;

/* Groups of all sizes, and one past a tile. Widths: whole packs for a GPU's own kernel, also with a
 * last piece of k that is no whole block; then widths that only the plain kernel takes. */
#define ALL_SIZES                                                                                  \
    { 226, 2, 8, 272, 192, 5 }, { 0, 1, 63, 64, 65, 127, 129, 3 }
#define ONE_EACH                                                                                   \
    { 4, 2, 8, 256, 64, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 }
#define ONE_GROUP                                                                                  \
    { 700, 1, 4, 528, 128, 0 }, { 0, 0, 700, 0 }
#define NO_PACKS                                                                                   \
    { 226, 2, 8, 33, 17, 5 }, { 0, 1, 63, 64, 65, 127, 129, 3 }

static const ScaledCase scaled_cases[] = {
    { { ALL_SIZES }, OPERAND_1X128, OPERAND_128X128, DTYPE_E4M3, DTYPE_BF16 },
    { { ALL_SIZES }, OPERAND_1X128, OPERAND_128X128, DTYPE_E5M2, DTYPE_BF16 },
    { { ALL_SIZES }, OPERAND_ROW, OPERAND_ROW, DTYPE_E5M2, DTYPE_BF16 },
    { { ALL_SIZES }, OPERAND_TENSOR, OPERAND_TENSOR, DTYPE_E4M3, DTYPE_BF16 },
    { { ALL_SIZES }, OPERAND_1X128, OPERAND_1X128, DTYPE_E4M3, DTYPE_BF16 },
    { { ONE_EACH }, OPERAND_1X128, OPERAND_128X128, DTYPE_E4M3, DTYPE_BF16 },
    { { ONE_GROUP }, OPERAND_1X128, OPERAND_128X128, DTYPE_E4M3, DTYPE_BF16 },
    { { ONE_GROUP }, OPERAND_ROW, OPERAND_ROW, DTYPE_E4M3, DTYPE_BF16 },
    { { NO_PACKS }, OPERAND_1X128, OPERAND_128X128, DTYPE_E5M2, DTYPE_BF16 },
    { { NO_PACKS }, OPERAND_ROW, OPERAND_ROW, DTYPE_E4M3, DTYPE_F32 },
};

enum { SCALED_CASES = sizeof scaled_cases / sizeof *scaled_cases };

/* The operands of all six products. */
typedef struct Eight {
    Operand x, w1, w2, act;            /* forward */
    Operand dy, dpre, w1_t, w2_t;      /* gradients of rows */
    Operand x_t, dy_t, dpre_t, wact_t; /* gradients of weights */
} Eight;

/* On the CPU alone. */
static void make_operand(OpTest *t, Quantize q)
{
    int depth = t->ex.depth;
    t->ex.depth = 0;
    q.pow2 = true;
    CHECK_OK(quantize(&t->ex, q));
    t->ex.depth = depth;
}

static Operand as_rows(OpTest *t, OperandKind kind, Dtype type, Tensor x)
{
    Operand q;
    CHECK_OK(operand_new(&t->arena, kind, type, x.rank, x.dim, &q));
    make_operand(t, (Quantize){ .x.data = x, .quant = q });
    return q;
}

static Operand turned(OpTest *t, OperandKind kind, Tensor w)
{
    Operand q;
    const int64_t dim[] = { w.dim[0], w.dim[2], w.dim[1] };
    CHECK_OK(operand_new(&t->arena, kind, DTYPE_E4M3, 3, dim, &q));
    q.transposed = true;
    make_operand(t, (Quantize){ .x.data = w, .transposed = q });
    return q;
}

static Operand as_columns(OpTest *t, const Moe *m, OperandKind kind, Dtype type, Tensor x,
                          bool gathers)
{
    Operand q;
    CHECK_OK(operand_new_groups(&t->arena, kind, type, tensor_cols(&x), m->rows.bound, m->s.E, &q));
    Quantize a = { .x.data = x, .transposed = q, .offsets = m->offsets, .rows = m->rows };
    if (gathers) a.row_token = m->row_token;
    make_operand(t, a);
    return q;
}

/* Rows of which no slot has some: those hold numbers, too, so that they can be quantised. */
static Tensor live_rows(OpTest *t, const Moe *m, int64_t cols, bool integers)
{
    return moe_values(t, m->act, m->rows.bound, cols, integers);
}

static Eight eight_make(OpTest *t, const ScaledCase *c, Moe *m, bool integers)
{
    OperandKind rows = c->rows, w = c->weight, columns = rows;
    m->act_rows = live_rows(t, m, m->s.F, integers);
    m->wact = live_rows(t, m, m->s.F, integers);
    m->dpre = live_rows(t, m, 2 * m->s.F, integers);
    return (Eight){
        .x = as_rows(t, rows, DTYPE_E4M3, m->x),
        .w1 = as_rows(t, w, DTYPE_E4M3, m->w1),
        .w2 = as_rows(t, w, DTYPE_E4M3, m->w2),
        .act = as_rows(t, rows, DTYPE_E4M3, m->act_rows),
        .dy = as_rows(t, rows, c->gradient, m->dy),
        .dpre = as_rows(t, rows, c->gradient, m->dpre),
        .w1_t = turned(t, w, m->w1),
        .w2_t = turned(t, w, m->w2),
        .x_t = as_columns(t, m, columns, DTYPE_E4M3, m->x, true),
        .dy_t = as_columns(t, m, columns, c->gradient, m->dy, true),
        .dpre_t = as_columns(t, m, columns, c->gradient, m->dpre, false),
        .wact_t = as_columns(t, m, columns, DTYPE_E4M3, m->wact, false),
    };
}

/* What an operand stands for, as it lies. group: of a row's columns, -1: scales have no groups. */
static double value_at(const Operand *q, int64_t row, int64_t col, int64_t group)
{
    const OperandGrid g = operand_grid_of(q);
    float v = 0;
    dtype_to_f32(&v, tensor_at(&q->data, row * g.d + col), q->data.dtype, 1);
    int64_t cols = tensor_cols(&q->scale), at = col / g.width;
    if (q->kind == OPERAND_ROW && group >= 0) at = group;
    return (double)v *
           (double)((const float *)
                        q->scale.data)[(row / g.n * g.rows + row % g.n / g.height) * cols + at];
}

static double *values_of(OpTest *t, const Operand *q)
{
    int64_t n = tensor_elems(&q->data), d = tensor_cols(&q->data);
    double *out = optest_doubles(t, n);
    for (int64_t i = 0; i < n; i++) out[i] = value_at(q, i / d, i % d, -1);
    return out;
}

/* c_r = a[r] b_e^T for routed rows; with tokens a[row_token[r]]. (slots, n) */
static double *product_of(OpTest *t, const Moe *m, const Operand *a, const Operand *b, bool tokens)
{
    const int32_t *offsets = m->offsets.data, *token = m->row_token.data;
    int64_t k = tensor_cols(&a->data), n = b->data.dim[1];
    double *x = values_of(t, a), *w = values_of(t, b), *c = optest_doubles(t, moe_slots(&m->s) * n);
    for (int64_t e = 0; e < m->s.E; e++) {
        for (int64_t r = offsets[e]; r < offsets[e + 1]; r++) {
            const double *row = x + (tokens ? token[r] : r) * k;
            for (int64_t j = 0; j < n; j++) {
                const double *col = w + (e * n + j) * k;
                double sum = 0;
                for (int64_t i = 0; i < k; i++) sum += row[i] * col[i];
                c[r * n + j] = sum;
            }
        }
    }
    return c;
}

/* dw_e = what stands there + a_e b_e^T over the columns of group e. */
static double *sum_of(OpTest *t, const Moe *m, const Operand *a, const Operand *b, const Tensor *dw)
{
    const int32_t *offsets = m->offsets.data;
    int64_t rows = a->data.dim[0], cols = b->data.dim[0], live = m->rows.bound;
    double *out = optest_read(t, dw);
    for (int64_t e = 0; e < m->s.E; e++) {
        int64_t start = operand_group_start(offsets, e, live), n = offsets[e + 1] - offsets[e];
        double *right = optest_doubles(t, cols * (n + 1));
        for (int64_t i = 0; i < cols * n; i++) right[i] = value_at(b, i / n, start + i % n, e);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t k = 0; k < n; k++) {
                double left = value_at(a, i, start + k, e);
                for (int64_t j = 0; j < cols; j++)
                    out[(e * rows + i) * cols + j] += left * right[j * n + k];
            }
        }
    }
    return out;
}

/* The six ops. */

static MoeUpFwd up_of(const Moe *m, const Eight *q)
{
    MoeUpFwd a = moe_up_fwd_of(m);
    a.x = q->x, a.w = q->w1;
    return a;
}

static MoeDownFwd down_of(const Moe *m, const Eight *q)
{
    MoeDownFwd a = moe_down_fwd_of(m);
    a.act = q->act, a.w = q->w2;
    return a;
}

static MoeDownBwdInput down_input_of(OpTest *t, const Moe *m, const Eight *q)
{
    MoeDownBwdInput a = moe_down_bwd_input_of(m);
    a.dy = q->dy, a.w = q->w2_t;
    a.pre = operand_plain(moe_values(t, m->act, m->rows.bound, 2 * m->s.F, false));
    a.dpre = operand_plain(optest_poisoned(t, m->act, DIMS(m->rows.bound, 2 * m->s.F)));
    a.wact = operand_plain(optest_poisoned(t, m->act, DIMS(m->rows.bound, m->s.F)));
    return a;
}

static MoeUpBwdInput up_input_of(const Moe *m, const Eight *q)
{
    MoeUpBwdInput a = moe_up_bwd_input_of(m);
    a.dpre = q->dpre, a.w = q->w1_t;
    return a;
}

static MoeUpBwdWeight up_weight_of(const Moe *m, const Eight *q)
{
    MoeUpBwdWeight a = moe_up_bwd_weight_of(m);
    a.dpre = q->dpre_t, a.x = q->x_t;
    return a;
}

static MoeDownBwdWeight down_weight_of(const Moe *m, const Eight *q)
{
    MoeDownBwdWeight a = moe_down_bwd_weight_of(m);
    a.dy = q->dy_t, a.wact = q->wact_t;
    return a;
}

static Tensor routed(const Moe *m, const Tensor *x) { return tensor_rows(x, 0, moe_slots(&m->s)); }

static void check_forward(OpTest *t, const Moe *m, const Eight *q, double limit)
{
    int64_t F = m->s.F, R = moe_slots(&m->s);
    double *pre = product_of(t, m, &q->x, &q->w1, true), *act = optest_doubles(t, R * F);
    for (int64_t i = 0; i < R * F; i++) {
        const double *gate = pre + i / F * 2 * F + i % F;
        act[i] = activation(0, gate[0], gate[F], NULL);
    }
    MoeUpFwd up = up_of(m, q);
    up.act = operand_plain(optest_poisoned(t, m->act, m->act_rows.dim));
    CHECK_OK(moe_up_fwd(&t->ex, up));
    Tensor got = routed(m, &up.pre.data), inner = routed(m, &up.act.data);
    CHECK_TENSOR_WITHIN(&got, pre, limit);
    CHECK_TENSOR_WITHIN(&inner, act, limit);
    CHECK_OK(moe_down_fwd(&t->ex, down_of(m, q)));
    got = routed(m, &m->out);
    CHECK_TENSOR_WITHIN(&got, product_of(t, m, &q->act, &q->w2, false), limit);
    check_untouched("pre", &m->pre, R);
    check_untouched("out", &m->out, R);
}

static void check_input_gradients(OpTest *t, const Moe *m, const Eight *q, double limit)
{
    int64_t F = m->s.F, R = moe_slots(&m->s);
    MoeDownBwdInput down = down_input_of(t, m, q);
    double *da = product_of(t, m, &q->dy, &q->w2_t, true);
    double *dpre = optest_doubles(t, R * 2 * F), *wact = optest_doubles(t, R * F);
    double *dweight = optest_doubles(t, R);
    for (int64_t r = 0; r < R; r++) {
        int64_t slot = (int64_t)optest_get(&m->row_slot, r);
        double w = optest_get(&m->weight, slot);
        dweight[slot] = 0;
        for (int64_t f = 0; f < F; f++) {
            double gate = optest_get(&down.pre.data, r * 2 * F + f);
            double up = optest_get(&down.pre.data, r * 2 * F + F + f), slope[2];
            double act = activation(0, gate, up, slope);
            wact[r * F + f] = w * act;
            dpre[r * 2 * F + f] = w * da[r * F + f] * slope[0];
            dpre[r * 2 * F + F + f] = w * da[r * F + f] * slope[1];
            dweight[slot] += da[r * F + f] * act;
        }
    }
    CHECK_OK(moe_down_bwd_input(&t->ex, down));
    Tensor got = routed(m, &down.dpre.data), inner = routed(m, &down.wact.data),
           by_slot = down.dweight;
    by_slot.rank = 2, by_slot.dim[0] = 1, by_slot.dim[1] = R;
    CHECK_TENSOR_WITHIN(&got, dpre, limit);
    CHECK_TENSOR_WITHIN(&inner, wact, limit);
    CHECK_TENSOR_WITHIN(&by_slot, dweight, limit);
    CHECK_OK(moe_up_bwd_input(&t->ex, up_input_of(m, q)));
    got = routed(m, &m->dx_rows);
    CHECK_TENSOR_WITHIN(&got, product_of(t, m, &q->dpre, &q->w1_t, false), limit);
    check_untouched("dx_rows", &m->dx_rows, R);
}

/* dw goes on from what stands there; an overwriting call does not. */
static void check_weight_gradients(OpTest *t, const Moe *m, const Eight *q, double limit)
{
    MoeUpBwdWeight up = up_weight_of(m, q);
    MoeDownBwdWeight down = down_weight_of(m, q);
    double *dw1 = sum_of(t, m, &q->dpre_t, &q->x_t, &m->dw1);
    double *dw2 = sum_of(t, m, &q->dy_t, &q->wact_t, &m->dw2);
    CHECK_OK(moe_up_bwd_weight(&t->ex, up));
    CHECK_OK(moe_down_bwd_weight(&t->ex, down));
    CHECK_TENSOR_WITHIN(&m->dw1, dw1, limit);
    CHECK_TENSOR_WITHIN(&m->dw2, dw2, limit);
    up.dw = optest_poisoned(t, DTYPE_F32, m->dw1.dim);
    up.overwrite = true;
    Tensor zero = optest_copy(t, &m->dw1);
    memset(zero.data, 0, tensor_bytes(&zero));
    CHECK_OK(moe_up_bwd_weight(&t->ex, up));
    CHECK_TENSOR_WITHIN(&up.dw, sum_of(t, m, &q->dpre_t, &q->x_t, &zero), limit);
}

static void every_product_is_that_of_the_numbers_that_operands_stand_for(void **state)
{
    (void)state;
    for (int i = 0; i < SCALED_CASES; i += RUNS(1, 3)) {
        const ScaledCase *c = &scaled_cases[i];
        OpTest t;
        moe_open(&t, 2);
        mirror_gives();
        Moe m = deal_make(&t, c->act, &c->deal, false);
        Eight q = eight_make(&t, c, &m, false);
        check_forward(&t, &m, &q, 5e-3);
        check_input_gradients(&t, &m, &q, 5e-3);
        check_weight_gradients(&t, &m, &q, 1e-3);
        optest_close(&t);
    }
}

/* Integers and powers of two as scales: nothing rounds, so not a bit may differ. */
static void check_exact(OpTest *t, const Tensor *got, const double *want)
{
    Tensor wanted = optest_poisoned(t, got->dtype, got->dim);
    optest_write(&wanted, want);
    CHECK_SAME(got, &wanted);
}

static void integers_come_out_exactly(void **state)
{
    (void)state;
    for (int i = 0; i < SCALED_CASES; i += RUNS(1, 3)) {
        const ScaledCase *c = &scaled_cases[i];
        OpTest t;
        moe_open(&t, 2);
        mirror_gives();
        Moe m = deal_make(&t, c->act, &c->deal, true);
        Eight q = eight_make(&t, c, &m, true);
        double *dw1 = sum_of(&t, &m, &q.dpre_t, &q.x_t, &m.dw1);
        double *dw2 = sum_of(&t, &m, &q.dy_t, &q.wact_t, &m.dw2);
        MoeUpFwd up = up_of(&m, &q);
        up.act = operand_plain(optest_poisoned(&t, m.act, m.act_rows.dim));
        CHECK_OK(moe_up_fwd(&t.ex, up));
        CHECK_OK(moe_down_fwd(&t.ex, down_of(&m, &q)));
        CHECK_OK(moe_up_bwd_input(&t.ex, up_input_of(&m, &q)));
        CHECK_OK(moe_up_bwd_weight(&t.ex, up_weight_of(&m, &q)));
        CHECK_OK(moe_down_bwd_weight(&t.ex, down_weight_of(&m, &q)));
        Tensor pre = routed(&m, &m.pre), out = routed(&m, &m.out), dx = routed(&m, &m.dx_rows);
        check_exact(&t, &pre, product_of(&t, &m, &q.x, &q.w1, true));
        check_exact(&t, &out, product_of(&t, &m, &q.act, &q.w2, false));
        check_exact(&t, &dx, product_of(&t, &m, &q.dpre, &q.w1_t, false));
        check_exact(&t, &m.dw1, dw1);
        check_exact(&t, &m.dw2, dw2);
        optest_close(&t);
    }
}

/* A GPU adds the products of a block with 13 bits below the largest: outliers have wider limits.
 *
 * A row, a column and a block with an entry of 1e4 times the others, a row of zeros, and a row of
 * numbers below the smallest normal one. */
static void spoil(const Tensor *x)
{
    int64_t d = tensor_cols(x), rows = tensor_elems(x) / d;
    const struct {
        int64_t row, col;
    } at[] = { { 1, d / 3 }, { rows / 2, d - 1 }, { rows - 1, 0 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        int64_t e = at[i].row * d + at[i].col;
        optest_set(x, e, 1e4 * optest_get(x, e));
    }
    for (int64_t j = 0; j < d; j++) {
        optest_set(x, 2 * d + j, 0);
        optest_set(x, 3 * d + j, 1e-39 * optest_get(x, 3 * d + j));
    }
}

static void outliers_zeros_and_denormals_stay_where_they_are(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i += RUNS(1, 3)) {
        const ScaledCase *c = &scaled_cases[i];
        OpTest t;
        moe_open(&t, 2);
        mirror_gives();
        Moe m = deal_make(&t, c->act, &c->deal, false);
        spoil(&m.x), spoil(&m.dy), spoil(&m.w1), spoil(&m.w2);
        Eight q = eight_make(&t, c, &m, false);
        check_forward(&t, &m, &q, 1e-2);
        check_input_gradients(&t, &m, &q, 1e-2);
        check_weight_gradients(&t, &m, &q, 1e-2);
        optest_close(&t);
    }
}

static void put_code(const Operand *q, int64_t row, int64_t col, uint8_t code)
{
    memset(tensor_at(&q->data, row * tensor_cols(&q->data) + col), code, 1);
}

static void check_nan_in(const Tensor *x, int64_t bad)
{
    int64_t d = tensor_cols(x);
    for (int64_t i = 0; i < tensor_elems(x); i++)
        CHECK_INT(isnan(optest_get(x, i)) != 0, i / d == bad);
}

/* Some matrix cores read 0x80 as NaN, and these NaNs as numbers. */
static void a_nan_stays_in_its_row_and_minus_zero_is_none(void **state)
{
    (void)state;
    const ScaledCase *c = &scaled_cases[1];
    OpTest t;
    moe_open(&t, 2);
    mirror_gives();
    Moe m = deal_make(&t, c->act, &c->deal, false);
    Eight q = eight_make(&t, c, &m, false);
    put_code(&q.act, 70, 33, 0x7F), put_code(&q.act, 71, 34, 0x80);
    put_code(&q.dpre, 3, 300, 0xFE), put_code(&q.dpre, 4, 301, 0x80);
    CHECK_OK(moe_down_fwd(&t.ex, down_of(&m, &q)));
    CHECK_OK(moe_up_bwd_input(&t.ex, up_input_of(&m, &q)));
    Tensor out = routed(&m, &m.out), dx = routed(&m, &m.dx_rows);
    check_nan_in(&out, 70);
    check_nan_in(&dx, 3);
    optest_close(&t);
}

/* Signal to noise in dB of an 8-bit product against the same product of the plain operands. */
static double noise_db(OpTest *t, const Tensor *got, const Tensor *want)
{
    double signal = 0, noise = 0;
    (void)t;
    for (int64_t i = 0; i < tensor_elems(want); i++) {
        double w = optest_get(want, i), e = optest_get(got, i) - w;
        signal += w * w;
        noise += e * e;
    }
    return 10 * log10(signal / noise);
}

static void products_are_as_precise_as_their_formats(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i += RUNS(1, 3)) {
        const ScaledCase *c = &scaled_cases[i];
        OpTest t;
        moe_open(&t, 2);
        mirror_gives();
        Moe m = deal_make(&t, c->act, &c->deal, false);
        Eight q = eight_make(&t, c, &m, false);
        MoeUpFwd up = up_of(&m, &q), plain = moe_up_fwd_of(&m);
        up.act = plain.act = operand_plain(optest_poisoned(&t, m.act, m.act_rows.dim));
        plain.pre = operand_plain(optest_poisoned(&t, m.act, m.pre.dim));
        CHECK_OK(moe_up_fwd(&t.ex, up));
        CHECK_OK(moe_up_fwd(&t.ex, plain));
        Tensor got = routed(&m, &up.pre.data), want = routed(&m, &plain.pre.data);
        CHECK(noise_db(&t, &got, &want) >= 25);
        MoeUpBwdInput back = up_input_of(&m, &q), plain_back = moe_up_bwd_input_of(&m);
        plain_back.dx = optest_poisoned(&t, m.act, m.dx_rows.dim);
        CHECK_OK(moe_up_bwd_input(&t.ex, back));
        CHECK_OK(moe_up_bwd_input(&t.ex, plain_back));
        got = routed(&m, &back.dx), want = routed(&m, &plain_back.dx);
        CHECK(noise_db(&t, &got, &want) >= (c->gradient == DTYPE_E4M3 ? 25 : 20));
        optest_close(&t);
    }
}

/* Rows past the live ones belong to no expert. Here the columns of their groups do not exist. */
static void check_live(OpTest *t, const ScaledCase *c, int32_t live)
{
    Moe m = deal_make(t, c->act, &c->deal, false);
    m.live = live, m.rows.device = &m.live;
    Eight q = eight_make(t, c, &m, false);
    Tensor before = optest_copy(t, &m.dw2);
    MoeUpFwd up = up_of(&m, &q);
    up.act = operand_plain(optest_poisoned(t, m.act, m.act_rows.dim));
    CHECK_OK(moe_up_fwd(&t->ex, up));
    CHECK_OK(moe_down_fwd(&t->ex, down_of(&m, &q)));
    CHECK_OK(moe_up_bwd_input(&t->ex, up_input_of(&m, &q)));
    CHECK_OK(moe_down_bwd_weight(&t->ex, down_weight_of(&m, &q)));
    check_untouched("pre", &up.pre.data, live);
    check_untouched("act", &up.act.data, live);
    check_untouched("out", &m.out, live);
    check_untouched("dx_rows", &m.dx_rows, live);
    const int32_t *offsets = m.offsets.data;
    for (int64_t i = 0, one = m.s.D * m.s.F; i < tensor_elems(&m.dw2); i++) {
        int64_t first = offsets[i / one], end = offsets[i / one + 1];
        bool has_rows = first < (end < live ? end : live);
        CHECK(isfinite(optest_get(&m.dw2, i)));
        CHECK(has_rows || optest_get(&m.dw2, i) == optest_get(&before, i));
    }
}

static void rows_past_the_live_ones_are_neither_read_nor_written(void **state)
{
    (void)state;
    const int32_t live[] = { 1 + 63 + 10, 0 };
    for (int i = 0; i < 2 * SCALED_CASES; i += RUNS(1, 3)) {
        const ScaledCase *c = &scaled_cases[i / 2];
        OpTest t;
        if (moe_slots(&c->deal.s) < live[0]) continue;
        moe_open(&t, 2);
        mirror_gives();
        check_live(&t, c, live[i % 2]);
        optest_close(&t);
    }
}

/* Dense products, with pairs of scales for which a library has no kernel: on Hopper ours runs. */

/* r + a b^T, where (rows, k) and (cols, k) lie in a and b. */
static double *dense_of(OpTest *t, const Operand *a, const Operand *b, const Tensor *r)
{
    int64_t k = tensor_cols(&a->data), rows = a->data.dim[0], cols = b->data.dim[0];
    double *x = values_of(t, a), *y = values_of(t, b), *c = optest_read(t, r);
    for (int64_t i = 0; i < rows * cols; i++) {
        const double *left = x + i / cols * k, *right = y + i % cols * k;
        for (int64_t j = 0; j < k; j++) c[i] += left[j] * right[j];
    }
    return c;
}

static Operand flat_turned(OpTest *t, OperandKind kind, Dtype type, Tensor x)
{
    Operand q;
    CHECK_OK(operand_new(&t->arena, kind, type, 2, DIMS(x.dim[1], x.dim[0]), &q));
    q.transposed = true;
    make_operand(t, (Quantize){ .x.data = x, .transposed = q });
    return q;
}

static void check_weight_gradient(OpTest *t, LinearBwdWeight g)
{
    double *want = dense_of(t, &g.dy, &g.x, &g.dw);
    CHECK_OK(linear_bwd_weight(&t->ex, g));
    CHECK_TENSOR_WITHIN(&g.dw, want, 1e-3);
}

static void dense_products_run_with_any_pair_of_scales(void **state)
{
    OpTest *t = *state;
    const int64_t N = 304, I = 272, O = 392;
    mirror_gives();
    Tensor x = optest_normal(t, DTYPE_BF16, DIMS(N, I)),
           w = optest_normal(t, DTYPE_BF16, DIMS(O, I));
    Tensor dy = optest_normal(t, DTYPE_BF16, DIMS(N, O)),
           r = optest_normal(t, DTYPE_BF16, DIMS(N, O));
    Tensor none = optest_poisoned(t, DTYPE_BF16, DIMS(N, I));
    memset(none.data, 0, tensor_bytes(&none));
    LinearFwd f = { .x = as_rows(t, OPERAND_ROW, DTYPE_E4M3, x),
                    .w = as_rows(t, OPERAND_TENSOR, DTYPE_E4M3, w),
                    .r = r,
                    .y = r };
    double *want = dense_of(t, &f.x, &f.w, &r);
    CHECK_OK(linear_fwd(&t->ex, f));
    CHECK_TENSOR_WITHIN(&r, want, 5e-3);
    LinearBwdInput b = { .dy = as_rows(t, OPERAND_128X128, DTYPE_E5M2, dy),
                         .w = flat_turned(t, OPERAND_128X128, DTYPE_E4M3, w),
                         .dx = optest_poisoned(t, DTYPE_BF16, DIMS(N, I)) };
    CHECK_OK(linear_bwd_input(&t->ex, b));
    CHECK_TENSOR_WITHIN(&b.dx, dense_of(t, &b.dy, &b.w, &none), 5e-3);
    check_weight_gradient(t, (LinearBwdWeight){ .dy = flat_turned(t, OPERAND_ROW, DTYPE_E5M2, dy),
                                                .x = flat_turned(t, OPERAND_1X128, DTYPE_E4M3, x),
                                                .dw = optest_normal(t, DTYPE_F32, DIMS(O, I)) });
}

/* Rows of f32 are whole packs of four, not of eight. */
static void weight_gradients_may_have_rows_of_four_columns(void **state)
{
    OpTest *t = *state;
    const int64_t N = 160, I = 132, O = 16;
    mirror_gives();
    Tensor x = optest_normal(t, DTYPE_BF16, DIMS(N, I)),
           dy = optest_normal(t, DTYPE_BF16, DIMS(N, O));
    check_weight_gradient(t, (LinearBwdWeight){ .dy = flat_turned(t, OPERAND_1X128, DTYPE_E4M3, dy),
                                                .x = flat_turned(t, OPERAND_1X128, DTYPE_E4M3, x),
                                                .dw = optest_normal(t, DTYPE_F32, DIMS(O, I)) });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_product_is_that_of_the_numbers_that_operands_stand_for),
        TEST(integers_come_out_exactly),
        TEST(outliers_zeros_and_denormals_stay_where_they_are),
        TEST(a_nan_stays_in_its_row_and_minus_zero_is_none),
        TEST(products_are_as_precise_as_their_formats),
        TEST(rows_past_the_live_ones_are_neither_read_nor_written),
        MOE_TEST(dense_products_run_with_any_pair_of_scales, 2),
        MOE_TEST(weight_gradients_may_have_rows_of_four_columns, 2),
    };
    return TEST_RUN(tests);
}
