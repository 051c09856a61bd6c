/* attention_max and qk_clip against their definition in double: all logits of a head, and factors by row. */
#include "kernels/op/attention_reference.h"
#include "kernels/optimizer/qk_clip.h"

typedef struct Sizes {
    int64_t B, Tq, Tk, H, G, d;
    int64_t window, chunk;
    bool doc;
} Sizes;

/* One token; groups; primes; one past a strip, past a block of queries, and past the keys that are scored
 * at a time; documents, windows, chunks, and queries behind earlier keys. */
static const Sizes sizes[] = {
    { 1, 1, 1, 1, 1, 1, 0, 0, false },      { 2, 7, 7, 3, 3, 19, 0, 0, false },
    { 2, 65, 65, 4, 2, 16, 0, 0, true },    { 1, 131, 131, 4, 1, 24, 9, 0, true },
    { 1, 67, 67, 2, 2, 8, 0, 16, false },   { 1, 9, 301, 2, 1, 12, 0, 0, false },
    { 2, 300, 300, 6, 3, 40, 0, 0, false }, { 3, 33, 33, 2, 2, 192, 5, 0, true },
};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Documents of seven tokens. */
static Tensor documents(OpTest *t, const Sizes *s)
{
    Tensor doc = optest_poisoned(t, DTYPE_I32, DIMS(s->B, s->Tq));
    for (int64_t i = 0; i < s->B * s->Tq; i++)
        optest_set(&doc, i, (double)(i % s->Tq - i % s->Tq % 7));
    return doc;
}

static AttentionFwd forward_of(OpTest *t, const Sizes *s, Dtype act)
{
    AttentionFwd f = { .q = optest_normal(t, act, DIMS(s->B, s->Tq, s->H, s->d)),
                       .k = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, s->d)),
                       .v = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, 3)),
                       .o = optest_poisoned(t, act, DIMS(s->B, s->Tq, s->H, 3)),
                       .lse = optest_poisoned(t, DTYPE_F32, DIMS(s->B, s->H, s->Tq)),
                       .scale = 2 / sqrtf((float)s->d),
                       .window = s->window,
                       .chunk = s->chunk };
    if (s->doc) f.doc = documents(t, s);
    return f;
}

static AttentionMax max_of(const AttentionFwd *f, Tensor max, double above)
{
    return (AttentionMax){ *f, max, (float)above };
}

/* want[h] = the largest of it and of the head's logits. */
static void add_largest(OpTest *t, const AttentionFwd *f, double *want)
{
    Problem p = problem_of(t, f);
    const int64_t *dim = f->q.dim;
    for (int64_t row = 0; row < dim[0] * dim[2] * dim[1]; row++) {
        Query x = query_of(f, row / dim[1] / dim[2], row / dim[1] % dim[2], row % dim[1]);
        score(&p, &x);
        for (int64_t j = x.first; j < x.end; j++) want[x.h] = fmax(want[x.h], p.p[j]);
    }
}

/* Each maximum is exact where it is above the threshold, else 0. Returns how many are above. */
static int check_largest(const Tensor *max, const double *want, double above)
{
    int clipped = 0;
    for (int64_t h = 0; h < tensor_elems(max); h++) {
        if (want[h] <= above) CHECK_NEAR(optest_get(max, h), 0, 0);
        if (want[h] <= above) continue;
        CHECK_NEAR(optest_get(max, h), want[h], 1e-5 * want[h]);
        clipped++;
    }
    return clipped;
}

static Tensor no_maxima(OpTest *t, int64_t heads)
{
    Tensor max = optest_poisoned(t, DTYPE_F32, DIMS(heads));
    memset(max.data, 0, tensor_bytes(&max));
    return max;
}

/* Thresholds that no head, some heads and all heads are above. */
static void check_size(OpTest *t, const Sizes *s, Dtype act)
{
    AttentionFwd f = forward_of(t, s, act);
    double *want = zeros(t, s->H), least = (double)INFINITY, most = 0;
    CHECK_OK(attention_fwd(&t->ex, f));
    add_largest(t, &f, want);
    for (int64_t h = 0; h < s->H; h++) least = fmin(least, want[h]), most = fmax(most, want[h]);
    const double above[] = { most * 1.001 + 1e-3, (least + most) / 2, least * 0.999, 1e-3 };
    for (int i = 0; i < 4; i++) {
        Tensor max = no_maxima(t, s->H);
        CHECK_OK(attention_max(&t->ex, max_of(&f, max, above[i])));
        int clipped = check_largest(&max, want, above[i]);
        if (i == 0) CHECK_INT(clipped, 0);
        if (i == 2 && least > 0) CHECK_INT(clipped, s->H);
    }
}

static void each_size(OpTest *t, Dtype act)
{
    for (int i = 0; i < SIZES; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        check_size(t, &sizes[i], act);
        arena_release(&t->arena, mark);
    }
}

static void largest_logits_match_double(void **state) { each_size(*state, DTYPE_F32); }
static void bf16_logits_match_double(void **state) { each_size(*state, DTYPE_BF16); }

/* Rank 1 of 2 meets the keys of both ranks, in two calls with the lse so far. */
static void blocks_of_context_ranks_add_up(void **state)
{
    OpTest *t = *state;
    const Sizes s = { .B = 2, .Tq = 34, .Tk = 34, .H = 4, .G = 2, .d = 8 };
    const int64_t ranks = 2, own = 1;
    double *want = zeros(t, s.H);
    Tensor max = no_maxima(t, s.H);
    AttentionFwd f = forward_of(t, &s, DTYPE_F32);
    for (int64_t block = 0; block < ranks; block++) {
        f.k = optest_normal(t, DTYPE_F32, DIMS(s.B, s.Tk, s.G, s.d));
        f.pieces = pieces_of(17, ranks, own, (own + block) % ranks);
        if (block > 0) f.o_before = f.o, f.lse_before = f.lse;
        CHECK_OK(attention_fwd(&t->ex, f));
        CHECK_OK(attention_max(&t->ex, max_of(&f, max, 0.5)));
        add_largest(t, &f, want);
    }
    CHECK_INT(check_largest(&max, want, 0.5), s.H);
}

/* A sink raises lse, and has no key. */
static void a_sink_is_no_logit(void **state)
{
    OpTest *t = *state;
    const Sizes s = { .B = 1, .Tq = 40, .Tk = 40, .H = 2, .G = 1, .d = 8 };
    AttentionFwd f = forward_of(t, &s, DTYPE_F32);
    Tensor sinks = optest_poisoned(t, DTYPE_F32, DIMS(s.H)), max = no_maxima(t, s.H);
    double *want = zeros(t, s.H);
    optest_set(&sinks, 0, 1000), optest_set(&sinks, 1, -1000);
    CHECK_OK(attention_fwd(&t->ex, f));
    CHECK_OK(attention_sink_fwd(&t->ex, (AttentionSinkFwd){ sinks, f.o, f.lse }));
    CHECK_OK(attention_max(&t->ex, max_of(&f, max, 0.5)));
    add_largest(t, &f, want);
    CHECK_INT(check_largest(&max, want, 0.5), s.H);
}

/* Rows whose lse is low are not multiplied, as it says that no logit is above it. A GPU multiplies more
 * rows together, which shows only as this lse is made up: its results are not compared with the CPU's. */
static void rows_of_a_low_lse_are_skipped(void **state)
{
    OpTest *t = *state;
    const Sizes s = { .B = 1, .Tq = 200, .Tk = 200, .H = 1, .G = 1, .d = 4 };
    AttentionFwd f = forward_of(t, &s, DTYPE_F32);
    Tensor max = no_maxima(t, 1);
    mirror.unlike = true;
    mirror_gives();
    optest_unguard(t);
    for (int64_t i = 0; i < tensor_elems(&f.q); i++) optest_set(&f.q, i, 1e3 * (double)(i + 1));
    for (int64_t i = 0; i < tensor_elems(&f.k); i++) optest_set(&f.k, i, 1);
    for (int64_t i = 0; i < 200; i++) optest_set(&f.lse, i, 4.99);
    CHECK_OK(attention_max(&t->ex, max_of(&f, max, 5)));
    CHECK_NEAR(optest_get(&max, 0), 0, 0);
    optest_set(&f.lse, 70, 6);
    CHECK_OK(attention_max(&t->ex, max_of(&f, max, 5)));
    CHECK(optest_get(&max, 0) > 1e5); /* of the strip or block of row 70 */
    const double first = optest_get(&max, 0);
    optest_set(&max, 0, 2 * first + 1e8);
    CHECK_OK(attention_max(&t->ex, max_of(&f, max, 5)));
    CHECK_NEAR(optest_get(&max, 0), 2 * first + 1e8, 10); /* what was there is larger */
}

/* An lse that rounding took below its only logit hides nothing. */
static void an_lse_a_little_too_low_is_enough(void **state)
{
    OpTest *t = *state;
    const Sizes s = { .B = 1, .Tq = 1, .Tk = 1, .H = 1, .G = 1, .d = 1 };
    AttentionFwd f = forward_of(t, &s, DTYPE_F32);
    Tensor max = no_maxima(t, 1);
    f.scale = 1;
    optest_set(&f.q, 0, 10.001), optest_set(&f.k, 0, 10);
    optest_set(&f.lse, 0, 99.99);
    CHECK_OK(attention_max(&t->ex, max_of(&f, max, 100)));
    CHECK_NEAR(optest_get(&max, 0), 100.01, 1e-4);
}

/* The clip */

typedef struct ClipCase {
    const char *name;
    QkRows rows;
    int64_t all, cols; /* of the matrix */
} ClipCase;

static const ClipCase clips[] = {
    { "mla: queries", { 4, 4, 4 * 7, 0, 7, 5, 0, 0, 0 }, 4 * 7, 33 },
    { "mla: keys and values", { 4, 4, 0, 4 * 8, 8, 5, 0, 0, 0 }, 4 * 8, 12 },
    { "gqa: queries, keys, values", { 4, 2, 4 * 3, 2 * 3, 3, 3, 0, 0, 0 }, 8 * 3, 19 },
    { "gqa: biases", { 4, 2, 4 * 3, 2 * 3, 3, 3, 0, 0, 0 }, 8 * 3, 1 },
    { "one key head", { 4, 1, 4 * 2, 2, 2, 2, 0, 0, 0 }, 6 * 2, 300 },
};
static const double logits[] = { 0, 130, 400, 0 };
enum { CLIPS = sizeof clips / sizeof *clips };
static const double TAU = 100;

static double gamma_of(int64_t head) { return fmin(1, TAU / fmax(logits[head], 1e-30)); }

/* From the paper: head by head, not row by row. */
static double factor_of(const QkRows *r, int64_t row)
{
    const int64_t group = r->heads / r->kv_heads, at = row < r->queries ? row : row - r->queries;
    const int64_t head = at / r->width, shared = row < r->queries ? head / group : head;
    if (row >= r->queries + r->keys) return 1;
    double g = 1;
    for (int64_t i = 0; i < group; i++) g = fmin(g, gamma_of(shared * group + i));
    const bool both = at % r->width < r->both;
    if (row < r->queries) return both ? gamma_of(head) / sqrt(g) : gamma_of(head);
    return both ? sqrt(g) : 1;
}

static Tensor scalars(OpTest *t, int64_t n, const double *values)
{
    Tensor x = optest_poisoned(t, DTYPE_F32, DIMS(n));
    optest_write(&x, values);
    return x;
}

/* Elements [first, first + n) of the case's matrix. */
static void check_part(OpTest *t, const ClipCase *c, int64_t first, int64_t n, Dtype low)
{
    QkClip a = { .w = optest_normal(t, DTYPE_F32, DIMS(n)),
                 .low = optest_normal(t, low, DIMS(n)),
                 .max = scalars(t, 4, logits),
                 .clip = scalars(t, 1, (double[]){ 0.5 }),
                 .first = first,
                 .cols = c->cols,
                 .rows = c->rows,
                 .above = (float)TAU };
    const double *w = optest_read(t, &a.w), *before = optest_read(t, &a.low);
    CHECK_OK(qk_clip(&t->ex, a));
    for (int64_t i = 0; i < n; i++) {
        const double factor = factor_of(&c->rows, (first + i) / c->cols);
        const double have = optest_get(&a.w, i);
        CHECK_NEAR(have, w[i] * factor, factor == 1 ? 0 : 1e-6 * fabs(w[i]));
        Tensor one = optest_poisoned(t, low, DIMS(1));
        optest_set(&one, 0, have);
        CHECK_NEAR(optest_get(&a.low, i), factor == 1 ? before[i] : optest_get(&one, 0), 0);
    }
}

static void each_row_has_the_factor_of_its_head(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < CLIPS; i++) {
        const ClipCase *c = &clips[i];
        const int64_t all = c->all * c->cols;
        ArenaMark mark = arena_mark(&t->arena);
        check_part(t, c, 0, all, DTYPE_BF16);
        check_part(t, c, all / 3 + 1, all / 2, DTYPE_BF16); /* within rows */
        check_part(t, c, all - 1, 1, DTYPE_BF16);
        arena_release(&t->arena, mark);
    }
}

/* Whatever its group does, a head's product of a query and a key is scaled by its own gamma. */
static void a_heads_logits_are_scaled_by_its_gamma(void **state)
{
    (void)state;
    for (int i = 2; i < CLIPS; i++) {
        const QkRows *r = &clips[i].rows;
        float max[4];
        for (int h = 0; h < 4; h++) max[h] = (float)logits[h];
        for (int64_t h = 0; h < r->heads; h++) {
            const int64_t key = r->queries + h * r->kv_heads / r->heads * r->width;
            const double product = (double)qk_factor(r, max, (float)TAU, h * r->width) *
                                   (double)qk_factor(r, max, (float)TAU, key);
            CHECK_NEAR(product, gamma_of(h), 1e-6);
        }
    }
}

static void a_skipped_step_clips_nothing(void **state)
{
    OpTest *t = *state;
    const ClipCase *c = &clips[0];
    QkClip a = { .w = optest_normal(t, DTYPE_F32, DIMS(c->all * c->cols)),
                 .max = scalars(t, 4, logits),
                 .clip = scalars(t, 1, (double[]){ (double)NAN }),
                 .cols = c->cols,
                 .rows = c->rows,
                 .above = (float)TAU };
    const double *w = optest_read(t, &a.w);
    optest_unguard(t);
    CHECK_OK(qk_clip(&t->ex, a));
    for (int64_t i = 0; i < tensor_elems(&a.w); i++) CHECK_NEAR(optest_get(&a.w, i), w[i], 0);
}

static void wrong_arguments_are_errors_with_messages(void **state)
{
    OpTest *t = *state;
    const Sizes s = { .B = 1, .Tq = 5, .Tk = 5, .H = 4, .G = 2, .d = 4 };
    AttentionFwd f = forward_of(t, &s, DTYPE_F32);
    CHECK_FAILS(attention_max(&t->ex, max_of(&f, no_maxima(t, 3), 1)), ERR_SHAPE,
                "attention_max: max is (3)");
    f.scale = 0;
    CHECK_FAILS(attention_max(&t->ex, max_of(&f, no_maxima(t, 4), 1)), ERR_ARG,
                "attention_max: scale is 0");
    QkClip a = { .w = optest_normal(t, DTYPE_F32, DIMS(40)),
                 .max = scalars(t, 4, logits),
                 .clip = scalars(t, 1, (double[]){ 1 }),
                 .cols = 5,
                 .rows = { .heads = 4, .kv_heads = 3, .queries = 8, .width = 2, .both = 2 },
                 .above = 1 };
    CHECK_FAILS(
        qk_clip(&t->ex, a), ERR_ARG,
        "qk_clip: 8 and 0 rows of 5 elements are not those of 4 heads of 2 rows and of the 3 "
        "key heads that they share");
    a.rows.kv_heads = 2, a.rows.keys = 6;
    CHECK_FAILS(qk_clip(&t->ex, a), ERR_ARG, "qk_clip: 8 and 6 rows of 5 elements are not those");
    a.rows.keys = 4, a.cols = 0;
    CHECK_FAILS(qk_clip(&t->ex, a), ERR_ARG, "qk_clip: 8 and 4 rows of 0 elements are not those");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(largest_logits_match_double, 3),
        OP_TEST(bf16_logits_match_double, 2),
        OP_TEST(blocks_of_context_ranks_add_up, 2),
        OP_TEST(a_sink_is_no_logit, 1),
        OP_TEST(rows_of_a_low_lse_are_skipped, 2),
        OP_TEST(an_lse_a_little_too_low_is_enough, 1),
        OP_TEST(each_row_has_the_factor_of_its_head, 3),
        TEST(a_heads_logits_are_scaled_by_its_gamma),
        OP_TEST(a_skipped_step_clips_nothing, 2),
        OP_TEST(wrong_arguments_are_errors_with_messages, 1),
    };
    return TEST_RUN(tests);
}
