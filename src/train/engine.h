/*
 * engine: runs a Program over a model.
 *
 * Once: spec, parameter table, the programs of a step and of an evaluation; then both run on the
 * counting backend over arenas without memory, which gives the peak of every arena (engine_plan);
 * then the real arenas are made with exactly these sizes. From the first step on nothing is
 * allocated.
 *
 * Layers take their memory where layer.h says; the engine takes it back: scratch after each phase
 * function, ring after each layer, the slot layer by layer as backward goes down. Where a schedule
 * runs the weights' gradients apart, what waits for them lies in an arena of a pool, from the input
 * gradients to the weights'. Where it takes passes apart into phases, a forward and a backward are
 * under way at once and each has a ring of its own; a block is then taken back as a whole.
 */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "backend/backend.h"
#include "data/loader.h"
#include "model/layer.h"
#include "op/cpu_set.h"
#include "schedule/check.h"
#include "train/chunks.h"
#include "train/room.h"
#include "train/transfers.h"

typedef enum EngineArena {
    ENGINE_RUN,     /* weights, gradients, optimizer state, tables of cosines */
    ENGINE_SLOT,    /* what backward needs of one micro-batch */
    ENGINE_RING,    /* between phases of a layer; the gradient stream */
    ENGINE_STEP,    /* batch and record */
    ENGINE_SCRATCH, /* within a phase; workspaces of ops */
    ENGINE_PINNED, /* where these are apart from the host: the host's view of the step arena, and staging of parameters */
    ENGINE_ARENAS
} EngineArena;

extern const char *const engine_arena_names[ENGINE_ARENAS];

typedef enum EngineUse { ENGINE_TRAIN, ENGINE_INFER } EngineUse;

typedef struct EnginePlan EnginePlan;

typedef struct EngineShape {
    int64_t batch, micro_batch, sequence; /* sequences a step, a micro-batch; tokens a sequence */
    int64_t positions;                    /* rows of the rotary tables, >= sequence */
    int64_t domains;
    int threads;
    bool cache;                /* infer with a KvCache of `positions` tokens and one sequence */
    int64_t logit_rows;        /* with a cache: infer gives logits of so many last tokens */
    const ParamShards *shards; /* planning: what other ranks hold; NULL: nothing */
    int pp_rank;               /* which of mesh.pp pipeline ranks this is */
    const Mesh *mesh;          /* running: this rank's groups, of the host; NULL: it is alone */
    const EnginePlan *again; /* of the way with room for all rows (again.h); NULL: there is none */
    bool all_rows;           /* plan that way */
    RowRoom room;            /* for received rows (room.h); { 0 }: as the configuration says */
} EngineShape;

/* The arenas that a micro-batch takes on a chunk. KEEP is the slot's own, from its forward to its
 * last backward. If weight gradients run apart, GRADS is one of a pool, from the input gradients to
 * the weight gradients. */
typedef enum SlotPart { SLOT_KEEP, SLOT_GRADS, SLOT_PARTS } SlotPart;

enum { RING_FORWARD, RING_BACKWARD, RINGS };

struct EnginePlan {
    size_t bytes[ENGINE_ARENAS];
    size_t chunk_bytes[SLOT_PARTS][SCHEDULE_CHUNKS_MAX]; /* slot_sizes makes ENGINE_SLOT of them */
    size_t pool_of_chunk[SCHEDULE_CHUNKS_MAX];           /* of KEEP: of rows */
    size_t pool_bytes;                                   /* of ENGINE_SLOT, likewise */
    size_t eval_bytes;                                   /* of the first slot, in an evaluation */
    size_t comm_scratch_bytes;                           /* of ENGINE_SCRATCH: the comm lane's */
    size_t ring_bytes[RINGS]; /* behind the entries; backward's own where passes are phases */
    OpTotals step;            /* FLOPs and bytes of one training step */
    bool apart;               /* Backend.apart: all arenas but ENGINE_PINNED are the device's */
    size_t tables_bytes;
    size_t save_bytes; /* checkpoint_plan_bytes */
    int64_t params_total, params_active, params_frozen;
};

/* What one micro-batch left of one layer. Bookkeeping: lives in tables. */
typedef struct LayerSlot {
    ArenaMark before, kept, ring;
    Tensor h, dh; /* the layer's input and its gradient */
    void *state;  /* LayerDesc.state_bytes */
} LayerSlot;

typedef struct SlotState {
    Arena arena;   /* keep */
    RowPool pool;  /* at its beginning, in training */
    Arena *grads;  /* from the pool, while weight gradients are due */
    LayerSlot *at; /* by layer of the chunk, and one more: what the last layer gives */
} SlotState;

/* Arenas of which each goes to one slot at a time. */
typedef struct ArenaPool {
    Arena *at;
    bool *taken;
    int n;
} ArenaPool;

/* A list that the engine runs. */
typedef struct EngineList {
    Program program;
    Transfers transfers;
} EngineList;

/* One way to run the step: its lists, and the memory that their passes take. There is one, or the
 * usual one and another with room for all rows (again.h). */
typedef struct EngineWay {
    ModelSpec spec; /* the engine's, with what this way recomputes and has room for */
    EngineList step, evaluation;
    Arena arena[ENGINE_ARENAS]; /* of these slot, ring and scratch; the parts below lie in them */
    Arena ring[RINGS], comm_scratch;
    SlotState *slots;
    int n_slots;
    ArenaPool grads;
    Tensor *entries; /* of the ring of transfers, (N, D) each; an evaluation uses the first ones */
    Graph graph;     /* of the step; without exec in the eager executor */
} EngineWay;

typedef struct StepResult {
    double loss, aux_loss, grad_norm;
    double next_loss[CONFIG_DEPTHS_MAX]; /* of each depth of multi-token prediction */
    const int32_t *dropped;              /* (MoE layers) tokens x experts; NULL: none can be */
    bool finite;
    bool again;          /* rows had no room: this is the step's second run */
    Shortage short_of;   /* what for */
    double again_s;      /* of the second run, */
    double capture_s;    /* and of making its graph: both of the host */
    const int32_t *load; /* (MoE layers, domains, E): valid until the next step */
    double device_s;     /* from the first to the last launch's end */
    /* on a GPU; else 0 */
    int64_t launches; /* kernels, copies and fills that the host started; a graph is one */
    int64_t kernels;  /* that ran */
    int64_t waits;    /* of the host for the GPU */
} StepResult;

/* Whom engine_step calls between the step's launch and the wait for its end, so that he sees a GPU
 * at work and costs no time as long as he is faster than the step. */
typedef struct EngineObserver {
    void (*look)(void *self); /* NULL: nobody */
    void *self;
} EngineObserver;

typedef struct Engine {
    const Config *config;
    EngineUse use;
    EngineShape shape;
    ModelSpec spec;
    ParamTable params;
    ParamMemory memory;
    LayerWeights *weights;
    bool *written;      /* by layer: do its experts' gradients hold anything yet? (shards_begin) */
    EngineList *list;   /* that runs, or ran last */
    int at;             /* the action of it that runs */
    LayerRange *chunks; /* of this rank */
    bool split;         /* weight gradients run apart, whole passes of them */
    bool lanes;         /* the comm lane is a stream of its own */
    Exec ex;
    Mesh mesh;                  /* whose groups carry tensors; ex.mesh points here if not alone */
    Arena tables;               /* host bookkeeping: never counted away */
    Arena arena[ENGINE_ARENAS]; /* all but what a way has */
    Arena block; /* of the ways' memory; not made: there is one way, which nobody opens */
    EngineWay ways[2], *way; /* way: in use */
    int n_ways;
    /* gradients of h while a backward pass runs, h in an evaluation: of layers in turn */
    Tensor stream[BLOCK_LAYERS_MAX];
    ArenaMark stream_end;
    UpdateRange *ranges;
    Tensor *norms; /* gradients that this rank adds to the norm */
    int n_ranges, n_norms;
    /* Updates that moments of an age had before step 1: those of the checkpoint that a training
     * began with, if it took them over (init.moments). */
    int64_t moment_steps[AGE_COUNT];
    Tensor rope_cos, rope_sin;
    MicroBatch batch;     /* the whole step's */
    MicroBatch evaluated; /* of it what an evaluation reads, or tokens behind the cache */
    Record record;
    Tensor loss_scale, hyper, token_loss;
    KvCache kv;
    Tensor logits;
    Tensor load_host;                 /* copy of record.load, in tables */
    Tensor dropped_host;              /* and of record.dropped */
    ArenaMark inputs_end, record_end; /* of the step arena: the batch, then the record */
    struct Recorder *recorder;        /* recorder.h; NULL: none */
    EngineObserver observer;          /* set by whoever opened the engine */
    Event begun, ended;               /* of the step */
    int64_t step, launches;
    bool counting;
} Engine;

/* Bytes of ENGINE_STEP alone. */
Status engine_step_bytes(const ModelSpec *s, const EngineShape *shape, size_t *out);

/* ERR_ARG if the host must read counts amid a step, which run.executor=captured rules out. */
Status engine_check_capture(const Config *c, const ModelSpec *s);

/* The sizes of all arenas, without taking any memory worth speaking of. */
Status engine_plan(const Config *c, EngineUse use, const EngineShape *shape, EnginePlan *out);

/* Arenas of the plan's sizes; weights are not set (engine_init_weights or a checkpoint). */
Status engine_open(Engine *e, const Config *c, EngineUse use, const EngineShape *shape,
                   const EnginePlan *plan);
void engine_close(Engine *e); /* safe on { 0 } */

/* On a GPU, before weights are set: one step over random ones, so that every kernel is loaded and
 * an algorithm for every product chosen (those of `products`, a checkpoint's text, or NULL, stay as
 * they are; op/choices.h); then the step is recorded as a graph. Without it steps are launched op
 * by op. On the CPU nothing happens. */
Status engine_prepare(Engine *e, const char *products);

/* Other room for rows between two steps: new arenas for what a step takes, and a new graph. Weights and
 * all else stay. `shape` and `plan` are those that the engine was opened with, planned with other
 * room; both ways are there. */
Status engine_resize(Engine *e, const EngineShape *shape, const EnginePlan *plan);

/* Initial weights, f(seed, name, index); moments and state zero. */
Status engine_init_weights(Engine *e, uint64_t seed);

/* Sets a tensor of the engine's memory to 0; nothing without data. */
Status engine_zero(Engine *e, const Tensor *t);

/* One optimizer step on a global batch. A result that is not finite changed nothing. */
Status engine_step(Engine *e, const Batch *batch, double lr, int64_t step, StepResult *out);

/* ERR_NUMERIC if a weight or a moment is not what it may be (numbers.h) after the update of this
 * step: the parameter and the op that wrote it. Looks at all of them. Collective. */
Status engine_check_numbers(Engine *e, int64_t step);

/* Did the update before leave what is not finite? Else run the same step again under guard, without
 * update: the error names layer and op. Returns ERR_NUMERIC in any case. Collective. */
Status engine_explain_nan(Engine *e, const Batch *batch, int64_t step);

/* Record every action, phase and op of the next steps (NULL: stop), and look at every op's outputs
 * for a NaN from now on. */
void engine_trace(Engine *e, struct Trace *trace);
void engine_guard(Engine *e);

/* Forward without training on up to micro_batch sequences, by all stages together: the losses (N)
 * of all targets, in host memory until the next call; NULL on a stage without the head. */
Status engine_losses(Engine *e, const Batch *batch, const float **losses);

/* Tokens by (MoE layer, domain, expert) of the last step or evaluation. */
const int32_t *engine_load(const Engine *e);

/* Parameters and the host, piece by piece of at most engine_piece_bytes: engine_room says where to
 * write what engine_put then brings to `at`; engine_get says where to read what is at `at`. On the
 * CPU both are `at` itself. Each waits for the copy. */
size_t engine_piece_bytes(const Engine *e);
void *engine_room(const Engine *e, void *at);
Status engine_put(Engine *e, void *at, size_t bytes);
Status engine_get(Engine *e, const void *at, size_t bytes, const void **out);

/* Forward of n new tokens of one sequence behind the cache's; logits (rows, V) of the last
 * min(n, logit_rows), in host memory until the next call. */
Status engine_next_logits(Engine *e, const int32_t *id, int64_t n, const float **logits);

/* Bytes that each arena really used at its peak, for the test planned = used. */
size_t engine_peak_bytes(const Engine *e, EngineArena which);

#endif
