#include "harness/optest.h"
#include "kernels/optimizer/optimizer.h"

/* ---- square_sum ---- */

static Tensor scalar(OpTest *t, double value)
{
    Tensor out = optest_poisoned(t, DTYPE_F32, DIMS(1));
    optest_set(&out, 0, value);
    return out;
}

/* Around one and several blocks of the sum; added to what stands there. */
static void square_sum_adds_and_matches_double(void **state)
{
    OpTest *t = *state;
    const int64_t counts[] = { 1, 7, 65535, 65536, 65537, 200003 };
    for (int i = 0; i < 6; i++) {
        SquareSum a = { .x = optest_normal(t, DTYPE_F32, DIMS(counts[i])), .sum = scalar(t, 3) };
        double want = 3;
        for (int64_t j = 0; j < counts[i]; j++) {
            want += optest_get(&a.x, j) * optest_get(&a.x, j);
        }
        CHECK_OK(square_sum(&t->ex, a));
        CHECK_NEAR(optest_get(&a.sum, 0) / want, 1, 1.2e-7);
    }
}

/* Ones beside one element of 2^15: an f32 sum of squares stops at 2^30 and loses all of them. */
static void square_sum_keeps_what_f32_would_lose(void **state)
{
    OpTest *t = *state;
    int64_t n = 1 << 17;
    SquareSum a = { .x = optest_poisoned(t, DTYPE_F32, DIMS(n)), .sum = scalar(t, 0) };
    for (int64_t i = 0; i < n; i++) optest_set(&a.x, i, 1);
    optest_set(&a.x, 0, 1 << 15);
    CHECK_OK(square_sum(&t->ex, a));
    CHECK_NEAR(optest_get(&a.sum, 0), ldexp(1, 30) + (double)(n - 1), 64);
}

static void square_sum_has_the_same_bits_on_any_number_of_threads(void **state)
{
    OpTest *t = *state;
    SquareSum a = { .x = optest_normal(t, DTYPE_F32, DIMS(300007)), .sum = scalar(t, 0) };
    CHECK_OK(square_sum(&t->ex, a));
    for (int threads = 2; threads <= 5; threads++) {
        SquareSum b = { .x = a.x, .sum = scalar(t, 0) };
        t->ex.threads = threads;
        CHECK_OK(square_sum(&t->ex, b));
        CHECK_SAME(&b.sum, &a.sum);
    }
}

/* Runs that end inside a block, at its end, and after several; 400 of them do not fit into one launch of a GPU. The
 * sum over all has the bits of a call without groups. */
static void square_sum_adds_by_group_without_changing_the_sum(void **state)
{
    OpTest *t = *state;
    static const int64_t cut[] = {
        0, 1, 3, 64, 16384, 16385, 65536, 131072, 131075, 262100, 262144
    };
    enum { CUTS = sizeof cut / sizeof *cut, MANY = 400, GROUPS = 4, N = 300007 };
    SquareRun run[MANY];
    Tensor x = optest_normal(t, DTYPE_F32, DIMS(N));
    SquareSum alone = { .x = x, .sum = scalar(t, 3) };
    CHECK_OK(square_sum(&t->ex, alone));
    for (int many = 0; many < 2; many++) {
        double want[GROUPS] = { 0.5, 0.5, 0.5, 0.5 };
        SquareSum a = { x, scalar(t, 3), optest_poisoned(t, DTYPE_F32, DIMS(GROUPS)), run, 0 };
        for (int64_t i = 0; i < (many ? MANY : CUTS); i++)
            run[a.runs++] = (SquareRun){ many ? i * 701 : cut[i], (int)(i * 5 % 3) };
        for (int g = 0; g < GROUPS; g++) optest_set(&a.groups, g, 0.5);
        for (int64_t i = 0; i < a.runs; i++) {
            int64_t end = i + 1 < a.runs ? run[i + 1].first : N;
            for (int64_t k = run[i].first; k < end; k++)
                want[run[i].group] += optest_get(&x, k) * optest_get(&x, k);
        }
        CHECK_OK(square_sum(&t->ex, a));
        CHECK_SAME(&a.sum, &alone.sum);
        for (int g = 0; g < GROUPS; g++)
            CHECK_NEAR(optest_get(&a.groups, g) / want[g], 1, 4e-7); /* group 3 has no run */
        SquareSum b = { x, scalar(t, 3), optest_poisoned(t, DTYPE_F32, DIMS(GROUPS)), run, a.runs };
        for (int g = 0; g < GROUPS; g++) optest_set(&b.groups, g, 0.5);
        t->ex.threads = 3;
        CHECK_OK(square_sum(&t->ex, b));
        CHECK_SAME(&b.groups, &a.groups);
    }
}

/* ---- clip_scale ---- */

typedef struct ClipCase {
    double sum, max_norm, norm, clip;
} ClipCase;

static void clip_scale_follows_its_definition(void **state)
{
    OpTest *t = *state;
    const ClipCase cases[] = {
        { 25, 1, 5, 1 / (5 + 1e-6) }, /* shrunk to the limit */
        { 25, 10, 5, 1 },             /* below it */
        { 25, 0, 5, 1 },              /* no limit */
        { 0, 1, 0, 1 },               /* no gradient */
        { 1e-14, 1e-7, 1e-7, 1e-7 / (1e-7 + 1e-6) },
    };
    for (int i = 0; i < 5; i++) {
        ClipScale a = { .sum = scalar(t, cases[i].sum),
                        .norm = scalar(t, NAN),
                        .clip = scalar(t, NAN),
                        .max_norm = (float)cases[i].max_norm };
        CHECK_OK(clip_scale(&t->ex, a));
        CHECK_NEAR(optest_get(&a.norm, 0), cases[i].norm, 1e-6 * cases[i].norm);
        CHECK_NEAR(optest_get(&a.clip, 0), cases[i].clip, 1e-6);
    }
}

/* Rows that had no room, or a gradient that is not finite, skip the step: every reader of `clip`
 * looks whether it is finite. */
static void clip_scale_skips_a_step(void **state)
{
    OpTest *t = *state;
    static const struct {
        double sum, overflow, limit;
        bool skips;
    } c[] = { { 25, 0, 9, false },   { 25, 0, 5, false }, { 25, 0, 4.99, true },
              { 25, 1, 9, true },    { 25, 0, 0, true },  { INFINITY, 0, 9, true },
              { NAN, 0, 1e38, true } };
    while (t->ex.depth > 0) exec_pop(&t->ex); /* the guard would object */
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        ClipScale a = { .sum = scalar(t, c[i].sum),
                        .norm = scalar(t, NAN),
                        .clip = scalar(t, 7),
                        .overflow = scalar(t, c[i].overflow),
                        .limit = scalar(t, c[i].limit),
                        .max_norm = 1 };
        CHECK_OK(clip_scale(&t->ex, a));
        CHECK(isfinite(optest_get(&a.clip, 0)) == !c[i].skips);
    }
}

static void a_norm_that_is_not_finite_skips_the_step(void **state)
{
    OpTest *t = *state;
    const double sums[] = { NAN, INFINITY }, limits[] = { 0, 1 };
    optest_unguard(t); /* it would stop here */
    for (int i = 0; i < 4; i++) {
        ClipScale a = { .sum = scalar(t, sums[i % 2]),
                        .norm = scalar(t, 0),
                        .clip = scalar(t, 0),
                        .max_norm = (float)limits[i / 2] };
        CHECK_OK(clip_scale(&t->ex, a));
        CHECK(isnan(optest_get(&a.clip, 0)));
        CHECK(!isfinite(optest_get(&a.norm, 0)));
    }
}

/* ---- weight_average ---- */

static void weight_average_moves_by_the_rate_and_not_in_a_skipped_step(void **state)
{
    OpTest *t = *state;
    static const double rates[] = { 0, 0.25, 1, 0.25 };
    while (t->ex.depth > 0) exec_pop(&t->ex); /* the guard would object to the clip of NaN */
    for (int i = 0; i < 4; i++) {
        const bool skips = i == 3;
        Tensor e = optest_normal(t, DTYPE_F32, DIMS(1003));
        Tensor w = optest_normal(t, DTYPE_F32, DIMS(1003));
        double was[1003];
        for (int k = 0; k < 1003; k++) was[k] = optest_get(&e, k);
        CHECK_OK(
            weight_average(&t->ex, (WeightAverage){ .e = e,
                                                    .w = w,
                                                    .clip = scalar(t, skips ? (double)NAN : 0.1),
                                                    .rate = scalar(t, rates[i]) }));
        for (int k = 0; k < 1003; k++) {
            double by = skips ? 0 : rates[i];
            CHECK_NEAR(optest_get(&e, k), was[k] + by * (optest_get(&w, k) - was[k]), 1e-6);
        }
    }
}

/* ---- adamw ---- */

static const double LR = 0.01, DECAY = 0.1, EPS = 1e-3, CLIP = 0.5;
static const float BETA1 = 0.9f, BETA2 = 0.95f;

static Adamw adamw_typed(OpTest *t, int64_t n, Dtype moment)
{
    Adamw a = { .w = optest_normal(t, DTYPE_F32, DIMS(n)),
                .g = optest_normal(t, DTYPE_F32, DIMS(n)),
                .m = optest_normal(t, moment, DIMS(n)),
                .v = optest_normal(t, moment, DIMS(n)),
                .w_low = optest_poisoned(t, DTYPE_BF16, DIMS(n)),
                .clip = scalar(t, CLIP),
                .hyper = optest_poisoned(t, DTYPE_F32, DIMS(3)),
                .beta1 = BETA1,
                .beta2 = BETA2,
                .eps = (float)EPS,
                .decay = (float)DECAY };
    for (int64_t i = 0; i < n; i++) optest_set(&a.v, i, fabs(optest_get(&a.v, i)));
    return a;
}

static Adamw adamw_args(OpTest *t, int64_t n) { return adamw_typed(t, n, DTYPE_F32); }

static void adamw_set_step(const Adamw *a, int step)
{
    optest_set(&a->hyper, 0, LR * step); /* a learning rate that moves */
    optest_set(&a->hyper, 1, 1 / (1 - pow((double)BETA1, step)));
    optest_set(&a->hyper, 2, 1 / (1 - pow((double)BETA2, step)));
}

/* As the header has it, in its order. */
static void adamw_double(const Adamw *a, int64_t n, double *w, double *m, double *v)
{
    double lr = optest_get(&a->hyper, 0), c1 = 1 / optest_get(&a->hyper, 1);
    double c2 = 1 / optest_get(&a->hyper, 2), b1 = (double)a->beta1, b2 = (double)a->beta2;
    for (int64_t i = 0; i < n; i++) {
        double g = optest_get(&a->clip, 0) * optest_get(&a->g, i);
        w[i] -= lr * (double)a->decay * w[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w[i] -= lr * (m[i] / c1) / (sqrt(v[i] / c2) + (double)a->eps);
    }
}

static void check_low(const Adamw *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t want = bf16_from_f32(((const float *)a->w.data)[i]);
        CHECK_INT(((const uint16_t *)a->w_low.data)[i], want);
    }
}

/* Around the pieces that are updated at a time. */
static const int64_t adamw_counts[] = { 1, 7, 9, 255, 256, 257, 20011 };
enum { ADAMW_COUNTS = sizeof adamw_counts / sizeof *adamw_counts };

static void adamw_matches_double_over_several_steps(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < ADAMW_COUNTS; i++) {
        int64_t n = adamw_counts[i];
        Adamw a = adamw_args(t, n);
        double *w = optest_read(t, &a.w), *m = optest_read(t, &a.m), *v = optest_read(t, &a.v);
        for (int step = 1; step <= 4; step++) {
            adamw_set_step(&a, step);
            adamw_double(&a, n, w, m, v);
            CHECK_OK(adamw(&t->ex, a));
        }
        CHECK_TENSOR(&a.w, w);
        CHECK_TENSOR(&a.m, m);
        CHECK_TENSOR(&a.v, v);
        check_low(&a, n);
    }
}

static double last_bit(double x)
{
    int exponent = 0;
    (void)frexp(x, &exponent);
    return ldexp(1, exponent - 8);
}

/* x is bf16 and nearest to want: half of the last of its 8 bits, and what f32 loses where terms of
 * up to 4 cancel. */
static void check_rounded(const Tensor *x, const double *want)
{
    for (int64_t i = 0; i < tensor_elems(x); i++) {
        CHECK_NEAR(optest_get(x, i), want[i], last_bit(want[i]) / 2 + 4e-7);
    }
}

/* Each step begins with the moments that the one before rounded. Weights of zero show that they are
 * updated with moments that are not rounded yet. */
static void bf16_moments_are_the_nearest_to_double(void **state)
{
    OpTest *t = *state;
    mirror_gives();
    for (int i = 0; i < ADAMW_COUNTS; i++) {
        int64_t n = adamw_counts[i];
        Adamw a = adamw_typed(t, n, DTYPE_BF16);
        memset(a.w.data, 0, tensor_bytes(&a.w));
        double *w = optest_read(t, &a.w);
        for (int step = 1; step <= 4; step++) {
            double *m = optest_read(t, &a.m), *v = optest_read(t, &a.v);
            adamw_set_step(&a, step);
            adamw_double(&a, n, w, m, v);
            CHECK_OK(adamw(&t->ex, a));
            check_rounded(&a.m, m);
            check_rounded(&a.v, v);
        }
        CHECK_TENSOR(&a.w, w);
        check_low(&a, n);
    }
}

/* rint takes the even one of two that are as near. */
static double nearest_bf16(double x) { return rint(x / last_bit(x)) * last_bit(x); }

/* Whole numbers and betas of 1/2 are exact in f32, so that rounding to bf16 alone is left; many lie
 * just between two values of bf16, and the even one is right. */
static void bf16_moments_of_whole_numbers_are_exact_to_the_bit(void **state)
{
    OpTest *t = *state;
    enum { N = 5003 };
    int ties = 0;
    mirror_gives();
    Adamw a = adamw_typed(t, N, DTYPE_BF16);
    adamw_set_step(&a, 1);
    optest_set(&a.clip, 0, 1);
    a.beta1 = a.beta2 = 0.5F;
    for (int i = 0; i < N; i++) {
        optest_set(&a.m, i, (i * 37 % 511 - 255) * 2);
        optest_set(&a.v, i, i * 53 % 256);
        optest_set(&a.g, i, i * 101 % 2047 - 1023);
    }
    const double *m = optest_read(t, &a.m), *v = optest_read(t, &a.v);
    CHECK_OK(adamw(&t->ex, a));
    for (int i = 0; i < N; i++) {
        double g = optest_get(&a.g, i), want[] = { m[i] / 2 + g / 2, v[i] / 2 + g * g / 2 };
        CHECK_NEAR(optest_get(&a.m, i), nearest_bf16(want[0]), 0);
        CHECK_NEAR(optest_get(&a.v, i), nearest_bf16(want[1]), 0);
        for (int k = 0; k < 2; k++) ties += fmod(fabs(want[k]) / last_bit(want[k]), 1) == 0.5;
    }
    CHECK(ties > N / 20);
}

static Tensor part_of(OpTest *t, const Tensor *from, int64_t first)
{
    int64_t n = tensor_elems(from);
    Tensor room = optest_poisoned(t, from->dtype, DIMS(first + n + 1));
    Tensor part = tensor_rows(&room, first, n);
    memcpy(part.data, from->data, tensor_bytes(from));
    return part;
}

static bool poison(const Tensor *part)
{
    const unsigned char *end = tensor_at(part, tensor_elems(part));
    for (size_t i = 0; i < dtype_bytes(part->dtype); i++) {
        if (end[i] != 0xFF) return false;
    }
    return true;
}

/* Buffers that begin anywhere, each elsewhere, of a length that no pack divides: the same bits, and
 * nothing is written behind them. */
static void adamw_does_not_depend_on_where_buffers_begin(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    mirror_gives();
    for (int i = 0; i < 6; i++) {
        const int64_t n = 4099 + i / 2;
        Adamw a = adamw_typed(t, n, types[i % 2]), b = a;
        adamw_set_step(&a, 3);
        b.w = part_of(t, &a.w, 1), b.g = part_of(t, &a.g, 3), b.m = part_of(t, &a.m, i);
        b.v = part_of(t, &a.v, 2), b.w_low = part_of(t, &a.w_low, 5);
        CHECK_OK(adamw(&t->ex, a));
        CHECK_OK(adamw(&t->ex, b));
        const Tensor *want[] = { &a.w, &a.m, &a.v, &a.w_low };
        const Tensor *have[] = { &b.w, &b.m, &b.v, &b.w_low };
        for (int k = 0; k < 4; k++) {
            CHECK_SAME(have[k], want[k]);
            CHECK(poison(have[k]));
        }
    }
}

/* From m = v = 0 the first step is lr * sign(g), whatever the size of g. */
static void the_first_step_is_the_learning_rate(void **state)
{
    OpTest *t = *state;
    Adamw a = adamw_args(t, 2);
    memset(a.m.data, 0, tensor_bytes(&a.m));
    memset(a.v.data, 0, tensor_bytes(&a.v));
    optest_set(&a.w, 0, 1), optest_set(&a.w, 1, -1);
    optest_set(&a.g, 0, 1e-3), optest_set(&a.g, 1, -1e3);
    adamw_set_step(&a, 1);
    a.eps = 1e-12f, a.decay = 0;
    CHECK_OK(adamw(&t->ex, a));
    CHECK_NEAR(optest_get(&a.w, 0), 1 - LR, 1e-6);
    CHECK_NEAR(optest_get(&a.w, 1), -1 + LR, 1e-6);
}

/* Decoupled: weights shrink by lr * decay, and the moments know nothing of it. */
static void decay_acts_on_weights_alone(void **state)
{
    OpTest *t = *state;
    Adamw a = adamw_args(t, 9);
    Tensor w = optest_copy(t, &a.w);
    memset(a.g.data, 0, tensor_bytes(&a.g));
    memset(a.m.data, 0, tensor_bytes(&a.m));
    adamw_set_step(&a, 1);
    CHECK_OK(adamw(&t->ex, a));
    for (int64_t i = 0; i < 9; i++) {
        CHECK_NEAR(optest_get(&a.w, i), optest_get(&w, i) * (1 - LR * DECAY), 1e-6);
        CHECK_NEAR(optest_get(&a.m, i), 0, 0);
    }
}

static void a_void_step_changes_nothing(void **state)
{
    OpTest *t = *state;
    const double clips[] = { NAN, INFINITY };
    optest_unguard(t); /* w_low stays NaN, as it was */
    for (int i = 0; i < 4; i++) {
        Adamw a = adamw_typed(t, 8193, i < 2 ? DTYPE_F32 : DTYPE_BF16), b = a;
        adamw_set_step(&a, 1);
        b.w = optest_copy(t, &a.w), b.m = optest_copy(t, &a.m), b.v = optest_copy(t, &a.v);
        b.w_low = optest_copy(t, &a.w_low);
        optest_set(&b.clip, 0, clips[i % 2]);
        CHECK_OK(adamw(&t->ex, b));
        CHECK_SAME(&b.w, &a.w);
        CHECK_SAME(&b.m, &a.m);
        CHECK_SAME(&b.v, &a.v);
        CHECK_SAME(&b.w_low, &a.w_low);
    }
}

static void rounded_weights_are_optional_and_change_no_bit(void **state)
{
    OpTest *t = *state;
    Adamw a = adamw_args(t, 8193), b = a;
    adamw_set_step(&a, 2);
    b.w = optest_copy(t, &a.w), b.m = optest_copy(t, &a.m), b.v = optest_copy(t, &a.v);
    b.w_low = (Tensor){ 0 };
    CHECK_OK(adamw(&t->ex, a));
    t->ex.threads = 5;
    CHECK_OK(adamw(&t->ex, b));
    CHECK_SAME(&b.w, &a.w);
    CHECK_SAME(&b.m, &a.m);
    CHECK_SAME(&b.v, &a.v);
}

/* Matrices of a shape whose copies an update writes. tiny: numbers whose scales are below 2^-60. */
typedef struct CopiesCase {
    int rank;
    int64_t dim[3];
    OperandKind kind;
    Dtype moment, round;
    bool pow2, tiny;
} CopiesCase;

/* Tails of 16 rows and columns, several matrices, and what a GPU's blocks of 128 x 128 do not take: odd widths, other
 * kinds of scales, no rounding. */
static const CopiesCase copies_cases[] = {
    { 2, { 144, 272 }, OPERAND_128X128, DTYPE_F32, DTYPE_BF16, true, false },
    { 3, { 3, 272, 144 }, OPERAND_128X128, DTYPE_BF16, DTYPE_BF16, true, false },
    { 3, { 2, 128, 48 }, OPERAND_128X128, DTYPE_F32, DTYPE_BF16, false, false },
    { 2, { 144, 144 }, OPERAND_128X128, DTYPE_BF16, DTYPE_BF16, true, true },
    { 2, { 130, 144 }, OPERAND_128X128, DTYPE_F32, DTYPE_BF16, true, false },
    { 2, { 7, 33 }, OPERAND_128X128, DTYPE_F32, DTYPE_F32, true, false },
    { 2, { 48, 160 }, OPERAND_ROW, DTYPE_F32, DTYPE_BF16, true, false },
    { 3, { 2, 16, 32 }, OPERAND_TENSOR, DTYPE_F32, DTYPE_BF16, false, false },
};
enum { COPIES_CASES = sizeof copies_cases / sizeof *copies_cases };

static QuantOut copies_new(OpTest *t, const CopiesCase *c)
{
    QuantOut out = { .round = c->round, .pow2 = c->pow2 };
    int64_t turned[3] = { c->dim[0], c->dim[1], c->dim[2] };
    turned[c->rank - 2] = c->dim[c->rank - 1], turned[c->rank - 1] = c->dim[c->rank - 2];
    CHECK_OK(operand_new(&t->arena, c->kind, DTYPE_E4M3, c->rank, c->dim, &out.rows));
    CHECK_OK(operand_new(&t->arena, c->kind, DTYPE_E4M3, c->rank, turned, &out.columns));
    out.columns.transposed = true;
    return out;
}

static Adamw copies_args(OpTest *t, const CopiesCase *c)
{
    const int64_t n = c->dim[0] * c->dim[1] * (c->rank == 3 ? c->dim[2] : 1);
    Adamw a = adamw_typed(t, n, c->moment);
    adamw_set_step(&a, 2);
    for (int64_t i = 0; i < n && c->tiny; i++) optest_set(&a.w, i, optest_get(&a.w, i) * 1e-30);
    if (c->tiny) optest_set(&a.hyper, 0, 0);
    return a;
}

static void copies_are_those_that_quantize_makes(void **state)
{
    OpTest *t = *state;
    mirror_gives();
    for (int i = 0; i < COPIES_CASES; i++) {
        Adamw a = copies_args(t, &copies_cases[i]), b = a;
        b.w = optest_copy(t, &a.w), b.m = optest_copy(t, &a.m), b.v = optest_copy(t, &a.v);
        b.w_low = optest_copy(t, &a.w_low);
        a.copies = copies_new(t, &copies_cases[i]);
        b.copies = copies_new(t, &copies_cases[i]);
        const QuantOut want = b.copies;
        const Tensor w = adamw_matrices(&b);
        b.copies = (QuantOut){ 0 };
        CHECK_OK(adamw(&t->ex, a));
        CHECK_OK(adamw(&t->ex, b));
        CHECK_OK(quantize(&t->ex, (Quantize){ .x = operand_plain(w),
                                              .round = want.round,
                                              .quant = want.rows,
                                              .transposed = want.columns,
                                              .pow2 = want.pow2 }));
        const Tensor *old[] = { &b.w,
                                &b.m,
                                &b.v,
                                &b.w_low,
                                &want.rows.data,
                                &want.rows.scale,
                                &want.columns.data,
                                &want.columns.scale };
        const Tensor *new[] = { &a.w,
                                &a.m,
                                &a.v,
                                &a.w_low,
                                &a.copies.rows.data,
                                &a.copies.rows.scale,
                                &a.copies.columns.data,
                                &a.copies.columns.scale };
        for (int k = 0; k < 8; k++) CHECK_SAME(new[k], old[k]);
    }
}

static void a_void_step_leaves_the_copies(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    mirror_gives();
    for (int i = 0; i < COPIES_CASES; i++) {
        Adamw a = copies_args(t, &copies_cases[i]);
        a.copies = copies_new(t, &copies_cases[i]);
        CHECK_OK(adamw(&t->ex, a));
        Tensor rows = optest_copy(t, &a.copies.rows.data);
        Tensor scales = optest_copy(t, &a.copies.columns.scale);
        optest_set(&a.clip, 0, (double)NAN);
        CHECK_OK(adamw(&t->ex, a));
        CHECK_SAME(&a.copies.rows.data, &rows);
        CHECK_SAME(&a.copies.columns.scale, &scales);
    }
}

/* ---- errors and costs ---- */

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    Tensor seven = optest_normal(t, DTYPE_F32, DIMS(7)), one = scalar(t, 1);
    Tensor half = optest_normal(t, DTYPE_BF16, DIMS(9));
    CHECK_FAILS(square_sum(&t->ex, (SquareSum){ .x = half, .sum = one }), ERR_SHAPE,
                "square_sum: x is (9) bf16");
    CHECK_FAILS(square_sum(&t->ex, (SquareSum){ .x = seven, .sum = seven }), ERR_SHAPE,
                "sum is (7)");
    CHECK_FAILS(
        clip_scale(&t->ex, (ClipScale){ .sum = seven, .norm = one, .clip = one, .max_norm = 1 }),
        ERR_SHAPE, "clip_scale: sum is (7)");
    CHECK_FAILS(
        clip_scale(&t->ex, (ClipScale){ .sum = one, .norm = seven, .clip = one, .max_norm = 1 }),
        ERR_SHAPE, "norm is (7)");
    CHECK_FAILS(
        clip_scale(&t->ex, (ClipScale){ .sum = one, .norm = one, .clip = seven, .max_norm = 1 }),
        ERR_SHAPE, "clip is (7)");
    const Adamw good = adamw_args(t, 9);
    Tensor *field[7];
    const char *message[7] = { "g is (7)",     "m is (7)",     "v is (7)",     "clip is (7)",
                               "hyper is (7)", "w_low is (7)", "w is (9) bf16" };
    for (int i = 0; i < 7; i++) {
        Adamw a = good;
        field[0] = &a.g, field[1] = &a.m, field[2] = &a.v, field[3] = &a.clip;
        field[4] = &a.hyper, field[5] = &a.w_low, field[6] = &a.w;
        *field[i] = i < 6 ? seven : half;
        CHECK_FAILS(adamw(&t->ex, a), ERR_SHAPE, message[i]);
    }
    Adamw mixed = good;
    mixed.m = half;
    CHECK_FAILS(adamw(&t->ex, mixed), ERR_SHAPE, "v is (9) f32");
    mixed.m = good.m, mixed.v = half;
    CHECK_FAILS(adamw(&t->ex, mixed), ERR_SHAPE, "v is (9) bf16");
    Adamw other = good;
    other.copies = copies_new(t, &copies_cases[0]);
    CHECK_FAILS(adamw(&t->ex, other), ERR_SHAPE, "copies.rows has 39168 numbers, w has 9");
}

static void costs_are_every_tensor_once(void **state)
{
    OpTest *t = *state;
    Adamw a = adamw_args(t, 10);
    CHECK_NEAR(op_desc(OP_ADAMW)->cost(&a).bytes, 10 * (7 * 4 + 2), 0);
    CHECK_NEAR(op_desc(OP_ADAMW)->cost(&a).flops, 10 * 15, 0);
    a.w_low = (Tensor){ 0 };
    CHECK_NEAR(op_desc(OP_ADAMW)->cost(&a).bytes, 10 * 7 * 4, 0);
    a = adamw_typed(t, 10, DTYPE_BF16);
    CHECK_NEAR(op_desc(OP_ADAMW)->cost(&a).bytes, 10 * (3 * 4 + 4 * 2 + 2), 0);
    a = copies_args(t, &copies_cases[0]);
    a.w_low = (Tensor){ 0 };
    a.copies = copies_new(t, &copies_cases[0]); /* 30 bytes an element, and 2 x 3 scales twice */
    CHECK_NEAR(op_desc(OP_ADAMW)->cost(&a).bytes, 144 * 272 * 30 + 2 * 6 * 4, 0);
    a = adamw_typed(t, 10, DTYPE_BF16);
    SquareSum s = { .x = a.w, .sum = scalar(t, 0) };
    CHECK_NEAR(op_desc(OP_SQUARE_SUM)->cost(&s).bytes, 40, 0);
    CHECK_NEAR(op_desc(OP_SQUARE_SUM)->cost(&s).flops, 20, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(square_sum_adds_and_matches_double, 2),
        OP_TEST(square_sum_keeps_what_f32_would_lose, 1),
        OP_TEST(square_sum_has_the_same_bits_on_any_number_of_threads, 1),
        OP_TEST(square_sum_adds_by_group_without_changing_the_sum, 1),
        OP_TEST(clip_scale_follows_its_definition, 1),
        OP_TEST(clip_scale_skips_a_step, 1),
        OP_TEST(a_norm_that_is_not_finite_skips_the_step, 1),
        OP_TEST(weight_average_moves_by_the_rate_and_not_in_a_skipped_step, 2),
        OP_TEST(adamw_matches_double_over_several_steps, 2),
        OP_TEST(bf16_moments_are_the_nearest_to_double, 2),
        OP_TEST(bf16_moments_of_whole_numbers_are_exact_to_the_bit, 2),
        OP_TEST(adamw_does_not_depend_on_where_buffers_begin, 2),
        OP_TEST(the_first_step_is_the_learning_rate, 1),
        OP_TEST(decay_acts_on_weights_alone, 1),
        OP_TEST(a_void_step_changes_nothing, 2),
        OP_TEST(rounded_weights_are_optional_and_change_no_bit, 2),
        OP_TEST(copies_are_those_that_quantize_makes, 2),
        OP_TEST(a_void_step_leaves_the_copies, 2),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_are_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
