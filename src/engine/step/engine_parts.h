/* engine_parts: the structs that an engine is made of, for the files that are its parts. No functions:
 * engine.h has those for users, and each part's header has its own.
 *
 * Unless a comment says otherwise, pointers and tables lie in Engine.tables, and tensors in the arena
 * that is named beside them. Shapes are in the letters of docs/glossary.md. */
#ifndef ENGINE_STEP_ENGINE_PARTS_H
#define ENGINE_STEP_ENGINE_PARTS_H

#include "corpus/shard/loader.h"
#include "engine/backend/backend.h"
#include "engine/count/capacity.h"
#include "engine/count/chunks.h"
#include "engine/count/engine_count.h"
#include "engine/model/layer.h"
#include "engine/schedule/check.h"
#include "engine/step/transfers.h"
#include "engine/train/alert.h"
#include "kernels/core/cpu_set.h"
#include "kernels/optimizer/optimizer.h"

extern const char *const engine_arena_names[ENGINE_ARENAS];

typedef enum EngineUse { ENGINE_TRAIN, ENGINE_INFER } EngineUse;

/* What one micro-batch left of one layer. Bookkeeping, in tables. The marks say where arenas stood
 * before the layer's forward, behind what even a recomputed layer keeps, and in the ring. */
typedef struct LayerSlot {
    ArenaMark before, kept, ring;
    Tensor h, dh; /* the layer's input and its gradient, (N, D) */
    void *state;  /* LayerDesc.state_bytes */
} LayerSlot;

/* A slot: what one micro-batch keeps on one chunk. */
typedef struct SlotState {
    Arena arena;   /* SLOT_KEEP */
    RowPool pool;  /* at its beginning, in training */
    Arena *grads;  /* SLOT_GRADS, while weight gradients are due */
    LayerSlot *at; /* by layer of the chunk, and one more for the last layer's output */
} SlotState;

/* Arenas that slots take and give back, one slot at a time. */
typedef struct ArenaPool {
    Arena *at;
    bool *taken;
    int n;
} ArenaPool;

/* A list of actions that the engine runs, with the state of its transfers. */
typedef struct EngineList {
    int64_t batch; /* a step's: its sequences on this rank */
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
    ModelSpec spec;           /* the engine's, with this mode's recomputation and capacity */
    const LayerRange *chunks; /* of this rank, the same in all modes */
    EngineList *step; /* (n_steps) by sequences: EngineShape.batch, then those of the ramp */
    int n_steps;
    EngineList evaluation;
    Arena arena[ENGINE_ARENAS]; /* of these slot, ring and scratch; the parts below lie in them */
    Arena ring[RINGS], comm_scratch;
    SlotState *slots;
    int n_slots;
    ArenaPool grads;
    Tensor *entries; /* buffers for transfers, (N, D) each; a smaller list uses the first ones */
    int n_entries;
    /* Layers use these buffers one after the other: for gradients of h in backward, for h in an evaluation. */
    Tensor stream[BLOCK_LAYERS_MAX];
    ArenaMark stream_end;
    Graph graph; /* of the step list in use; without exec in the eager executor */
} EngineMode;

/* A figure that the host reads of the record. Those by layer are valid until the next step. */
#define RESULT_RUN(name)     double name;
#define RESULT_DEPTH(name)   double name[CONFIG_DEPTHS_MAX];
#define RESULT_GROUP(name)   double name[GRAD_GROUPS]; /* 0: this model trains none of it */
#define RESULT_LAYER(name)   const float *name;        /* (MoE layers) */
#define RESULT_DROPPED(name) const int32_t *name;      /* the same; NULL: none can be dropped */
#define RESULT_LOAD(name)    const int32_t *name;      /* (MoE layers, domains, E) */

/* What engine_step reports of a step: what is below, and figures of figure.def. */
typedef struct StepResult {
    bool finite;
    bool skipped;      /* gradients are not finite, and a smaller loss_scale may help, or a spike */
    double norm_limit; /* a larger grad_norm is a spike (optimizer.skip_spikes) */
    double loss_scale; /* of this step */
    double logit;      /* the largest, where heads are clipped (optimizer.qk_clip); else 0 */
    int64_t clipped;   /* heads that are */
    bool retried;      /* rows did not fit: this is the step's second run */
    Shortage short_of; /* what was too small */
    double retry_s;    /* the host's time for the second run */
    double capture_s;  /* the host's time for making its graph */
    bool differs;      /* two runs of the step had other bits: nothing was updated (verify.h) */
    double verify_s;   /* the host's time for the first of two runs; 0: there was one */
    double device_s;   /* from the first to the last launch's end */
    /* on a GPU; else 0 */
    int64_t launches; /* kernels, copies and fills that the host started; a graph is one */
    int64_t kernels;  /* that ran */
    int64_t waits;    /* of the host for the GPU */
#define HOST_FIGURE(...)
#define RECORD_FIGURE(...)
#define FIGURE(NAME, name, each, ...) RESULT_##each(name)
#include "engine/model/figure.def"
} StepResult;

/* engine_step calls this between the step's launch and the wait for its end. So an observer sees the GPU
 * at work, and costs no time if it is faster than the step. */
typedef struct EngineObserver {
    void (*look)(void *self); /* NULL: there is none */
    void *self;
} EngineObserver;

/* What the loss of a step is multiplied by, so that f16 holds the gradients of small activations: a
 * power of two (Micikevicius et al., arXiv:1710.03740, section 3.2). 1 with other types. */
typedef struct LossScale {
    double now;
    int64_t good;    /* steps without infinities since it changed */
    int64_t skipped; /* steps since the start that updated nothing: it was too large, or a spike */
} LossScale;

/* Running means over steps (step_rule.h): of gradient norms for the spike guard, of weights for evaluations. */
typedef struct StepMeans {
    Band norms;
    int64_t weights; /* updates in the average of weights */
} StepMeans;

/* What the step's rules keep on the host; checkpoints have it (StepRule.saved). */
typedef struct RuleState {
    LossScale loss_scale;
    StepMeans means;
} RuleState;

/* The gradients that this rank adds to the norm. */
typedef struct NormParts {
    SquareSum *at; /* `x` and runs alone */
    int n;
    SquareRun *runs; /* of all of these, one's after the other */
} NormParts;

/* The parameters of this rank, which part of them it updates, and what that takes: for shards.c, copies.c,
 * engine_weights.c and checkpoints. Passes read `layer` alone. */
typedef struct EngineParams {
    Exec *ex;
    const Config *config;
    const ModelSpec *spec;
    const EngineShape *shape;
    Mesh *groups; /* Engine.mesh */
    EngineArenas *arenas;
    Arena *tables;
    bool training;  /* there are gradients and an optimizer's state */
    bool both_ways; /* two ranks hold the same two stages (DualPipe) */
    ParamTable table;
    ParamMemory memory;
    LayerWeights *layer; /* by layer of the spec */
    bool takes_average;  /* a load takes the average of weights in place of main weights */
    bool copies_old;     /* an update ran since the 8-bit copies were made */
    bool *written;       /* by layer: do its experts' gradients hold sums yet? (shards_begin) */
    UpdateRange *ranges;
    int n_ranges;
    struct Offload *offload; /* offload.h; NULL: states lie where ops run */
    NormParts norm;
    size_t update_scratch; /* least scratch of an update, the same on all ranks (shards_make) */
    /* Updates that moments of an age had before step 1: those of the checkpoint that a training
     * began with, if it took them over (init.moments). */
    int64_t moment_steps[AGE_COUNT];
    RuleState kept;
    const struct StepTensors *io; /* Engine.io */
} EngineParams;

/* Launches of a step on a GPU, and when it ran there. */
typedef struct StepClock {
    Event begun, ended;
    int64_t launches;
} StepClock;

/* An engine: one rank's part of a model, with the lists that it runs. */
typedef struct Engine {
    const Config *config;
    EngineUse use;
    EngineShape shape;
    ModelSpec spec;
    Exec ex;
    Mesh mesh;    /* whose groups carry tensors; ex.mesh points here if not alone */
    Arena tables; /* host bookkeeping (EngineArenas.tables) */
    EngineArenas arenas;
    EngineParams params;
    EngineList *list;           /* the list that runs, or ran last */
    int at;                     /* the action of it that runs */
    EngineMode modes[2], *mode; /* mode: in use */
    int n_modes;
    int size;      /* of the step lists the one in use */
    bool prepared; /* steps are captured (engine_prepare) */
    StepTensors io;
    struct Recorder *recorder; /* recorder.h; NULL: none */
    EngineObserver observer;   /* set by whoever opened the engine */
    StepClock clock;
    int64_t step;
} Engine;

#endif
