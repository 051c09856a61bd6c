/*
 * rope against its definition in double. Both ops are linear in their inputs, so their gradients
 * are the slopes of the double forward pass, exactly: no second definition of backward is needed.
 */
#include "harness/optest.h"
#include "kernels/attention/rope.h"

enum { POSITIONS = 23 };

/* cos and sin of p * theta_i in f32, as the model fills them: what the op is given to turn by. */
typedef struct Tables {
    Tensor pos, cos, sin;
} Tables;

static Tables tables_make(OpTest *t, int64_t n, int64_t d)
{
    Tables r = { .pos = optest_integers(t, DTYPE_I32, DIMS(n), 0, POSITIONS),
                 .cos = optest_poisoned(t, DTYPE_F32, DIMS(POSITIONS, d / 2)),
                 .sin = optest_poisoned(t, DTYPE_F32, DIMS(POSITIONS, d / 2)) };
    for (int64_t i = 0; i < POSITIONS * (d / 2); i++) {
        int64_t p = i / (d / 2), pair = i % (d / 2);
        double angle = (double)p * pow(10000, -2.0 * (double)pair / (double)d);
        optest_set(&r.cos, i, cos(angle));
        optest_set(&r.sin, i, sin(angle));
    }
    return r;
}

/* y = x turned, d columns, at token n. */
static void turn_double(const Tables *r, int64_t n, bool interleaved, const double *x, double *y,
                        int64_t d)
{
    int64_t p = (int64_t)optest_get(&r->pos, n);
    for (int64_t i = 0; i < d / 2; i++) {
        int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + d / 2;
        double c = optest_get(&r->cos, p * (d / 2) + i), s = optest_get(&r->sin, p * (d / 2) + i);
        y[first] = x[first] * c - x[second] * s;
        y[second] = x[first] * s + x[second] * c;
    }
}

/* ---- MLA ---- */

/* wide: q and the shared key are windows of one tensor. */
typedef struct Mla {
    int64_t N, wq, wk;
    RopeMlaDims dims;
    bool wide;
} Mla;

static const Mla mlas[] = {
    { 1, 3, 2, { 1, 1, 2, 1, 0, 0, true }, false },
    { 7, 3 * 18 + 4, 9, { 3, 12, 6, 7, 4, 1, true }, false },
    { 7, 3 * 18 + 4, 9, { 3, 12, 6, 7, 0, 3, false }, false },
    { 5, 2 * 7 + 2 + 5, 0, { 2, 5, 2, 3, 1, 16, false }, true },
    { 3, 2 * 196 + 8, 70, { 2, 130, 66, 129, 3, 2, true }, false },
    { 3, 2 * 196 + 8, 70, { 2, 130, 66, 129, 3, 2, false }, false },
    /* rows that a GPU reads 16 bytes at a time, and one head more than its block has warps */
    { 2, 9 * 40 + 16, 32, { 9, 24, 16, 8, 8, 8, true }, false },
    { 2, 9 * 40 + 40, 0, { 9, 24, 16, 8, 8, 376, false }, true },
};

enum { MLAS = sizeof mlas / sizeof *mlas };

static int64_t qk_cols(const Mla *m) { return m->dims.heads * (m->dims.nope + m->dims.rope); }
static int64_t kv_cols(const Mla *m) { return m->dims.heads * (m->dims.nope + m->dims.v); }
static int64_t v_cols(const Mla *m) { return m->dims.heads * m->dims.v; }

/* The inputs side by side, N rows each: the window of q, kv, the window of the shared key. */
typedef struct MlaIn {
    double *q, *kv, *k;
} MlaIn;

static MlaIn mla_in(const Mla *m, double *x)
{
    return (MlaIn){ x, x + m->N * qk_cols(m), x + m->N * (qk_cols(m) + kv_cols(m)) };
}

static int64_t mla_in_elems(const Mla *m)
{
    return m->N * (qk_cols(m) + kv_cols(m) + m->dims.rope);
}

typedef struct Assembled {
    double *q, *k, *v;
} Assembled;

static void mla_double(const Mla *m, const Tables *r, MlaIn in, Assembled out)
{
    const RopeMlaDims *d = &m->dims;
    int64_t qk = d->nope + d->rope, kv = d->nope + d->v;
    for (int64_t n = 0; n < m->N; n++) {
        for (int64_t h = 0; h < d->heads; h++) {
            int64_t head = (n * d->heads + h) * qk, kv_head = (n * d->heads + h) * kv;
            for (int64_t i = 0; i < d->nope; i++) {
                out.q[head + i] = in.q[head + i];
                out.k[head + i] = in.kv[kv_head + i];
            }
            int64_t turned = head + d->nope;
            turn_double(r, n, d->interleaved, in.q + turned, out.q + turned, d->rope);
            turn_double(r, n, d->interleaved, in.k + n * d->rope, out.k + turned, d->rope);
            for (int64_t i = 0; i < d->v; i++) {
                out.v[(n * d->heads + h) * d->v + i] = in.kv[kv_head + d->nope + i];
            }
        }
    }
}

/* Columns [col, col + cols) of every row of t, to or from doubles. */
static double *window_read(OpTest *t, const Tensor *wide, int64_t col, int64_t cols)
{
    int64_t n = wide->dim[0] * cols, width = tensor_cols(wide);
    double *out = optest_doubles(t, n);
    for (int64_t i = 0; i < n; i++) out[i] = optest_get(wide, i / cols * width + col + i % cols);
    return out;
}

static void window_fill(OpTest *t, const Tensor *wide, int64_t col, int64_t cols)
{
    Tensor random = optest_normal(t, wide->dtype, DIMS(wide->dim[0], cols));
    int64_t width = tensor_cols(wide);
    for (int64_t i = 0; i < wide->dim[0] * cols; i++) {
        optest_set(wide, i / cols * width + col + i % cols, optest_get(&random, i));
    }
}

static int64_t count_nan(const Tensor *t)
{
    int64_t n = 0;
    for (int64_t i = 0; i < tensor_elems(t); i++) n += isnan(optest_get(t, i));
    return n;
}

static void check_window(OpTest *t, const Tensor *wide, int64_t col, int64_t cols,
                         const double *want)
{
    Tensor window = optest_poisoned(t, wide->dtype, DIMS(wide->dim[0], cols));
    optest_write(&window, window_read(t, wide, col, cols));
    CHECK_TENSOR(&window, want);
}

/* Inputs are NaN beside their windows. */
static RopeMlaFwd mla_forward_args(OpTest *t, const Mla *m, Dtype dtype, const Tables *r)
{
    RopeMlaFwd a = { .q = optest_poisoned(t, dtype, DIMS(m->N, m->wq)),
                     .kv = optest_normal(t, dtype, DIMS(m->N, kv_cols(m))),
                     .pos = r->pos,
                     .cos = r->cos,
                     .sin = r->sin,
                     .q_out = optest_poisoned(t, dtype, DIMS(m->N, qk_cols(m))),
                     .k_out = optest_poisoned(t, dtype, DIMS(m->N, qk_cols(m))),
                     .v_out = optest_poisoned(t, dtype, DIMS(m->N, v_cols(m))),
                     .dims = m->dims };
    a.k_rope = m->wide ? a.q : optest_poisoned(t, dtype, DIMS(m->N, m->wk));
    window_fill(t, &a.q, m->dims.q_col, qk_cols(m));
    window_fill(t, &a.k_rope, m->dims.k_col, m->dims.rope);
    return a;
}

static void check_mla_forward(OpTest *t, const Mla *m, Dtype dtype)
{
    Tables r = tables_make(t, m->N, m->dims.rope);
    RopeMlaFwd a = mla_forward_args(t, m, dtype, &r);
    MlaIn in = { window_read(t, &a.q, m->dims.q_col, qk_cols(m)), optest_read(t, &a.kv),
                 window_read(t, &a.k_rope, m->dims.k_col, m->dims.rope) };
    Assembled out = { optest_doubles(t, m->N * qk_cols(m)), optest_doubles(t, m->N * qk_cols(m)),
                      optest_doubles(t, m->N * v_cols(m)) };
    mla_double(m, &r, in, out);
    CHECK_OK(rope_mla_fwd(&t->ex, a));
    CHECK_TENSOR(&a.q_out, out.q);
    CHECK_TENSOR(&a.k_out, out.k);
    CHECK_TENSOR(&a.v_out, out.v);
}

static void mla_forward_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * MLAS; i++) {
        check_mla_forward(t, &mlas[i / 2], i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
    }
}

/* <d_out, out(x)> as a function of the inputs side by side. */
typedef struct MlaLoss {
    const Mla *m;
    const Tables *r;
    Assembled d_out, out;
} MlaLoss;

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double mla_loss(const MlaLoss *l, MlaIn in)
{
    const Mla *m = l->m;
    mla_double(m, l->r, in, l->out);
    return dot(l->d_out.q, l->out.q, m->N * qk_cols(m)) +
           dot(l->d_out.k, l->out.k, m->N * qk_cols(m)) +
           dot(l->d_out.v, l->out.v, m->N * v_cols(m));
}

/* A linear function's slope along e_i is its value at e_i. */
static void mla_slopes(OpTest *t, const MlaLoss *l, double *slope)
{
    int64_t n = mla_in_elems(l->m);
    double *x = optest_doubles(t, n);
    for (int64_t i = 0; i < n; i++) x[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = 1;
        slope[i] = mla_loss(l, mla_in(l->m, x));
        x[i] = 0;
    }
}

static RopeMlaBwd mla_backward_args(OpTest *t, const Mla *m, Dtype dtype, const Tables *r)
{
    RopeMlaBwd a = { .dq_out = optest_normal(t, dtype, DIMS(m->N, qk_cols(m))),
                     .dk_out = optest_normal(t, dtype, DIMS(m->N, qk_cols(m))),
                     .dv_out = optest_normal(t, dtype, DIMS(m->N, v_cols(m))),
                     .pos = r->pos,
                     .cos = r->cos,
                     .sin = r->sin,
                     .dq = optest_poisoned(t, dtype, DIMS(m->N, m->wq)),
                     .dkv = optest_poisoned(t, dtype, DIMS(m->N, kv_cols(m))),
                     .dims = m->dims };
    a.dk_rope = m->wide ? a.dq : optest_poisoned(t, dtype, DIMS(m->N, m->wk));
    return a;
}

static void check_mla_backward(OpTest *t, const Mla *m, Dtype dtype)
{
    Tables r = tables_make(t, m->N, m->dims.rope);
    RopeMlaBwd a = mla_backward_args(t, m, dtype, &r);
    MlaLoss l = { m,
                  &r,
                  { optest_read(t, &a.dq_out), optest_read(t, &a.dk_out),
                    optest_read(t, &a.dv_out) },
                  { optest_doubles(t, m->N * qk_cols(m)), optest_doubles(t, m->N * qk_cols(m)),
                    optest_doubles(t, m->N * v_cols(m)) } };
    double *slope = optest_doubles(t, mla_in_elems(m));
    mla_slopes(t, &l, slope);
    MlaIn want = mla_in(m, slope);
    CHECK_OK(rope_mla_bwd(&t->ex, a));
    check_window(t, &a.dq, m->dims.q_col, qk_cols(m), want.q);
    CHECK_TENSOR(&a.dkv, want.kv);
    check_window(t, &a.dk_rope, m->dims.k_col, m->dims.rope, want.k);
    /* beside the windows nothing was written */
    int64_t beside = m->N * (m->wq - qk_cols(m) - (m->wide ? m->dims.rope : 0));
    CHECK_INT(count_nan(&a.dq), beside);
    if (!m->wide) CHECK_INT(count_nan(&a.dk_rope), m->N * (m->wk - m->dims.rope));
}

static void mla_backward_is_the_slope_of_forward(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * MLAS; i++) {
        check_mla_backward(t, &mlas[i / 2], i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
    }
}

/* ---- GQA ---- */

typedef struct Gqa {
    int64_t N;
    RopeGqaDims dims;
} Gqa;

/* The last ones turn a part of a head, and nothing; there queries may grow with their position. */
static const Gqa gqas[] = {
    { 1, { 1, 1, 2, 2, .interleaved = true } },     { 7, { 6, 2, 10, 10, .interleaved = true } },
    { 7, { 6, 2, 10, 10, .interleaved = false } },  { 5, { 3, 1, 130, 130, .interleaved = false } },
    { 5, { 3, 3, 130, 130, .interleaved = true } }, { 2, { 7, 2, 16, 16, .interleaved = true } },
    { 2, { 7, 2, 16, 16, .interleaved = false } },  { 7, { 3, 1, 13, 6, .interleaved = false } },
    { 7, { 3, 1, 13, 6, .interleaved = true } },    { 3, { 5, 2, 48, 16, .interleaved = false } },
    { 3, { 5, 2, 48, 32, .interleaved = true } },   { 7, { 3, 1, 11, 0, .interleaved = false } },
    { 7, { 3, 1, 11, 0, false, 5, 0.3f, false } },  { 5, { 2, 2, 1040, 0, true, 1, 0.5f, false } },
};

enum { GQAS = sizeof gqas / sizeof *gqas };

static int64_t q_heads_cols(const Gqa *g) { return g->dims.heads * g->dims.head; }
static int64_t kv_heads_cols(const Gqa *g) { return g->dims.kv_heads * g->dims.head; }
static int64_t qkv_cols(const Gqa *g) { return q_heads_cols(g) + 2 * kv_heads_cols(g); }

/* What the query of token n is multiplied by. */
static double temper_double(const Tables *r, int64_t n, const RopeGqaDims *m)
{
    if (m->temper_floor == 0) return 1;
    double p = optest_get(&r->pos, n);
    return 1 + (double)m->temper_scale * log(1 + floor((p + 1) / (double)m->temper_floor));
}

static Tables gqa_tables(OpTest *t, const Gqa *g)
{
    return tables_make(t, g->N, g->dims.rotary > 0 ? g->dims.rotary : 4);
}

static void gqa_double(const Gqa *g, const Tables *r, const double *qkv, Assembled out)
{
    const RopeGqaDims *m = &g->dims;
    int64_t d = m->head, q = q_heads_cols(g), k = kv_heads_cols(g);
    for (int64_t n = 0; n < g->N; n++) {
        const double *row = qkv + n * qkv_cols(g);
        double temper = temper_double(r, n, m);
        for (int64_t i = 0; i < q; i++) out.q[n * q + i] = temper * row[i];
        for (int64_t i = 0; i < k; i++) out.k[n * k + i] = row[q + i];
        for (int64_t h = 0; h < q; h += d) {
            turn_double(r, n, m->interleaved, row + h, out.q + n * q + h, m->rotary);
        }
        for (int64_t h = 0; h < k; h += d) {
            turn_double(r, n, m->interleaved, row + q + h, out.k + n * k + h, m->rotary);
        }
        for (int64_t i = 0; i < k; i++) out.v[n * k + i] = row[q + k + i];
    }
}

static Assembled gqa_out(OpTest *t, const Gqa *g)
{
    return (Assembled){ optest_doubles(t, g->N * q_heads_cols(g)),
                        optest_doubles(t, g->N * kv_heads_cols(g)),
                        optest_doubles(t, g->N * kv_heads_cols(g)) };
}

static RopeGqaFwd gqa_forward_args(OpTest *t, const Gqa *g, Dtype dtype, const Tables *r)
{
    return (RopeGqaFwd){ .qkv = optest_normal(t, dtype, DIMS(g->N, qkv_cols(g))),
                         .pos = r->pos,
                         .cos = r->cos,
                         .sin = r->sin,
                         .q_out = optest_poisoned(t, dtype, DIMS(g->N, q_heads_cols(g))),
                         .k_out = optest_poisoned(t, dtype, DIMS(g->N, kv_heads_cols(g))),
                         .v_out = optest_poisoned(t, dtype, DIMS(g->N, kv_heads_cols(g))),
                         .dims = g->dims };
}

static void gqa_forward_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * GQAS; i++) {
        const Gqa *g = &gqas[i / 2];
        Tables r = gqa_tables(t, g);
        RopeGqaFwd a = gqa_forward_args(t, g, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, &r);
        Assembled want = gqa_out(t, g);
        gqa_double(g, &r, optest_read(t, &a.qkv), want);
        CHECK_OK(rope_gqa_fwd(&t->ex, a));
        CHECK_TENSOR(&a.q_out, want.q);
        CHECK_TENSOR(&a.k_out, want.k);
        CHECK_TENSOR(&a.v_out, want.v);
    }
}

static RopeGqaBwd gqa_backward_args(OpTest *t, const Gqa *g, Dtype dtype, const Tables *r)
{
    return (RopeGqaBwd){ .dq_out = optest_normal(t, dtype, DIMS(g->N, q_heads_cols(g))),
                         .dk_out = optest_normal(t, dtype, DIMS(g->N, kv_heads_cols(g))),
                         .dv_out = optest_normal(t, dtype, DIMS(g->N, kv_heads_cols(g))),
                         .pos = r->pos,
                         .cos = r->cos,
                         .sin = r->sin,
                         .dqkv = optest_poisoned(t, dtype, DIMS(g->N, qkv_cols(g))),
                         .dims = g->dims };
}

typedef struct GqaLoss {
    const Gqa *g;
    const Tables *r;
    Assembled d_out, out;
} GqaLoss;

static double gqa_loss(const void *context, const double *qkv)
{
    const GqaLoss *l = context;
    int64_t q = l->g->N * q_heads_cols(l->g), k = l->g->N * kv_heads_cols(l->g);
    gqa_double(l->g, l->r, qkv, l->out);
    return dot(l->d_out.q, l->out.q, q) + dot(l->d_out.k, l->out.k, k) +
           dot(l->d_out.v, l->out.v, k);
}

static void gqa_backward_is_the_slope_of_forward(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * GQAS; i += RUNS(1, 5)) {
        const Gqa *g = &gqas[i / 2];
        Tables r = gqa_tables(t, g);
        RopeGqaBwd a = gqa_backward_args(t, g, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, &r);
        GqaLoss l = { g,
                      &r,
                      { optest_read(t, &a.dq_out), optest_read(t, &a.dk_out),
                        optest_read(t, &a.dv_out) },
                      gqa_out(t, g) };
        int64_t n = g->N * qkv_cols(g);
        double *x = optest_doubles(t, n), *slope = optest_doubles(t, n);
        for (int64_t j = 0; j < n; j++) x[j] = 1;
        optest_slopes(gqa_loss, &l, x, n, slope);
        CHECK_OK(rope_gqa_bwd(&t->ex, a));
        CHECK_TENSOR(&a.dqkv, slope);
    }
}

/* ---- both ---- */

/* cos 0.6, sin 0.8 turn (1, 2) into (0.6 - 1.6, 0.8 + 1.2) and (3, 5) by a quarter into (-5, 3). */
static void pairs_worked_by_hand(void **state)
{
    OpTest *t = *state;
    int32_t pos[1] = { 1 };
    float cos_table[4] = { 9, 9, 0.6f, 0 }, sin_table[4] = { 9, 9, 0.8f, 1 };
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        const float neighbours[4] = { 1, 2, 3, 5 }, halves[4] = { 1, 3, 2, 5 };
        float qkv[12], q[4], k[4], v[4];
        for (int i = 0; i < 12; i++) qkv[i] = interleaved ? neighbours[i % 4] : halves[i % 4];
        RopeGqaFwd a = { .qkv = { qkv, DTYPE_F32, 2, { 1, 12 } },
                         .pos = { pos, DTYPE_I32, 1, { 1 } },
                         .cos = { cos_table, DTYPE_F32, 2, { 2, 2 } },
                         .sin = { sin_table, DTYPE_F32, 2, { 2, 2 } },
                         .q_out = { q, DTYPE_F32, 2, { 1, 4 } },
                         .k_out = { k, DTYPE_F32, 2, { 1, 4 } },
                         .v_out = { v, DTYPE_F32, 2, { 1, 4 } },
                         .dims = { 1, 1, 4, 4, .interleaved = interleaved } };
        CHECK_OK(rope_gqa_fwd(&t->ex, a));
        const double want[4] = { -1, 2, -5, 3 };
        for (int i = 0; i < 4; i++) {
            int at = interleaved ? i : i / 2 + i % 2 * 2;
            CHECK_NEAR(q[at], want[i], 1e-6);
            CHECK_NEAR(k[at], want[i], 1e-6);
            CHECK_NEAR(v[i], qkv[8 + i], 0);
        }
    }
}

/* What is only moved keeps its bits, and so does everything at position 0. */
static void unturned_columns_keep_their_bits(void **state)
{
    OpTest *t = *state;
    const Mla *m = &mlas[1];
    Tables r = tables_make(t, m->N, m->dims.rope);
    for (int64_t n = 0; n < m->N; n++) optest_set(&r.pos, n, 0);
    RopeMlaFwd a = mla_forward_args(t, m, DTYPE_BF16, &r);
    CHECK_OK(rope_mla_fwd(&t->ex, a));
    const double *q = window_read(t, &a.q, m->dims.q_col, qk_cols(m));
    for (int64_t i = 0; i < m->N * qk_cols(m); i++) CHECK_NEAR(optest_get(&a.q_out, i), q[i], 0);
}

static void results_do_not_depend_on_threads(void **state)
{
    OpTest *t = *state;
    const Mla *m = &mlas[1];
    Tables r = tables_make(t, m->N, m->dims.rope);
    RopeMlaBwd a = mla_backward_args(t, m, DTYPE_F32, &r), b = a;
    CHECK_OK(rope_mla_bwd(&t->ex, a));
    b.dkv = optest_poisoned(t, DTYPE_F32, DIMS(m->N, kv_cols(m)));
    b.dk_rope = optest_poisoned(t, DTYPE_F32, DIMS(m->N, m->wk));
    t->ex.threads = 3;
    CHECK_OK(rope_mla_bwd(&t->ex, b));
    CHECK_SAME(&b.dkv, &a.dkv);
    CHECK_SAME(&b.dk_rope, &a.dk_rope);
}

static void a_position_outside_the_table_is_an_error(void **state)
{
    OpTest *t = *state;
    Tables r = tables_make(t, 7, 6);
    optest_set(&r.pos, 3, POSITIONS);
    RopeMlaFwd a = mla_forward_args(t, &mlas[1], DTYPE_F32, &r);
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_ARG, "rope_mla_fwd: element 3 of pos is 23");
    RopeMlaBwd b = mla_backward_args(t, &mlas[1], DTYPE_F32, &r);
    CHECK_FAILS(rope_mla_bwd(&t->ex, b), ERR_ARG, "rope_mla_bwd: element 3 of pos is 23");
    r = tables_make(t, 7, 10);
    optest_set(&r.pos, 0, -1);
    RopeGqaFwd c = gqa_forward_args(t, &gqas[1], DTYPE_F32, &r);
    CHECK_FAILS(rope_gqa_fwd(&t->ex, c), ERR_ARG, "rope_gqa_fwd: element 0 of pos is -1");
    RopeGqaBwd d = gqa_backward_args(t, &gqas[1], DTYPE_F32, &r);
    CHECK_FAILS(rope_gqa_bwd(&t->ex, d), ERR_ARG, "rope_gqa_bwd: element 0 of pos is -1");
}

static void wrong_mla_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Mla *m = &mlas[1];
    Tables r = tables_make(t, m->N, m->dims.rope);
    Tensor other = optest_normal(t, DTYPE_F32, DIMS(7, 3)),
           tall = optest_normal(t, DTYPE_F32, DIMS(24, 3));
    const RopeMlaFwd good = mla_forward_args(t, m, DTYPE_F32, &r);
    RopeMlaFwd a = good;
    a.dims.q_col = 5;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "columns 5 to 59 of q, which has 58");
    a = good, a.dims.k_col = -1;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "columns -1 to 5 of k_rope, which has 9");
    a = good, a.kv = other;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "rope_mla_fwd: kv is (7, 3)");
    a = good, a.q_out = other;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "q_out is (7, 3)");
    a = good, a.k_out = other;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "k_out is (7, 3)");
    a = good, a.v_out = other;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "v_out is (7, 3)");
    a = good, a.cos = good.kv;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "cos is (7, 57)");
    a = good, a.sin = tall;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "sin is (24, 3)");
    a = good, a.pos = optest_integers(t, DTYPE_I32, DIMS(8), 0, 3);
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "pos is (8) i32");
    a = good, a.dims.rope = 5, a.dims.nope = 13, a.dims.v = 6;
    CHECK_FAILS(rope_mla_fwd(&t->ex, a), ERR_SHAPE, "the rotated part has 5 columns");
    RopeMlaBwd b = mla_backward_args(t, m, DTYPE_F32, &r);
    b.dkv = other;
    CHECK_FAILS(rope_mla_bwd(&t->ex, b), ERR_SHAPE, "rope_mla_bwd: dkv is (7, 3)");
}

static void wrong_gqa_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Gqa *g = &gqas[1];
    Tables r = gqa_tables(t, g);
    Tensor other = optest_normal(t, DTYPE_F32, DIMS(7, 3));
    const RopeGqaFwd good = gqa_forward_args(t, g, DTYPE_F32, &r);
    RopeGqaFwd a = good;
    a.qkv = other;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "rope_gqa_fwd: qkv is (7, 3)");
    a = good, a.q_out = other;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "q_out is (7, 3)");
    a = good, a.k_out = other;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "k_out is (7, 3)");
    a = good, a.v_out = optest_normal(t, DTYPE_BF16, DIMS(7, 20));
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "v_out is (7, 20) bf16");
    a = good, a.q = other;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "rope_gqa_fwd: q is (7, 3)");
    a = good, a.dims.rotary = 11;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "11 columns of a head are rotated, it has 10");
    a = good, a.dims.rotary = -2;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "-2 columns of a head are rotated");
    a = good, a.dims.rotary = 8;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "cos is (23, 5)");
    a = good, a.dims.temper_floor = 3;
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "temper_floor 3 is for heads that are not");
    a = good, a.dims.rotary = 0, a.pos = optest_integers(t, DTYPE_I32, DIMS(8), 0, 3);
    CHECK_FAILS(rope_gqa_fwd(&t->ex, a), ERR_SHAPE, "pos is (8) i32");
    RopeGqaBwd b = gqa_backward_args(t, g, DTYPE_F32, &r);
    b.dk = other;
    CHECK_FAILS(rope_gqa_bwd(&t->ex, b), ERR_SHAPE, "rope_gqa_bwd: dk is (7, 3)");
    b.dqkv = other;
    CHECK_FAILS(rope_gqa_bwd(&t->ex, b), ERR_SHAPE, "rope_gqa_bwd: dqkv is (7, 3)");
}

/* One token of mlas[1]: 3 heads of 12 + 6, values of 7. */
static void costs_are_every_column_once(void **state)
{
    OpTest *t = *state;
    Tables r = tables_make(t, 7, 6);
    RopeMlaFwd a = mla_forward_args(t, &mlas[1], DTYPE_BF16, &r);
    OpCost c = op_desc(OP_ROPE_MLA_FWD)->cost(&a);
    CHECK_NEAR(c.bytes, 7 * (2 * (54 + 57 + 6 + 54 + 54 + 21) + 4), 0);
    CHECK_NEAR(c.flops, 7 * 3 * (18 + 6), 0);
    RopeMlaBwd b = mla_backward_args(t, &mlas[1], DTYPE_BF16, &r);
    CHECK_NEAR(op_desc(OP_ROPE_MLA_BWD)->cost(&b).bytes, c.bytes, 0);
    CHECK_NEAR(op_desc(OP_ROPE_MLA_BWD)->cost(&b).flops, c.flops + 7 * 18, 0);
    r = tables_make(t, 7, 10);
    RopeGqaFwd g = gqa_forward_args(t, &gqas[1], DTYPE_F32, &r);
    CHECK_NEAR(op_desc(OP_ROPE_GQA_FWD)->cost(&g).bytes, 7 * (2 * 4 * 100 + 4), 0);
    CHECK_NEAR(op_desc(OP_ROPE_GQA_FWD)->cost(&g).flops, 7 * 3 * 80, 0);
    g.dims.rotary = 4;
    CHECK_NEAR(op_desc(OP_ROPE_GQA_FWD)->cost(&g).bytes, 7 * (2 * 4 * 100 + 4), 0);
    CHECK_NEAR(op_desc(OP_ROPE_GQA_FWD)->cost(&g).flops, 7 * 3 * 32, 0);
    g.dims.rotary = 0, g.dims.temper_floor = 2;
    CHECK_NEAR(op_desc(OP_ROPE_GQA_FWD)->cost(&g).bytes, 7 * (2 * 4 * 100 + 4), 0);
    CHECK_NEAR(op_desc(OP_ROPE_GQA_FWD)->cost(&g).flops, 7 * 60, 0);
}

/* Queries by themselves and keys by themselves, forward and back, give what they give together. */
static void halves_are_the_same_as_the_whole(void **state)
{
    OpTest *t = *state;
    const Mla *m = &mlas[1];
    Tables r = tables_make(t, m->N, m->dims.rope);
    RopeMlaFwd f = mla_forward_args(t, m, DTYPE_F32, &r), q = f, k = f;
    q.kv = q.k_rope = q.k_out = q.v_out = (Tensor){ 0 };
    k.q = k.q_out = (Tensor){ 0 };
    q.q_out = optest_copy(t, &f.q_out);
    k.k_out = optest_copy(t, &f.k_out), k.v_out = optest_copy(t, &f.v_out);
    CHECK_OK(rope_mla_fwd(&t->ex, f));
    CHECK_OK(rope_mla_fwd(&t->ex, q));
    CHECK_OK(rope_mla_fwd(&t->ex, k));
    CHECK_SAME(&q.q_out, &f.q_out);
    CHECK_SAME(&k.k_out, &f.k_out);
    CHECK_SAME(&k.v_out, &f.v_out);
    q.k_rope = f.k_rope;
    CHECK_FAILS(rope_mla_fwd(&t->ex, q), ERR_SHAPE, "rope_mla_fwd: kv is");
}

/* Without positions nothing turns: heads' keys end in the shared key, and give its gradient back.
 */
static void without_positions_nothing_turns(void **state)
{
    OpTest *t = *state;
    const int64_t n = 5, dn = 3, dr = 4, dv = 2;
    Tables r = tables_make(t, n, dr);
    RopeMlaFwd f = { .kv = optest_normal(t, DTYPE_F32, DIMS(n, dn + dv)),
                     .k_rope = optest_normal(t, DTYPE_F32, DIMS(n, dr)),
                     .cos = r.cos,
                     .sin = r.sin,
                     .k_out = optest_poisoned(t, DTYPE_F32, DIMS(n, dn + dr)),
                     .v_out = optest_poisoned(t, DTYPE_F32, DIMS(n, dv)),
                     .dims = { .heads = 1, .nope = dn, .rope = dr, .v = dv } };
    for (int64_t i = 0; i < dr / 2; i++) optest_set(&r.cos, i, 1.3); /* as YaRN's are at 0 */
    CHECK_OK(rope_mla_fwd(&t->ex, f));
    RopeMlaBwd b = { .dk_out = f.k_out,
                     .dv_out = f.v_out,
                     .cos = r.cos,
                     .sin = r.sin,
                     .dkv = optest_poisoned(t, DTYPE_F32, DIMS(n, dn + dv)),
                     .dk_rope = optest_poisoned(t, DTYPE_F32, DIMS(n, dr)),
                     .dims = f.dims };
    CHECK_OK(rope_mla_bwd(&t->ex, b));
    CHECK_SAME(&b.dkv, &f.kv);
    CHECK_SAME(&b.dk_rope, &f.k_rope);
}

/* The columns of wide from col on, by themselves; wide has NaN there then. */
static Tensor taken(OpTest *t, const Tensor *wide, int64_t col, int64_t cols)
{
    Tensor out = optest_poisoned(t, wide->dtype, DIMS(wide->dim[0], cols));
    int64_t width = tensor_cols(wide);
    optest_write(&out, window_read(t, wide, col, cols));
    for (int64_t i = 0; i < wide->dim[0] * cols; i++)
        optest_set(wide, i / cols * width + col + i % cols, NAN);
    return out;
}

static void check_heads_apart(OpTest *t, const Gqa *g, Dtype dtype)
{
    int64_t q = q_heads_cols(g), k = kv_heads_cols(g);
    Tables r = gqa_tables(t, g);
    RopeGqaFwd f = gqa_forward_args(t, g, dtype, &r), apart = f;
    apart.qkv = optest_copy(t, &f.qkv);
    apart.q = taken(t, &apart.qkv, 0, q), apart.k = taken(t, &apart.qkv, q, k);
    apart.q_out = optest_copy(t, &f.q_out), apart.k_out = optest_copy(t, &f.k_out);
    apart.v_out = optest_copy(t, &f.v_out);
    CHECK_OK(rope_gqa_fwd(&t->ex, f));
    CHECK_OK(rope_gqa_fwd(&t->ex, apart));
    CHECK_SAME(&apart.q_out, &f.q_out);
    CHECK_SAME(&apart.k_out, &f.k_out);
    CHECK_SAME(&apart.v_out, &f.v_out);

    RopeGqaBwd b = gqa_backward_args(t, g, dtype, &r), back = b;
    back.dqkv = optest_copy(t, &b.dqkv);
    back.dq = optest_poisoned(t, dtype, DIMS(g->N, q));
    back.dk = optest_poisoned(t, dtype, DIMS(g->N, k));
    CHECK_OK(rope_gqa_bwd(&t->ex, b));
    CHECK_OK(rope_gqa_bwd(&t->ex, back));
    Tensor dq = taken(t, &b.dqkv, 0, q), dk = taken(t, &b.dqkv, q, k);
    CHECK_SAME(&back.dq, &dq);
    CHECK_SAME(&back.dk, &dk);
    for (int64_t i = 0; i < g->N * (q + 2 * k); i++) {
        double want = optest_get(&b.dqkv, i), got = optest_get(&back.dqkv, i);
        CHECK(isnan(want) ? isnan(got) : got == want);
    }
}

/* Queries and keys that come by themselves are turned as in qkv, whose columns are left alone. */
static void heads_by_themselves_are_turned_as_in_qkv(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * GQAS; i++)
        check_heads_apart(t, &gqas[i / 2], i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(mla_forward_matches_double, 2),
        OP_TEST(mla_backward_is_the_slope_of_forward, 2),
        OP_TEST(gqa_forward_matches_double, 2),
        OP_TEST(gqa_backward_is_the_slope_of_forward, 2),
        OP_TEST(pairs_worked_by_hand, 1),
        OP_TEST(unturned_columns_keep_their_bits, 2),
        OP_TEST(results_do_not_depend_on_threads, 1),
        OP_TEST(a_position_outside_the_table_is_an_error, 2),
        OP_TEST(wrong_mla_shapes_are_errors_with_a_message, 1),
        OP_TEST(wrong_gqa_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_are_every_column_once, 1),
        OP_TEST(halves_are_the_same_as_the_whole, 2),
        OP_TEST(without_positions_nothing_turns, 2),
        OP_TEST(heads_by_themselves_are_turned_as_in_qkv, 2),
    };
    return TEST_RUN(tests);
}
