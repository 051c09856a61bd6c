/* price_count: the witness of price.c: every pipeline rank's counting run, and the simulator over
 * all ranks' Programs. */
#include "plan/price_private.h"
#include "train/engine_program.h"

#include <string.h>

/* The configuration that the engine would be given. */
static Status config_of(Planner *p, const PlanLayout *l, const StageBlocks *stage, Arena *a,
                        Config *out)
{
    Config c = p->config;
    c.mesh_pp = l->pp, c.mesh_vpp = l->vpp, c.mesh_ep = l->ep, c.mesh_cp = l->cp;
    c.mesh_schedule = l->schedule->name;
    c.train_micro_batch = l->micro_batch;
    c.model_loss_chunk = p->q.config->model_loss_chunk;
    c.recompute_layers.n = 0;
    for (int i = 0; i < price_stage_count(l); i++) {
        const StageBlocks *s = &stage[i];
        int again = l->recompute_blocks < 0 ? s->blocks : l->recompute_blocks;
        for (int b = 0; b < s->blocks && b < again && l->recompute != 0; b++) {
            if (c.recompute_layers.n == CONFIG_LIST_MAX) {
                return FAIL(ERR_UNSUPPORTED, "plan: more than %d recomputed layers",
                            CONFIG_LIST_MAX);
            }
            c.recompute_layers.at[c.recompute_layers.n++] = s->first + b;
        }
    }
    spec_recompute_names(l->recompute, &c.recompute_pieces);
    TRY(planner_partition(p, l, a, &c.mesh_layout));
    *out = c;
    return OK;
}

/* Bytes of the engine's arenas on one pipeline rank, with the slots of `program`. */
static Status count_rank(Planner *p, const PlanLayout *l, const Config *c, const Program *program,
                         const PriceEntry *e, double *out)
{
    ParamShards shards = price_shards(p, l, e);
    EngineShape shape = { .batch = p->config.train_batch / l->dp,
                          .micro_batch = l->micro_batch,
                          .sequence = c->data_sequence / l->cp,
                          .positions = c->data_sequence,
                          .domains = 1,
                          .threads = 1,
                          .shards = &shards,
                          .pp_rank = program->rank };
    EnginePlan plan;
    SlotSizes slots;
    ArenaMark mark = arena_mark(&p->scratch);
    TRY(engine_plan(c, ENGINE_TRAIN, &shape, &plan));
    TRY(slot_sizes(program, &plan, &p->scratch, &slots));
    double sum = (double)(plan.bytes[ENGINE_RUN] + plan.bytes[ENGINE_STEP]) +
                 (double)plan.bytes[ENGINE_SCRATCH];
    sum += program->entries * (double)e->plain[0].count.stream;
    for (int i = 0; i < RINGS; i++) sum += (double)plan.ring_bytes[i];
    for (int part = 0; part < SLOT_PARTS; part++) {
        for (int i = 0; i < slots.n[part]; i++) sum += (double)slots.bytes[part][i];
    }
    arena_release(&p->scratch, mark);
    *out = sum + e->stack.at[STACK_reserve] + e->stack.at[STACK_workspace] +
           e->stack.at[STACK_exchange_buffers];
    return OK;
}

/* ---- time ---- */

static double duration(void *ctx, int rank, const Action *a)
{
    const EstimateInput *in = ctx;
    if (action_is_transfer(a->kind)) return in->send_s;
    if (a->micro < 0) return 0;
    const ChunkTimes *t = &in->time[rank * in->chunks + a->chunk];
    const double *part = a->kind == ACTION_FORWARD           ? t->forward
                         : a->kind == ACTION_BACKWARD_WEIGHT ? t->weight
                                                             : t->input;
    if (a->phase >= 0) return part[a->phase % PHASES] / in->blocks;
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

Status planner_count(Planner *p, const PlanLayout *l, Arena *a, PlanPrice *out)
{
    Pipeline pipeline;
    Simulation sim;
    const PriceEntry *e = NULL;
    const StageBlocks *stage;
    Config c;
    PlanPrice price;
    TRY(planner_price(p, l, &price));
    TRY(planner_simulate(p, l, a, &pipeline, &sim));
    TRY(price_entry(p, l, &e));
    ArenaMark mark = arena_mark(&p->scratch);
    TRY(price_stages(p, l, e, price_stage_count(l), &stage));
    TRY(config_of(p, l, stage, a, &c));
    price.peak_bytes = 0;
    for (int r = 0; r < l->pp; r++) {
        double bytes;
        TRY(count_rank(p, l, &c, &pipeline.rank[r], e, &bytes));
        if (bytes > price.peak_bytes) price.peak_bytes = bytes, price.worst_rank = r;
    }
    arena_release(&p->scratch, mark);
    planner_take_schedule(p, &price, sim.step);
    *out = price;
    return OK;
}
