/* engine_count: what an engine is made for (EngineShape) and what it takes (EnginePlan). The trainer fills a plan by a
 * counting run. The functions below give parts of it to a planner, which makes no engine; the engine uses them, too. */
#ifndef ENGINE_COUNT_ENGINE_COUNT_H
#define ENGINE_COUNT_ENGINE_COUNT_H

#include "engine/count/chunk_count.h"
#include "engine/schedule/shape.h"
#include "kernels/core/op.h"

typedef struct EnginePlan EnginePlan;

typedef enum EngineArena {
    ENGINE_RUN,     /* weights, gradients, optimizer state, tables of cosines */
    ENGINE_SLOT,    /* what backward needs of one micro-batch */
    ENGINE_RING,    /* what passes between phases of a layer; the stream of gradients */
    ENGINE_STEP,    /* batch and record */
    ENGINE_SCRATCH, /* within a phase; workspaces of ops */
    ENGINE_PINNED,  /* on a GPU: optimizer state with optimizer.offload, the host's view of the step
                       arena, and the staging block */
    ENGINE_ARENAS
} EngineArena;

/* Puts other groups in the place of a mesh's, to measure what traffic costs (bench/null.h). Results of such a
 * step may be wrong. */
typedef struct GroupSwap GroupSwap;
struct GroupSwap {
    Status (*take)(const GroupSwap *g, Mesh *m, Arena *a); /* of a mesh that has just been made */
    void (*give_back)(Mesh *m); /* the mesh has its own groups again, and can be freed */
};

/* What an engine is made for: sizes, and this rank's position in the mesh. */
typedef struct EngineShape {
    int64_t batch, micro_batch, sequence; /* sequences a step, a micro-batch; tokens a sequence */
    int64_t positions;                    /* rows of the rotary tables, >= sequence */
    int64_t domains;
    int threads;
    int64_t cache;             /* infer with a KvCache of so many sequences of `positions` tokens */
    int64_t logit_rows;        /* with a cache: infer gives logits of this many last tokens */
    const ParamShards *shards; /* planning: what other ranks hold; NULL: nothing */
    int pp_rank;               /* which of mesh.pp pipeline ranks this is */
    const Mesh *mesh;          /* running: this rank's groups, of the host; NULL: it is alone */
    const EnginePlan *retry;   /* of the second mode (EngineMode); NULL: there is none */
    bool all_rows;             /* plan the second mode in place of the first */
    RowCapacity capacity;      /* for received rows; { 0 }: as the configuration says */
    const GroupSwap *swap;     /* for measurements; NULL: the mesh's own groups */
} EngineShape;

/* What an engine takes, counted before it takes it. */
struct EnginePlan {
    size_t bytes[ENGINE_ARENAS];
    size_t chunk_bytes[SLOT_PARTS][SCHEDULE_CHUNKS_MAX]; /* slot_sizes makes ENGINE_SLOT of them */
    size_t split_keep[SCHEDULE_CHUNKS_MAX];              /* of SLOT_KEEP, where backward is split */
    size_t pool_of_chunk[SCHEDULE_CHUNKS_MAX]; /* the part of KEEP that is a pool of rows */
    size_t pool_bytes;                         /* the part of ENGINE_SLOT that is pools of rows */
    size_t eval_bytes;                         /* of the first slot, in an evaluation */
    size_t comm_scratch_bytes;                 /* the comm lane's part of ENGINE_SCRATCH */
    size_t ring_bytes[RINGS]; /* without the entries; backward has its own in phased lists */
    OpTotals step;            /* FLOPs and bytes of one training step */
    bool apart;               /* Backend.apart: all arenas but ENGINE_PINNED are on the device */
    size_t tables_bytes;
    size_t save_bytes, peer_bytes; /* checkpoint_plan_bytes */
    int64_t params_total, params_active, params_frozen;
};

/* The engine's memory that all modes share, what its sizes follow from, and what the host needs to reach it
 * (engine_memory.h). */
typedef struct EngineArenas {
    Exec *ex;
    const EngineShape *shape;
    Arena *tables; /* host bookkeeping: never counted away */
    bool counting;
    bool lanes;              /* the comm lane is a stream of its own, and has scratch of its own */
    Arena at[ENGINE_ARENAS]; /* without those that each mode has */
    Arena block; /* memory that the modes share; not allocated with one mode that no peer maps */
    ArenaMark inputs_end; /* in the step arena: the end of the batch */
    ArenaMark record_end; /* there too: the end of what the host reads of the record */
} EngineArenas;

/* Places in StepTensors.hyper: a set for each rule of the optimizer and each age, then a number for each rule of the
 * step (engine/model/rules.def). */
enum {
    UPDATE_RULES = OPTIMIZER_RULES * AGE_COUNT * OPTIMIZER_SCALARS,
    UPDATE_LIMIT = UPDATE_RULES + RULE_SPIKES,
    UPDATE_SCALARS = UPDATE_RULES + STEP_RULES
};

/* What a step reads and reports; in the step arena, unless said otherwise. */
typedef struct StepTensors {
    MicroBatch batch;     /* the whole step's */
    MicroBatch evaluated; /* what an evaluation reads of it, or new tokens after the cache */
    Record record;
    Tensor loss_scale, hyper, token_loss; /* (1 + depths), (UPDATE_SCALARS), (N) */
    Tensor expected;                      /* like record.checks: those of the first of two runs */
    Tensor checked;                       /* (1) f32: what is done with checksums (checks.h) */
    Tensor grad_scale;                    /* (1), with run.compute=f16 alone: LossScale.now */
    RopeTable rope;                       /* in the run arena, like the cache */
    KvCache kv;
    Tensor logits;
    Tensor host[FIGURES]; /* copies of what StepResult has by layer, in tables */
} StepTensors;

/* With optimizer.offload states pass through these buffers of the GPU in pieces (engine/step/offload.h). Elements of a
 * piece, unless one matrix of a rule that needs whole ones has more: 32 MiB of f32, which takes a link far
 * longer than it takes to start a copy. */
enum { OFFLOAD_BUFFERS = 3 };
static const int64_t OFFLOAD_ELEMS = 1 << 23;

/* Takes all tensors of `io` that lie in the step arena. */
Status engine_step_tensors(EngineArenas *m, const ModelSpec *spec, StepTensors *io);
/* Bytes of the arena ENGINE_STEP alone, for a planner that makes no engine. */
Status engine_step_bytes(const ModelSpec *s, const EngineShape *shape, size_t *out);

/* Bytes at the front of the block for headers of what peers map. They count as scratch. */
size_t engine_header_bytes(const ModelSpec *s);
/* Of these the part for ranks that exchange tokens of experts; it comes first. */
size_t engine_expert_header_bytes(const ModelSpec *s);

/* Bytes of a GPU that NCCL takes for the groups of a mesh and for its transfers between stages; 0 of one rank. Groups
 * with the same members share a communicator, and each link between stages has one. stores: as mesh_exchanges. queues:
 * 1 on a loop, elsewhere mesh.vpp (transfer_links). */
size_t engine_comm_bytes(const MeshShape *s, bool stores, int queues);

/* Bytes of memory traffic of the norm and the update, for one trained parameter. */
double engine_update_bytes(const ModelSpec *s);

#endif
