/* price_simulate: the simulator over all ranks' Programs, with the times and slots of price.c. */
#include "plan/price_private.h"

static double duration(void *ctx, int rank, const Action *a)
{
    const EstimateInput *in = ctx;
    if (action_is_transfer(a->kind)) return in->send_s;
    if (!action_is_pass(a->kind)) return 0;
    const ChunkTimes *t = &in->time[rank * in->chunks + a->chunk];
    const double *part = a->kind == ACTION_FORWARD           ? t->forward
                         : a->kind == ACTION_BACKWARD_WEIGHT ? t->weight
                                                             : t->input;
    if (in->schedule->phases) {
        int last = (a->end - 1) % PHASES;
        return part[a->kind == ACTION_FORWARD ? last : PHASES - 1 - last] / in->blocks;
    }
    return price_phases_s(part) + (a->kind == ACTION_BACKWARD ? price_phases_s(t->weight) : 0);
}

static SlotBytes slot_of(void *ctx, int rank, int chunk)
{
    const EstimateInput *in = ctx;
    return in->slot[rank * in->chunks + chunk];
}

Status planner_simulate(Planner *p, const PlanLayout *l, Arena *a, Pipeline *pipeline,
                        Simulation *sim)
{
    EstimateInput in;
    TRY(planner_legal(p, l));
    ArenaMark mark = arena_mark(&p->scratch);
    Status s = price_estimate_input(p, l, &in);
    ScheduleShape shape = { 0 };
    if (s == OK) shape = estimate_shape(&in);
    if (s == OK) s = schedule_make(l->schedule, &shape, a, &p->scratch, pipeline);
    SimCost cost = { &in, duration, slot_of, 0 };
    if (s == OK) s = simulate_run(pipeline, &cost, a, sim);
    arena_release(&p->scratch, mark);
    return s;
}
