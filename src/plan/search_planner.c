/* search_planner: the planner as a search's pricer. */
#include "plan/price_private.h"
#include "plan/search.h"

static const size_t SIMULATION_BYTES = (size_t)16 << 30; /* reserved; only what is written counts */

static Status make(const PlanRequest *q, void **ctx)
{
    Planner *p = NULL;
    TRY(planner_make(q, &p));
    *ctx = p;
    return OK;
}

static void end(void *ctx) { planner_free(ctx); }

/* Nobody who did not ask for it is told to take a schedule whose overlap does not happen. */
static Status legal(void *ctx, const PlanLayout *l)
{
    const Planner *p = ctx;
    bool asked = p->q.config->search_schedule.n > 0;
    if (l->schedule->phases && p->limits->at[STACK_lanes] == 0 && !asked)
        return FAIL(ERR_ARG, "mesh.schedule %s: this stack runs it without its overlap",
                    l->schedule->name);
    return planner_legal(ctx, l);
}

static Status bound(void *ctx, const PlanLayout *l, SearchBound *out)
{
    return planner_bound(ctx, l, &out->bytes, &out->step_s);
}

static Status price(void *ctx, const PlanLayout *l, PlanPrice *out)
{
    return planner_price(ctx, l, out);
}

/* Of a stack that runs lists, the list's time; of others, that of all ranks' passes. */
static Status simulate(void *ctx, const PlanLayout *l, PlanPrice *out)
{
    Arena a = { 0 };
    Pipeline pipeline;
    Simulation sim;
    if (planner_runs_list(ctx)) return planner_price_list(ctx, l, out);
    TRY(planner_price(ctx, l, out));
    TRY(arena_init(&a, "simulation", MEM_HOST, SIMULATION_BYTES));
    Status s = planner_simulate(ctx, l, &a, &pipeline, &sim);
    if (s == OK) planner_take_schedule(ctx, out, sim.step);
    arena_free(&a);
    return s;
}

const SearchPricer search_planner = { make, end, legal, bound, price, simulate };
