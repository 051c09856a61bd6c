/* The gated delta rule, its convolution and its norm against plain loops in double, and against the slopes of those. */
#include "harness/optest.h"
#include "kernels/delta/delta.h"

typedef struct Sizes {
    int64_t B, T, G, H, Dk, Dv, taps;
    int64_t documents; /* about so many in a sequence; 0: no doc is given */
} Sizes;

/* One token, odd widths, one past the chunk of backward (64), heads that share keys, wide heads, more channels than a
 * thread takes at a time, documents of one token. */
static const Sizes sizes[] = {
    { 1, 1, 1, 1, 1, 1, 2, 0 }, { 2, 7, 1, 1, 5, 3, 4, 0 },   { 1, 67, 1, 2, 3, 4, 4, 3 },
    { 1, 9, 1, 3, 4, 2, 3, 4 }, { 1, 3, 1, 1, 37, 70, 4, 0 }, { 3, 4, 2, 4, 7, 3, 8, 2 },
};

enum { SIZES = sizeof sizes / sizeof *sizes, CASES = 2 * SIZES };

static Dtype act(int i) { return i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16; }

static DeltaDims dims_of(const Sizes *s) { return (DeltaDims){ s->G, s->H, s->Dk, s->Dv }; }

/* Where documents begin: at every token with the same chance. */
static Tensor documents(OpTest *t, const Sizes *s)
{
    Tensor doc = optest_integers(t, DTYPE_I32, DIMS(s->B, s->T), 0, s->T);
    for (int64_t i = 0; i < s->B * s->T; i++) {
        const bool begins = optest_get(&doc, i) < (double)s->documents;
        optest_set(&doc, i,
                   i % s->T == 0 ? 0
                   : begins      ? (double)(i % s->T)
                                 : optest_get(&doc, i - 1));
    }
    return s->documents == 0 ? (Tensor){ 0 } : doc;
}

static int64_t first_token(const Sizes *s, const Tensor *doc, int64_t row)
{
    return doc->data == NULL ? row / s->T * s->T
                             : row / s->T * s->T + (int64_t)optest_get(doc, row);
}

/* x as the header describes it: for each key head q, k, v, z; then for each key head b, a. */
static int64_t x_of_channel(const Sizes *s, int64_t c)
{
    const int64_t r = s->H / s->G, head = 2 * s->Dk + 2 * r * s->Dv, keys = s->G * s->Dk;
    if (c < keys) return c / s->Dk * head + c % s->Dk;
    if (c < 2 * keys) return (c - keys) / s->Dk * head + s->Dk + c % s->Dk;
    return (c - 2 * keys) / (r * s->Dv) * head + 2 * s->Dk + (c - 2 * keys) % (r * s->Dv);
}
static int64_t x_of_z(const Sizes *s, int64_t h)
{
    const int64_t r = s->H / s->G, head = 2 * s->Dk + 2 * r * s->Dv;
    return h / r * head + 2 * s->Dk + r * s->Dv + h % r * s->Dv;
}
static int64_t x_of_b(const Sizes *s, int64_t h)
{
    const int64_t r = s->H / s->G;
    return s->G * (2 * s->Dk + 2 * r * s->Dv) + h / r * 2 * r + h % r;
}
static int64_t x_cols(const Sizes *s) { return s->G * 2 * s->Dk + 2 * s->H * s->Dv + 2 * s->H; }
static int64_t qkv_cols(const Sizes *s) { return 2 * s->G * s->Dk + s->H * s->Dv; }
static int64_t o_cols(const Sizes *s) { return s->H * s->Dv; }
static int64_t rows_of(const Sizes *s) { return s->B * s->T; }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* The references. `in` and `x` are read at the same places as the ops read theirs. */

static void conv_double(const Sizes *s, const Tensor *doc, const double *x, const double *w,
                        double *y)
{
    for (int64_t i = 0; i < rows_of(s) * qkv_cols(s); i++) {
        const int64_t row = i / qkv_cols(s), c = i % qkv_cols(s);
        double u = 0;
        for (int64_t k = 0; k < s->taps; k++) {
            const int64_t from = row - s->taps + 1 + k;
            if (from >= first_token(s, doc, row))
                u += w[c * s->taps + k] * x[from * x_cols(s) + x_of_channel(s, c)];
        }
        y[i] = u * sigmoid(u);
    }
}

/* One head of one token: S as the paper's equation (10) has it, with columns of unit length. */
static void token_double(const Sizes *s, const double *q, const double *k, const double *v,
                         double alpha, double beta, double *S, double *o)
{
    double qq = 1e-6, kk = 1e-6, seen[256];
    for (int64_t i = 0; i < s->Dk; i++) qq += q[i] * q[i], kk += k[i] * k[i];
    for (int64_t j = 0; j < s->Dv; j++) {
        seen[j] = 0;
        for (int64_t i = 0; i < s->Dk; i++) seen[j] += alpha * S[i * s->Dv + j] * k[i] / sqrt(kk);
    }
    for (int64_t j = 0; j < s->Dv; j++) {
        o[j] = 0;
        for (int64_t i = 0; i < s->Dk; i++) {
            double *at = &S[i * s->Dv + j];
            *at = alpha * *at + beta * (v[j] - seen[j]) * k[i] / sqrt(kk);
            o[j] += *at * q[i] / sqrt(qq) / sqrt((double)s->Dk);
        }
    }
}

static void rule_double(const Sizes *s, const Tensor *doc, const double *qkv, const double *x,
                        const double *decay, double *o)
{
    double S[64 * 128];
    for (int64_t h = 0; h < s->H; h++) {
        for (int64_t row = 0; row < rows_of(s); row++) {
            const double *in = qkv + row * qkv_cols(s), *q = in + h / (s->H / s->G) * s->Dk;
            const double b = x[row * x_cols(s) + x_of_b(s, h)];
            const double a = x[row * x_cols(s) + x_of_b(s, h) + s->H / s->G];
            if (first_token(s, doc, row) == row) memset(S, 0, sizeof S);
            token_double(s, q, q + s->G * s->Dk, in + 2 * s->G * s->Dk + h * s->Dv,
                         exp(-exp(decay[h]) * log1p(exp(a + decay[s->H + h]))), sigmoid(b), S,
                         o + row * o_cols(s) + h * s->Dv);
        }
    }
}

static const double EPS = 0.25; /* large, so that a forgotten eps shows and Dv = 1 has a gradient */

static void norm_double(const Sizes *s, const double *o, const double *x, const double *w,
                        double *y)
{
    for (int64_t i = 0; i < rows_of(s) * s->H; i++) {
        const double *z = x + i / s->H * x_cols(s) + x_of_z(s, i % s->H), *in = o + i * s->Dv;
        double mean = 0;
        for (int64_t j = 0; j < s->Dv; j++) mean += in[j] * in[j] / (double)s->Dv;
        for (int64_t j = 0; j < s->Dv; j++)
            y[i * s->Dv + j] = in[j] / sqrt(mean + EPS) * w[j] * z[j] * sigmoid(z[j]);
    }
}

/* The arguments of all three ops on one x. Columns of x that an op does not read are NaN in `only`. */
typedef struct Case {
    Sizes s;
    Tensor x, doc, w, decay, norm_w, qkv, o;
} Case;

static Case case_of(OpTest *t, int i)
{
    const Sizes s = sizes[i / 2];
    const int64_t n = rows_of(&s);
    return (Case){ .s = s,
                   .x = optest_normal(t, act(i), DIMS(n, x_cols(&s))),
                   .doc = documents(t, &s),
                   .w = optest_normal(t, DTYPE_F32, DIMS(qkv_cols(&s), s.taps)),
                   .decay = optest_normal(t, DTYPE_F32, DIMS(1, 2 * s.H)),
                   .norm_w = optest_normal(t, DTYPE_F32, DIMS(1, s.Dv)),
                   .qkv = optest_normal(t, act(i), DIMS(n, qkv_cols(&s))),
                   .o = optest_normal(t, act(i), DIMS(n, o_cols(&s))) };
}

static Tensor like(OpTest *t, const Tensor *x)
{
    return optest_poisoned(t, x->dtype, DIMS(x->dim[0], x->dim[1]));
}

/* The columns of x that an op reads, in its order; -1: none. */
typedef int64_t ColumnOf(const Sizes *s, int64_t i);

static int64_t gate_column(const Sizes *s, int64_t i)
{
    return i >= 2 * s->H ? -1 : x_of_b(s, i % s->H) + (i < s->H ? 0 : s->H / s->G);
}
static int64_t z_column(const Sizes *s, int64_t i)
{
    return i >= o_cols(s) ? -1 : x_of_z(s, i / s->Dv) + i % s->Dv;
}
static int64_t conv_column(const Sizes *s, int64_t i)
{
    return i >= qkv_cols(s) ? -1 : x_of_channel(s, i);
}

/* x with NaN in the columns that an op does not read. */
static Tensor only(OpTest *t, const Case *c, ColumnOf *of)
{
    Tensor out = like(t, &c->x);
    for (int64_t row = 0; row < rows_of(&c->s); row++) {
        for (int64_t i = 0, col; (col = of(&c->s, i)) >= 0; i++) {
            const int64_t at = row * x_cols(&c->s) + col;
            optest_set(&out, at, optest_get(&c->x, at));
        }
    }
    return out;
}

/* dx is the slope in the columns that an op reads, and untouched in all others. */
static void check_part(OpTest *t, const Case *c, const Tensor *dx, const double *slope,
                       ColumnOf *of)
{
    int64_t cols = 0, written = 0;
    while (of(&c->s, cols) >= 0) cols++;
    Tensor part = optest_poisoned(t, dx->dtype, DIMS(rows_of(&c->s), cols));
    double *want = optest_doubles(t, rows_of(&c->s) * cols);
    for (int64_t i = 0; i < rows_of(&c->s) * cols; i++) {
        const int64_t at = i / cols * x_cols(&c->s) + of(&c->s, i % cols);
        optest_set(&part, i, optest_get(dx, at));
        want[i] = slope[at];
    }
    for (int64_t i = 0; i < tensor_elems(dx); i++) written += !isnan(optest_get(dx, i));
    CHECK_INT(written, rows_of(&c->s) * cols);
    CHECK_TENSOR(&part, want);
}

/* A loss <dy, y> of an op as a function of one of its inputs: which of `in` is replaced. */
typedef struct Loss {
    const Case *c;
    int op, replaced; /* 0 conv, 1 rule, 2 norm */
    const double *in[3], *dy;
    double *y;
    int64_t n; /* elements of y */
} Loss;

static void forward(const Loss *l, const double *const in[3])
{
    const Case *c = l->c;
    if (l->op == 0) conv_double(&c->s, &c->doc, in[0], in[1], l->y);
    if (l->op == 1) rule_double(&c->s, &c->doc, in[0], in[1], in[2], l->y);
    if (l->op == 2) norm_double(&c->s, in[0], in[1], in[2], l->y);
}

static double loss(const void *context, const double *x)
{
    const Loss *l = context;
    const double *in[3] = { l->in[0], l->in[1], l->in[2] };
    double sum = 0;
    in[l->replaced] = x;
    forward(l, in);
    for (int64_t i = 0; i < l->n; i++) sum += l->dy[i] * l->y[i];
    return sum;
}

/* The gradient of the loss by input `replaced`, which is `of`, added to what `before` has. */
static double *slopes(OpTest *t, Loss l, int replaced, const Tensor *of, const Tensor *before)
{
    double *x = optest_read(t, of), *slope = optest_doubles(t, tensor_elems(of));
    l.replaced = replaced;
    optest_slopes(loss, &l, x, tensor_elems(of), slope);
    for (int64_t i = 0; before != NULL && i < tensor_elems(of); i++)
        slope[i] += optest_get(before, i);
    return slope;
}

static Loss loss_of(OpTest *t, const Case *c, int op, const Tensor *const in[3], const Tensor *dy)
{
    Loss l = { .c = c, .op = op, .dy = optest_read(t, dy), .n = tensor_elems(dy) };
    for (int i = 0; i < 3; i++) l.in[i] = in[i] == NULL ? NULL : optest_read(t, in[i]);
    l.y = optest_doubles(t, l.n);
    forward(&l, l.in);
    return l;
}

static void check_conv(OpTest *t, const Case *c)
{
    const DeltaDims d = dims_of(&c->s);
    const Tensor x = only(t, c, conv_column),
                 dy = optest_normal(t, c->x.dtype, DIMS(rows_of(&c->s), qkv_cols(&c->s)));
    DeltaConvFwd f = { x, c->w, c->doc, like(t, &dy), d, .sequence = c->s.T };
    DeltaConvBwd b = { { x, c->w, c->doc, dy, d, .sequence = c->s.T },
                       like(t, &x),
                       .dw = optest_copy(t, &c->w) };
    const Loss l = loss_of(t, c, 0, (const Tensor *[]){ &c->x, &c->w, NULL }, &dy);
    optest_unguard(t);
    CHECK_OK(delta_conv_fwd(&t->ex, f));
    CHECK_TENSOR(&f.y, l.y);
    double *dx = slopes(t, l, 0, &c->x, NULL), *dw = slopes(t, l, 1, &c->w, &c->w);
    CHECK_OK(delta_conv_bwd(&t->ex, b));
    check_part(t, c, &b.dx, dx, conv_column);
    CHECK_TENSOR(&b.dw, dw);
}

static void check_rule(OpTest *t, const Case *c)
{
    const DeltaDims d = dims_of(&c->s);
    const Tensor x = only(t, c, gate_column),
                 d_o = optest_normal(t, c->x.dtype, DIMS(rows_of(&c->s), o_cols(&c->s)));
    DeltaRuleFwd f = { c->qkv, x, c->decay, c->doc, like(t, &d_o), d, .sequence = c->s.T };
    DeltaRuleBwd b = { { c->qkv, x, c->decay, c->doc, d_o, d, .sequence = c->s.T },
                       like(t, &c->qkv),
                       like(t, &x),
                       .ddecay = optest_copy(t, &c->decay) };
    const Loss l = loss_of(t, c, 1, (const Tensor *[]){ &c->qkv, &c->x, &c->decay }, &d_o);
    CHECK_OK(delta_rule_fwd(&t->ex, f));
    CHECK_TENSOR(&f.o, l.y);
    double *dqkv = slopes(t, l, 0, &c->qkv, NULL), *dx = slopes(t, l, 1, &c->x, NULL);
    double *ddecay = slopes(t, l, 2, &c->decay, &c->decay);
    CHECK_OK(delta_rule_bwd(&t->ex, b));
    CHECK_TENSOR(&b.dqkv, dqkv);
    check_part(t, c, &b.dx, dx, gate_column);
    CHECK_TENSOR(&b.ddecay, ddecay);
}

static void check_norm(OpTest *t, const Case *c)
{
    const DeltaDims d = dims_of(&c->s);
    const Tensor x = only(t, c, z_column),
                 dy = optest_normal(t, c->x.dtype, DIMS(rows_of(&c->s), o_cols(&c->s)));
    DeltaNormFwd f = { c->o, x, c->norm_w, like(t, &dy), d, (float)EPS };
    DeltaNormBwd b = { { c->o, x, c->norm_w, dy, d, (float)EPS },
                       like(t, &dy),
                       like(t, &x),
                       optest_copy(t, &c->norm_w) };
    const Loss l = loss_of(t, c, 2, (const Tensor *[]){ &c->o, &c->x, &c->norm_w }, &dy);
    CHECK_OK(delta_norm_fwd(&t->ex, f));
    CHECK_TENSOR(&f.y, l.y);
    double *d_o = slopes(t, l, 0, &c->o, NULL), *dx = slopes(t, l, 1, &c->x, NULL);
    double *dw = slopes(t, l, 2, &c->norm_w, &c->norm_w);
    CHECK_OK(delta_norm_bwd(&t->ex, b));
    CHECK_TENSOR(&b.d_o, d_o);
    check_part(t, c, &b.dx, dx, z_column);
    CHECK_TENSOR(&b.dw, dw);
}

/* Both directions of an op, on all sizes and types. Unread columns of x are NaN, which the guard would report. */
static void check_all(OpTest *t, void (*check)(OpTest *t, const Case *c))
{
    optest_unguard(t);
    for (int i = 0; i < CASES; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        if (sizes[i / 2].T > 60 && i % 2 != 0) continue;
        const Case c = case_of(t, i);
        check(t, &c);
        arena_release(&t->arena, mark);
    }
}

/* Sizes that a GPU's kernel takes by chunks, and those that it just does not: the GPU against the CPU (mirror.h). */
static const Sizes chunks[] = {
    { 2, 70, 1, 2, 64, 64, 4, 0 },  { 1, 200, 2, 2, 128, 128, 4, 3 },
    { 3, 16, 1, 3, 40, 24, 4, 2 },  { 1, 131, 1, 2, 72, 128, 4, 1 },
    { 1, 65, 1, 1, 136, 64, 4, 0 }, { 1, 15, 1, 2, 64, 64, 4, 0 },
    { 2, 129, 2, 4, 16, 8, 4, 20 },
};

static void chunks_match_the_recurrence(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        const Sizes s = chunks[i];
        const DeltaDims d = dims_of(&s);
        const int64_t n = rows_of(&s);
        const Tensor x = optest_normal(t, DTYPE_BF16, DIMS(n, x_cols(&s))), doc = documents(t, &s),
                     qkv = optest_normal(t, DTYPE_BF16, DIMS(n, qkv_cols(&s))),
                     decay = optest_normal(t, DTYPE_F32, DIMS(1, 2 * s.H)),
                     o = optest_normal(t, DTYPE_BF16, DIMS(n, o_cols(&s)));
        const DeltaRuleFwd f = { .qkv = qkv,
                                 .x = x,
                                 .decay = decay,
                                 .doc = doc,
                                 .o = like(t, &o),
                                 .dims = d,
                                 .sequence = s.T };
        DeltaRuleBwd b = {
            .of = f, .dqkv = like(t, &qkv), .dx = like(t, &x), .ddecay = optest_copy(t, &decay)
        };
        b.of.o = o;
        CHECK_OK(delta_rule_fwd(&t->ex, f));
        CHECK_OK(delta_rule_bwd(&t->ex, b));
        arena_release(&t->arena, mark);
    }
}

static void the_convolution_matches_double(void **state) { check_all(*state, check_conv); }
static void the_rule_matches_double(void **state) { check_all(*state, check_rule); }
static void the_norm_matches_double(void **state) { check_all(*state, check_norm); }

/* Dk = 2, Dv = 1. q (3, 4) and k (0, 2) have the unit vectors (.6, .8) and (0, 1), q is scaled by 2^-1/2. b = 0 gives
 * beta 1/2. The first token stores (0, 1) 3: o = .8 * 3 / sqrt(2). A = log 2 and a + dt = 0 give alpha = e^(-2 log 2)
 * = 1/4. The second token finds .75 at the same key, and stores 1/2 (5 - .75) more: 2.875. */
static void two_tokens_worked_by_hand(void **state)
{
    OpTest *t = *state;
    float qkv[] = { 3, 4, 0, 2, 6, 3, 4, 0, 2, 5 }, o[2];
    float x[] = { 9, 9, 9, 9, 9, 9, 0, 1, 9, 9, 9, 9, 9, 9, 0, 1 }, decay[] = { logf(2), -1 };
    DeltaRuleFwd a = { .qkv = { qkv, DTYPE_F32, 2, { 2, 5 } },
                       .x = { x, DTYPE_F32, 2, { 2, 8 } },
                       .decay = { decay, DTYPE_F32, 2, { 1, 2 } },
                       .o = { o, DTYPE_F32, 2, { 2, 1 } },
                       .dims = { 1, 1, 2, 1 },
                       .sequence = 2 };
    CHECK_OK(delta_rule_fwd(&t->ex, a));
    CHECK_NEAR(o[0], .8 * 3 / sqrt(2), 1e-6);
    CHECK_NEAR(o[1], .8 * 2.875 / sqrt(2), 1e-6);
}

/* Two documents in a row give the bits of two rows. */
static void documents_are_sequences_of_their_own(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 2, 37, 2, 4, 3, 5, 4, 0 };
    const DeltaDims d = dims_of(&s);
    const int64_t n = rows_of(&s);
    Tensor x = optest_normal(t, DTYPE_F32, DIMS(n, x_cols(&s))),
           doc = optest_integers(t, DTYPE_I32, DIMS(1, n), 0, 1);
    Tensor w = optest_normal(t, DTYPE_F32, DIMS(qkv_cols(&s), 4));
    Tensor decay = optest_normal(t, DTYPE_F32, DIMS(1, 2 * s.H));
    Tensor qkv[2], o[2];
    for (int64_t i = s.T; i < n; i++) optest_set(&doc, i, (double)s.T);
    for (int i = 0; i < 2; i++) {
        const int64_t sequence = i == 0 ? s.T : n;
        const Tensor of = i == 0 ? (Tensor){ 0 } : doc;
        qkv[i] = optest_poisoned(t, DTYPE_F32, DIMS(n, qkv_cols(&s)));
        o[i] = optest_poisoned(t, DTYPE_F32, DIMS(n, o_cols(&s)));
        CHECK_OK(
            delta_conv_fwd(&t->ex, (DeltaConvFwd){ x, w, of, qkv[i], d, .sequence = sequence }));
        CHECK_OK(delta_rule_fwd(
            &t->ex, (DeltaRuleFwd){ qkv[i], x, decay, of, o[i], d, .sequence = sequence }));
    }
    CHECK_SAME(&qkv[1], &qkv[0]);
    CHECK_SAME(&o[1], &o[0]);
}

/* 9 tokens at once, and as 4 that leave a state for 5. */
static void a_state_goes_on(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 1, 9, 1, 3, 4, 2, 3, 0 };
    const DeltaDims d = dims_of(&s);
    const Tensor x = optest_normal(t, DTYPE_F32, DIMS(s.T, x_cols(&s))),
                 qkv = optest_normal(t, DTYPE_F32, DIMS(s.T, qkv_cols(&s))),
                 decay = optest_normal(t, DTYPE_F32, DIMS(1, 2 * s.H)),
                 whole = optest_poisoned(t, DTYPE_F32, DIMS(s.T, o_cols(&s))),
                 parts = optest_poisoned(t, DTYPE_F32, DIMS(s.T, o_cols(&s))),
                 S = optest_poisoned(t, DTYPE_F32, DIMS(1, s.H * s.Dk * s.Dv));
    memset(S.data, 0, tensor_bytes(&S));
    CHECK_OK(
        delta_rule_fwd(&t->ex, (DeltaRuleFwd){ qkv, x, decay, { 0 }, whole, d, .sequence = s.T }));
    for (int64_t first = 0, n = 4; first < s.T; first += n, n = 5) {
        const Tensor o = tensor_rows(&parts, first, n);
        CHECK_OK(delta_rule_fwd(&t->ex, (DeltaRuleFwd){ tensor_rows(&qkv, first, n),
                                                        tensor_rows(&x, first, n),
                                                        decay,
                                                        { 0 },
                                                        o,
                                                        d,
                                                        .sequence = n,
                                                        .state = S }));
    }
    CHECK_TENSOR(&parts, optest_read(t, &whole));
}

/* Of R ranks, each of which has two runs of n tokens of each of two sequences. */
enum { RUN_RANKS = 2, RUN_ROWS = 5, RUN_COUNT = 4 * RUN_RANKS };

typedef struct Runs {
    OpTest *t;
    Case c;
    Tensor d_o;         /* of whole sequences */
    Tensor o, dqkv, dx; /* of all ranks' runs, put where the whole sequences have them */
    Tensor before[RUN_RANKS], span[RUN_RANKS], spans;
    Tensor dw, ddecay;
} Runs;

/* The first row, in whole sequences, of a rank's run. */
static int64_t run_row(int rank, int64_t run)
{
    const int64_t last = 2 * RUN_RANKS - 1;
    return (run / 2 * (last + 1) + (run % 2 == 0 ? rank : last - rank)) * RUN_ROWS;
}

/* A rank's rows of `whole`, or back into it. */
static Tensor own_rows(Runs *r, const Tensor *whole, int rank)
{
    const int64_t cols = tensor_cols(whole);
    Tensor out = optest_poisoned(r->t, whole->dtype, DIMS(4 * RUN_ROWS, cols));
    for (int64_t i = 0; i < 4 * RUN_ROWS * cols; i++)
        optest_set(
            &out, i,
            optest_get(whole, (run_row(rank, i / cols / RUN_ROWS) + i / cols % RUN_ROWS) * cols +
                                  i % cols));
    return out;
}
static void put_rows(const Tensor *own, int rank, Tensor *whole)
{
    const int64_t cols = tensor_cols(whole);
    for (int64_t i = 0; i < 4 * RUN_ROWS * cols; i++)
        optest_set(whole,
                   (run_row(rank, i / cols / RUN_ROWS) + i / cols % RUN_ROWS) * cols + i % cols,
                   optest_get(own, i));
}

static DeltaRuleFwd run_rule(Runs *r, int rank, const Tensor *qkv, Tensor o)
{
    const Case *c = &r->c;
    DeltaRuleFwd a = { .qkv = own_rows(r, qkv, rank),
                       .x = own_rows(r, &c->x, rank),
                       .decay = c->decay,
                       .o = o,
                       .dims = dims_of(&c->s),
                       .sequence = RUN_ROWS,
                       .first = { run_row(rank, 0), run_row(rank, 1) } };
    if (c->doc.data == NULL) return a;
    Tensor doc = tensor_as4(&c->doc, 1, 1, rows_of(&c->s), 1);
    doc.rank = 2, doc.dim[0] = rows_of(&c->s), doc.dim[1] = 1;
    a.doc = own_rows(r, &doc, rank);
    a.doc.dim[0] = 4, a.doc.dim[1] = RUN_ROWS;
    return a;
}

/* The rows before each of a rank's runs; zeros before a sequence. */
static Tensor rows_before(Runs *r, int rank)
{
    const int64_t past = r->c.s.taps - 1, cols = x_cols(&r->c.s);
    Tensor out = optest_poisoned(r->t, r->c.x.dtype, DIMS(4 * past, cols));
    for (int64_t i = 0; i < 4 * past * cols; i++) {
        const int64_t run = i / cols / past, row = run_row(rank, run) - past + i / cols % past;
        const bool none = run_row(rank, run) % r->c.s.T == 0;
        optest_set(&out, i, none ? 0 : optest_get(&r->c.x, row * cols + i % cols));
    }
    return out;
}

/* Adds the gradients of rows before runs to those of the rows. */
static void add_before(const Runs *r, int rank, const Tensor *dbefore, Tensor *dx)
{
    const int64_t past = r->c.s.taps - 1, cols = x_cols(&r->c.s);
    for (int64_t i = 0; i < 4 * past * cols; i++) {
        const int64_t run = i / cols / past, row = run_row(rank, run) - past + i / cols % past;
        if (run_row(rank, run) % r->c.s.T == 0) continue;
        const double more = optest_get(dbefore, i);
        if (isnan(more)) continue; /* columns of other ops */
        optest_set(dx, row * cols + i % cols, optest_get(dx, row * cols + i % cols) + more);
    }
}

static Tensor join(Runs *r, int rank, bool back)
{
    const DeltaDims d = dims_of(&r->c.s);
    Tensor state = optest_poisoned(r->t, DTYPE_F32, DIMS(4, d.heads * d.key * d.value));
    CHECK_OK(delta_join(&r->t->ex, (DeltaJoin){ r->spans, state, d, RUN_RANKS, rank, back }));
    return state;
}

static void run_forward(Runs *r, int rank, const Tensor *qkv)
{
    Tensor state = join(r, rank, false),
           o = optest_poisoned(r->t, r->d_o.dtype, DIMS(4 * RUN_ROWS, o_cols(&r->c.s)));
    DeltaRuleFwd a = run_rule(r, rank, qkv, o);
    a.state = state;
    CHECK_OK(delta_rule_fwd(&r->t->ex, a));
    put_rows(&o, rank, &r->o);
}

static void run_backward(Runs *r, int rank, const Tensor *qkv, Tensor begin)
{
    DeltaRuleBwd b = { .of = run_rule(r, rank, qkv, own_rows(r, &r->d_o, rank)),
                       .ddecay = r->ddecay,
                       .dstate = join(r, rank, true) };
    b.of.state = begin;
    b.dqkv = like(r->t, &b.of.qkv), b.dx = like(r->t, &b.of.x);
    CHECK_OK(delta_rule_bwd(&r->t->ex, b));
    put_rows(&b.dqkv, rank, &r->dqkv);
    put_rows(&b.dx, rank, &r->dx);
}

/* Ranks one after the other, with what a mesh would bring them, have what one rank has of whole sequences. */
static void check_runs(OpTest *t, const Case *c, const Tensor *d_o)
{
    const DeltaDims d = dims_of(&c->s);
    const int64_t spans = d.heads * d.key * (d.key + d.value);
    Runs r = { .t = t,
               .c = *c,
               .d_o = *d_o,
               .o = like(t, d_o),
               .dqkv = like(t, &c->qkv),
               .dx = like(t, &c->x),
               .ddecay = optest_copy(t, &c->decay),
               .spans = optest_poisoned(t, DTYPE_F32, DIMS(RUN_COUNT, spans)) };
    Tensor begin[RUN_RANKS];
    DeltaRuleFwd f = { c->qkv, c->x, c->decay, c->doc, like(t, d_o), d, .sequence = c->s.T };
    DeltaRuleBwd b = { { c->qkv, c->x, c->decay, c->doc, *d_o, d, .sequence = c->s.T },
                       like(t, &c->qkv),
                       like(t, &c->x),
                       .ddecay = optest_copy(t, &c->decay) };
    CHECK_OK(delta_rule_fwd(&t->ex, f));
    CHECK_OK(delta_rule_bwd(&t->ex, b));
    for (int i = 0; i < RUN_RANKS; i++) {
        r.span[i] = tensor_rows(&r.spans, 4 * i, 4);
        CHECK_OK(delta_span_fwd(
            &t->ex, (DeltaSpanFwd){ run_rule(&r, i, &c->qkv, (Tensor){ 0 }), r.span[i] }));
    }
    for (int i = 0; i < RUN_RANKS; i++) begin[i] = join(&r, i, false);
    for (int i = 0; i < RUN_RANKS; i++) run_forward(&r, i, &c->qkv);
    for (int i = 0; i < RUN_RANKS; i++)
        CHECK_OK(delta_span_bwd(
            &t->ex, (DeltaSpanBwd){ run_rule(&r, i, &c->qkv, own_rows(&r, d_o, i)), r.span[i] }));
    for (int i = 0; i < RUN_RANKS; i++) run_backward(&r, i, &c->qkv, begin[i]);
    CHECK_TENSOR(&r.o, optest_read(t, &f.o));
    CHECK_TENSOR(&r.dqkv, optest_read(t, &b.dqkv));
    CHECK_TENSOR(&r.ddecay, optest_read(t, &b.ddecay));
    for (int64_t i = 0; i < tensor_elems(&b.dx); i++)
        if (!isnan(optest_get(&b.dx, i)))
            CHECK_NEAR(optest_get(&r.dx, i), optest_get(&b.dx, i), 1e-4);
}

/* The convolution of runs that see the rows before them. */
static void check_conv_runs(OpTest *t, const Case *c)
{
    const DeltaDims d = dims_of(&c->s);
    const Tensor dy = optest_normal(t, DTYPE_F32, DIMS(rows_of(&c->s), qkv_cols(&c->s)));
    Runs r = {
        .t = t, .c = *c, .dw = optest_copy(t, &c->w), .dqkv = like(t, &dy), .dx = like(t, &c->x)
    };
    DeltaConvFwd f = { c->x, c->w, c->doc, like(t, &dy), d, .sequence = c->s.T };
    DeltaConvBwd b = { { c->x, c->w, c->doc, dy, d, .sequence = c->s.T },
                       like(t, &c->x),
                       .dw = optest_copy(t, &c->w) };
    Tensor dbefore[RUN_RANKS];
    CHECK_OK(delta_conv_fwd(&t->ex, f));
    CHECK_OK(delta_conv_bwd(&t->ex, b));
    for (int i = 0; i < RUN_RANKS; i++) {
        const DeltaRuleFwd rule = run_rule(&r, i, &dy, (Tensor){ 0 });
        DeltaConvFwd own = { rule.x,
                             c->w,
                             rule.doc,
                             like(t, &rule.qkv),
                             d,
                             RUN_ROWS,
                             { rule.first[0], rule.first[1] },
                             rows_before(&r, i) };
        CHECK_OK(delta_conv_fwd(&t->ex, own));
        put_rows(&own.y, i, &r.dqkv);
        own.y = rule.qkv;
        DeltaConvBwd back = { own, like(t, &own.x), r.dw, dbefore[i] = like(t, &own.before) };
        CHECK_OK(delta_conv_bwd(&t->ex, back));
        put_rows(&back.dx, i, &r.dx);
    }
    for (int i = 0; i < RUN_RANKS; i++) add_before(&r, i, &dbefore[i], &r.dx);
    CHECK_TENSOR(&r.dqkv, optest_read(t, &f.y));
    CHECK_TENSOR(&r.dw, optest_read(t, &b.dw));
    for (int64_t i = 0; i < tensor_elems(&b.dx); i++)
        if (!isnan(optest_get(&b.dx, i)))
            CHECK_NEAR(optest_get(&r.dx, i), optest_get(&b.dx, i), 1e-4);
}

static void runs_of_all_ranks_are_whole_sequences(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (int documents_of = 0; documents_of < 6; documents_of += 2) {
        const Sizes s = { 2, 2 * RUN_RANKS * RUN_ROWS, 2, 4, 3, 5, 4, documents_of };
        Case c = { .s = s,
                   .x = optest_normal(t, DTYPE_F32, DIMS(rows_of(&s), x_cols(&s))),
                   .doc = documents(t, &s),
                   .w = optest_normal(t, DTYPE_F32, DIMS(qkv_cols(&s), s.taps)),
                   .decay = optest_normal(t, DTYPE_F32, DIMS(1, 2 * s.H)),
                   .qkv = optest_normal(t, DTYPE_F32, DIMS(rows_of(&s), qkv_cols(&s))) };
        const Tensor d_o = optest_normal(t, DTYPE_F32, DIMS(rows_of(&s), o_cols(&s)));
        check_runs(t, &c, &d_o);
        check_conv_runs(t, &c);
    }
}

static void bits_do_not_depend_on_threads(void **state)
{
    OpTest *t = *state;
    const Case c = case_of(t, 4);
    const DeltaDims d = dims_of(&c.s);
    Tensor first[5];
    for (int threads = 1; threads <= 5; threads++) {
        Tensor dx = optest_normal(t, DTYPE_F32, DIMS(rows_of(&c.s), x_cols(&c.s))),
               dw = optest_copy(t, &c.w);
        memset(dx.data, 0, tensor_bytes(&dx));
        Tensor out[5] = { dx, dw, optest_copy(t, &c.decay), optest_copy(t, &c.norm_w),
                          like(t, &c.o) };
        Tensor dqkv = like(t, &c.qkv);
        t->ex.threads = threads;
        const DeltaNormFwd norm = { c.o, c.x, c.norm_w, c.o, d, 1 };
        const DeltaRuleFwd rule = { c.qkv, c.x, c.decay, c.doc, out[4], d, .sequence = c.s.T };
        const DeltaConvFwd conv = { c.x, c.w, c.doc, dqkv, d, .sequence = c.s.T };
        CHECK_OK(delta_norm_bwd(&t->ex, (DeltaNormBwd){ norm, out[4], dx, out[3] }));
        CHECK_OK(delta_rule_bwd(&t->ex, (DeltaRuleBwd){ rule, dqkv, dx, .ddecay = out[2] }));
        CHECK_OK(delta_conv_bwd(&t->ex, (DeltaConvBwd){ conv, dx, .dw = dw }));
        for (int i = 0; i < 5; i++) {
            if (threads == 1) first[i] = out[i];
            CHECK_SAME(&out[i], &first[i]);
        }
    }
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Case c = case_of(t, 4);
    const DeltaDims d = dims_of(&c.s);
    const DeltaRuleFwd good = { c.qkv, c.x, c.decay, c.doc, c.o, d, .sequence = c.s.T };
    const DeltaConvFwd conv = { c.x, c.w, c.doc, c.qkv, d, .sequence = c.s.T };
    DeltaRuleFwd a = good;
    a.dims.key_heads = 3;
    CHECK_FAILS(delta_rule_fwd(&t->ex, a), ERR_SHAPE, "3 key heads do not divide 2 value heads");
    a = good, a.dims.value = 2000;
    CHECK_FAILS(delta_rule_fwd(&t->ex, a), ERR_SHAPE,
                "heads of 3 and 2000 columns, wanted 1 to 256");
    a = good, a.sequence = 66;
    CHECK_FAILS(delta_rule_fwd(&t->ex, a), ERR_SHAPE, "67 rows are no sequences of 66 tokens");
    a = good, a.qkv = c.x;
    CHECK_FAILS(delta_rule_fwd(&t->ex, a), ERR_SHAPE,
                "delta_rule_fwd: qkv is (67, 26) f32, wanted (67, 14)");
    a = good, a.decay = optest_normal(t, DTYPE_BF16, DIMS(1, 4));
    CHECK_FAILS(delta_rule_fwd(&t->ex, a), ERR_SHAPE, "delta_rule_fwd: decay is (1, 4) bf16");
    a = good, a.state = optest_normal(t, DTYPE_F32, DIMS(1, 23));
    CHECK_FAILS(delta_rule_fwd(&t->ex, a), ERR_SHAPE, "state is (1, 23) f32, wanted (1, 24)");
    DeltaConvFwd b = conv;
    b.w = optest_normal(t, DTYPE_F32, DIMS(14, 9));
    CHECK_FAILS(delta_conv_fwd(&t->ex, b), ERR_SHAPE, "w joins 9 tokens, at most 8");
    b = conv, b.doc = c.x;
    CHECK_FAILS(delta_conv_fwd(&t->ex, b), ERR_SHAPE,
                "delta_conv_fwd: doc is (67, 26) f32, wanted (1, 67)");
}

/* 67 tokens of 2 heads of 3 x 4, qkv of 14 columns. */
static void costs_are_products_of_the_state(void **state)
{
    OpTest *t = *state;
    const Case c = case_of(t, 4);
    const DeltaRuleFwd a = { c.qkv, c.x, c.decay, c.doc, c.o, dims_of(&c.s), .sequence = c.s.T };
    const DeltaRuleBwd b = { .of = a };
    CHECK_NEAR(op_desc(OP_DELTA_RULE_FWD)->cost(&a).flops, 67 * 2 * 6 * 12, 0);
    CHECK_NEAR(op_desc(OP_DELTA_RULE_FWD)->cost(&a).bytes, 67 * (14 + 8 + 4) * 4 + 4 * 4, 0);
    CHECK_NEAR(op_desc(OP_DELTA_RULE_BWD)->cost(&b).flops, 67 * 2 * 12 * 12, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(the_convolution_matches_double, 2),
        OP_TEST(the_rule_matches_double, 2),
        OP_TEST(the_norm_matches_double, 2),
        OP_TEST(chunks_match_the_recurrence, 2),
        OP_TEST(two_tokens_worked_by_hand, 1),
        OP_TEST(documents_are_sequences_of_their_own, 2),
        OP_TEST(a_state_goes_on, 2),
        OP_TEST(runs_of_all_ranks_are_whole_sequences, 1),
        OP_TEST(bits_do_not_depend_on_threads, 1),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_are_products_of_the_state, 1),
    };
    return TEST_RUN(tests);
}
