/* price_private: the structs and functions that the parts of the price share: price.c (memory and time of a
 * layout), price_layers.c (layers, counted once), price_stages.c (partitions), price_tensor.c (layers of
 * other stacks that ranks of tp share), price_bound.c (lower bounds), price_program.c (simulated steps),
 * explain.c. Users include plan.h. Times are in seconds, bytes in doubles. */
#ifndef PLANNER_PRICE_PRICE_PRIVATE_H
#define PLANNER_PRICE_PRICE_PRIVATE_H

#include "engine/count/chunk_count.h"
#include "engine/count/chunks.h"
#include "engine/count/layer_count.h"
#include "engine/schedule/estimate.h"
#include "planner/plan.h"
#include "planner/price/roofline.h"

#include <math.h>

/* Memory and time of a layer for one micro-batch are counted once for each class of layers, and added up for any
 * layout. A class is layers that take the same: the embedding, attention over all keys or over chunks, a
 * dense MLP, a MoE layer, the head. A model has a few classes. */
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

/* A layer of one class for one micro-batch: counted bytes, and times of the device and the host in seconds. */
typedef struct LayerPrice {
    LayerCount count;                               /* with the bytes that the stack keeps */
    ChunkTimes time;                                /* of the device */
    double phase_s[LAYER_PASSES][LAYER_PHASES_MAX]; /* of its ops alone, by phase of its row */
    double bound_s[LAYER_PASSES][LAYER_PHASES_MAX]; /* times hardware_contention */
    double moved_s[LAYER_PASSES][LAYER_PHASES_MAX]; /* the part in which links move tokens */
    double lane_s[ROOFLINE_LANES];                  /* `time`, by lane */
    double nic_s[CHUNK_PASSES];                     /* how long its exchanges keep a NIC sending */
    CollectiveLoad exchange;                        /* one of them */
    double host_s, wait_s; /* of all passes: the host's time; the device's waits for the host */
    int part;              /* the part of a block that these two count in */
    /* parameters that ranks of tp hold together, and whose gradients they add up: all of them in other stacks, those
     * with the same heads of keys in ours */
    double copies;
    /* Seconds beside memory to update matrices as wholes: of dense parameters, of experts; and the longest. */
    double whole_s[2], longest_s;
    double largest;      /* elements of the largest of them */
    double hidden_flops; /* of pairs of query and key that documents hide (plan.mean_context) */
    bool skips;          /* its attention does not compute these */
    OpPrice *op;         /* NULL: its ops are not listed */
    int n_ops;
} LayerPrice;

/* Everything that the price of a layer depends on, besides the request. */
typedef struct PriceKey {
    int64_t micro_batch;
    int64_t group_ranks; /* ranks over which the auxiliary loss is summed */
    double rows_room, block_room;
    int ep, etp, cp, tp;
    unsigned recompute;
    unsigned per_use; /* RecipeSpec.per_use */
    unsigned listed;  /* with lists of ops, which are most of an entry: a search has none */
} PriceKey;

/* Seconds of a micro-batch. compute: the compute lane's share of all passes. */
typedef struct PassSum {
    double forward, input, weight, compute;
} PassSum;

/* All classes of layers under one key. Layouts with the same key share it. */
typedef struct PriceEntry {
    PriceKey key;
    StackValues stack;
    ModelSpec spec;
    bool own; /* our engine's layers, which ranks of tp split; else whole layers of another stack */
    bool offload; /* optimizer states lie on the host, with offload_host main weights, too */
    const LayerPrice *plain; /* by class, without recompute; shared with the entry that has none */
    const LayerPrice *recomputed; /* by class, with key.recompute */
    PassSum *before[2];           /* prefix sums over blocks (blocks + 1), plain and recomputed */
    PassSum embedding, head;
} PriceEntry;

enum { PRICE_ENTRIES = 1 << 17, PRICE_PARTITIONS = 1 << 17 };

/* What is added up over the layers of a chunk, in order. */
typedef struct ChunkPrice {
    ChunkTimes time;
    double lane_s[ROOFLINE_LANES], host_s; /* host_s: time lost to the host */
    double nic_s[CHUNK_PASSES];
    ParamSpaces params;
    double state_elems, copies, whole_s[2], longest_s, largest; /* as in LayerPrice */
    const LayerCount **layer;
    int layers;
} ChunkPrice;

/* What one pipeline rank takes: sums over its chunks, and the largest of what they share. */
typedef struct RankPrice {
    ChunkPrice sum;                       /* times and parameters of all chunks */
    double ring[RINGS], scratch, eval;    /* the largest */
    PassSum pass;                         /* of all chunks */
    double backward_nic_s, forward_nic_s; /* in which their exchanges use the NICs */
    double backward_s, forward_s;         /* passes of the slowest rank, for which this one waits */
} RankPrice;

/* All pipeline ranks of a layout, in the planner's scratch arena. */
typedef struct PriceRanks {
    RankPrice *rank;
    ChunkPrice *chunk; /* by rank * vpp + chunk, as what follows */
    ChunkTimes *time;
    SlotBytes *slot;
    int blocks;       /* most of a chunk */
    double compute_s; /* of all ranks in a micro-batch */
} PriceRanks;

/* One collective of parameters: once a step, or, with ZeRO-2 and 3, once a pass. */
typedef struct GradientCall {
    const char *what;
    OpCost cost;           /* from the op's own cost function */
    int64_t ranks, stride; /* a group of GPUs with this stride */
    double s;
} GradientCall;

enum { GRADIENT_CALLS = 11 };

/* Seconds, each once: to reduce gradients over the sharding group and over its replicas, and to gather weights. sums: the
 * part of `reduce` in which our own engine adds what was reduced in a pass to its sums. twins:
 * over the two stages with the same layers (DualPipe), and over ranks of tp with the same heads of keys. shown_: the
 * part that no pass hides. reductions, gathers: how often they come in a step. */
typedef struct GradientTimes {
    GradientCall call[GRADIENT_CALLS];
    int calls;
    double reduce, replicate, twins, gather, sums;
    double behind_backward; /* seconds of a backward pass that may hide them, reductions first */
    double shown_reduce, shown_replicate, shown_gather;
    double reductions, gathers;
    double slowed; /* seconds of a step by which passes take longer beside them */
    bool leaves;   /* some call leaves its domain */
} GradientTimes;

/* What layouts share that differ only in how they shard. */
typedef struct BoundKey {
    const PriceEntry *least, *largest; /* with the least and the largest room for rows */
    const LayoutStage *stage;
    const ScheduleDesc *schedule;
    int64_t micros;
    int pp, vpp, recompute_blocks;
} BoundKey;

/* Bytes that are the same for all ranks of a layout: price_comm_bytes and price_step_bytes. */
typedef struct AlikeBytes {
    double comm, step;
} AlikeBytes;

/* Sums of planner_bound: of rank 0 in both entries, the least bytes of its slots, and the schedule's time. */
typedef struct BoundSums {
    BoundKey key;
    RankPrice least, largest;
    double slot[SLOT_PARTS], schedule_s, step_bytes;
} BoundSums;

struct Planner {
    PlanRequest q;
    Config config;        /* the request's, on one rank */
    Arena kept;           /* what is counted once */
    Arena parts;          /* partitions, until price_trim */
    Arena scratch, steps; /* steps: simulated ones */
    Exec exec;            /* for layer_count */
    BoundSums bounds;     /* the last ones */
    Estimator estimator;
    ModelSpec spec;            /* of one rank */
    const LayerCount **layers; /* (2 x layers): scratch for the layers of all chunks */
    int *class_of;             /* by layer of spec */
    int classes, first_of[LAYER_CLASSES_MAX];
    void **entry, **partition; /* hash tables by key, of PriceEntry and Partition */
    int entries, partitions;
    const StackValues *limits; /* for what the stack supports */
    bool skips;                /* some attention computes no pairs that documents hide */
    bool listing;              /* entries list their ops, for people */
    double flops;              /* of the model for one step, without recompute */
    int64_t moe_layers;
};

/* The classes of the request's model. */
Status price_classes(Planner *p);

/* The entry of a layout, counted if it is new. */
Status price_entry(Planner *p, const PlanLayout *l, const PriceEntry **out);

/* Counts a layer of another stack that tp ranks share, as price_tensor.c says: sets count and copies of its price.
 * `observer` sees the ops of one rank. */
Status price_tensor_count(const ModelSpec *s, int layer, const PriceKey *key, int64_t sequence,
                          const LayerCountObserver *observer, Arena *scratch, LayerPrice *out);

/* Ranks of tp with the same heads of keys in our own engine: more than 1 if there are fewer heads than ranks. */
static inline int price_keys(const ModelSpec *s) { return (int)(s->ranks.tp / s->ranks.key_parts); }

/* Is a block of a stage recomputed? block -1: a layer outside of blocks, which never is. */
static inline bool price_again(const PlanLayout *l, const LayoutStage *s, int block)
{
    if (block < 0) return false;
    if (l->again == NULL) return block - s->first < l->recompute_blocks || l->recompute_blocks < 0;
    for (int k = 0; k < l->again->n; k++) {
        if (l->again->at[k] == block) return true;
    }
    return false;
}

/* Is the schedule made to overlap exchanges and compute, while the stack runs them one after the other? */
static inline bool price_in_series(const PriceEntry *e, const PlanLayout *l)
{
    return l->schedule->phases && e->stack.at[STACK_lanes] == 0;
}

/* A Program with the sizes and the placement of a layout, for hop_of and hop_stage. */
static inline Program price_program_like(const PlanLayout *l)
{
    return (Program){ .stages = l->pp, .chunks = l->vpp, .placement = l->schedule->placement };
}

/* The position in a hash table of the element that begins with this key: whole words without padding; or a free one. */
void **price_place(void **table, size_t places, const void *key, size_t bytes);

/* Drops all partitions once they are many; they are made again when they are needed. Called where nobody holds one. */
void price_trim(Planner *p);

/* Which blocks lie on each of `stages` stages. */
Status price_stages(Planner *p, const PlanLayout *l, const PriceEntry *e, int stages,
                    LayoutStage **out);

/* Counts the layers of each class: plain, recomputed. Adds to *n. */
Status price_count_layers(Planner *p, const PlanLayout *l, const PriceEntry *e,
                          int n[2][LAYER_CLASSES_MAX]);

/* The inputs of the stack's sheet for an entry. p->config must be the entry's. */
Status price_inputs(Planner *p, const PriceEntry *e, PlanInputs *out);

/* Number of stages of the model: the hops of a micro-batch. */
int price_stage_count(const PlanLayout *l);

/* How ranks shard dense parameters and experts. */
ParamShards price_shards(const Planner *p, const PlanLayout *l, const PriceEntry *e);

/* The times of a rank's gradients and gathers. */
Status price_gradients(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *r, GradientTimes *t);
static inline double price_gradients_s(const GradientTimes *t)
{
    return t->shown_reduce * t->reductions + t->shown_replicate + t->shown_gather * t->gathers +
           t->slowed;
}

/* price_chunk prices a stage; price_add_chunk adds it to a rank. `layer`: memory for the chunk's layers. */
void price_chunk(const Planner *p, const PlanLayout *l, const PriceEntry *e, const LayoutStage *s,
                 const LayerCount **layer, ChunkPrice *c);
void price_add_chunk(RankPrice *r, const ChunkPrice *c);
/* Prices all ranks, and makes the input of the estimate and the simulation. Arrays lie in p->scratch. */
Status price_input(Planner *p, const PlanLayout *l, const PriceEntry *e, PriceRanks *n,
                   EstimateInput *out);
ChunkBytes price_add_bytes(RankPrice *r, const PlanLayout *l, const PriceEntry *e,
                           const ChunkPrice *c, unsigned passes);
void price_rank_memory(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *r, const EstimateRank *slots, const AlikeBytes *alike,
                       double memory[PLAN_KINDS]);
/* What buffers hold: weights gathered for a layer (ZeRO-3), rows of the largest layer between its phases, transfers
 * between stages, the batch of a step, rotary tables, and the exchange of a stack with one of its own. */
enum {
    BUFFER_GATHERED,
    BUFFER_ROWS,
    BUFFER_TRANSFERS,
    BUFFER_STEP,
    BUFFER_ROTARY,
    BUFFER_EXCHANGE,
    BUFFER_TERMS
};
/* Bytes that NCCL takes for the groups and links of our own engine (engine_comm_bytes). */
double price_comm_bytes(const PlanLayout *l, const PriceEntry *e);
/* Of the batch of a step, and of what a step reports. */
Status price_step_bytes(const Planner *p, const PlanLayout *l, const PriceEntry *e, double *out);
void price_buffers(const Planner *p, const PlanLayout *l, const PriceEntry *e, const RankPrice *r,
                   const EstimateRank *slots, double step_bytes, double term[BUFFER_TERMS]);
/* Do transfers between stages leave a scale-up domain? */
bool price_sends_out(const Planner *p, const PlanLayout *l);
/* Sets the parts GRADIENTS, UPDATE and CHECKPOINT of a rank. */
Status price_rank_ends(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *rank, double part_s[PLAN_PARTS]);

/* The least time of a step's passes where ranks share weights or gradients in every pass; 0 elsewhere. */
Status price_shared_s(Planner *p, const PlanLayout *l, const PriceEntry *e, double *out);

/* Adds up the phases of each pass, and those that compute. */
PassSum price_pass_sum(const ChunkTimes *t);
/* *to += times * *a */
void price_add_sum(PassSum *to, const PassSum *a, double times);
/* Raises the slowest rank's passes in *r to those of a rank with these sums. */
void price_raise_pace(const PlanLayout *l, const PriceEntry *e, const PassSum *s, RankPrice *r);

/* A lower bound of the schedule's time. */
Status price_least_s(Planner *p, const PlanLayout *l, const PriceEntry *e, const PriceRanks *n,
                     double *out);
/* price_sums fills the prefix sums of an entry. price_stage_sum: the times of a stage, from them. */
Status price_sums(Planner *p, PriceEntry *e);
PassSum price_stage_sum(const PlanLayout *l, const PriceEntry *e, const LayoutStage *s);

/* price_layer_s: the device's time of a layer, all passes. price_lost_s: the time by which the host is slower, plus
 * the device's waits for it. price_phases_s: all phases of one pass. */
double price_layer_s(const LayerPrice *l);
double price_lost_s(const LayerPrice *l);
static inline double price_phases_s(const double phase[PHASES])
{
    double s = 0;
    for (int i = 0; i < PHASES; i++) s += phase[i];
    return s;
}

/* By how much the slowest of all GPUs is behind the mean one, as a share. The largest of n normal values lies about
 * sqrt(2 ln n) ln n / (1 + ln n) deviations above their mean: 0.48, 1.38, 2.58 and 3.84 of 2, 8, 128 and 10,000,
 * where tables have 0.56, 1.42, 2.60 and 3.85. */
static inline double price_slowest(const Planner *p)
{
    double x = log((double)p->q.gpus);
    return p->config.plan_spread * sqrt(2 * x) * x / (1 + x);
}

/* Micro-batches of a step on one data-parallel rank. */
static inline int64_t price_micros(const Planner *p, const PlanLayout *l)
{
    return p->config.train_batch / l->dp / l->micro_batch;
}

/* Seconds of a step that all wait for the slowest GPU. compute_s: what all ranks of the pipeline compute in a
 * micro-batch on mean GPUs, waits included. With two copies of the model each has half of the micro-batches. */
static inline double price_slowest_s(const Planner *p, const PlanLayout *l, double compute_s)
{
    double copies = l->schedule->placement == PLACE_BOTH ? 2 : 1;
    return price_slowest(p) * compute_s * (double)price_micros(p, l) / l->pp / copies;
}

/* optimizer.offload (price_offload.c). by_host: the host has the main weights, too, and updates them. update_s: of
 * the GPU. offload_bytes: of the GPU's buffers for a state of so many elements. */
static inline bool price_by_host(const PriceEntry *e)
{
    return e->stack.at[STACK_offload_host] != 0;
}
double price_offload_s(const Planner *p, const PriceEntry *e, const ParamShards *shards,
                       const RankPrice *r, double update_s);
double price_offload_bytes(const PriceEntry *e, const RankPrice *r, double elems, int state);
double price_host_bytes(const PriceEntry *e, const ParamShards *shards, const RankPrice *r);

/* Parameters that a rank updates; bytes of a parameter in the main weights, and in a state of the optimizer. */
double price_updated_elems(const ParamShards *s, const RankPrice *r);
double price_main_size(const PriceEntry *e);
double price_state_size(const PriceEntry *e);

#endif
