/* The gate of attention against plain loops in double, and what reads queries that have gates between them. */
#include "harness/optest.h"
#include "kernels/attention/gate.h"
#include "kernels/attention/rope.h"
#include "kernels/norm/rmsnorm.h"

typedef struct Sizes {
    int64_t N, H, d, right; /* right: columns behind those of queries and gates */
} Sizes;

/* 1, odd widths, one past the pieces that heads are worked on in. */
static const Sizes sizes[] = {
    { 1, 1, 1, 0 }, { 7, 3, 5, 4 }, { 3, 2, 257, 1 }, { 65, 4, 16, 32 }
};

enum { SIZES = sizeof sizes / sizeof *sizes };

static Dtype act(int i) { return i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16; }

static int64_t width_of(const Sizes *s) { return 2 * s->H * s->d + s->right; }

/* Where element i of (N, H*d) lies in x: as a query, or as its gate. */
static int64_t x_of(const Sizes *s, int64_t i, bool gate)
{
    const int64_t head = i / s->d % s->H;
    return i / (s->H * s->d) * width_of(s) + (2 * head + gate) * s->d + i % s->d;
}

/* x with NaN where no gate is. */
static Tensor gates(OpTest *t, const Sizes *s, Dtype dtype)
{
    Tensor x = optest_poisoned(t, dtype, DIMS(s->N, width_of(s)));
    Tensor g = optest_normal(t, dtype, DIMS(s->N, s->H * s->d));
    for (int64_t i = 0; i < tensor_elems(&g); i++)
        optest_set(&x, x_of(s, i, true), 3 * optest_get(&g, i));
    return x;
}

static void check_gate(OpTest *t, const Sizes *s, Dtype dtype)
{
    const int64_t n = s->N * s->H * s->d;
    const Tensor x = gates(t, s, dtype), o = optest_normal(t, dtype, DIMS(s->N, s->H * s->d)),
                 d_o = optest_normal(t, dtype, DIMS(s->N, s->H * s->d));
    const Tensor y = optest_poisoned(t, dtype, DIMS(s->N, s->H * s->d)),
                 dx = optest_poisoned(t, dtype, DIMS(s->N, width_of(s))),
                 dg = optest_poisoned(t, dtype, DIMS(s->N, s->H * s->d));
    double *want = optest_doubles(t, n), *slope = optest_doubles(t, n);
    int64_t written = 0;
    for (int64_t i = 0; i < n; i++) {
        const double open = 1 / (1 + exp(-optest_get(&x, x_of(s, i, true))));
        want[i] = optest_get(&o, i) * open;
        slope[i] = optest_get(&d_o, i) * optest_get(&o, i) * (1 - open);
    }
    optest_unguard(t);
    CHECK_OK(gate_fwd(&t->ex, (GateFwd){ x, o, y, s->H }));
    CHECK_TENSOR(&y, want);
    CHECK_OK(gate_bwd(&t->ex, (GateBwd){ x, o, d_o, dx, s->H }));
    for (int64_t i = 0; i < n; i++) optest_set(&dg, i, optest_get(&dx, x_of(s, i, true)));
    CHECK_TENSOR(&dg, slope);
    for (int64_t i = 0; i < tensor_elems(&dx); i++) written += !isnan(optest_get(&dx, i));
    CHECK_INT(written, n);
}

static void the_gate_matches_double(void **state)
{
    for (int i = 0; i < 2 * SIZES; i++) check_gate(*state, &sizes[i / 2], act(i));
}

/* With d_o = dy sigmoid(g), which the same op makes, dg is the slope of <dy, y> by g. By hand: g = 0, o = 3, dy = 2. */
static void a_gate_worked_by_hand(void **state)
{
    OpTest *t = *state;
    float x[2] = { 9, 0 }, o = 3, dy = 2, y = 0, d_o = 0, dx[2] = { 7, 7 };
    const Tensor wide = { x, DTYPE_F32, 2, { 1, 2 } }, dwide = { dx, DTYPE_F32, 2, { 1, 2 } };
#define ONE(v)                                                                                     \
    (Tensor)                                                                                       \
    {                                                                                              \
        &(v), DTYPE_F32, 2, { 1, 1 }                                                               \
    }
    CHECK_OK(gate_fwd(&t->ex, (GateFwd){ wide, ONE(o), ONE(y), 1 }));
    CHECK_OK(gate_fwd(&t->ex, (GateFwd){ wide, ONE(dy), ONE(d_o), 1 }));
    CHECK_OK(gate_bwd(&t->ex, (GateBwd){ wide, ONE(o), ONE(d_o), dwide, 1 }));
#undef ONE
    CHECK_NEAR(y, 1.5, 1e-7);
    CHECK_NEAR(d_o, 1, 1e-7);
    CHECK_NEAR(dx[1], 2 * 3 * 0.25, 1e-7);
    CHECK(dx[0] == 7);
}

/* x without its gates: queries of all heads, then what lies behind. */
static Tensor without_gates(OpTest *t, const Sizes *s, const Tensor *x)
{
    const int64_t q = s->H * s->d, width = q + s->right;
    Tensor out = optest_poisoned(t, x->dtype, DIMS(s->N, width));
    for (int64_t i = 0; i < s->N * width; i++) {
        const int64_t row = i / width, col = i % width;
        optest_set(
            &out, i,
            optest_get(x, col < q ? x_of(s, row * q + col, false) : row * width_of(s) + col + q));
    }
    return out;
}

static void check_same(const Tensor *a, const Tensor *b)
{
    CHECK_INT(tensor_elems(a), tensor_elems(b));
    for (int64_t i = 0; i < tensor_elems(a); i++) {
        const double x = optest_get(a, i), y = optest_get(b, i);
        CHECK(x == y || (isnan(x) && isnan(y)));
    }
}

static void norms_pass_over_gates(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 5, 3, 7, 4 };
    const Tensor x = optest_normal(t, DTYPE_F32, DIMS(s.N, width_of(&s)));
    const Tensor w = optest_normal(t, DTYPE_F32, DIMS(1, s.d));
    const Tensor dy = optest_normal(t, DTYPE_F32, DIMS(s.N, s.H * s.d));
    Tensor y[2], dx[2], dw[2];
    for (int i = 0; i < 2; i++) {
        const Tensor in = i == 0 ? x : without_gates(t, &s, &x);
        const Tensor rstd = optest_poisoned(t, DTYPE_F32, DIMS(s.N, s.H));
        y[i] = optest_poisoned(t, DTYPE_F32, DIMS(s.N, s.H * s.d));
        dx[i] = optest_poisoned(t, DTYPE_F32, DIMS(s.N, tensor_cols(&in)));
        dw[i] = optest_copy(t, &w);
        const int64_t step = i == 0 ? 2 * s.d : 0;
        CHECK_OK(rmsnorm_fwd(
            &t->ex, (RmsnormFwd){
                        .x = in, .w = w, .y = y[i], .rstd = rstd, .x_step = step, .eps = 0.25f }));
        CHECK_OK(rmsnorm_bwd(&t->ex, (RmsnormBwd){ .dy = dy,
                                                   .x = in,
                                                   .w = w,
                                                   .rstd = rstd,
                                                   .dx = dx[i],
                                                   .dw = dw[i],
                                                   .x_step = step }));
    }
    check_same(&y[0], &y[1]);
    check_same(&dw[0], &dw[1]);
    const Tensor left = without_gates(t, &s, &dx[0]);
    check_same(&left, &dx[1]);
    for (int64_t i = 0; i < s.N * s.H * s.d; i++)
        CHECK(isnan(optest_get(&dx[0], x_of(&s, i, true))));
}

/* Queries, keys and values behind each other, rotated in part. */
static void positions_pass_over_gates(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 5, 4, 6, 2 * 2 * 6 };
    const int64_t q = s.H * s.d, k = 2 * s.d;
    const Tensor x = optest_normal(t, DTYPE_F32, DIMS(s.N, width_of(&s)));
    const Tensor pos = optest_integers(t, DTYPE_I32, DIMS(s.N), 0, 9),
                 cosine = optest_normal(t, DTYPE_F32, DIMS(9, 2)),
                 sine = optest_normal(t, DTYPE_F32, DIMS(9, 2));
    const Tensor d_out = optest_normal(t, DTYPE_F32, DIMS(s.N, q));
    Tensor out[2][3], dx[2];
    for (int i = 0; i < 2; i++) {
        const Tensor in = i == 0 ? x : without_gates(t, &s, &x);
        for (int j = 0; j < 3; j++)
            out[i][j] = optest_poisoned(t, DTYPE_F32, DIMS(s.N, j == 0 ? q : k));
        dx[i] = optest_poisoned(t, DTYPE_F32, DIMS(s.N, tensor_cols(&in)));
        const RopeGqaDims dims = {
            .heads = s.H, .kv_heads = 2, .head = s.d, .rotary = 4, .gated = i == 0
        };
        CHECK_OK(rope_gqa_fwd(&t->ex, (RopeGqaFwd){ .qkv = in,
                                                    .pos = pos,
                                                    .cos = cosine,
                                                    .sin = sine,
                                                    .q_out = out[i][0],
                                                    .k_out = out[i][1],
                                                    .v_out = out[i][2],
                                                    .dims = dims }));
        CHECK_OK(rope_gqa_bwd(&t->ex, (RopeGqaBwd){ .dq_out = d_out,
                                                    .dk_out = out[0][1],
                                                    .dv_out = out[0][2],
                                                    .pos = pos,
                                                    .cos = cosine,
                                                    .sin = sine,
                                                    .dqkv = dx[i],
                                                    .dims = dims }));
    }
    for (int j = 0; j < 3; j++) check_same(&out[0][j], &out[1][j]);
    const Tensor left = without_gates(t, &s, &dx[0]);
    check_same(&left, &dx[1]);
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 2, 3, 4, 0 };
    const Tensor x = gates(t, &s, DTYPE_F32), o = optest_normal(t, DTYPE_F32, DIMS(2, 12));
    const Tensor wide = optest_normal(t, DTYPE_F32, DIMS(2, 13)), half = gates(t, &s, DTYPE_BF16);
    CHECK_FAILS(gate_fwd(&t->ex, (GateFwd){ x, wide, wide, 3 }), ERR_SHAPE,
                "gate_fwd: 3 heads do not divide the 13 columns of o");
    CHECK_FAILS(gate_fwd(&t->ex, (GateFwd){ x, wide, wide, 13 }), ERR_SHAPE,
                "columns 0 to 26 of x");
    CHECK_FAILS(gate_fwd(&t->ex, (GateFwd){ half, o, o, 3 }), ERR_SHAPE, "o is (2, 12)");
    CHECK_FAILS(gate_bwd(&t->ex, (GateBwd){ x, o, wide, x, 3 }), ERR_SHAPE,
                "3 heads do not divide the 13 columns of d_o");
    CHECK_FAILS(gate_bwd(&t->ex, (GateBwd){ x, o, o, o, 3 }), ERR_SHAPE, "dx is (2, 12)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(the_gate_matches_double, 2),
        OP_TEST(a_gate_worked_by_hand, 1),
        OP_TEST(norms_pass_over_gates, 2),
        OP_TEST(positions_pass_over_gates, 2),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
    };
    return TEST_RUN(tests);
}
