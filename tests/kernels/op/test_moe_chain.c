/*
 * The whole way of a token, route, sort, up, down, combine, and back: the gradients that the ops
 * hand to each other against finite differences of one function in double,
 *
 *   L = <dy, y> + aux_loss
 *   y_n = sum over the chosen e of weight_ne * (W2_e act(W1_e x_n + b1_e) + b2_e)
 *
 * without biases and with them, act being the clamped SwiGLU then,
 * in which the choice of experts is fixed and nothing is sorted.
 */
#include "moe_case.h"
#include "route_case.h"

enum { B = 2, T = 5, N = B * T, E = 6, D = 7, F = 5 };

/* All parameters of L stand in one row: logits, x, w1, w2, b1, b2. */
enum {
    LOGITS = 0,
    X = N * E,
    W1 = X + N * D,
    W2 = W1 + E * 2 * F * D,
    B1 = W2 + E * D * F,
    B2 = B1 + E * 2 * F,
    PARAMS = B2 + E * D
};

typedef struct Chain {
    Moe m;
    RouteFwd fwd;
    RouteBwd bwd;
    double *dy;
} Chain;

static Chain chain_make(OpTest *t, Dtype act, const RouteRule *rule, float limit)
{
    int64_t K = rule->top_k, group[E] = { N * K }; /* the router decides */
    Chain c = { .m = moe_make(t, act, (MoeSizes){ N, K, E, D, F, 3 }, group, false) };
    moe_form(t, &c.m, limit > 0, limit);
    if (limit > 0) {
        memset(c.m.db1.data, 0, tensor_bytes(&c.m.db1));
        memset(c.m.db2.data, 0, tensor_bytes(&c.m.db2));
    }
    c.fwd = (RouteFwd){ .logits = optest_normal(t, DTYPE_F32, DIMS(N, E)),
                        .domain = optest_integers(t, DTYPE_I32, DIMS(B), 0, 1),
                        .index = c.m.index,
                        .weight = c.m.weight,
                        .seq_count = optest_poisoned(t, DTYPE_I32, DIMS(B, E)),
                        .load = optest_integers(t, DTYPE_I32, DIMS(1, E), 3, 9),
                        .aux_loss = optest_normal(t, DTYPE_F32, DIMS(1)),
                        .rule = *rule };
    c.bwd = (RouteBwd){ .logits = c.fwd.logits,
                        .index = c.m.index,
                        .seq_count = c.fwd.seq_count,
                        .dweight = c.m.dweight,
                        .dlogits = optest_poisoned(t, DTYPE_F32, DIMS(N, E)),
                        .rule = *rule };
    memset(c.m.dw1.data, 0, tensor_bytes(&c.m.dw1));
    memset(c.m.dw2.data, 0, tensor_bytes(&c.m.dw2));
    c.dy = optest_read(t, &c.m.dy);
    return c;
}

static void chain_run(OpTest *t, const Chain *c)
{
    CHECK_OK(route_fwd(&t->ex, c->fwd));
    CHECK_OK(moe_sort_run(t, &c->m));
    moe_forward(t, &c->m);
    moe_backward(t, &c->m);
    CHECK_OK(route_bwd(&t->ex, c->bwd));
}

/* <dy, W2 act(W1 x + b1) + b2> of expert e. */
static double through_expert(const Chain *c, const double *at, const double *x, const double *dy,
                             int32_t e)
{
    const double *w1 = at + W1 + e * 2 * F * D, *w2 = at + W2 + e * D * F;
    const double *b1 = at + B1 + e * 2 * F, *b2 = at + B2 + e * D;
    double sum = 0;
    for (int d = 0; d < D; d++) sum += b2[d] * dy[d];
    for (int f = 0; f < F; f++) {
        double gate = b1[f], up = b1[F + f], back = 0;
        for (int d = 0; d < D; d++) {
            gate += w1[f * D + d] * x[d];
            up += w1[(F + f) * D + d] * x[d];
            back += w2[d * F + f] * dy[d];
        }
        sum += activation((double)c->m.limit, gate, up, NULL) * back;
    }
    return sum;
}

static double loss(const void *context, const double *at)
{
    const Chain *c = context;
    const RouteRule *r = &c->fwd.rule;
    const RouteSizes s = { B, T, E };
    const int32_t *index = c->fwd.index.data;
    double sum = reference_aux(r, &s, at + LOGITS, index);
    for (int n = 0; n < N; n++) {
        double p[ROUTE_CASE_EXPERTS], weight[ROUTE_CASE_EXPERTS];
        reference_scores(r, E, at + LOGITS + n * E, p);
        reference_weights(r, p, index + n * r->top_k, weight);
        for (int64_t k = 0; k < r->top_k; k++) {
            int32_t e = index[n * r->top_k + k];
            sum += weight[k] * through_expert(c, at, at + X + n * D, c->dy + n * D, e);
        }
    }
    return sum;
}

static double *gradient_of_the_loss(OpTest *t, const Chain *c)
{
    double *at = optest_doubles(t, PARAMS), *slope = optest_doubles(t, PARAMS);
    const Tensor *from[] = { &c->fwd.logits, &c->m.x, &c->m.w1, &c->m.w2, &c->m.b1, &c->m.b2 };
    const int to[] = { LOGITS, X, W1, W2, B1, B2 };
    for (int i = 0; i < PARAMS; i++) at[i] = 0;
    for (int i = 0; i < 6 && from[i]->data != NULL; i++) {
        memcpy(at + to[i], optest_read(t, from[i]), (size_t)tensor_elems(from[i]) * sizeof *at);
    }
    optest_slopes(loss, c, at, PARAMS, slope);
    return slope;
}

/* A softmax that keeps its scores; DeepSeek-V3's sigmoid with its groups. */
static const RouteRule rules[] = {
    { ROUTE_SOFTMAX, 2, 1, 1, 1, false, 2, 0.5f, false, 0 },
    { ROUTE_SIGMOID, 3, 3, 2, 2, true, 2.5f, 0.25f, true, 0 },
};

static void check_chain(Dtype act, double limit)
{
    OpTest t;
    moe_open(&t, 2);
    for (int i = 0; i < 4; i++) {
        /* in bf16: a row of which the clamps leave little has fewer roundings to average over */
        double within = act == DTYPE_F32 || i < 2 ? limit : 3 * limit;
        Chain c = chain_make(&t, act, &rules[i % 2], i < 2 ? 0 : 1.5f);
        chain_run(&t, &c);
        double *want = gradient_of_the_loss(&t, &c);
        CHECK_TENSOR_WITHIN(&c.bwd.dlogits, want + LOGITS, within);
        CHECK_TENSOR_WITHIN(&c.m.dx, want + X, within);
        CHECK_TENSOR_WITHIN(&c.m.dw1, want + W1, within);
        CHECK_TENSOR_WITHIN(&c.m.dw2, want + W2, within);
        if (i < 2) continue;
        CHECK_TENSOR_WITHIN(&c.m.db1, want + B1, within);
        CHECK_TENSOR_WITHIN(&c.m.db2, want + B2, within);
    }
    optest_close(&t);
}

static void gradients_in_f32_are_those_of_finite_differences(void **state)
{
    (void)state;
    check_chain(DTYPE_F32, 1e-5);
}

/* Four roundings to bf16 on the way, each 2^-9 of a value on average. */
static void gradients_in_bf16_are_those_of_finite_differences(void **state)
{
    (void)state;
    check_chain(DTYPE_BF16, 2e-2);
}

/* Loads 1 + 4, 2 + 2, 3 + 0 of two domains: the mean is 4. */
static void the_bias_moves_towards_experts_below_the_mean(void **state)
{
    OpTest *t = *state;
    const double load[] = { 1, 2, 3, 4, 2, 0 };
    MoeBiasUpdate a = { .load = optest_poisoned(t, DTYPE_I32, DIMS(2, 3)),
                        .gate = optest_poisoned(t, DTYPE_F32, DIMS(1)),
                        .bias = optest_poisoned(t, DTYPE_F32, DIMS(1, 3)),
                        .rate = 0.25f };
    for (int i = 0; i < 6; i++) optest_set(&a.load, i, load[i]);
    for (int i = 0; i < 3; i++) optest_set(&a.bias, i, i + 1);
    CHECK_OK(moe_bias_update(&t->ex, a)); /* the gate is NaN: the step does not count */
    for (int i = 0; i < 3; i++) CHECK_NEAR(optest_get(&a.bias, i), i + 1, 0);
    optest_set(&a.gate, 0, 3);
    CHECK_OK(moe_bias_update(&t->ex, a));
    CHECK_NEAR(optest_get(&a.bias, 0), 1 - 0.25, 0);
    CHECK_NEAR(optest_get(&a.bias, 1), 2, 0);
    CHECK_NEAR(optest_get(&a.bias, 2), 3 + 0.25, 0);
}

/* Loads 4, 4, 4, 0: three experts are over the mean of 3 and one under it, so the mean of the signs
 * is -1/2. The sum of the biases stays. */
static void a_centred_step_keeps_the_sum_of_the_biases(void **state)
{
    OpTest *t = *state;
    MoeBiasUpdate a = { .load = optest_poisoned(t, DTYPE_I32, DIMS(1, 4)),
                        .gate = optest_poisoned(t, DTYPE_F32, DIMS(1)),
                        .bias = optest_poisoned(t, DTYPE_F32, DIMS(1, 4)),
                        .rate = 0.25f,
                        .centred = true };
    for (int i = 0; i < 4; i++) optest_set(&a.load, i, i == 3 ? 0 : 4);
    for (int i = 0; i < 4; i++) optest_set(&a.bias, i, i + 1);
    optest_set(&a.gate, 0, 3);
    CHECK_OK(moe_bias_update(&t->ex, a));
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(optest_get(&a.bias, i), i + 1 + (i == 3 ? 0.375 : -0.125), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gradients_in_f32_are_those_of_finite_differences),
        TEST(gradients_in_bf16_are_those_of_finite_differences),
        MOE_TEST(the_bias_moves_towards_experts_below_the_mean, 1),
        MOE_TEST(a_centred_step_keeps_the_sum_of_the_biases, 1),
    };
    return TEST_RUN(tests);
}
