/* engine_parts: what an engine is made of, for the files that are its parts. No functions: engine.h has
 * those for users, and each part's header has its own. */
#ifndef TRAIN_ENGINE_PARTS_H
#define TRAIN_ENGINE_PARTS_H

#include "backend/backend.h"
#include "data/loader.h"
#include "model/layer.h"
#include "op/cpu_set.h"
#include "schedule/check.h"
#include "train/capacity.h"
#include "train/chunks.h"
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
    const EnginePlan
        *retry;           /* of the way with room for all rows (EngineMode); NULL: there is none */
    bool all_rows;        /* plan that way */
    RowCapacity capacity; /* for received rows (capacity.h); { 0 }: as the configuration says */
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

/* Parameters whose moments have had the same number of updates: those of the model proper, those of
 * modules of multi-token prediction, which a training may add to a model (init.h). */
typedef enum MomentAge { AGE_MODEL, AGE_MODULES, AGE_COUNT } MomentAge;

/* Elements that this rank updates and that share the decay rule. */
typedef struct UpdateRange {
    Tensor w, g, m, v, w_low; /* (n); w_low without data: f32 compute */
    bool decay;
    MomentAge age;
} UpdateRange;

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

/* An execution mode of the step: its lists, and the memory that their passes take.
 *
 * Over ranks a layer's buffers hold moe.buffer_factor times the mean rows. Where more come, a flag is
 * added over all ranks with the gradient norm, and the step is skipped: nothing was updated anywhere.
 * Then there is a second mode. The same batch runs again as moe.buffers=worst would have run it, with
 * every layer recomputed: what is not kept leaves room for one layer's largest buffers, in the same
 * memory. A recomputed layer gives the same bits, and the order of rows does not depend on the capacity.
 * So the step's bits are those of a run that had the capacity all along. */
typedef struct EngineMode {
    ModelSpec spec; /* the engine's, with what this way recomputes and has room for */
    EngineList step, evaluation;
    Arena arena[ENGINE_ARENAS]; /* of these slot, ring and scratch; the parts below lie in them */
    Arena ring[RINGS], comm_scratch;
    SlotState *slots;
    int n_slots;
    ArenaPool grads;
    Tensor *entries; /* of the ring of transfers, (N, D) each; an evaluation uses the first ones */
    /* gradients of h while a backward pass runs, h in an evaluation: of layers in turn */
    Tensor stream[BLOCK_LAYERS_MAX];
    ArenaMark stream_end;
    Graph graph; /* of the step; without exec in the eager executor */
} EngineMode;

typedef struct StepResult {
    double loss, aux_loss, grad_norm;
    double next_loss[CONFIG_DEPTHS_MAX]; /* of each depth of multi-token prediction */
    const int32_t *dropped;              /* (MoE layers) tokens x experts; NULL: none can be */
    bool finite;
    bool retried;        /* rows had no room: this is the step's second run */
    Shortage short_of;   /* what for */
    double retry_s;      /* of the second run, */
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

/* The memory of an engine beside what its modes take, and the ways to it from the host (engine_memory.h). */
typedef struct EngineArenas {
    Exec *ex;
    bool counting;
    Arena at[ENGINE_ARENAS]; /* all but what a mode has */
    Arena block; /* of the modes' memory; not made: there is one mode, which nobody opens */
    ArenaMark inputs_end, record_end; /* of the step arena: the batch, then the record */
} EngineArenas;

/* What a step reads and reports; in the step arena, unless said otherwise. */
typedef struct StepTensors {
    MicroBatch batch;     /* the whole step's */
    MicroBatch evaluated; /* of it what an evaluation reads, or tokens behind the cache */
    Record record;
    Tensor loss_scale, hyper, token_loss;
    RopeTable rope; /* in the run arena, like the cache */
    KvCache kv;
    Tensor logits;
    Tensor load_host, dropped_host; /* copies of record.load and record.dropped, in tables */
} StepTensors;

/* Launches of a step on a GPU, and when it ran there. */
typedef struct StepClock {
    Event begun, ended;
    int64_t launches;
} StepClock;

typedef struct Engine {
    const Config *config;
    EngineUse use;
    EngineShape shape;
    ModelSpec spec;
    Exec ex;
    Mesh mesh;    /* whose groups carry tensors; ex.mesh points here if not alone */
    Arena tables; /* host bookkeeping: never counted away */
    bool counting;
    bool lanes; /* the comm lane is a stream of its own */
    EngineArenas arenas;
    ParamTable params;
    ParamMemory memory;
    LayerWeights *weights;
    bool *written; /* by layer: do its experts' gradients hold anything yet? (shards_begin) */
    UpdateRange *ranges;
    Tensor *norms; /* gradients that this rank adds to the norm */
    int n_ranges, n_norms;
    /* Updates that moments of an age had before step 1: those of the checkpoint that a training
     * began with, if it took them over (init.moments). */
    int64_t moment_steps[AGE_COUNT];
    EngineList *list;           /* that runs, or ran last */
    int at;                     /* the action of it that runs */
    LayerRange *chunks;         /* of this rank */
    bool split;                 /* weight gradients run apart, whole passes of them */
    EngineMode modes[2], *mode; /* mode: in use */
    int n_modes;
    StepTensors io;
    struct Recorder *recorder; /* recorder.h; NULL: none */
    EngineObserver observer;   /* set by whoever opened the engine */
    StepClock clock;
    int64_t step;
} Engine;

#endif
