/* run.compute=f16 over ranks: the loss of one rank. All ranks skip the same steps, spikes too. */
#include "harness/many.h"

#include <math.h>

#define MODEL "moe.experts=8", "train.batch=8", "train.micro_batch=2", "run.compute=f16"

/* A rounding may send a token to another expert; with balance by position none is sent elsewhere. */
static const ManyCase cases[] = {
    { "data", 2, { MODEL, "moe.forced_balance=true", "mesh.zero=1" } },
    { "gathered weights", 2, { MODEL, "moe.forced_balance=true", "mesh.zero=3" } },
    { "experts", 2, { MODEL, "moe.forced_balance=true", "mesh.ep=2", "moe.aux_loss=0.5" } },
    { "context", 2, { MODEL, "moe.forced_balance=true", "mesh.cp=2", "attention.kind=gqa" } },
    { "parts", 2, { MODEL, "moe.forced_balance=true", "mesh.tp=2", "model.vocab=64" } },
    { "stages", 2, { MODEL, "moe.forced_balance=true", "mesh.pp=2", "mtp.layers=1" } },
};
enum { CASES = sizeof cases / sizeof *cases };

/* Sums over ranks, and over keys of other ranks, are rounded to f16 in another order. */
static void the_step_is_that_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Many m = { .what = &cases[i], .steps = 1, .limit = 4e-3 };
        int failed = -1;
        CHECK_OK(comm_threads(2, 60, many_run, &m, &failed));
    }
}

/* Of two ranks one alone has targets whose gradients overflow. */
static Status overflow_on_one(void *state, Comm *world)
{
    LossScale *out = state;
    ManyRank r = { 0 };
    StepResult x = { .skipped = true };
    Status s = many_open(&r, &cases[0], world);
    int32_t *target = r.own.target.data;
    r.t.engine.params.kept.loss_scale.now = 0x1p30;
    for (int64_t step = 1; s == OK && x.skipped && step < 40; step++) {
        many_batch(&r, 0);
        r.own.targets = 24;
        for (int64_t i = world->rank == 0 ? 24 : 0; i < tensor_elems(&r.own.target); i++)
            target[i] = -1;
        s = engine_step(&r.t.engine, &r.own, 1e-2, step, &x);
    }
    out[world->rank] = r.t.engine.params.kept.loss_scale;
    if (s == OK && !x.finite) s = FAIL(ERR_NUMERIC, "no step succeeded");
    many_close(&r);
    return s;
}

static void all_ranks_skip_what_one_cannot_hold(void **state)
{
    (void)state;
    LossScale end[2];
    int failed = -1;
    CHECK_OK(comm_threads(2, 60, overflow_on_one, end, &failed));
    CHECK(end[0].skipped > 0);
    CHECK_INT(end[1].skipped, end[0].skipped);
    CHECK_NEAR(end[1].now, end[0].now, 0);
}

/* Five steps of which the third is a spike. All ranks take the same steps with the same mean. */
static Status spike_on_all(void *state, Comm *world)
{
    EngineParams *out = state;
    static const ManyCase guarded = { "spike",
                                      2,
                                      { "train.batch=8", "train.micro_batch=2", "mesh.zero=1",
                                        "optimizer.skip_spikes=1.5" } };
    ManyRank r = { 0 };
    StepResult x = { 0 };
    Status s = many_open(&r, &guarded, world);
    StepMeans *mean = &r.t.engine.params.kept.means;
    mean->norms.steps = 99;
    for (int64_t step = 1; s == OK && step <= 5; step++) {
        many_batch(&r, 0);
        mean->norms.mean = step == 3 ? 1e-5 : 1e5;
        s = engine_step(&r.t.engine, &r.own, 1e-2, step, &x);
        if (s == OK && x.skipped != (step == 3))
            s = FAIL(ERR_NUMERIC, "step %lld: skipped is %d", (long long)step, x.skipped);
    }
    out[world->rank] = r.t.engine.params;
    many_close(&r);
    return s;
}

static void all_ranks_skip_a_spike(void **state)
{
    (void)state;
    EngineParams end[2];
    int failed = -1;
    CHECK_OK(comm_threads(2, 60, spike_on_all, end, &failed));
    for (int i = 0; i < 2; i++) {
        CHECK_INT(end[i].kept.loss_scale.skipped, 1);
        CHECK_INT(end[i].kept.means.norms.steps, 104);
        CHECK_NEAR(end[i].kept.means.norms.mean, end[0].kept.means.norms.mean, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_step_is_that_of_one_rank),
        TEST(all_ranks_skip_what_one_cannot_hold),
        TEST(all_ranks_skip_a_spike),
    };
    return TEST_RUN(tests);
}
