/* Routing against its definition in double (route_case.h), and its gradient against finite
 * differences of that. */
#include "harness/optest.h"
#include "route_case.h"

#include "kernels/core/op.h"
#include "kernels/route/route.h"
#include "kernels/route/route_drop.h"

/* All tensors of both ops for one rule and size. */
typedef struct Routing {
    RouteSizes s;
    int64_t N, domains;
    RouteFwd fwd;
    RouteBwd bwd;
} Routing;

static const RouteRule plain = {
    .score = ROUTE_SOFTMAX,
    .top_k = 2,
    .groups = 1,
    .top_groups = 1,
    .group_score_top = 1,
    .scaling = 1,
};

/* DeepSeek-V2: softmax, the best expert stands for its group. */
static const RouteRule v2 = { .score = ROUTE_SOFTMAX,
                              .top_k = 6,
                              .groups = 4,
                              .top_groups = 2,
                              .group_score_top = 1,
                              .scaling = 16,
                              .aux_scale = 0.25f };

/* DeepSeek-V3: sigmoid, the best two experts stand for their group. */
static const RouteRule v3 = { .score = ROUTE_SIGMOID,
                              .top_k = 5,
                              .groups = 4,
                              .top_groups = 3,
                              .group_score_top = 2,
                              .normalise = true,
                              .scaling = 2.5f,
                              .aux_scale = 0.5f };

static Routing routing_make(OpTest *t, const RouteRule *rule, RouteSizes s)
{
    int64_t N = s.B * s.T, K = rule->top_k;
    Routing r = { .s = s, .N = N, .domains = 3 };
    RouteFwd *f = &r.fwd;
    f->rule = *rule;
    f->logits = optest_normal(t, DTYPE_F32, DIMS(N, s.E));
    f->domain = optest_poisoned(t, DTYPE_I32, DIMS(s.B));
    for (int64_t b = 0; b < s.B; b++) optest_set(&f->domain, b, (double)((b * 2 + 1) % r.domains));
    f->index = optest_poisoned(t, DTYPE_I32, DIMS(N, K));
    f->weight = optest_poisoned(t, DTYPE_F32, DIMS(N, K));
    f->seq_count = optest_poisoned(t, DTYPE_I32, DIMS(s.B, s.E));
    f->load = optest_poisoned(t, DTYPE_I32, DIMS(r.domains, s.E));
    for (int64_t i = 0; i < r.domains * s.E; i++) optest_set(&f->load, i, (double)(100 + i));
    f->aux_loss = optest_poisoned(t, DTYPE_F32, DIMS(1));
    optest_set(&f->aux_loss, 0, 0.5);
    r.bwd = (RouteBwd){ .logits = f->logits,
                        .index = f->index,
                        .seq_count = f->seq_count,
                        .dweight = optest_normal(t, DTYPE_F32, DIMS(N, K)),
                        .dlogits = optest_poisoned(t, DTYPE_F32, DIMS(N, s.E)),
                        .rule = *rule };
    return r;
}

static void give_bias(OpTest *t, Routing *r)
{
    r->fwd.bias = optest_normal(t, DTYPE_F32, DIMS(1, r->s.E));
    for (int64_t e = 0; e < r->s.E; e++) {
        optest_set(&r->fwd.bias, e, 0.2 * optest_get(&r->fwd.bias, e));
    }
}

static const int32_t *index_of(const Routing *r) { return r->fwd.index.data; }

static void check_choice(OpTest *t, const Routing *r)
{
    const RouteRule *rule = &r->fwd.rule;
    int64_t E = r->s.E, K = rule->top_k;
    double *logits = optest_read(t, &r->fwd.logits), *want = optest_doubles(t, r->N * K);
    for (int64_t n = 0; n < r->N; n++) {
        double p[ROUTE_CASE_EXPERTS];
        int32_t index[ROUTE_CASE_EXPERTS];
        reference_scores(rule, E, logits + n * E, p);
        reference_choose(rule, E, p, r->fwd.bias.data, index);
        for (int64_t k = 0; k < K; k++) CHECK_INT(index_of(r)[n * K + k], index[k]);
        reference_weights(rule, p, index, want + n * K);
    }
    CHECK_TENSOR(&r->fwd.weight, want);
}

static void check_counts(OpTest *t, const Routing *r)
{
    int64_t E = r->s.E, K = r->fwd.rule.top_k;
    double *load = optest_doubles(t, r->domains * E);
    for (int64_t i = 0; i < r->domains * E; i++) load[i] = (double)(100 + i);
    for (int64_t b = 0; b < r->s.B; b++) {
        for (int64_t e = 0; e < E; e++) {
            int64_t n = 0;
            for (int64_t i = b * r->s.T * K; i < (b + 1) * r->s.T * K; i++) {
                n += index_of(r)[i] == e;
            }
            CHECK_INT(((const int32_t *)r->fwd.seq_count.data)[b * E + e], n);
            load[(int64_t)optest_get(&r->fwd.domain, b) * E + e] += (double)n;
        }
    }
    for (int64_t i = 0; i < r->domains * E; i++)
        CHECK_NEAR(optest_get(&r->fwd.load, i), load[i], 0);
}

static void check_aux(OpTest *t, const Routing *r)
{
    double *logits = optest_read(t, &r->fwd.logits);
    double want = 0.5 + reference_aux(&r->fwd.rule, &r->s, logits, index_of(r)) +
                  reference_z(&r->fwd.rule, &r->s, logits);
    /* a sum of many equal scores rounds the same way again and again */
    CHECK_NEAR(optest_get(&r->fwd.aux_loss, 0), want, (r->s.E > 64 ? 5e-6 : 1e-6) * want);
}

/* d/dlogits of sum(dweight * weight) + aux_loss, the choice and its counts held fixed. */
static double loss_near(const Routing *r, const double *logits, const double *all, int64_t n)
{
    const RouteRule *rule = &r->fwd.rule;
    const int32_t *index = index_of(r) + n * rule->top_k;
    const float *kept = r->bwd.weight.data;
    double p[ROUTE_CASE_EXPERTS], weight[ROUTE_CASE_EXPERTS];
    double loss = reference_aux(rule, &r->s, all, index_of(r)) + reference_z(rule, &r->s, all);
    reference_scores(rule, r->s.E, logits, p);
    reference_weights(rule, p, index, weight);
    for (int64_t k = 0; k < rule->top_k; k++) {
        if (kept != NULL && kept[n * rule->top_k + k] == 0) continue;
        loss += weight[k] * optest_get(&r->bwd.dweight, n * rule->top_k + k);
    }
    return loss;
}

static void check_gradient(OpTest *t, const Routing *r)
{
    const double step = 1e-4;
    double *logits = optest_read(t, &r->fwd.logits), *want = optest_doubles(t, r->N * r->s.E);
    for (int64_t i = 0; i < r->N * r->s.E; i++) {
        int64_t n = i / r->s.E;
        double here = logits[i], side[2];
        for (int k = 0; k < 2; k++) {
            logits[i] = here + (k == 0 ? -step : step);
            side[k] = loss_near(r, logits + n * r->s.E, logits, n);
        }
        logits[i] = here;
        want[i] = (side[1] - side[0]) / (2 * step);
    }
    CHECK_TENSOR(&r->bwd.dlogits, want);
}

/* Every rule: score x groups x bias x normalisation x auxiliary loss x z-loss. */
static RouteRule rule_number(int i, bool *bias)
{
    RouteRule r = i % 2 == 0 ? v2 : v3;
    if (i / 2 % 2 == 1) r.groups = r.top_groups = 1;
    *bias = i / 4 % 2 == 1;
    if (i / 8 % 2 == 1) r.normalise = !r.normalise;
    if (i / 16 % 3 == 1) r.aux_scale = 0;
    if (i / 16 % 3 == 2) r.aux_per_batch = true;
    if (i / 48 == 1) r.z_scale = 0.03f;
    return r;
}

enum { RULES = 96 };

static void every_rule_gives_what_its_definition_says(void **state)
{
    OpTest *t = *state;
    /* one token, primes, one past a chunk of tokens */
    const RouteSizes sizes[] = { { 1, 1, 16 }, { 5, 7, 20 }, { 3, 129, 24 } };
    for (int i = 0; i < RULES * 3; i++) {
        bool bias;
        ArenaMark mark = arena_mark(&t->arena);
        RouteRule rule = rule_number(i / 3, &bias);
        Routing r = routing_make(t, &rule, sizes[i % 3]);
        if (bias) give_bias(t, &r);
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        check_choice(t, &r);
        check_counts(t, &r);
        check_aux(t, &r);
        arena_release(&t->arena, mark);
    }
}

static void the_gradient_is_that_of_finite_differences(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < RULES; i++) {
        bool bias;
        ArenaMark mark = arena_mark(&t->arena);
        RouteRule rule = rule_number(i, &bias);
        Routing r = routing_make(t, &rule, (RouteSizes){ 3, 5, 16 });
        if (bias) give_bias(t, &r);
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        CHECK_OK(route_bwd(&t->ex, r.bwd));
        check_gradient(t, &r);
        arena_release(&t->arena, mark);
    }
}

/* The experts of models, and numbers that no warp divides. */
static const struct {
    int64_t E, K, groups, top_groups, group_score_top;
} models[] = {
    { 1, 1, 1, 1, 1 },    { 3, 2, 1, 1, 1 },    { 64, 6, 1, 1, 1 },    { 128, 8, 1, 1, 1 },
    { 160, 6, 8, 3, 1 },  { 224, 8, 1, 1, 1 },  { 256, 8, 8, 4, 2 },   { 256, 16, 1, 1, 1 },
    { 384, 8, 1, 1, 1 },  { 448, 16, 1, 1, 1 }, { 512, 10, 16, 5, 3 }, { 512, 40, 2, 1, 1 },
    { 300, 12, 3, 2, 2 },
};

enum { MODELS = sizeof models / sizeof *models };

typedef enum Logits { NORMAL, SKEWED, HALVES, LOGITS } Logits;

/* SKEWED: low experts are ahead, as in routers that collapse; HALVES: many are equal. */
static void give_logits(Routing *r, Logits kind)
{
    for (int64_t i = 0; i < r->N * r->s.E; i++) {
        double v = optest_get(&r->fwd.logits, i), e = (double)(i % r->s.E);
        if (kind == SKEWED) v += 3 / (1 + e);
        if (kind == HALVES) v = v > 0 ? 0.5 : 0;
        optest_set(&r->fwd.logits, i, v);
    }
}

/* The same again into memory of its own. */
static void check_again(OpTest *t, const Routing *r)
{
    Routing s = *r;
    s.fwd.index = optest_poisoned(t, DTYPE_I32, r->fwd.index.dim);
    s.fwd.weight = optest_poisoned(t, DTYPE_F32, r->fwd.weight.dim);
    s.fwd.seq_count = optest_poisoned(t, DTYPE_I32, r->fwd.seq_count.dim);
    s.fwd.aux_loss = optest_poisoned(t, DTYPE_F32, DIMS(1));
    optest_set(&s.fwd.aux_loss, 0, 0.5);
    s.bwd.dlogits = optest_poisoned(t, DTYPE_F32, r->bwd.dlogits.dim);
    CHECK_OK(route_fwd(&t->ex, s.fwd));
    CHECK_SAME(&s.fwd.index, &r->fwd.index);
    CHECK_SAME(&s.fwd.weight, &r->fwd.weight);
    CHECK_SAME(&s.fwd.seq_count, &r->fwd.seq_count);
    CHECK_SAME(&s.fwd.aux_loss, &r->fwd.aux_loss);
    if (r->s.E == 1) return; /* all that is left of its gradient is rounding */
    CHECK_OK(route_bwd(&t->ex, r->bwd));
    CHECK_OK(route_bwd(&t->ex, s.bwd));
    CHECK_SAME(&s.bwd.dlogits, &r->bwd.dlogits);
}

static void any_number_of_experts_is_routed_the_same_way_each_time(void **state)
{
    OpTest *t = *state;
    mirror_gives();
    for (int i = 0; i < MODELS * LOGITS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        RouteRule rule = i % 2 == 0 ? v2 : v3;
        rule.top_k = models[i / LOGITS].K, rule.groups = models[i / LOGITS].groups;
        rule.top_groups = models[i / LOGITS].top_groups;
        rule.group_score_top = models[i / LOGITS].group_score_top;
        Routing r = routing_make(t, &rule, (RouteSizes){ 2, 35, models[i / LOGITS].E });
        give_logits(&r, (Logits)(i % LOGITS));
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        check_choice(t, &r);
        check_counts(t, &r);
        check_aux(t, &r);
        check_again(t, &r);
        arena_release(&t->arena, mark);
    }
}

static void the_gradient_may_take_the_place_of_the_logits(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &v3, (RouteSizes){ 3, 5, 16 });
    CHECK_OK(route_fwd(&t->ex, r.fwd));
    CHECK_OK(route_bwd(&t->ex, r.bwd));
    RouteBwd in_place = r.bwd;
    in_place.logits = in_place.dlogits = optest_copy(t, &r.fwd.logits);
    CHECK_OK(route_bwd(&t->ex, in_place));
    CHECK_SAME(&in_place.dlogits, &r.bwd.dlogits);
}

/* The scores of one token add up to 4, of e^logit; z = log 4. The gradient is 2 z_scale z p. */
static void a_z_loss_worked_by_hand(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        RouteRule rule = plain;
        rule.score = i == 0 ? ROUTE_SOFTMAX : ROUTE_SIGMOID, rule.z_scale = 0.25f;
        Routing r = routing_make(t, &rule, (RouteSizes){ 1, 1, 3 });
        const double exps[] = { 1, 2, 1 };
        for (int e = 0; e < 3; e++) optest_set(&r.fwd.logits, e, log(exps[e]));
        for (int k = 0; k < 2; k++) optest_set(&r.bwd.dweight, k, 0);
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        CHECK_OK(route_bwd(&t->ex, r.bwd));
        CHECK_NEAR(optest_get(&r.fwd.aux_loss, 0), 0.5 + 0.25 * log(4) * log(4), 1e-6);
        for (int e = 0; e < 3; e++)
            CHECK_NEAR(optest_get(&r.bwd.dlogits, e), 0.5 * log(4) * exps[e] / 4, 1e-6);
    }
}

/* Two tokens of z = log 4 and log 2, added to what is there; the loss has the bits of a call without the figure. */
static void the_sum_of_z_is_there_with_and_without_a_z_loss(void **state)
{
    OpTest *t = *state;
    static const double exps[] = { 1, 2, 1, 0.5, 0.5, 1 };
    for (int i = 0; i < 4; i++) {
        RouteRule rule = plain;
        rule.score = i % 2 == 0 ? ROUTE_SOFTMAX : ROUTE_SIGMOID, rule.z_scale = i < 2 ? 0 : 0.25f;
        Routing r = routing_make(t, &rule, (RouteSizes){ 1, 2, 3 });
        for (int e = 0; e < 6; e++) optest_set(&r.fwd.logits, e, log(exps[e]));
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        Tensor loss = optest_copy(t, &r.fwd.aux_loss);
        r.fwd.router_z = optest_poisoned(t, DTYPE_F32, DIMS(1));
        optest_set(&r.fwd.router_z, 0, 2);
        optest_set(&r.fwd.aux_loss, 0, 0.5);
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        CHECK_NEAR(optest_get(&r.fwd.router_z, 0), 2 + log(4) * log(4) + log(2) * log(2), 1e-6);
        CHECK_SAME(&r.fwd.aux_loss, &loss);
    }
}

/* Experts that skewed logits and a bias never choose; the weights are those of the experts taken.
 * Gradients of the first sizes alone: where a score is nearly 1, what is left to 1 is rounding. */
static void forced_balance_brings_each_expert_as_many_tokens(void **state)
{
    OpTest *t = *state;
    static const struct {
        int64_t E, K;
    } sizes[] = { { 16, 6 }, { 7, 3 }, { 64, 6 }, { 12, 2 }, { 5, 5 }, { 256, 8 } };
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        int64_t E = sizes[i / 2].E, K = sizes[i / 2].K, T = 3 * E;
        RouteRule rule = i % 2 == 0 ? v2 : v3;
        rule.top_k = K, rule.groups = rule.top_groups = rule.group_score_top = 1;
        Routing r = routing_make(t, &rule, (RouteSizes){ 2, T, E });
        give_logits(&r, SKEWED);
        give_bias(t, &r);
        r.fwd.pos = optest_poisoned(t, DTYPE_I32, DIMS(r.N));
        for (int64_t n = 0; n < r.N; n++) optest_set(&r.fwd.pos, n, (double)(n % T));
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        if (i < 4) CHECK_OK(route_bwd(&t->ex, r.bwd));
        for (int64_t j = 0; j < 2 * E; j++)
            CHECK_INT(((const int32_t *)r.fwd.seq_count.data)[j], 3 * K);
        double *logits = optest_read(t, &r.fwd.logits), *want = optest_doubles(t, r.N * K);
        for (int64_t n = 0; n < r.N; n++) {
            double p[ROUTE_CASE_EXPERTS];
            bool taken[ROUTE_CASE_EXPERTS] = { false };
            const int32_t *index = index_of(&r) + n * K;
            int64_t stride = 1 + n % T / E % (E / K);
            for (int64_t k = 0; k < K; k++) {
                CHECK_INT(index[k], (n % T + k * stride) % E);
                CHECK(!taken[index[k]]);
                taken[index[k]] = true;
            }
            reference_scores(&rule, E, logits + n * E, p);
            reference_weights(&rule, p, index, want + n * K);
        }
        CHECK_TENSOR(&r.fwd.weight, want);
        check_aux(t, &r);
        if (i < 4) check_gradient(t, &r);
        arena_release(&t->arena, mark);
    }
}

/* p = (1, 3, 9, 3) / 16: 2 is best, 1 and 3 tie and the lower one follows. */
static void a_token_worked_by_hand(void **state)
{
    OpTest *t = *state;
    RouteRule rule = plain;
    rule.normalise = true, rule.scaling = 2, rule.aux_scale = 1;
    Routing r = routing_make(t, &rule, (RouteSizes){ 1, 1, 4 });
    const double log_p[] = { 0, log(3), log(9), log(3) };
    for (int e = 0; e < 4; e++) optest_set(&r.fwd.logits, e, log_p[e]);
    CHECK_OK(route_fwd(&t->ex, r.fwd));
    CHECK_INT(index_of(&r)[0] * 10 + index_of(&r)[1], 21);
    CHECK_NEAR(optest_get(&r.fwd.weight, 0), 2 * 9.0 / 12, 1e-6);
    CHECK_NEAR(optest_get(&r.fwd.weight, 1), 2 * 3.0 / 12, 1e-6);
    /* E / (K T) * (9 + 3) / 16 on top of the 0.5 that stood there */
    CHECK_NEAR(optest_get(&r.fwd.aux_loss, 0), 0.5 + 4.0 / 2 * 12 / 16, 1e-6);
}

/* Every third token is padding, and the whole of the second sequence. */
static void padding_is_routed_like_any_token_and_not_counted(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &v3, (RouteSizes){ 3, 131, 24 });
    CHECK_OK(route_fwd(&t->ex, r.fwd));
    Tensor index = optest_copy(t, &r.fwd.index), weight = optest_copy(t, &r.fwd.weight);
    int64_t count[3 * 24] = { 0 }, load[3 * 24];
    for (int64_t i = 0; i < 3 * 24; i++) load[i] = (int64_t)optest_get(&r.fwd.load, i);
    r.fwd.target = optest_poisoned(t, DTYPE_I32, DIMS(r.N));
    for (int64_t n = 0; n < r.N; n++) {
        bool padding = n % 3 == 0 || n / 131 == 1;
        optest_set(&r.fwd.target, n, padding ? -1 : 0);
        for (int64_t k = 0; k < v3.top_k && !padding; k++)
            count[n / 131 * 24 + index_of(&r)[n * v3.top_k + k]]++;
    }
    CHECK_OK(route_fwd(&t->ex, r.fwd));
    CHECK_SAME(&r.fwd.index, &index);
    CHECK_SAME(&r.fwd.weight, &weight);
    for (int64_t i = 0; i < 3 * 24; i++) {
        CHECK_INT(((const int32_t *)r.fwd.seq_count.data)[i], count[i]);
        load[(int64_t)optest_get(&r.fwd.domain, i / 24) * 24 + i % 24] += count[i];
    }
    for (int64_t i = 0; i < 3 * 24; i++) CHECK_INT((int64_t)optest_get(&r.fwd.load, i), load[i]);
}

static void ties_go_to_the_lower_expert_and_the_lower_group(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &v3, (RouteSizes){ 2, 67, 24 });
    for (int64_t i = 0; i < r.N * 24; i++) optest_set(&r.fwd.logits, i, 0.25);
    CHECK_OK(route_fwd(&t->ex, r.fwd));
    for (int64_t i = 0; i < r.N * v3.top_k; i++) CHECK_INT(index_of(&r)[i], i % v3.top_k);
}

static void a_bias_steers_the_choice_and_no_weight(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &plain, (RouteSizes){ 1, 9, 5 });
    give_bias(t, &r);
    for (int64_t e = 0; e < 5; e++) optest_set(&r.fwd.bias, e, e == 3 ? 10 : 0);
    CHECK_OK(route_fwd(&t->ex, r.fwd));
    double *logits = optest_read(t, &r.fwd.logits);
    for (int64_t n = 0; n < r.N; n++) {
        double p[ROUTE_CASE_EXPERTS];
        reference_scores(&plain, 5, logits + n * 5, p);
        CHECK_INT(index_of(&r)[2 * n], 3);
        CHECK_NEAR(optest_get(&r.fwd.weight, 2 * n), p[3], 1e-6);
    }
}

/* The second of two groups has the best expert, the first the best pair. */
static void the_score_of_a_group_is_the_sum_of_its_best(void **state)
{
    OpTest *t = *state;
    RouteRule rule = plain;
    rule.groups = 2, rule.score = ROUTE_SIGMOID;
    const double logits[] = { 1, -9, 1, 2, -9, -9 };
    for (int64_t top = 1; top <= 2; top++) {
        rule.group_score_top = top;
        Routing r = routing_make(t, &rule, (RouteSizes){ 1, 1, 6 });
        for (int e = 0; e < 6; e++) optest_set(&r.fwd.logits, e, logits[e]);
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        CHECK_INT(index_of(&r)[0], top == 1 ? 3 : 0);
        CHECK_INT(index_of(&r)[1], top == 1 ? 4 : 2);
    }
}

static void far_logits_neither_overflow_nor_vanish_into_nan(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        Routing r = routing_make(t, i == 0 ? &v2 : &v3, (RouteSizes){ 2, 3, 16 });
        for (int64_t j = 0; j < r.N * 16; j++) {
            optest_set(&r.fwd.logits, j, 1e4 * optest_get(&r.fwd.logits, j) - (j < 16 ? 1e6 : 0));
        }
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        CHECK_OK(route_bwd(&t->ex, r.bwd));
        for (int64_t j = 0; j < tensor_elems(&r.fwd.weight); j++) {
            CHECK(isfinite(optest_get(&r.fwd.weight, j)));
        }
        for (int64_t j = 0; j < r.N * 16; j++) CHECK(isfinite(optest_get(&r.bwd.dlogits, j)));
        CHECK(isfinite(optest_get(&r.fwd.aux_loss, 0)));
    }
}

static void a_token_of_nan_gets_experts_that_exist_and_nan_weights(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    for (int i = 0; i < 2; i++) {
        Routing r = routing_make(t, i == 0 ? &v2 : &v3, (RouteSizes){ 2, 3, 16 });
        for (int64_t e = 0; e < 16; e++) optest_set(&r.fwd.logits, 16 + e, NAN);
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        int64_t K = r.fwd.rule.top_k;
        for (int64_t j = 0; j < r.N * K; j++) {
            CHECK(index_of(&r)[j] >= 0 && index_of(&r)[j] < 16);
            CHECK(isnan(optest_get(&r.fwd.weight, j)) == (j / K == 1));
        }
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    Routing r[3];
    OpTest t[3];
    for (int i = 0; i < 3; i++) {
        optest_open(&t[i], 1 + 2 * i);
        RouteRule rule = v3;
        rule.aux_per_batch = true, rule.z_scale = 0.01f;
        r[i] = routing_make(&t[i], &rule, (RouteSizes){ 3, 331, 24 });
        CHECK_OK(route_fwd(&t[i].ex, r[i].fwd));
        CHECK_OK(route_bwd(&t[i].ex, r[i].bwd));
    }
    for (int i = 1; i < 3; i++) {
        CHECK_SAME(&r[i].fwd.index, &r[0].fwd.index);
        CHECK_SAME(&r[i].fwd.weight, &r[0].fwd.weight);
        CHECK_SAME(&r[i].fwd.aux_loss, &r[0].fwd.aux_loss);
        CHECK_SAME(&r[i].bwd.dlogits, &r[0].bwd.dlogits);
    }
    for (int i = 0; i < 3; i++) optest_close(&t[i]);
}

static void a_rule_that_cannot_be_met_is_an_error(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &v2, (RouteSizes){ 2, 3, 16 });
    RouteFwd f = r.fwd;
    f.rule.groups = 3;
    CHECK_FAILS(route_fwd(&t->ex, f), ERR_ARG, "route_fwd: 3 groups do not divide 16 experts");
    f.rule = v2, f.rule.top_groups = 5;
    CHECK_FAILS(route_fwd(&t->ex, f), ERR_ARG, "top_groups is 5, outside 1 .. 4 groups");
    f.rule = v2, f.rule.group_score_top = 5;
    CHECK_FAILS(route_fwd(&t->ex, f), ERR_ARG, "group_score_top is 5, outside 1 .. 4");
    RouteBwd b = r.bwd;
    b.rule.top_k = 9;
    CHECK_FAILS(route_bwd(&t->ex, b), ERR_ARG, "route_bwd: top_k is 9, outside 1 .. 8 experts");
}

static void tensors_that_do_not_fit_are_an_error(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &v2, (RouteSizes){ 2, 3, 16 });
    RouteFwd f = r.fwd;
    f.pos = optest_poisoned(t, DTYPE_I32, DIMS(5));
    CHECK_FAILS(route_fwd(&t->ex, f), ERR_SHAPE, "route_fwd: pos is (5) i32");
    f = r.fwd;
    f.domain = optest_poisoned(t, DTYPE_I32, DIMS(4));
    CHECK_FAILS(route_fwd(&t->ex, f), ERR_SHAPE, "6 tokens are not a multiple of 4 sequences");
    f = r.fwd, f.bias = optest_normal(t, DTYPE_F32, DIMS(1, 15));
    CHECK_FAILS(route_fwd(&t->ex, f), ERR_SHAPE, "route_fwd: bias is (1, 15) f32");
    f = r.fwd, f.aux_loss = (Tensor){ 0 };
    CHECK_FAILS(route_fwd(&t->ex, f), ERR_ARG, "route_fwd: aux_loss is not set");
}

static void a_domain_or_an_expert_that_is_not_there_is_an_error(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &v2, (RouteSizes){ 2, 3, 16 });
    CHECK_OK(route_fwd(&t->ex, r.fwd));
    optest_set(&r.fwd.index, 7, 16);
    CHECK_FAILS(route_bwd(&t->ex, r.bwd), ERR_ARG, "element 7 of index is 16, outside 0 .. 15");
    optest_set(&r.fwd.domain, 1, -1);
    CHECK_FAILS(route_fwd(&t->ex, r.fwd), ERR_ARG, "element 1 of domain is -1, outside 0 .. 2");
}

/* A rank's counts stand for those of three like it. */
static void a_loss_in_parts_is_the_loss_of_the_whole(void **state)
{
    OpTest *t = *state;
    enum { PARTS = 3 };
    const RouteRule *const rules[] = { &v2, &v3 };
    for (int i = 0; i < 4; i++) {
        RouteRule rule = *rules[i % 2];
        rule.aux_per_batch = i >= 2;
        Routing r = routing_make(t, &rule, (RouteSizes){ 3, 300, 32 });
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        double whole = optest_get(&r.fwd.aux_loss, 0) - 0.5;
        r.fwd.score_sum = optest_poisoned(t, DTYPE_F32, DIMS(3, 32));
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        CHECK_NEAR(optest_get(&r.fwd.aux_loss, 0), 0.5 + whole, 1e-6 * whole); /* not again */
        Tensor alone = optest_poisoned(t, DTYPE_F32, r.bwd.dlogits.dim);
        RouteBwd one = r.bwd;
        one.dlogits = alone;
        CHECK_OK(route_bwd(&t->ex, one));
        for (int64_t j = 0; j < tensor_elems(&r.fwd.seq_count); j++)
            optest_set(&r.fwd.seq_count, j, PARTS * optest_get(&r.fwd.seq_count, j));
        optest_set(&r.fwd.aux_loss, 0, 0.5);
        CHECK_OK(route_aux(&t->ex, (RouteAux){ .seq_count = r.fwd.seq_count,
                                               .score_sum = r.fwd.score_sum,
                                               .aux_loss = r.fwd.aux_loss,
                                               .tokens = r.N,
                                               .parts = PARTS,
                                               .rule = rule }));
        /* P_ge is a third: its other parts are other ranks' */
        CHECK_NEAR(optest_get(&r.fwd.aux_loss, 0) - 0.5, whole / PARTS, 1e-5 * whole);
        r.bwd.parts = PARTS;
        r.bwd.rule.aux_scale *= PARTS;
        CHECK_OK(route_bwd(&t->ex, r.bwd));
        CHECK_TENSOR(&r.bwd.dlogits, optest_read(t, &alone));
    }
}

/* With a place for scores these get the weights, and every weight is 1. */
static void scores_may_stand_apart_from_weights(void **state)
{
    OpTest *t = *state;
    const RouteRule *const rules[] = { &v2, &v3 };
    for (int i = 0; i < 2; i++) {
        Routing r = routing_make(t, rules[i], (RouteSizes){ 3, 70, 32 });
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        Tensor want = optest_copy(t, &r.fwd.weight);
        r.fwd.score = optest_poisoned(t, DTYPE_F32, want.dim);
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        CHECK_SAME(&r.fwd.score, &want);
        for (int64_t j = 0; j < tensor_elems(&want); j++)
            CHECK_NEAR(optest_get(&r.fwd.weight, j), 1, 0);
        r.fwd.score = optest_poisoned(t, DTYPE_F32, DIMS(3, 3));
        CHECK_FAILS(route_fwd(&t->ex, r.fwd), ERR_SHAPE, "route_fwd: score is (3, 3)");
    }
}

/* Where a token stands in the sequences that d->ranks ranks share. */
static int64_t place_of(const RouteDrop *d, int64_t token)
{
    const int64_t n = d->own.dim[0], t = n / d->sequences, tp = d->tensor > 1 ? d->tensor : 1;
    const int64_t rank = token / n / tp, pieces = 2 * (d->ranks / tp), half = t * tp / 2;
    const int64_t sequence = token % n / t, at = token / n % tp * t + token % t;
    if (pieces == 2) return sequence * t * tp + at;
    return (sequence * pieces + (at < half ? rank : pieces - 1 - rank)) * half + at % half;
}

/* An entry stays if fewer than `capacity` of its expert's are ahead of it. */
static bool is_dropped(const Routing *r, const double *weight, const RouteDrop *d, int64_t i)
{
    const int32_t *index = index_of(r), *target = d->target.data;
    int64_t ahead = 0, K = r->fwd.rule.top_k, place = place_of(d, i / K);
    if (target[i / K] < 0) return false;
    for (int64_t j = 0; j < r->N * K; j++) {
        if (index[j] != index[i] || target[j / K] < 0) continue;
        ahead += weight[j] > weight[i] || (weight[j] == weight[i] && place_of(d, j / K) < place);
    }
    return ahead >= d->capacity;
}

/* Each of the ranks drops its own; one alone finds them in what it compares. */
static RouteDrop drop_on_ranks(OpTest *t, const Routing *r, int64_t ranks, int64_t tensor,
                               int64_t capacity)
{
    RouteDrop d = { .index = r->fwd.index,
                    .target = optest_poisoned(t, DTYPE_I32, DIMS(r->N)),
                    .weight = ranks > 1 ? optest_copy(t, &r->fwd.weight) : r->fwd.weight,
                    .dropped = optest_poisoned(t, DTYPE_I32, DIMS(1)),
                    .experts = r->s.E,
                    .capacity = capacity,
                    .sequences = 2,
                    .ranks = ranks,
                    .tensor = tensor };
    for (int64_t n = 0; n < r->N; n++) optest_set(&d.target, n, n % 7 == 2 ? -1 : 1);
    optest_set(&d.dropped, 0, 5);
    for (int64_t n = r->N / ranks; d.rank < ranks; d.rank++) {
        d.own = tensor_rows(&r->fwd.weight, d.rank * n, n);
        CHECK_OK(route_drop(&t->ex, d));
    }
    return d;
}

/* Ties (HALVES), padding, capacities that no, some and all experts reach; then the gradient. */
static void the_largest_weights_keep_their_expert(void **state)
{
    OpTest *t = *state;
    static const int64_t capacity[] = { 1, 13, 40, 1000 };
    /* ranks, those of tensor parallelism, tokens of a sequence on a rank */
    static const int64_t shared[][3] = { { 1, 0, 35 }, { 2, 1, 36 }, { 3, 0, 36 }, { 2, 2, 35 },
                                         { 4, 2, 17 }, { 6, 2, 9 },  { 6, 3, 10 } };
    enum { SHARED = sizeof shared / sizeof *shared };
    for (int i = 0; i < 4 * LOGITS * SHARED; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        RouteRule rule = i % 2 == 0 ? v2 : v3;
        const int64_t *share = shared[i % SHARED], ranks = share[0];
        Routing r = routing_make(t, &rule, (RouteSizes){ 2 * ranks, share[2], 16 });
        give_logits(&r, (Logits)(i % LOGITS));
        CHECK_OK(route_fwd(&t->ex, r.fwd));
        double *weight = optest_read(t, &r.fwd.weight);
        RouteDrop d = drop_on_ranks(t, &r, ranks, share[1], capacity[i / SHARED % 4]);
        int64_t dropped = 5;
        for (int64_t j = 0; j < r.N * rule.top_k; j++) {
            bool gone = is_dropped(&r, weight, &d, j);
            CHECK_NEAR(optest_get(&r.fwd.weight, j), gone ? 0 : weight[j], 0);
            dropped += gone;
        }
        CHECK_NEAR(optest_get(&d.dropped, 0), (double)dropped, 0);
        CHECK(d.capacity == 40 || (dropped == 5) == (d.capacity == 1000));
        r.bwd.weight = r.fwd.weight;
        CHECK_OK(route_bwd(&t->ex, r.bwd));
        if (i % (4 * LOGITS) == NORMAL) check_gradient(t, &r); /* each kind of ranks once */
        arena_release(&t->arena, mark);
    }
}

static void a_capacity_of_nothing_is_an_error(void **state)
{
    OpTest *t = *state;
    Routing r = routing_make(t, &v2, (RouteSizes){ 2, 3, 16 });
    RouteDrop d = { .index = r.fwd.index,
                    .weight = r.fwd.weight,
                    .own = r.fwd.weight,
                    .dropped = optest_poisoned(t, DTYPE_I32, DIMS(1)),
                    .experts = 16,
                    .sequences = 2,
                    .ranks = 1 };
    CHECK_FAILS(route_drop(&t->ex, d), ERR_ARG, "route_drop: capacity 0 of 16 experts");
    d.capacity = 1, d.weight = optest_poisoned(t, DTYPE_F32, DIMS(6, 5));
    CHECK_FAILS(route_drop(&t->ex, d), ERR_SHAPE, "route_drop: weight is (6, 5) f32");
    d.weight = d.own, d.ranks = 2;
    CHECK_FAILS(route_drop(&t->ex, d), ERR_SHAPE, "route_drop: index is (6, 6) i32");
    d.own = tensor_rows(&d.own, 0, 3), d.sequences = 1;
    CHECK_FAILS(route_drop(&t->ex, d), ERR_ARG, "rank 0 of 2 has 3 tokens of 1 sequences");
    d.own = tensor_rows(&d.weight, 0, 2), d.ranks = 3, d.tensor = 2;
    CHECK_FAILS(route_drop(&t->ex, d), ERR_ARG, "which 2 ranks of tensor parallelism share");
    d.tensor = 0;
    d.own = d.weight, d.ranks = 1, d.rank = 1;
    CHECK_FAILS(route_drop(&t->ex, d), ERR_ARG, "route_drop: rank 1 of 1 has 6 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(every_rule_gives_what_its_definition_says, 2),
        OP_TEST(the_gradient_is_that_of_finite_differences, 2),
        OP_TEST(any_number_of_experts_is_routed_the_same_way_each_time, 2),
        OP_TEST(the_gradient_may_take_the_place_of_the_logits, 2),
        OP_TEST(a_token_worked_by_hand, 1),
        OP_TEST(a_z_loss_worked_by_hand, 1),
        OP_TEST(the_sum_of_z_is_there_with_and_without_a_z_loss, 1),
        OP_TEST(forced_balance_brings_each_expert_as_many_tokens, 2),
        OP_TEST(padding_is_routed_like_any_token_and_not_counted, 2),
        OP_TEST(ties_go_to_the_lower_expert_and_the_lower_group, 2),
        OP_TEST(a_bias_steers_the_choice_and_no_weight, 2),
        OP_TEST(the_score_of_a_group_is_the_sum_of_its_best, 1),
        OP_TEST(far_logits_neither_overflow_nor_vanish_into_nan, 2),
        OP_TEST(a_token_of_nan_gets_experts_that_exist_and_nan_weights, 2),
        TEST(any_number_of_threads_gives_the_same_bits),
        OP_TEST(a_rule_that_cannot_be_met_is_an_error, 1),
        OP_TEST(tensors_that_do_not_fit_are_an_error, 1),
        OP_TEST(a_domain_or_an_expert_that_is_not_there_is_an_error, 1),
        OP_TEST(a_loss_in_parts_is_the_loss_of_the_whole, 2),
        OP_TEST(scores_may_stand_apart_from_weights, 2),
        OP_TEST(the_largest_weights_keep_their_expert, 2),
        OP_TEST(a_capacity_of_nothing_is_an_error, 1),
    };
    return TEST_RUN(tests);
}
