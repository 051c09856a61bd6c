/*
 * plan: memory and time of a training on a cluster, before anybody pays for it.
 *
 * A Planner holds one question: a model and its batch (Config), a GPU and its network (Hardware), a
 * number of them, and the stack that would run it. planner_price answers for one layout in about
 * 0.1 ms: what a layer takes is counted once for each (layer kind, tokens, ep, cp, recompute set)
 * by the engine's own counting run and added up in closed forms; the schedule is walked by
 * schedule/estimate.h. Its witness stands in its test: the
 * counting run of every pipeline rank and the simulator over all ranks' Programs. Both give the
 * same bytes; times agree to 1 %, and the price's is never above the simulator's.
 *
 * Time of an op: the larger of its FLOPs over the rate that the GPU reaches for work of its kind
 * and size, and its bytes over the rate of memory (Williams, Waterman, Patterson, "Roofline",
 * 2009), and what its launch costs. Times of a micro-batch on a chunk go into the schedule;
 * reducing gradients, the optimizer and what a host loses come on top, as far as nothing hides
 * them.
 *
 * A stack other than ours is a row of numbers (stack.h): what it keeps, launches and waits for.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "config/config.h"
#include "model/spec.h"
#include "plan/hardware.h"
#include "schedule/layout.h"
#include "schedule/simulate.h"

/* How a training lies on pp * dp * cp GPUs. */
typedef struct PlanLayout {
    const ScheduleDesc *schedule;
    int pp, vpp, ep, cp;
    int64_t dp;           /* data-parallel ranks; ep divides dp * cp */
    int zero;             /* ZeRO stage, 0 to 3 */
    int64_t shard;        /* data-parallel ranks that share out; 0: all */
    int64_t micro_batch;  /* sequences; divides the batch over dp */
    unsigned recompute;   /* set of RecomputePiece (model/spec.h) ... */
    int recompute_blocks; /* ... of the first so many blocks of each chunk, below 0: of all ... */
    /* ... or, if not NULL, of these blocks of the model, with recompute_blocks -1. */
    const ConfigInts *again;
    const Layout *partition; /* NULL: balanced by the layers' times */
    RowCapacity room;        /* for received rows; a price chooses it, whatever stands here */
} PlanLayout;

typedef enum PlanKind {
    PLAN_WEIGHTS,
    PLAN_GRADS,
    PLAN_MAIN,
    PLAN_OPTIMIZER,
    PLAN_ACTIVATIONS,
    PLAN_BUFFERS, /* of communication, of routed rows, under way between phases */
    PLAN_WORKSPACE,
    PLAN_RESERVE, /* the driver's context and what libraries hold */
    PLAN_KINDS
} PlanKind;

/* Parts of a step's time; they add up to it. Of transfers that run while something is computed, only the
 * time that shows counts. */
typedef enum PlanPart {
    PLAN_COMPUTE,
    PLAN_SLOWED,   /* what compute takes longer because transfers beside it hold multiprocessors */
    PLAN_EXCHANGE, /* tokens to experts and back */
    PLAN_CONTEXT,  /* keys and values of other ranks */
    PLAN_SEND,     /* between pipeline ranks */
    PLAN_BUBBLE,
    PLAN_GRADIENTS, /* reduced, gathered */
    PLAN_UPDATE,
    PLAN_HOST, /* launches and waits that the GPU waits for */
    PLAN_CHECKPOINT,
    PLAN_PARTS
} PlanPart;

extern const char *const plan_kind_names[PLAN_KINDS], *const plan_part_names[PLAN_PARTS];

typedef struct PlanPrice {
    int compute, buffers; /* run.compute and moe.buffers that it is for */
    int exchange;         /* ExchangeKind; -1: EP1, or the stack's own way */
    bool fits;            /* peak_bytes within the GPU's memory less plan.margin */
    bool in_series;       /* the schedule wants exchanges beside compute, and the stack has none */
    int worst_rank;       /* of the pipeline: whose memory this is */
    RowCapacity room;     /* for received rows: the most that fits, or the least */
    double rows, again;   /* CapacityOutlook of it (train/capacity.h), where rows lie in a pool */
    double peak_bytes, memory[PLAN_KINDS];
    double pool_bytes; /* of the activations: rows in pools */
    double step_s, part_s[PLAN_PARTS];
    double schedule_s; /* the share of step_s until the last pass has ended */
    double bubble;     /* mean share of schedule_s in which compute lanes run nothing */
    double tokens_per_s_per_gpu, mfu;
} PlanPrice;

/* All ranks' Programs of a step, and their time. */
typedef struct PlanStep {
    Pipeline pipeline;
    Simulation sim;
} PlanStep;

typedef struct PlanStack PlanStack; /* plan/stack.h */

static const double PLAN_GIB = 1073741824.0;

typedef struct PlanRequest {
    const Config *config; /* batch, sequence and model; its mesh.* is not looked at */
    const Hardware *hardware;
    const PlanStack *stack;
    int64_t gpus;
} PlanRequest;

/* What a price says of a stack whose host reads how many rows come, beside the words of moe.buffers:
 * it has memory for plan.imbalance times the mean rows. */
enum { PLAN_COUNTED_ROWS = BUFFERS_WORST + 1 };
static inline bool plan_counts_rows(const Config *c)
{
    return c->plan_counted_rows && c->moe_buffers == BUFFERS_WORST;
}

/* Bytes of a GPU that may be used: all but plan.margin of them. */
static inline double plan_room_bytes(const PlanRequest *q)
{
    return q->hardware->memory_gib * PLAN_GIB * (1 - q->config->plan_margin);
}

/* For one thread. Layers are counted once and kept in its own arena. */
typedef struct Planner Planner;

Status planner_make(const PlanRequest *q, Planner **out);
void planner_free(Planner *p); /* NULL is fine */

/* Do all ranks of `ep` share a scale-up domain, if moe.exchange has them store into each other's
 * memory? Another stack's own way needs none. */
bool plan_reaches(const PlanRequest *q, int ep);

/* ERR_ARG in one sentence: which number of the layout does not divide what, and what would. */
Status planner_legal(const Planner *p, const PlanLayout *l);
Status planner_price(Planner *p, const PlanLayout *l, PlanPrice *out);
/* Never more than the price, in a microsecond or two once its kinds of layers are counted: rank 0's
 * memory, and for each rank the compute of all micro-batches behind the first one's way to it. */
Status planner_bound(Planner *p, const PlanLayout *l, double *bytes, double *step_s);
/* A step over time, in `a`: all ranks' passes; or with `list` the whole step that `train` runs,
 * action by action: exchanges, gathers and reductions on their lane beside what is computed, then
 * the update. */
Status planner_simulate(Planner *p, const PlanLayout *l, bool list, Arena *a, PlanStep *out);
/* Does the stack run such lists (its sheet's `list`)? Then planner_price_list is the price with the
 * time of the list, which is simulated into *step: what it shows beyond the passes is what compute is
 * slowed by, and the rest counts as gradients, or as bubble where no rank shares any. Else it is planner_price, and *step empty. */
bool planner_runs_list(const Planner *p);
Status planner_price_list(Planner *p, const PlanLayout *l, Arena *a, PlanPrice *out,
                          PlanStep *step);
/* Another time of the pipeline, and what follows from it. */
void planner_take_schedule(const Planner *p, PlanPrice *price, double schedule_s);

/* The partition of a layout, as schedule/layout.h writes it, in `a`. */
Status planner_partition(Planner *p, const PlanLayout *l, Arena *a, const char **text);

/* A layout without a partition gets one of as many blocks on each stage: so a configuration without
 * mesh.layout trains. */
Status plan_spread_evenly(const Config *c, Arena *a, PlanLayout *l);

/* The layout that a configuration's mesh.* and recompute.* describe, on so many GPUs. Its partition
 * in `a`, its list of recomputed layers is the configuration's. */
Status plan_layout_of(const Config *c, int64_t gpus, Arena *a, PlanLayout *out);

#endif
