/* optimizer.ema over ranks: each rank averages the elements whose optimizer state it holds. */
#include "harness/many.h"

#define EMA "optimizer.ema=0.5", "train.batch=8", "train.micro_batch=2"

enum { STEPS = 4 };

static const ManyCase cases[] = {
    { "one rank", 1, { EMA } },
    { "replicated", 2, { EMA, "mesh.zero=0" } },
    { "sharded, with copies", 2, { EMA, "mesh.zero=1", "run.compute=bf16" } },
    { "sharded, weights too", 2, { EMA, "mesh.zero=3" } },
    { "experts", 2, { EMA, "mesh.zero=2", "mesh.ep=2" } },
    { "stages, frozen tables", 2, { EMA, "mesh.pp=2", "init.frozen=[model.embed_tokens.*]" } },
    { "whole matrices", 2, { EMA, "mesh.zero=1", "optimizer.kind=muon" } },
    { "clipped heads", 2, { EMA, "mesh.zero=1", "optimizer.qk_clip=0.2" } },
    { "parts", 4, { EMA, "model.vocab=64", "mesh.tp=2", "mesh.zero=2" } },
    { "a spike", 2, { EMA, "mesh.zero=1", "optimizer.skip_spikes=2" } },
};

/* The n-th update has the rate max(1/2, 1/n), and the step that is a spike has none. */
static Status follow_average(const EngineParams *w, int64_t step, bool skipped, double *want)
{
    const double rate = skipped ? 0 : step == 1 ? 1 : 0.5;
    int64_t seen = 0;
    for (int k = 0; k < w->table.n; k++) {
        const Param *p = &w->table.at[k];
        if (p->first[BUF_AVERAGE] < 0) continue;
        const ParamPiece e = param_piece(&w->table, p, &w->memory, BUF_AVERAGE);
        const ParamPiece main = param_piece(&w->table, p, &w->memory, BUF_MAIN);
        for (int64_t i = 0, at = 0; i < piece_elems(&e.in); i++, seen++) {
            const int64_t element = piece_element(&e.in, i);
            while (piece_element(&main.in, at) != element) at++;
            const double x = ((const float *)main.at.data)[at];
            const double have = ((const float *)e.at.data)[i];
            want[seen] += rate * (x - want[seen]);
            if (fabs(have - want[seen]) <= 1e-6 * fabs(want[seen]) + 1e-9) continue;
            return FAIL(ERR_NUMERIC, "step %lld, %s, element %lld: %g, not %g", (long long)step,
                        p->name, (long long)element, have, want[seen]);
        }
    }
    return seen > 1000 ? OK : FAIL(ERR_NUMERIC, "only %lld elements", (long long)seen);
}

static Status average_on_ranks(void *state, Comm *world)
{
    const ManyCase *c = state;
    ManyRank r = { 0 };
    StepResult x = { 0 };
    Status s = many_open(&r, c, world);
    double *want = calloc((size_t)1 << 20, sizeof *want);
    r.t.engine.params.kept.means.norms.steps = 99;
    for (int64_t step = 1; s == OK && step <= STEPS; step++) {
        many_batch(&r, 0);
        r.t.engine.params.kept.means.norms.mean = step == 3 ? 1e-6 : 1e6;
        s = engine_step(&r.t.engine, &r.own, 1e-2, step, &x);
        if (s == OK) s = follow_average(&r.t.engine.params, step, x.skipped, want);
    }
    if (s == OK &&
        r.t.engine.params.kept.means.weights + r.t.engine.params.kept.loss_scale.skipped != STEPS)
        s = FAIL(ERR_NUMERIC, "%lld updates", (long long)r.t.engine.params.kept.means.weights);
    free(want);
    many_close(&r);
    return s;
}

static void every_element_is_averaged_by_its_owner(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ManyCase c = cases[i];
        int failed = -1;
        Status s = comm_threads(c.ranks, 60, average_on_ranks, &c, &failed);
        if (s != OK) fail_msg("%s: %s", c.name, status_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(every_element_is_averaged_by_its_owner) };
    return TEST_RUN(tests);
}
