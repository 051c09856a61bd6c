/* price_private: what price.c (memory and time of a layout), price_layers.c (layers, counted once)
 * and price_program.c (what is simulated) share. */
#ifndef PLAN_PRICE_PRIVATE_H
#define PLAN_PRICE_PRIVATE_H

#include "plan/plan.h"
#include "plan/roofline.h"
#include "schedule/estimate.h"
#include "train/chunk_count.h"
#include "train/layer_count.h"

/* What a layer of each kind takes of memory and time for one micro-batch is counted once, kept, and
 * added up for any layout. A class is layers that are alike: the embedding, attention over all keys
 * or over chunks, a dense MLP, a MoE layer, the head. A model has a handful. */
enum { LAYER_CLASSES_MAX = 12, LAYER_OPS_MAX = 64 };

/* The calls of one op in one pass of a layer, added up. */
typedef struct OpPrice {
    const char *name;
    LayerPass pass;
    OpWork work;
    RooflineLane lane;
    int calls;
    double flops, bytes, comm_bytes, size, s;
    double rate; /* FLOP/s that it may reach; 0: bytes bound it */
} OpPrice;

typedef struct LayerPrice {
    LayerCount count;                               /* bytes kept are those of the stack */
    ChunkTimes time;                                /* of the device */
    double phase_s[LAYER_PASSES][LAYER_PHASES_MAX]; /* of its ops alone, by phase of its row */
    double bound_s[LAYER_PASSES][LAYER_PHASES_MAX]; /* of these, where multiprocessors bound them */
    double lane_s[ROOFLINE_LANES];                  /* of time: by lane */
    double host_s, wait_s; /* of the host, and of the device for it: all passes */
    int part;              /* of a block, in which that stands */
    OpPrice op[LAYER_OPS_MAX];
    int n_ops;
} LayerPrice;

/* All that a layout's layers depend on. */
typedef struct PriceKey {
    int64_t micro_batch;
    int64_t group_ranks; /* that a group of the auxiliary loss lies on */
    double rows_room, block_room;
    int ep, cp;
    unsigned recompute;
} PriceKey;

/* Seconds of a micro-batch. compute: the compute lane's share of all passes. */
typedef struct PassSum {
    double forward, input, weight, compute;
} PassSum;

typedef struct PriceEntry {
    PriceKey key;
    StackValues stack;
    ModelSpec spec;
    LayerPrice plain[LAYER_CLASSES_MAX];      /* nothing recomputed */
    LayerPrice recomputed[LAYER_CLASSES_MAX]; /* with the set */
    PassSum *before[2]; /* by block and one more: all blocks before it, plain and recomputed */
    PassSum embedding, head;
} PriceEntry;

enum { PRICE_ENTRIES = 1 << 15, PRICE_PARTITIONS = 1 << 15 };

/* A partition follows from the stages and from what a layer of each class costs, in 64ths of the
 * last block, and from nothing else: so it is the same whichever layout asks for it first. */
typedef struct PartitionKey {
    int stages, cost[LAYER_CLASSES_MAX];
} PartitionKey;

typedef struct Partition {
    PartitionKey key;
    LayoutStage *at;
} Partition;

/* What is added up over the layers of a chunk, in order. */
typedef struct ChunkPrice {
    ChunkTimes time;
    double lane_s[ROOFLINE_LANES], host_s; /* host: what shows of it */
    ParamSpaces params;
    double state_elems;
    const LayerCount **layer;
    int layers;
} ChunkPrice;

typedef struct RankPrice {
    ChunkPrice sum;                    /* times and parameters of all chunks */
    double ring[RINGS], scratch, eval; /* the largest */
    double backward_s, forward_s;
} RankPrice;

typedef struct PriceRanks {
    RankPrice *rank;
    ChunkPrice *chunk; /* by rank * vpp + chunk, as what follows */
    ChunkTimes *time;
    SlotBytes *slot;
    int blocks; /* most of a chunk */
} PriceRanks;

/* One collective of parameters: of a step, or of a pass with ZeRO-2 and 3. */
typedef struct GradientCall {
    const char *what;
    OpCost cost;           /* as the op says it */
    int64_t ranks, stride; /* a group of GPUs that are `stride` apart */
    double s;
} GradientCall;

enum { GRADIENT_CALLS = 7 };

/* Seconds to add gradients over the ranks that share out, over the replicas of these, over the two
 * stages that hold the same (DualPipe), and to gather weights, once; what of them no pass hides; and
 * how often they come in a step. */
typedef struct GradientTimes {
    GradientCall call[GRADIENT_CALLS];
    int calls;
    double reduce, replicate, twins, gather;
    double shown_reduce, shown_replicate, shown_gather;
    double reductions, gathers;
} GradientTimes;

struct Planner {
    PlanRequest q;
    Config config; /* the request's, on one rank */
    Arena kept;    /* what is counted once */
    Arena scratch;
    Estimator estimator;
    ModelSpec spec;            /* of one rank */
    const LayerCount **layers; /* room for those of all chunks of both ways */
    int *class_of;             /* by layer of spec */
    int classes, first_of[LAYER_CLASSES_MAX];
    void **entry, **partition; /* hash tables by key, of PriceEntry and Partition */
    int entries, partitions;
    const StackValues *limits; /* with what the stack can do */
    double flops;              /* of the model for one step, nothing computed twice */
};

/* The classes of the request's model. */
Status price_classes(Planner *p);

/* The entry of a layout, counted if it is new. */
Status price_entry(Planner *p, const PlanLayout *l, const PriceEntry **out);

/* Is a block of a stage recomputed? block below 0: what lies before all blocks or after them. */
static inline bool price_again(const PlanLayout *l, const LayoutStage *s, int block)
{
    if (block < 0) return false;
    if (l->again == NULL) return block - s->first < l->recompute_blocks || l->recompute_blocks < 0;
    for (int k = 0; k < l->again->n; k++) {
        if (l->again->at[k] == block) return true;
    }
    return false;
}

/* Does the schedule want exchanges beside compute that the stack runs one after the other? */
static inline bool price_in_series(const PriceEntry *e, const PlanLayout *l)
{
    return l->schedule->phases && e->stack.at[STACK_lanes] == 0;
}

/* A Program with the sizes and the placement of a layout: it says which stages a rank has. */
static inline Program price_program_like(const PlanLayout *l)
{
    return (Program){ .stages = l->pp, .chunks = l->vpp, .placement = l->schedule->placement };
}

/* Blocks of each of `stages` stages. */
Status price_stages(Planner *p, const PlanLayout *l, const PriceEntry *e, int stages,
                    LayoutStage **out);

/* What the stack's sheet is evaluated with for an entry; the configuration is the entry's. */
Status price_inputs(Planner *p, const PriceEntry *e, PlanInputs *out);

/* Stages of the model: hops of a micro-batch. */
int price_stage_count(const PlanLayout *l);

/* Ranks that share out dense parameters, experts. */
ParamShards price_shards(const Planner *p, const PlanLayout *l, const PriceEntry *e);

/* Gradients of a rank with these parameters and passes. */
Status price_gradients(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *r, GradientTimes *t);
static inline double price_gradients_s(const GradientTimes *t)
{
    return t->shown_reduce * t->reductions + t->shown_replicate + t->shown_gather * t->gathers;
}

/* A stage, and what a rank has of several; bytes go by the passes over it. */
void price_chunk(const Planner *p, const PlanLayout *l, const PriceEntry *e, const LayoutStage *s,
                 const LayerCount **layer, ChunkPrice *c);
void price_add_chunk(RankPrice *r, const ChunkPrice *c);
/* All ranks, and what their schedule is estimated and simulated with; arrays in scratch. */
Status price_input(Planner *p, const PlanLayout *l, const PriceEntry *e, PriceRanks *n,
                   EstimateInput *out);
ChunkBytes price_add_bytes(RankPrice *r, const PlanLayout *l, const PriceEntry *e,
                           const ChunkPrice *c, unsigned passes);
Status price_rank_memory(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                         const RankPrice *r, const EstimateRank *slots, double memory[PLAN_KINDS]);
/* GRADIENTS, UPDATE and CHECKPOINT of a rank. */
Status price_rank_ends(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *rank, double part_s[PLAN_PARTS]);

/* Seconds of a micro-batch on the blocks before each, for planner_bound. */
Status price_sums(Planner *p, PriceEntry *e);

/* Seconds of a layer, forward and backward; what the host takes longer than that, and what the device
 * waits for it; of all phases of one pass. */
double price_layer_s(const LayerPrice *l);
double price_lost_s(const LayerPrice *l);
static inline double price_phases_s(const double phase[PHASES])
{
    double s = 0;
    for (int i = 0; i < PHASES; i++) s += phase[i];
    return s;
}

static inline int64_t price_micros(const Planner *p, const PlanLayout *l)
{
    return p->config.train_batch / l->dp / l->micro_batch;
}

#endif
