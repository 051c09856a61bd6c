/* The groups of the auxiliary loss: the same sequences on any mesh, except where all data-parallel
 * ranks are asked for. A large coefficient, so that losses and gradients show it. */
#include "engine/step/copies.h"
#include "harness/mesh_cases.h"
#include "harness/param_view.h"
#include "kernels/route/route_margin.h"

#define PAIRS "moe.aux_loss=3", "moe.aux_scope=batch", "train.batch=8", "train.micro_batch=2"
#define ALL   "moe.aux_loss=3", "moe.aux_scope=global", "train.batch=4", "train.micro_batch=2"

enum { FEW = RUNS(3, 2) };

static int differs(const ManyCase *c, int steps, double limit, const char *const *lone)
{
    Many m = { .what = c, .steps = steps, .limit = limit, .lone = lone };
    int failed = -1;
    Status s = comm_threads(c->ranks, 60, many_run, &m, &failed);
    if (s != OK) print_message("%s, rank %d: %s\n", c->name, failed, status_message());
    return s != OK;
}

static void pairs_of_sequences_are_the_same_on_any_mesh(void **state)
{
    (void)state;
    static const ManyCase cases[] = {
        { "dp 2", 2, { MLA, PAIRS } },
        { "dp 4", 4, { GQA, PAIRS, "mesh.zero=3" } },
        { "dp 2, cp 2", 4, { MLA, PAIRS, "mesh.cp=2" } },
        { "tp 2, dp 2", 4, { GQA, PAIRS, TP2 } },
        { "ep 2, replicas", 4, { MLA, PAIRS, WORST, "mesh.ep=2", "mesh.shard=2" } },
        { "pp 2", 2, { MLA, PAIRS, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv" } },
        { "pp 2, ep 2 over cp 2", 4, { GQA, PAIRS, WORST, "mesh.pp=2", "mesh.ep=2", "mesh.cp=2" } },
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += RUNS(1, 2))
        wrong += differs(&cases[i], i == 0 ? MANY_STEPS : FEW, 1e-5, NULL);
    CHECK_INT(wrong, 0);
}

/* One micro-batch a rank, so that the ranks' sequences together are the lone rank's micro-batch. */
static void a_global_group_is_what_all_data_parallel_ranks_hold(void **state)
{
    (void)state;
    static const char *const whole[] = { "moe.aux_scope=batch", "train.micro_batch=4", NULL };
    static const char *const pairs[] = { "moe.aux_scope=batch", NULL };
    static const ManyCase cases[] = {
        { "dp 2", 2, { MLA, ALL, "mesh.zero=2" } },
        { "dp 2, cp 2", 4, { GQA, ALL, "mesh.cp=2" } },
        { "dp 2, tp 2", 4, { MLA, ALL, TP2 } },
        { "dp 2 as replicas, pp 2", 4, { MLA, ALL, "mesh.pp=2", "mesh.shard=1" } },
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += RUNS(1, 2))
        wrong += differs(&cases[i], i == 0 ? MANY_STEPS : FEW, 1e-5, whole);
    CHECK_INT(wrong, 0);
    CHECK(differs(&cases[0], 1, 1e-5, pairs));
}

/* Without weights all scores are alike, and ties go to the first experts: every group's term is the
 * share of its tokens that have a target, so a step's loss is the coefficient times their share of
 * the batch, once a layer. */
static void a_step_counts_each_group_once(void **state)
{
    (void)state;
    static const char *const scopes[] = { "moe.aux_scope=sequence", "moe.aux_scope=batch",
                                          "moe.aux_scope=global" };
    for (int i = 0; i < 3; i++) {
        ManyCase c = { "no weights",
                       2,
                       { MLA, "moe.aux_loss=0.7", "train.batch=8", "train.micro_batch=2",
                         "model.init_std=0", scopes[i] } };
        CHECK(!differs(&c, 1, 1e-6, NULL));
        ManyRank one = { 0 };
        StepResult r;
        CHECK_OK(many_open(&one, &c, NULL));
        CHECK_OK(many_step(&one, 0, &r));
        double tokens = (double)(one.t.config.train_batch * one.t.config.data_sequence);
        double share = (double)one.t.batch.targets / tokens;
        CHECK(share > 0.5 && share < 1);
        CHECK_NEAR(r.aux_loss, 0.7 * one.t.engine.spec.n_moe * share, 1e-6);
        many_close(&one);
    }
}

/* Coefficients are large, so that losses, gradients and loads show them. */
static void rules_of_the_router_are_the_same_on_any_mesh(void **state)
{
    (void)state;
#define Z        "moe.z_loss=0.5", "train.batch=8", "train.micro_batch=2"
#define FORCED   "moe.forced_balance=true", "moe.top_k=3", BATCH
#define CENTRE   "moe.bias_rate=0.05", "moe.bias_rule=centred", BATCH
#define QUANTILE "moe.bias_rate=0.5", "moe.bias_rule=quantile", BATCH
    static const ManyCase cases[] = {
        { "z-loss, ep 2", 2, { MLA, Z, WORST, "mesh.ep=2" } },
        { "z-loss, dp 2, cp 2", 4, { GQA, Z, "moe.score=sigmoid", "mesh.cp=2", "mesh.zero=3" } },
        { "z-loss beside groups over cp 2", 2, { MLA, PAIRS, "moe.z_loss=0.5", "mesh.cp=2" } },
        { "z-loss, pp 2",
          2,
          { MLA, Z, "moe.aux_loss=0", "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv" } },
        { "capacity, dp 2, ep 2, zero 3", 2, { MLA, DROPS, WORST, "mesh.ep=2", "mesh.zero=3" } },
        { "capacity, ep 4, recompute",
          4,
          { GQA, DROPS, "moe.normalise=true", WORST, "mesh.ep=4", "recompute.layers=[0,1,2,3]" } },
        { "capacity, pp 2, ep 2", 4, { MLA, DROPS, WORST, "mesh.pp=2", "mesh.ep=2" } },
        { "z-loss, tp 2", 2, { MLA, Z, TP2 } },
        { "z-loss, pp 2, ep 2 over cp 2",
          4,
          { MLA, Z, WORST, "mesh.pp=2", "mesh.ep=2", "mesh.cp=2", "recompute.layers=[0,1,2,3]" } },
        { "forced, ep 4", 4, { MLA, FORCED, WORST, "mesh.ep=4" } },
        { "forced, ep 2 over cp 2", 2, { GQA, FORCED, WORST, "mesh.ep=2", "mesh.cp=2" } },
        { "forced, tp 2, ep 2", 2, { GQA, FORCED, WORST, TP2, "mesh.ep=2" } },
        { "centred, dp 2, ep 2", 2, { MLA, CENTRE, WORST, "mesh.ep=2" } },
        { "centred, cp 2, pp 2", 4, { GQA, CENTRE, "mesh.cp=2", "mesh.pp=2" } },
        { "quantile, dp 2, ep 2, zero 3", 2, { MLA, QUANTILE, WORST, "mesh.ep=2", "mesh.zero=3" } },
        { "quantile, ep 2, a pool, recompute",
          2,
          { GQA, QUANTILE, POOLED, "mesh.ep=2", "moe.score=sigmoid",
            "recompute.layers=[0,1,2,3]" } },
        { "quantile, cp 2, pp 2", 4, { GQA, QUANTILE, "mesh.cp=2", "mesh.pp=2" } },
        { "quantile, tp 2, mtp", 2, { MLA, QUANTILE, TP2, "mtp.layers=1" } },
        { "quantile, capacity", 2, { MLA, QUANTILE, DROPS, "mesh.ep=2", WORST } },
        { "quantile, mtp", 2, { MLA, QUANTILE, "mtp.layers=1", "mesh.zero=2" } },
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += RUNS(1, 2))
        wrong += differs(&cases[i], case_steps(&cases[i], FEW), 1e-5, NULL);
    CHECK_INT(wrong, 0);
}

/* Routers without weights: every token takes the first experts, all with one weight, so that which of
 * them stay is a matter of order alone. */
static Status without_routers(ManyRank *r)
{
    for (int i = 0; i < r->t.engine.params.table.n; i++) {
        const Param *p = &r->t.engine.params.table.at[i];
        if (p->role != ROLE_ROUTER) continue;
        Tensor w = param_view(p, &r->t.engine.params.memory, BUF_MAIN);
        memset(w.data, 0, tensor_bytes(&w));
    }
    return copies_refresh(&r->t.engine.params);
}

static Status run_without_routers(void *state, Comm *world)
{
    Many m = { .what = state, .steps = 1, .limit = 1e-5 };
    ManyRank one = { 0 }, r = { 0 };
    Status s = many_open(&one, m.what, NULL);
    if (s == OK) s = many_open(&r, m.what, world);
    if (s == OK) s = without_routers(&one);
    if (s == OK) s = without_routers(&r);
    if (s == OK) s = many_compare(&m, &one, &r);
    many_close(&r);
    many_close(&one);
    return s;
}

static void of_equal_weights_the_earlier_tokens_stay_on_any_mesh(void **state)
{
    (void)state;
    static const ManyCase cases[] = {
        { "dp 2, cp 2", 4, { MLA, DROPS, "mesh.cp=2", "mesh.zero=1" } },
        { "ep 4 over cp 4, pairs", 4, { GQA, DROPS, WORST, "mesh.ep=4", "mesh.cp=4" } },
        { "tp 2", 2, { MLA, DROPS, TP2 } },
        { "tp 2, cp 2, pairs", 4, { GQA, DROPS, TP2, "mesh.cp=2", "mesh.zero=1" } },
        { "cp 2, fours", 2, { MLA, "moe.capacity=2.1", "train.micro_batch=4", "mesh.cp=2" } },
    };
    int failed = -1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_OK(comm_threads(cases[i].ranks, 60, run_without_routers, (void *)(uintptr_t)&cases[i],
                              &failed));
}

/* Without weights each token's z is log E, so a step's loss is the coefficient times its square,
 * once a layer. */
static void a_step_counts_each_token_once(void **state)
{
    (void)state;
    ManyCase c = { "no weights",
                   1,
                   { MLA, "moe.aux_loss=0", "moe.z_loss=0.7", "train.batch=8",
                     "train.micro_batch=2", "model.init_std=0" } };
    ManyRank one = { 0 };
    StepResult r;
    CHECK_OK(many_open(&one, &c, NULL));
    CHECK_OK(many_step(&one, 0, &r));
    CHECK_NEAR(r.aux_loss, 0.7 * one.t.engine.spec.n_moe * log(8) * log(8), 1e-5);
    many_close(&one);
}

/* The bias of a router after a step from 0: what its layer's margins ask for. */
static void check_bias(const Param *p, const ParamMemory *memory, const int32_t *margins)
{
    double x[8], mean = 0;
    Tensor bias = param_view(p, memory, BUF_STATE);
    for (int e = 0; e < 8; e++)
        mean += x[e] = (double)margin_quantile(margins + e * MARGIN_BINS, 2, 8);
    for (int e = 0; e < 8; e++)
        CHECK_NEAR(((const float *)bias.data)[e], 0.5 * (x[e] - mean / 8), 1e-6);
}

/* Of several micro-batches, for each layer: every token with a target has a margin to every expert,
 * and those that chose it are below 0. The second step begins at 0 again. */
static void margins_of_a_step_are_those_of_its_tokens_by_layer(void **state)
{
    (void)state;
    ManyCase c = { "quantile", 1, { MLA, QUANTILE, "moe.capacity=0.7" } };
    ManyRank one = { 0 };
    StepResult r;
    CHECK_OK(many_open(&one, &c, NULL));
    Engine *e = &one.t.engine;
    for (int step = 0; step < 2; step++) {
        CHECK_OK(many_step(&one, step, &r));
        const int32_t *margins = engine_host(&e->arenas, &e->io.record.margins);
        for (int64_t i = 0; i < e->spec.n_moe * 8; i++) {
            const int32_t *bin = margins + i * MARGIN_BINS, *load = r.load + i / 8 * 2 * 8 + i % 8;
            int64_t all = 0, below = 0;
            for (int j = 0; j < MARGIN_BINS; j++) all += bin[j];
            for (int j = 0; j < MARGIN_SIDE; j++) below += bin[j];
            CHECK_INT(all, one.t.batch.targets);
            CHECK_INT(below, load[0] + load[8]);
        }
        int layer = 0;
        for (int i = 0; i < e->params.table.n && step == 0; i++) {
            if (e->params.table.at[i].role != ROLE_ROUTER_BIAS) continue;
            check_bias(&e->params.table.at[i], &e->params.memory,
                       margins + (int64_t)layer++ * 8 * MARGIN_BINS);
        }
        CHECK(step == 1 || layer == e->spec.n_moe);
    }
    many_close(&one);
}

/* Each expert has as many tokens, but for padding, which is not counted. */
static void forced_balance_is_even(void **state)
{
    (void)state;
    ManyCase c = { "forced", 1, { MLA, FORCED, "data.sequence=48" } };
    ManyRank one = { 0 };
    StepResult r;
    CHECK_OK(many_open(&one, &c, NULL));
    CHECK_OK(many_step(&one, 0, &r));
    int64_t padding = 8 * 48 - one.t.batch.targets, all = 3 * 8 * 48 / 8;
    for (int64_t l = 0; l < one.t.engine.spec.n_moe; l++) {
        const int32_t *load = r.load + l * 2 * 8; /* of two domains */
        for (int e = 0; e < 8; e++)
            CHECK(load[e] + load[8 + e] <= all && load[e] + load[8 + e] >= all - padding);
    }
    CHECK(padding > 0 && padding < all / 4);
    many_close(&one);
}

/* Without weights all tokens take the first top_k experts, and each of these keeps its capacity:
 * the mean of all experts. */
static void what_is_dropped_is_counted_by_layer_over_all_ranks(void **state)
{
    (void)state;
    static const char *const factors[] = { "moe.capacity=1", "moe.capacity=8" };
    for (int i = 0; i < 2; i++) {
        ManyCase c = { "no weights",
                       1,
                       { MLA, "train.batch=4", "train.micro_batch=4", "moe.top_k=2",
                         "model.init_std=0", factors[i] } };
        ManyRank one = { 0 };
        StepResult r;
        CHECK_OK(many_open(&one, &c, NULL));
        CHECK_OK(many_step(&one, 0, &r));
        int64_t tokens = 4 * one.t.config.data_sequence, kept = (2 * tokens + 7) / 8;
        CHECK(one.t.batch.targets > kept && one.t.batch.targets < tokens);
        for (int l = 0; l < one.t.engine.spec.n_moe; l++)
            CHECK_INT(r.dropped[l], i == 0 ? 2 * (one.t.batch.targets - kept) : 0);
        many_close(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pairs_of_sequences_are_the_same_on_any_mesh),
        TEST(a_global_group_is_what_all_data_parallel_ranks_hold),
        TEST(a_step_counts_each_group_once),
        TEST(rules_of_the_router_are_the_same_on_any_mesh),
        TEST(of_equal_weights_the_earlier_tokens_stay_on_any_mesh),
        TEST(a_step_counts_each_token_once),
        TEST(margins_of_a_step_are_those_of_its_tokens_by_layer),
        TEST(forced_balance_is_even),
        TEST(what_is_dropped_is_counted_by_layer_over_all_ranks),
    };
    return TEST_RUN(tests);
}
