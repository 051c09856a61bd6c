/*
 * plan: predicts memory and time of a training on a cluster, without running it.
 *
 * A Planner holds one question: a model and its batch (Config), a GPU and its network (Hardware), the number of
 * GPUs, and the stack that would run it. planner_price answers for one layout in about 0.1 ms. A layer is
 * counted once for each (layer kind, tokens, ep, cp, tp, recompute set) by the engine's own counting run, and
 * added up in closed forms; the schedule is walked by engine/schedule/estimate.h. Tests compare the result with
 * the counting run of every pipeline rank and with the simulator over all ranks' Programs. Bytes are
 * equal; times agree to 1 %, and the price is never above the simulator's time.
 *
 * Time of an op: the larger of its FLOPs over the rate that the GPU reaches for work of its kind
 * and size, and its bytes over the rate of memory (Williams, Waterman, Patterson, "Roofline",
 * 2009), plus the cost of its launch. Times of a micro-batch on a chunk go into the schedule. Reductions of
 * gradients, the optimizer and time lost to the host are added, as far as nothing hides them.
 *
 * A stack other than ours is a row of numbers (stack.h): what it keeps, launches and waits for. What one rank
 * of our own trainer takes on this machine is train.h's (train_plan).
 */
#ifndef PLANNER_PLAN_H
#define PLANNER_PLAN_H

#include "engine/config/config.h"
#include "engine/count/capacity.h"
#include "engine/model/spec.h"
#include "engine/schedule/layout.h"
#include "engine/schedule/simulate.h"
#include "hardware/hardware.h"

/* How a training is laid out on pp * dp * cp * tp GPUs, ranks of tp being the innermost. */
typedef struct PlanLayout {
    const ScheduleDesc *schedule;
    int pp, vpp, ep, cp, tp;
    int etp;              /* ranks that share each expert: a setting, not searched; 0 is 1 */
    int64_t dp;           /* data-parallel ranks; ep * etp divides dp * cp * tp */
    int zero;             /* ZeRO stage, 0 to 3 */
    int64_t shard;        /* data-parallel ranks of a sharding group; 0: all */
    int64_t micro_batch;  /* sequences; divides the batch over dp */
    unsigned recompute;   /* set of RecomputePiece (engine/model/spec.h) ... */
    int recompute_blocks; /* ... of this number of first blocks of a chunk; below 0: all ... */
    /* ... or, if not NULL, of these blocks of the model, with recompute_blocks -1. */
    const ConfigInts *again;
    const Layout *partition; /* NULL: balanced by the layers' times */
    RowCapacity room;        /* capacity for received rows; planner_price ignores and chooses it */
} PlanLayout;

/* Kinds of memory; they add up to the peak of the fullest rank. */
typedef enum PlanKind {
    PLAN_WEIGHTS,
    PLAN_GRADS,
    PLAN_MAIN,
    PLAN_OPTIMIZER,
    PLAN_ACTIVATIONS,
    PLAN_BUFFERS, /* transfers, routed rows, data between phases */
    PLAN_WORKSPACE,
    PLAN_RESERVE, /* the driver's context and what libraries hold */
    PLAN_KINDS
} PlanKind;

/* Parts of a step's time; they add up to it. Communication counts only as far as no compute hides it. */
typedef enum PlanPart {
    PLAN_COMPUTE,
    PLAN_SLOWED,    /* compute takes longer because communication holds multiprocessors */
    PLAN_SLOWEST,   /* the slowest GPU of all computes longer than the mean one */
    PLAN_EXCHANGE,  /* tokens to experts and back */
    PLAN_CONTEXT,   /* keys and values of other ranks */
    PLAN_TENSOR,    /* tokens gathered and summed over the ranks of tp */
    PLAN_SEND,      /* between pipeline ranks */
    PLAN_BUBBLE,    /* idle: no compute, and nothing of the above either */
    PLAN_GRADIENTS, /* reduced, gathered */
    PLAN_UPDATE,
    PLAN_HOST, /* the GPU waits for the host: launches and synchronisation */
    PLAN_CHECKPOINT,
    PLAN_PARTS
} PlanPart;

extern const char *const plan_kind_names[PLAN_KINDS], *const plan_part_names[PLAN_PARTS];
/* The parts for people: PLAN_BUBBLE is "idle" there, because the bubble is PlanPrice.bubble, which has waits for
 * exchanges, too. */
extern const char *const plan_part_words[PLAN_PARTS];

/* The price of a layout. Memory is that of the fullest pipeline rank, time that of the whole step. */
typedef struct PlanPrice {
    int compute, buffers;    /* run.compute and moe.buffers that it is for */
    bool offload;            /* optimizer.offload */
    int exchange;            /* ExchangeKind; -1: EP1, or the stack's own way */
    int recipe, format;      /* fp8.recipe and fp8.format; of attention alone: attention_e4m3 */
    bool attention_e4m3;     /* fp8.attention */
    bool fits;               /* peak_bytes within the GPU's memory less plan.margin */
    bool tight;              /* it does not fit, but lacks at most 5 %, and the GPU has them */
    bool bounded;            /* rates are upper bounds (stack.def, bound) */
    bool in_series;          /* the schedule overlaps exchanges and compute, the stack does not */
    int worst_rank;          /* of the pipeline: whose memory this is */
    RowCapacity room;        /* for received rows: the most that fits, or the least */
    CapacityOutlook outlook; /* of it, where rows lie in a pool */
    double peak_bytes, memory[PLAN_KINDS];
    double pool_bytes; /* of the activations: rows in pools */
    double host_bytes; /* with optimizer.offload: of host memory for a GPU */
    double step_s, part_s[PLAN_PARTS];
    double schedule_s; /* the part of step_s until the last pass has ended */
    double bubble;     /* mean share of the pipeline's time in which compute lanes run nothing */
    double tokens_per_s_per_gpu, mfu;
} PlanPrice;

/* All ranks' Programs of a step, and their time. */
typedef struct PlanStep {
    Pipeline pipeline;
    Simulation sim;
} PlanStep;

typedef struct PlanStack PlanStack; /* planner/stack/stack.h */

static const double PLAN_GIB = 1073741824.0;

/* One question. What it points to must outlive the Planner. */
typedef struct PlanRequest {
    const Config *config; /* batch, sequence and model; its mesh.* is not looked at */
    const Hardware *hardware;
    const PlanStack *stack;
    int64_t gpus;
} PlanRequest;

/* PlanPrice.buffers of a stack whose host reads the number of rows, in addition to the values of moe.buffers: it
 * allocates plan.imbalance times the mean rows. */
enum { PLAN_COUNTED_ROWS = BUFFERS_WORST + 1 };
static inline bool plan_counts_rows(const Config *c)
{
    return c->plan_counted_rows && c->moe_buffers == BUFFERS_WORST;
}

/* Bytes of a GPU that a plan may use: all but the share plan.margin. */
static inline double plan_room_bytes(const PlanRequest *q)
{
    return q->hardware->memory_gib * PLAN_GIB * (1 - q->config->plan_margin);
}

/* For one thread. It counts each layer once and keeps the result in an arena of its own. */
typedef struct Planner Planner;

/* Counts the model once. ERR_ARG: no GPUs, or a model that cannot be built. */
Status planner_make(const PlanRequest *q, Planner **out);
void planner_free(Planner *p); /* safe on NULL */

/* GPUs that share each expert, and those of a group that exchanges tokens. */
static inline int plan_etp(const PlanLayout *l) { return l->etp > 1 ? l->etp : 1; }
static inline int plan_expert_ranks(const PlanLayout *l) { return l->ep * plan_etp(l); }

/* If moe.exchange stores into peers' memory: do all `ranks` of an EP group share a scale-up domain? Other kinds, and stacks
 * with an exchange of their own, always can. */
bool plan_reaches(const PlanRequest *q, int ranks);

/* Does some attention compute no pairs that documents hide (plan.mean_context)? */
bool planner_skips_documents(const Planner *p);

/* ERR_ARG: a number of the layout does not divide another. The sentence names both, and what would. */
Status planner_legal(const Planner *p, const PlanLayout *l);
/* ERR_ARG: the layout is not legal. A layout that does not fit has a price, too, with fits false. */
Status planner_price(Planner *p, const PlanLayout *l, PlanPrice *out);

/* step_s: the longest step that is of use with this memory. If a step takes longer, its time need not be found: the
 * price then has the right memory, and as its time a bound above the limit. */
typedef struct PlanLimit {
    double (*step_s)(const void *self, double bytes);
    const void *self;
} PlanLimit;
/* The same within a limit; NULL: none. */
Status planner_price_within(Planner *p, const PlanLayout *l, const PlanLimit *limit,
                            PlanPrice *out);
/* Lower bounds of the price, in one or two microseconds once the layers are counted. bytes: the memory of rank 0.
 * step_s: the maximum over ranks of the way of the first micro-batch to the rank plus the compute of all
 * micro-batches there. */
Status planner_bound(Planner *p, const PlanLayout *l, double *bytes, double *step_s);
/* Simulates a step, in `a`. Without `list`: the passes of all ranks. With `list`: the whole step that `train`
 * runs, action by action, with exchanges, gathers and reductions on the comm lane, then the update. */
Status planner_simulate(Planner *p, const PlanLayout *l, bool list, Arena *a, PlanStep *out);
/* Does our own engine run attention on the question's GPU by the kernels that all of NVIDIA's run, not by Hopper's? */
bool plan_attends_slower(const PlanRequest *q);
/* planner_runs_list: does the stack run such lists (`list` in its sheet)? planner_price_list is the price with the
 * simulated time: of the list, if the stack runs lists, else of the passes. A list's time beyond that of the
 * passes is attributed to slowed compute, then to gradients, or to the bubble if no rank reduces any. step: the
 * simulation, in `a`. NULL: of micro-batches that repeat only a few are simulated. */
bool planner_runs_list(const Planner *p);
Status planner_price_list(Planner *p, const PlanLayout *l, Arena *a, PlanPrice *out,
                          PlanStep *step);
/* Sets another time of the pipeline, and all values of the price that follow from it. */
void planner_take_schedule(const Planner *p, PlanPrice *price, double schedule_s);

/* Memory of each pipeline rank by kind, bytes: l->pp rows. `price` is this layout's: its room for rows counts. */
Status planner_memory(Planner *p, const PlanLayout *l, const PlanPrice *price,
                      double (*out)[PLAN_KINDS]);

typedef enum PlanAxis {
    PLAN_AXIS_TP,
    PLAN_AXIS_CP,
    PLAN_AXIS_EP,
    PLAN_AXIS_DP,
    PLAN_AXIS_PP,
    PLAN_AXES
} PlanAxis;

/* Groups of `ranks` GPUs that stand `stride` apart, `local` of them in a scale-up domain, and what one GPU
 * of such a group sends in a step. Seconds are those of the exchange alone, also where compute hides it. */
typedef struct PlanGroup {
    PlanAxis axis;
    const char *what;
    int64_t ranks, stride, local;
    double bytes, s; /* bytes 0: not known, for the exchange of another stack */
} PlanGroup;

enum { PLAN_GROUPS_MAX = 16 };
typedef struct PlanGroups {
    PlanGroup at[PLAN_GROUPS_MAX];
    int n;
} PlanGroups;

/* All groups of more than one GPU, the innermost axis first. Gradients are those of the pipeline rank whose
 * take longest, all else is the mean of the ranks. */
Status planner_groups(Planner *p, const PlanLayout *l, const PlanPrice *price, PlanGroups *out);

/* The partition of a layout in the notation of engine/schedule/layout.h, in `a`. */
Status planner_partition(Planner *p, const PlanLayout *l, Arena *a, const char **text);

/* GPUs of a pipeline stage, which hold the same layers. */
static inline int64_t plan_stage_gpus(const PlanLayout *l) { return l->dp * l->cp * l->tp; }

/* Gives a layout without a partition equally many blocks on each stage, as `train` does without mesh.layout. */
Status plan_spread_evenly(const Config *c, Arena *a, PlanLayout *l);

/* Describes recomputed layers by their number in each chunk, if they are the first of every chunk of l->partition,
 * as a search does. */
void plan_recompute_by_chunk(const Config *c, PlanLayout *l);

/* The reverse of plan_layout_of: the configuration with the settings of a layout and its price, which plan and train
 * take. `partition` is planner_partition's. ERR_UNSUPPORTED: it recomputes more layers than a list holds. */
Status plan_config_of(const Config *c, const PlanLayout *l, const PlanPrice *price,
                      const char *partition, Arena *a, Config *out);

/* The layout that mesh.* and recompute.* of a configuration describe, on `gpus` GPUs. Its partition lies in `a`;
 * its list of recomputed layers is the configuration's. */
Status plan_layout_of(const Config *c, int64_t gpus, Arena *a, PlanLayout *out);

#endif
