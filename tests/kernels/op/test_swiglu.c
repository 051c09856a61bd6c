/* swiglu against its definition in double and against the slopes of that. */
#include "harness/optest.h"
#include "kernels/moe/swiglu.h"

#define GELU ((double)INFINITY)

typedef struct Sizes {
    int64_t N, F;
    double limit; /* of the clamped form; 0: SwiGLU; infinity: GELU */
} Sizes;

/* 1, primes, one past a tile, one past the pieces that rows are worked on in; rows that a GPU reads
 * 16 bytes at a time. */
static const Sizes sizes[] = {
    { 1, 1, 0 },       { 7, 13, 0 },      { 129, 65, 0 },   { 3, 1025, 0 },
    { 2, 2051, 0 },    { 5, 264, 0 },     { 3, 2056, 0 },   { 1, 1, 7 },
    { 129, 65, 1.5 },  { 3, 1025, 2 },    { 5, 264, 1.25 }, { 3, 2056, 2.5 },
    { 129, 65, GELU }, { 3, 1025, GELU }, { 5, 264, GELU }, { 3, 2056, GELU },
};

enum { SIZES = sizeof sizes / sizeof *sizes };

static double sigmoid(double g) { return 1 / (1 + exp(-g)); }

/* u gelu(g) and its slopes, in the form with tanh. */
static double gelu(double g, double u, double slope[2])
{
    const double c = sqrt(2 / M_PI), th = tanh(c * (g + 0.044715 * g * g * g));
    slope[1] = g * (1 + th) / 2;
    slope[0] = u * ((1 + th) / 2 + g / 2 * (1 - th * th) * c * (1 + 3 * 0.044715 * g * g));
    return u * slope[1];
}

static void forward_double(const Sizes *s, const double *gu, double *y)
{
    for (int64_t i = 0; i < s->N * s->F; i++) {
        const double *g = gu + i / s->F * 2 * s->F + i % s->F, *u = g + s->F, L = s->limit;
        double gate = fmin(*g, L), up = fmax(-L, fmin(*u, L)), slope[2];
        y[i] = isinf(L) ? gelu(*g, *u, slope)
               : L > 0  ? (up + 1) * gate * sigmoid(1.702 * gate)
                        : *g * sigmoid(*g) * *u;
    }
}

static void backward_double(const Sizes *s, const double *gu, const double *dy, double *dgu)
{
    for (int64_t i = 0; i < s->N * s->F; i++) {
        int64_t at = i / s->F * 2 * s->F + i % s->F;
        double g = gu[at], u = gu[at + s->F], sig = sigmoid(g);
        dgu[at] = dy[i] * u * sig * (1 + g * (1 - sig));
        dgu[at + s->F] = dy[i] * g * sig;
        if (s->limit == 0) continue;
        if (isinf(s->limit)) {
            double by[2];
            (void)gelu(g, u, by);
            dgu[at] = dy[i] * by[0], dgu[at + s->F] = dy[i] * by[1];
            continue;
        }
        double gate = fmin(g, s->limit), up = fmax(-s->limit, fmin(u, s->limit));
        sig = sigmoid(1.702 * gate);
        double slope = (up + 1) * (sig + gate * 1.702 * sig * (1 - sig));
        dgu[at] = g > s->limit ? 0 : dy[i] * slope;
        dgu[at + s->F] = fabs(u) > s->limit ? 0 : dy[i] * gate * sig;
    }
}

/* Twice as wide as N(0, 1): gates from about -6 to 6. */
static Tensor gates(OpTest *t, Dtype dtype, const Sizes *s)
{
    Tensor gu = optest_normal(t, dtype, DIMS(s->N, 2 * s->F));
    for (int64_t i = 0; i < tensor_elems(&gu); i++) optest_set(&gu, i, 2 * optest_get(&gu, i));
    return gu;
}

static Glu glu_of(double limit)
{
    return isinf(limit) ? glu_gelu() : limit > 0 ? glu_clamped((float)limit) : (Glu){ 0 };
}

static SwigluFwd forward_args(OpTest *t, const Sizes *s, Dtype dtype)
{
    return (SwigluFwd){ .gu = gates(t, dtype, s),
                        .y = optest_poisoned(t, dtype, DIMS(s->N, s->F)),
                        .glu = glu_of(s->limit) };
}

static SwigluBwd backward_args(OpTest *t, const Sizes *s, Dtype dtype)
{
    return (SwigluBwd){ .dy = optest_normal(t, dtype, DIMS(s->N, s->F)),
                        .gu = gates(t, dtype, s),
                        .dgu = optest_poisoned(t, dtype, DIMS(s->N, 2 * s->F)),
                        .glu = glu_of(s->limit) };
}

static void forward_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SIZES; i++) {
        const Sizes *s = &sizes[i / 2];
        SwigluFwd a = forward_args(t, s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        double *y = optest_doubles(t, s->N * s->F);
        forward_double(s, optest_read(t, &a.gu), y);
        CHECK_OK(swiglu_fwd(&t->ex, a));
        CHECK_TENSOR(&a.y, y);
    }
}

static void backward_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SIZES; i++) {
        const Sizes *s = &sizes[i / 2];
        SwigluBwd a = backward_args(t, s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        double *dgu = optest_doubles(t, s->N * 2 * s->F);
        backward_double(s, optest_read(t, &a.gu), optest_read(t, &a.dy), dgu);
        CHECK_OK(swiglu_bwd(&t->ex, a));
        CHECK_TENSOR(&a.dgu, dgu);
    }
}

/* g = ln 3: silu = 3/4 ln 3. */
static void a_row_worked_by_hand(void **state)
{
    OpTest *t = *state;
    float gu[4] = { logf(3), 0, 2, 5 }, y[2], dy[2] = { 1, 1 }, dgu[4];
    CHECK_OK(swiglu_fwd(&t->ex, (SwigluFwd){ .gu = { gu, DTYPE_F32, 2, { 1, 4 } },
                                             .y = { y, DTYPE_F32, 2, { 1, 2 } } }));
    CHECK_NEAR(y[0], 1.5 * log(3), 1e-6);
    CHECK_NEAR(y[1], 0, 0);
    CHECK_OK(swiglu_bwd(&t->ex, (SwigluBwd){ .dy = { dy, DTYPE_F32, 2, { 1, 2 } },
                                             .gu = { gu, DTYPE_F32, 2, { 1, 4 } },
                                             .dgu = { dgu, DTYPE_F32, 2, { 1, 4 } } }));
    CHECK_NEAR(dgu[0], 2 * 0.75 * (1 + log(3) / 4), 1e-6);
    CHECK_NEAR(dgu[1], 5 * 0.5, 1e-6);
    CHECK_NEAR(dgu[2], 0.75 * log(3), 1e-6);
    CHECK_NEAR(dgu[3], 0, 0);
}

/* Of the clamped form, limit 2: a gate at the limit still has its slope, one above has none; of ups
 * likewise on both sides. sigmoid(1.702 * 0) = 1/2. */
static void a_clamped_row_worked_by_hand(void **state)
{
    OpTest *t = *state;
    const double s = sigmoid(1.702 * 2);
    float gu[10] = { 2, 5, 0, 2, 2, 3, 0, -2, -9, 2 }, y[5], dy[5] = { 1, 1, 1, 1, 1 }, dgu[10];
    CHECK_OK(swiglu_fwd(&t->ex, (SwigluFwd){ .gu = { gu, DTYPE_F32, 2, { 1, 10 } },
                                             .y = { y, DTYPE_F32, 2, { 1, 5 } },
                                             .glu = glu_clamped(2) }));
    CHECK_OK(swiglu_bwd(&t->ex, (SwigluBwd){ .dy = { dy, DTYPE_F32, 2, { 1, 5 } },
                                             .gu = { gu, DTYPE_F32, 2, { 1, 10 } },
                                             .dgu = { dgu, DTYPE_F32, 2, { 1, 10 } },
                                             .glu = glu_clamped(2) }));
    const double slope = s + 2 * 1.702 * s * (1 - s);
    const double want[] = { 6 * s, 2 * s, 0, -2 * s, 6 * s };
    const double by_gate[] = { 3 * slope, 0, -0.5, -slope, 3 * slope };
    const double by_up[] = { 0, 2 * s, 0, 0, 2 * s };
    for (int i = 0; i < 5; i++) {
        CHECK_NEAR(y[i], want[i], 1e-5);
        CHECK_NEAR(dgu[i], by_gate[i], 1e-5);
        CHECK_NEAR(dgu[5 + i], by_up[i], 1e-5);
    }
}

/* PyTorch's gelu(g, approximate="tanh") * u and its gradients, in f64. Far away they are 0 and g, without a NaN. */
static void a_gelu_row_of_pytorch(void **state)
{
    OpTest *t = *state;
    float gu[12] = { 0, 1, -1, 3, -1e30f, 1e30f, 1, 2, -3, 0.5f, 4, 0.5f }, y[6], dgu[12],
          dy[6] = { 1, 1, 1, 1, 1, 1 };
    CHECK_OK(swiglu_fwd(&t->ex, (SwigluFwd){ .gu = { gu, DTYPE_F32, 2, { 1, 12 } },
                                             .y = { y, DTYPE_F32, 2, { 1, 6 } },
                                             .glu = glu_gelu() }));
    CHECK_OK(swiglu_bwd(&t->ex, (SwigluBwd){ .dy = { dy, DTYPE_F32, 2, { 1, 6 } },
                                             .gu = { gu, DTYPE_F32, 2, { 1, 12 } },
                                             .dgu = { dgu, DTYPE_F32, 2, { 1, 12 } },
                                             .glu = glu_gelu() }));
    const double want[] = { 0, 1.682383981216554, 0.476424028175170, 1.498181303959113, 0, 5e29 };
    const double slope[] = {
        0.5, 2.165928167691565, 0.248892251537348,  0.505792083315485, 0, 0.5,
        0,   0.841191990608277, -0.158808009391723, 2.996362607918227, 0, 1e30
    };
    for (int i = 0; i < 12; i++) {
        if (i < 6) CHECK_NEAR(y[i], want[i], 1e-6 * fmax(1, want[i]));
        CHECK_NEAR(dgu[i], slope[i], 1e-6 * fmax(1, slope[i]));
    }
}

typedef struct Loss {
    const Sizes *s;
    const double *dy;
    double *y;
} Loss;

static double loss(const void *context, const double *gu)
{
    const Loss *l = context;
    double sum = 0;
    forward_double(l->s, gu, l->y);
    for (int64_t i = 0; i < l->s->N * l->s->F; i++) sum += l->dy[i] * l->y[i];
    return sum;
}

static void backward_is_the_slope_of_forward(void **state)
{
    OpTest *t = *state;
    const Sizes forms[] = { { 5, 11, 0 }, { 5, 11, 1.5 }, { 5, 11, GELU } };
    for (int i = 0; i < 3; i++) {
        const Sizes s = forms[i];
        SwigluBwd a = backward_args(t, &s, DTYPE_F32);
        Loss l = { &s, optest_read(t, &a.dy), optest_doubles(t, s.N * s.F) };
        double *dgu = optest_doubles(t, s.N * 2 * s.F);
        optest_slopes(loss, &l, optest_read(t, &a.gu), s.N * 2 * s.F, dgu);
        CHECK_OK(swiglu_bwd(&t->ex, a));
        CHECK_TENSOR(&a.dgu, dgu);
    }
}

static void dgu_may_be_gu(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SIZES; i++) {
        SwigluBwd a = backward_args(t, &sizes[i / 2], i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16), b = a;
        b.gu = b.dgu = optest_copy(t, &a.gu);
        CHECK_OK(swiglu_bwd(&t->ex, a));
        CHECK_OK(swiglu_bwd(&t->ex, b));
        CHECK_SAME(&b.dgu, &a.dgu);
    }
}

/* silu(g) is g above and 0 below; the guard would name a NaN out of 0 * infinity. */
static void large_gates_saturate(void **state)
{
    OpTest *t = *state;
    float gu[4] = { 1000, -1000, 3, 3 }, y[2], dy[2] = { 1, 1 }, dgu[4];
    CHECK_OK(swiglu_fwd(&t->ex, (SwigluFwd){ .gu = { gu, DTYPE_F32, 2, { 1, 4 } },
                                             .y = { y, DTYPE_F32, 2, { 1, 2 } } }));
    CHECK_NEAR(y[0], 3000, 0);
    CHECK_NEAR(y[1], 0, 0);
    CHECK_OK(swiglu_bwd(&t->ex, (SwigluBwd){ .dy = { dy, DTYPE_F32, 2, { 1, 2 } },
                                             .gu = { gu, DTYPE_F32, 2, { 1, 4 } },
                                             .dgu = { dgu, DTYPE_F32, 2, { 1, 4 } } }));
    CHECK_NEAR(dgu[0], 3, 0);
    CHECK_NEAR(dgu[1], 0, 0);
    CHECK_NEAR(dgu[2], 1000, 0);
    CHECK_NEAR(dgu[3], 0, 0);
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    Tensor gu = optest_normal(t, DTYPE_F32, DIMS(4, 6)),
           y = optest_normal(t, DTYPE_F32, DIMS(4, 3));
    Tensor odd = optest_normal(t, DTYPE_F32, DIMS(4, 7));
    Tensor half = optest_normal(t, DTYPE_BF16, DIMS(4, 3));
    CHECK_FAILS(swiglu_fwd(&t->ex, (SwigluFwd){ .gu = odd, .y = y }), ERR_SHAPE,
                "swiglu_fwd: gu is (4, 7)");
    CHECK_FAILS(swiglu_fwd(&t->ex, (SwigluFwd){ .gu = gu, .y = gu }), ERR_SHAPE,
                "swiglu_fwd: y is (4, 6)");
    CHECK_FAILS(swiglu_fwd(&t->ex, (SwigluFwd){ .gu = gu, .y = half }), ERR_SHAPE,
                "y is (4, 3) bf16");
    CHECK_FAILS(swiglu_bwd(&t->ex, (SwigluBwd){ .dy = y, .gu = odd, .dgu = odd }), ERR_SHAPE,
                "gu is (4, 7)");
    CHECK_FAILS(swiglu_bwd(&t->ex, (SwigluBwd){ .dy = half, .gu = gu, .dgu = gu }), ERR_SHAPE,
                "dy is (4, 3) bf16");
    CHECK_FAILS(swiglu_bwd(&t->ex, (SwigluBwd){ .dy = y, .gu = gu, .dgu = y }), ERR_SHAPE,
                "dgu is (4, 3)");
}

static void costs_are_every_tensor_once(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 4, 3, 0 };
    SwigluFwd f = forward_args(t, &s, DTYPE_BF16);
    SwigluBwd b = backward_args(t, &s, DTYPE_F32);
    CHECK_NEAR(op_desc(OP_SWIGLU_FWD)->cost(&f).bytes, (24 + 12) * 2, 0);
    CHECK_NEAR(op_desc(OP_SWIGLU_FWD)->cost(&f).flops, 12 * 5, 0);
    CHECK_NEAR(op_desc(OP_SWIGLU_BWD)->cost(&b).bytes, (12 + 24 + 24) * 4, 0);
    CHECK_NEAR(op_desc(OP_SWIGLU_BWD)->cost(&b).flops, 12 * 12, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(forward_matches_double, 2),
        OP_TEST(backward_matches_double, 2),
        OP_TEST(a_row_worked_by_hand, 1),
        OP_TEST(a_clamped_row_worked_by_hand, 1),
        OP_TEST(a_gelu_row_of_pytorch, 1),
        OP_TEST(backward_is_the_slope_of_forward, 2),
        OP_TEST(dgu_may_be_gu, 2),
        OP_TEST(large_gates_saturate, 1),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_are_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
