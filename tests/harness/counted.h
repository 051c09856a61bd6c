/* counted: the witness of a price: every pipeline rank's counting run, and the simulator. */
#ifndef HARNESS_COUNTED_H
#define HARNESS_COUNTED_H

#include "harness/question.h"

#include "engine/step/slots.h"
#include "engine/train/train.h"
#include "kernels/core/cpu_set.h"
#include "kernels/head/head.h"
#include "planner/price/price_private.h"

/* A plan is for GPUs, with the same bytes whatever processor plans. The engine counts here as on a CPU, whose chunks of
 * logits are smaller. */
static inline void counted_like_plans(Config *c)
{
    c->run_cpu_isa = op_set_base.isa;
    Dtype act = c->run_compute == COMPUTE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    c->model_loss_chunk = head_chunk(c->model_loss_chunk, true, c->model_vocab / c->mesh_tp, act);
}

/* At most, what buckets are filled up with so that ranks can share them out: the fast price adds
 * parameters up and leaves it away. A layer has two, over ranks of tp three, of which 18 bytes an element are held. */
static inline double counted_padding(const Question *q, const PlanLayout *l)
{
    double ranks = (double)plan_stage_gpus(l), each = l->tp > 1 ? 3 : 2;
    double buckets =
        each * (2 * (double)q->config.model_layers + 3 * (double)q->config.mtp_layers + 2);
    return ranks == 1 || l->zero == 0 ? 0 : 18 * PARAM_ALIGN * ranks * buckets;
}

/* The configuration that the engine would be given. */
static inline Status counted_config(Planner *p, const PlanLayout *l, const LayoutStage *stage,
                                    Arena *a, Config *out)
{
    Config c = p->config;
    c.mesh_pp = l->pp, c.mesh_vpp = l->vpp, c.mesh_ep = l->ep, c.mesh_cp = l->cp, c.mesh_tp = l->tp;
    c.mesh_etp = plan_etp(l);
    c.mesh_schedule = l->schedule->name;
    c.train_micro_batch = l->micro_batch;
    counted_like_plans(&c);
    c.recompute_layers.n = 0;
    if (l->again != NULL) c.recompute_layers = *l->again;
    for (int i = 0; i < price_stage_count(l) && l->again == NULL; i++) {
        const LayoutStage *s = &stage[i];
        int blocks = s->layers + (s->loss ? p->spec.depths : 0);
        int again = l->recompute_blocks < 0 ? blocks : l->recompute_blocks;
        for (int b = 0; b < blocks && b < again && l->recompute != 0; b++) {
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
static inline Status counted_rank(Planner *p, const PlanLayout *l, const Config *c,
                                  const Program *program, const PriceEntry *e, double *out)
{
    ParamShards shards = price_shards(p, l, e);
    EngineShape shape = { .batch = p->config.train_batch / l->dp,
                          .micro_batch = l->micro_batch,
                          .sequence = c->data_sequence / l->cp,
                          .positions = c->data_sequence,
                          .domains = 1,
                          .threads = 1,
                          .shards = &shards,
                          .capacity = l->room,
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
           e->stack.at[STACK_exchange_buffers] + price_comm_bytes(l, e);
    return OK;
}

/* The price by the counting run of every rank and the simulator: peak_bytes (not its kinds) and
 * whatever follows from the step's time. */
static inline Status counted_price(Planner *p, const PlanLayout *l, Arena *a, PlanPrice *out)
{
    PlanStep step;
    const PriceEntry *e = NULL;
    LayoutStage *stage;
    Config c;
    PlanPrice price;
    TRY(planner_price(p, l, &price));
    PlanLayout roomy = *l;
    roomy.room = price.room;
    l = &roomy;
    TRY(planner_simulate(p, l, false, a, &step));
    TRY(price_entry(p, l, &e));
    ArenaMark mark = arena_mark(&p->scratch);
    TRY(price_stages(p, l, e, price_stage_count(l), &stage));
    TRY(counted_config(p, l, stage, a, &c));
    price.peak_bytes = 0;
    for (int r = 0; r < l->pp; r++) {
        double bytes;
        TRY(counted_rank(p, l, &c, &step.pipeline.rank[r], e, &bytes));
        if (bytes > price.peak_bytes) price.peak_bytes = bytes, price.worst_rank = r;
    }
    arena_release(&p->scratch, mark);
    planner_take_schedule(p, &price, step.sim.step);
    *out = price;
    return OK;
}

#endif
