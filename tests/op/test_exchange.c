/* exchange, of which there is only the plan: what is sent, shapes, and that it says so when run. */
#include "harness/optest.h"

#include "comm/mesh.h"

/* 8 tokens of 6 columns and 2 experts here; room for 20 rows of which 12 come, from 4 ranks. */
enum { N = 8, D = 6, K = 2, M = 20, RANKS = 4 };
static const Rows COMING = { .bound = M, .expected = 12 };

static ExchangeDispatch dispatch_args(OpTest *t)
{
    return (ExchangeDispatch){ .x = optest_normal(t, DTYPE_BF16, DIMS(N, D)),
                               .index = optest_normal(t, DTYPE_I32, DIMS(N, K)),
                               .weight = optest_normal(t, DTYPE_F32, DIMS(N, K)),
                               .rows = optest_normal(t, DTYPE_BF16, DIMS(M, D)),
                               .rows_index = optest_normal(t, DTYPE_I32, DIMS(M, K)),
                               .rows_weight = optest_normal(t, DTYPE_F32, DIMS(M, K)),
                               .received = COMING,
                               .ranks = RANKS };
}

static ExchangeCombine combine_args(OpTest *t)
{
    return (ExchangeCombine){ .x = optest_normal(t, DTYPE_BF16, DIMS(M, D)),
                              .residual = optest_normal(t, DTYPE_BF16, DIMS(N, D)),
                              .y = optest_normal(t, DTYPE_BF16, DIMS(N, D)),
                              .received = COMING,
                              .ranks = RANKS };
}

static Collective gather_args(OpTest *t)
{
    return (Collective){ .in = optest_normal(t, DTYPE_BF16, DIMS(N, D)),
                         .out = optest_normal(t, DTYPE_BF16, DIMS(RANKS * N, D)),
                         .kind = COMM_ALL_GATHER,
                         .axis = AXIS_CP,
                         .ranks = RANKS };
}

/* A row: 6 bf16, with its routing 2 x (4 + 4) more. A quarter of the rows stay on their rank. */
static void what_is_sent_is_what_others_need(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    ExchangeDispatch d = dispatch_args(&t);
    ExchangeCombine c = combine_args(&t);
    Collective g = gather_args(&t), s = g;
    OpCost dispatch = op_desc(OP_EXCHANGE_DISPATCH)->cost(&d);
    OpCost combine = op_desc(OP_EXCHANGE_COMBINE)->cost(&c);
    OpCost gather = op_desc(OP_COLLECTIVE)->cost(&g);
    CHECK_NEAR(dispatch.size, 12 + 16, 0);
    CHECK_NEAR(dispatch.comm_bytes, 12 * 28 * 0.75, 1e-9);
    CHECK_NEAR(dispatch.bytes, 8 * 12 + 2 * 12 * 28, 0);
    assert_int_equal(dispatch.axis, AXIS_EP);
    CHECK_NEAR(combine.comm_bytes, 12 * 12 * 0.75, 1e-9);
    CHECK_NEAR(combine.bytes, 2 * 8 * 12 + 2 * 12 * 12, 0);
    CHECK_NEAR(gather.comm_bytes, 3 * 8 * 12, 0);
    CHECK_NEAR(gather.size, 4 * 8 * 12, 0);
    s.in = g.out, s.out = g.in, s.kind = COMM_REDUCE_SCATTER;
    CHECK_NEAR(op_desc(OP_COLLECTIVE)->cost(&s).comm_bytes, 3 * 8 * 12, 0);
    s.out = s.in, s.kind = COMM_SHIFT;
    CHECK_NEAR(op_desc(OP_COLLECTIVE)->cost(&s).comm_bytes, 4 * 8 * 12, 0);
    optest_close(&t);
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    ExchangeDispatch d = dispatch_args(&t);
    ExchangeCombine c = combine_args(&t);
    Collective g = gather_args(&t);
    d.rows_weight = d.weight;
    CHECK_FAILS(exchange_dispatch(&t.ex, d), ERR_SHAPE, "exchange_dispatch: rows_weight");
    c.x = optest_normal(&t, DTYPE_BF16, DIMS(M, D + 1));
    CHECK_FAILS(exchange_combine(&t.ex, c), ERR_SHAPE, "exchange_combine: x");
    g.ranks = 3;
    CHECK_FAILS(exchange_collective(&t.ex, g), ERR_SHAPE, "collective: out");
    optest_close(&t);
}

static void one_rank_has_no_peers(void **state)
{
    (void)state;
    OpTest t;
    optest_open(&t, 1);
    CHECK_FAILS(exchange_dispatch(&t.ex, dispatch_args(&t)), ERR_UNSUPPORTED, "has no peers");
    CHECK_FAILS(exchange_combine(&t.ex, combine_args(&t)), ERR_UNSUPPORTED, "mesh.ep=1");
    CHECK_FAILS(exchange_collective(&t.ex, gather_args(&t)), ERR_UNSUPPORTED, "mesh.cp=1");
    optest_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_sent_is_what_others_need),
        TEST(wrong_shapes_are_errors_with_a_message),
        TEST(one_rank_has_no_peers),
    };
    return TEST_RUN(tests);
}
