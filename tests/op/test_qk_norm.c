/* qk_norm, of which there is only the plan: shapes, costs, and that it says so when run. */
#include "harness/optest.h"

/* 5 rows of 4 heads and 2 key/value heads of 6. */
enum { N = 5, H = 4, G = 2, D = 6, COLS = (H + 2 * G) * D };

static QkNormFwd forward_args(OpTest *t, bool weights)
{
    QkNormFwd a = { .qkv = optest_normal(t, DTYPE_BF16, DIMS(N, COLS)),
                    .y = optest_normal(t, DTYPE_BF16, DIMS(N, COLS)),
                    .rstd = optest_normal(t, DTYPE_F32, DIMS(N, H + G)),
                    .dims = { H, G, D },
                    .eps = 1e-6F };
    if (weights) {
        a.wq = optest_normal(t, DTYPE_F32, DIMS(D));
        a.wk = optest_normal(t, DTYPE_F32, DIMS(D));
    }
    return a;
}

static QkNormBwd backward_args(OpTest *t, const QkNormFwd *f)
{
    return (QkNormBwd){ .dy = f->y,
                        .qkv = f->qkv,
                        .wq = f->wq,
                        .wk = f->wk,
                        .rstd = f->rstd,
                        .dqkv = f->y,
                        .dwq = optest_normal(t, DTYPE_F32, DIMS(D)),
                        .dwk = optest_normal(t, DTYPE_F32, DIMS(D)),
                        .dims = f->dims };
}

/* Forward copies v, backward leaves it where it is: 6 of 8 heads, dy and x read, dx written. */
static void costs_are_those_of_rmsnorm_over_the_heads(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    QkNormFwd f = forward_args(&t, true);
    QkNormBwd b = backward_args(&t, &f);
    OpCost fwd = op_desc(OP_QK_NORM_FWD)->cost(&f), bwd = op_desc(OP_QK_NORM_BWD)->cost(&b);
    CHECK_NEAR(fwd.flops, 4 * 5 * 6 * 6, 0);
    CHECK_NEAR(fwd.bytes, 2 * 5 * 48 * 2 + 5 * 6 * 4, 0);
    CHECK_NEAR(bwd.flops, 10 * 5 * 6 * 6, 0);
    CHECK_NEAR(bwd.bytes, 3 * 5 * 36 * 2 + 5 * 6 * 4, 0);
    optest_close(&t);
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    QkNormFwd f = forward_args(&t, false);
    QkNormBwd b = backward_args(&t, &f);
    f.dims.kv_heads = 1;
    CHECK_FAILS(qk_norm_fwd(&t.ex, f), ERR_SHAPE, "qk_norm_fwd: qkv");
    b.dwk = b.rstd;
    CHECK_FAILS(qk_norm_bwd(&t.ex, b), ERR_SHAPE, "qk_norm_bwd: dwk");
    optest_close(&t);
}

static void to_run_it_is_refused(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    QkNormFwd f = forward_args(&t, true);
    CHECK_FAILS(qk_norm_fwd(&t.ex, f), ERR_UNSUPPORTED, "it can only be planned");
    CHECK_FAILS(qk_norm_bwd(&t.ex, backward_args(&t, &f)), ERR_UNSUPPORTED, "only be planned");
    optest_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(costs_are_those_of_rmsnorm_over_the_heads),
        TEST(wrong_shapes_are_errors_with_a_message),
        TEST(to_run_it_is_refused),
    };
    return TEST_RUN(tests);
}
