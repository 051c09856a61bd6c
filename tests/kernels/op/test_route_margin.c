/* Quantile balancing: margins against their definition in double, quantiles worked by hand, and how
 * many steps balance a skewed router, beside the rule of signs. */
#include "harness/optest.h"
#include "kernels/op/route_case.h"

#include "kernels/core/op.h"
#include "kernels/moe/moe.h"
#include "kernels/route/route_margin.h"

enum { N = 515, MOST = 64 };

static RouteMargins margins_of(OpTest *t, RouteScore score, int64_t E, int64_t K)
{
    RouteMargins m = { .logits = optest_normal(t, DTYPE_F32, DIMS(N, E)),
                       .bias = optest_normal(t, DTYPE_F32, DIMS(1, E)),
                       .index = optest_poisoned(t, DTYPE_I32, DIMS(N, K)),
                       .target = optest_integers(t, DTYPE_I32, DIMS(N), -1, 4),
                       .margins = optest_poisoned(t, DTYPE_I32, DIMS(E, MARGIN_BINS)),
                       .score = score };
    for (int64_t e = 0; e < E; e++) optest_set(&m.bias, e, 0.1 * optest_get(&m.bias, e));
    memset(m.margins.data, 0, tensor_bytes(&m.margins));
    return m;
}

/* Routes the tokens, then counts their margins. load (1, E) gets the tokens of each expert. */
static void route_and_count(OpTest *t, const RouteMargins *m, Tensor *load)
{
    int64_t E = tensor_cols(&m->logits), K = tensor_cols(&m->index),
            n = tensor_elems(&m->logits) / E;
    Tensor one = optest_poisoned(t, DTYPE_I32, DIMS(1)),
           loss = optest_poisoned(t, DTYPE_F32, DIMS(1));
    *load = optest_poisoned(t, DTYPE_I32, DIMS(1, E));
    memset(load->data, 0, tensor_bytes(load));
    optest_set(&one, 0, 0), optest_set(&loss, 0, 0);
    CHECK_OK(route_fwd(&t->ex, (RouteFwd){ .logits = m->logits,
                                           .bias = m->bias,
                                           .domain = one,
                                           .target = m->target,
                                           .index = m->index,
                                           .weight = optest_poisoned(t, DTYPE_F32, DIMS(n, K)),
                                           .seq_count = optest_poisoned(t, DTYPE_I32, DIMS(1, E)),
                                           .load = *load,
                                           .aux_loss = loss,
                                           .rule = { .score = m->score,
                                                     .top_k = K,
                                                     .groups = 1,
                                                     .top_groups = 1,
                                                     .group_score_top = 1,
                                                     .scaling = 1 } }));
    CHECK_OK(route_margins(&t->ex, *m));
}

/* The K-th largest of the others' scores with bias, less its own. */
static double margin_by_definition(const double *c, int64_t E, int64_t K, int64_t e)
{
    bool taken[MOST] = { false };
    int64_t last = 0;
    taken[e] = true;
    for (int64_t k = 0; k < K; k++) last = reference_take(c, taken, E);
    return c[last] - c[e];
}

/* Tokens whose margin is below `edge`, and surely or perhaps so if roundings are allowed for. */
static void check_expert(const RouteMargins *m, const double *margin, int64_t tokens, int64_t e)
{
    int64_t counted = 0;
    for (int i = 0; i < MARGIN_BINS; i++) {
        double edge = (double)margin_edge(i), near = 1e-6 + 1e-5 * fabs(edge);
        int64_t surely = 0, perhaps = 0;
        for (int64_t n = 0; n < tokens && i > 0; n++) {
            surely += margin[n] < edge - near;
            perhaps += margin[n] < edge + near;
        }
        CHECK(counted >= surely && counted <= perhaps);
        counted += (int64_t)optest_get(&m->margins, e * MARGIN_BINS + i);
    }
    CHECK_INT(counted, tokens);
}

/* Scores of a softmax have sums, which a GPU adds in another order: its counters may differ by the
 * tokens at an edge, so there the definition alone judges them. */
static void margins_are_what_their_definition_says(void **state)
{
    OpTest *t = *state;
    static const int64_t sizes[][2] = { { 2, 1 }, { 8, 2 }, { 37, 5 }, { 64, 40 } };
    for (int i = 0; i < 8; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        int64_t E = sizes[i % 4][0], K = sizes[i % 4][1], tokens = 0;
        RouteMargins m = margins_of(t, i < 4 ? ROUTE_SIGMOID : ROUTE_SOFTMAX, E, K);
        if (i == 4) mirror_gives(), mirror_finite_only();
        Tensor load;
        route_and_count(t, &m, &load);
        double *margin = optest_doubles(t, E * N), *logits = optest_read(t, &m.logits);
        for (int64_t n = 0; n < N; n++) {
            double c[MOST];
            if (optest_get(&m.target, n) < 0) continue;
            reference_scores(&(RouteRule){ .score = m.score }, E, logits + n * E, c);
            for (int64_t e = 0; e < E; e++) c[e] += optest_get(&m.bias, e);
            for (int64_t e = 0; e < E; e++)
                margin[e * N + tokens] = margin_by_definition(c, E, K, e);
            tokens++;
        }
        CHECK(tokens > N / 2 && tokens < N);
        for (int64_t e = 0; e < E; e++) {
            int64_t below = 0;
            check_expert(&m, margin + e * N, tokens, e);
            for (int j = 0; j < MARGIN_SIDE; j++)
                below += (int64_t)optest_get(&m.margins, e * MARGIN_BINS + j);
            CHECK_INT(below, (int64_t)optest_get(&load, e)); /* who chose it is below 0 */
        }
        arena_release(&t->arena, mark);
    }
}

/* Twice the tokens in two calls, and threads: counters are added to. */
static void counters_are_added_to_by_any_number_of_threads(void **state)
{
    OpTest *t = *state;
    RouteMargins m = margins_of(t, ROUTE_SIGMOID, 8, 2);
    Tensor load;
    route_and_count(t, &m, &load);
    Tensor once = optest_copy(t, &m.margins);
    t->ex.threads = 1;
    CHECK_OK(route_margins(&t->ex, m));
    for (int64_t i = 0; i < tensor_elems(&once); i++)
        CHECK_NEAR(optest_get(&m.margins, i), 2 * optest_get(&once, i), 0);
}

static MoeBiasUpdate update_of(OpTest *t, const RouteMargins *m, float rate)
{
    MoeBiasUpdate u = { .load = optest_poisoned(t, DTYPE_I32, DIMS(1, tensor_cols(&m->logits))),
                        .margins = m->margins,
                        .gate = optest_poisoned(t, DTYPE_F32, DIMS(1)),
                        .bias = m->bias,
                        .rate = rate,
                        .top_k = tensor_cols(&m->index) };
    optest_set(&u.gate, 0, 1);
    return u;
}

/* Top 1 of 4: a quarter of 8 tokens is 2. Expert 0 has 4 tokens in [-1, -0.875), so half of these lie
 * below -0.9375. Expert 1 has 1 in [0.5, 0.625) and the others from 1 to 1.25, expert 2 all at the
 * least margins above 0, expert 3 none at all. The quantiles are -0.9375, 1 + 0.25 / 7, 2^-15 * 1.25 / 4
 * and 0; their mean is taken off. */
static void quantiles_worked_by_hand(void **state)
{
    OpTest *t = *state;
    RouteMargins m = margins_of(t, ROUTE_SIGMOID, 4, 1);
    int32_t *bin = m.margins.data;
    bin[margin_bin(0.9f, true)] = 4, bin[margin_bin(0.25f, false)] = 4;
    bin[MARGIN_BINS + margin_bin(0.6f, false)] = 1, bin[MARGIN_BINS + margin_bin(1.1f, false)] = 7;
    bin[2 * MARGIN_BINS + margin_bin(1e-9f, false)] = 8;
    const double x[] = { -0.9375, 1 + 0.25 / 7, 0x1p-15 * 1.25 / 4, 0 };
    double mean = (x[0] + x[1] + x[2] + x[3]) / 4, sum = 0;
    double *before = optest_read(t, &m.bias);
    MoeBiasUpdate u = update_of(t, &m, 0.5f);
    optest_set(&u.gate, 0, NAN);
    optest_unguard(t);
    CHECK_OK(moe_bias_update(&t->ex, u)); /* the step does not count */
    for (int e = 0; e < 4; e++) CHECK_NEAR(optest_get(&m.bias, e), before[e], 0);
    optest_set(&u.gate, 0, 1);
    CHECK_OK(moe_bias_update(&t->ex, u));
    for (int e = 0; e < 4; e++) {
        CHECK_NEAR(optest_get(&m.bias, e), before[e] + 0.5 * (x[e] - mean), 1e-6);
        sum += optest_get(&m.bias, e) - before[e];
    }
    CHECK_NEAR(sum, 0, 1e-6);
}

static void bins_cover_both_signs_without_a_gap(void **state)
{
    (void)state;
    for (int i = 0; i < MARGIN_BINS; i++) {
        CHECK(margin_edge(i) < margin_edge(i + 1));
        float inside = margin_edge(i) + (margin_edge(i + 1) - margin_edge(i)) / 2;
        CHECK_INT(margin_bin(inside, i < MARGIN_SIDE), i);
        if (i >= MARGIN_SIDE) CHECK_INT(margin_bin(margin_edge(i), false), i);
    }
    CHECK_NEAR(margin_edge(0), -2, 0);
    CHECK_NEAR(margin_edge(MARGIN_SIDE), 0, 0);
    CHECK_NEAR(margin_edge(MARGIN_BINS), 2, 0);
    CHECK_INT(margin_bin(1e30f, false), MARGIN_BINS - 1);
    CHECK_INT(margin_bin(1e30f, true), 0);
}

/* Steps until the busiest expert has less than 1.1 times its share, at most 40. Its logits are ahead
 * by as much as 2, and all rules see the same tokens. */
static int steps_to_balance(OpTest *t, RouteScore score, bool quantile, float rate)
{
    enum { E = 16, K = 2 };
    ArenaMark mark = arena_mark(&t->arena);
    t->drawn = 0;
    RouteMargins m = margins_of(t, score, E, K);
    int step = 0;
    m.target = (Tensor){ 0 };
    for (int64_t i = 0; i < N * E; i++)
        optest_set(&m.logits, i, optest_get(&m.logits, i) + 2.0 * (double)(i % E) / E);
    for (int e = 0; e < E; e++) optest_set(&m.bias, e, 0);
    for (; step < 40; step++) {
        ArenaMark each = arena_mark(&t->arena);
        MoeBiasUpdate u = update_of(t, &m, rate);
        double most = 0;
        memset(m.margins.data, 0, tensor_bytes(&m.margins));
        route_and_count(t, &m, &u.load);
        for (int e = 0; e < E; e++) most = fmax(most, optest_get(&u.load, e));
        if (step == 0) CHECK(most > 2.5 * K * N / E);
        if (most < 1.1 * K * N / E) break;
        if (!quantile) u.margins = (Tensor){ 0 };
        CHECK_OK(moe_bias_update(&t->ex, u));
        arena_release(&t->arena, each);
    }
    arena_release(&t->arena, mark);
    return step;
}

static void a_skewed_router_is_balanced_in_fewer_steps_than_by_signs(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        RouteScore score = i == 0 ? ROUTE_SIGMOID : ROUTE_SOFTMAX;
        if (i == 1) mirror_finite_only();
        int half = steps_to_balance(t, score, true, 0.5f),
            whole = steps_to_balance(t, score, true, 1);
        print_message("quantile %d steps at rate 1/2, %d at 1; sign", half, whole);
        CHECK(half <= 12 && whole <= 12);
        for (float rate = 0.001f; rate < 0.2f; rate *= 4) {
            int steps = steps_to_balance(t, score, false, rate);
            print_message(" %d at %g", steps, (double)rate);
            CHECK(steps > half);
        }
        print_message("\n");
    }
}

/* Two experts compete for every token: a whole step of both overshoots by the whole gap, half a step
 * meets in the middle. */
static void half_a_step_settles_two_experts(void **state)
{
    OpTest *t = *state;
    RouteMargins m = margins_of(t, ROUTE_SIGMOID, 2, 1);
    Tensor load;
    m.target = (Tensor){ 0 };
    for (int64_t n = 0; n < N; n++) optest_set(&m.logits, 2 * n, optest_get(&m.logits, 2 * n) + 1);
    for (int step = 0; step < 3; step++) {
        memset(m.margins.data, 0, tensor_bytes(&m.margins));
        route_and_count(t, &m, &load);
        CHECK_OK(moe_bias_update(&t->ex, update_of(t, &m, 0.5f)));
    }
    CHECK(fabs(optest_get(&load, 0) / N - 0.5) < 0.02);
}

static void wrong_arguments_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const RouteMargins good = margins_of(t, ROUTE_SIGMOID, 8, 2);
    RouteMargins m = good;
    m.index = optest_integers(t, DTYPE_I32, DIMS(N, 8), 0, 8);
    CHECK_FAILS(route_margins(&t->ex, m), ERR_ARG,
                "route_margins: top_k is 8, outside 1 .. 7 of 8 experts");
    m = good, m.index = optest_integers(t, DTYPE_I32, DIMS(N, 2), 8, 1);
    CHECK_FAILS(route_margins(&t->ex, m), ERR_ARG, "element 0 of index is 8, outside 0 .. 7");
    m = good, m.margins = good.bias;
    CHECK_FAILS(route_margins(&t->ex, m), ERR_SHAPE, "route_margins: margins is (1, 8) f32");
    MoeBiasUpdate u = update_of(t, &good, 0.5f);
    u.top_k = 8;
    CHECK_FAILS(moe_bias_update(&t->ex, u), ERR_ARG, "top_k is 8, outside 1 .. 7 of 8 experts");
    u.top_k = 2, u.margins = good.bias;
    CHECK_FAILS(moe_bias_update(&t->ex, u), ERR_SHAPE, "margins is (1, 8) f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(margins_are_what_their_definition_says, 2),
        OP_TEST(counters_are_added_to_by_any_number_of_threads, 2),
        OP_TEST(quantiles_worked_by_hand, 1),
        TEST(bins_cover_both_signs_without_a_gap),
        OP_TEST(a_skewed_router_is_balanced_in_fewer_steps_than_by_signs, 2),
        OP_TEST(half_a_step_settles_two_experts, 1),
        OP_TEST(wrong_arguments_are_errors_with_a_message, 1),
    };
    return TEST_RUN(tests);
}
