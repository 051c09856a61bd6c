/* train: a run from configuration to trained weights.
 *
 * RUN/ holds config.yaml (resolved), metrics.jsonl, checkpoints/, trace.json, lock. A second
 * process in the same folder is refused. When *stop becomes non-zero (SIGINT, SIGTERM), the step in
 * progress is finished, a checkpoint is saved and the run ends with OK. A loss or gradient that is
 * not finite ends it with ERR_NUMERIC naming step, layer and op. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "backend/backend.h"
#include "comm/bind.h"
#include "train/engine.h"

#include <signal.h>

/* FLOP/s of the data sheet of a GPU that its driver calls so, in the type that computes; 0: no data
 * sheet of it is known. */
typedef Status SheetFlops(const char *gpu, Dtype type, double *out);

typedef struct TrainOptions {
    bool resume, or_begin;     /* or_begin: where no checkpoint is there to resume, begin anew */
    const char *const *change; /* with resume: settings that may differ from the checkpoint's */
    int n_change;
    const char *init;                   /* a checkpoint to take initial weights from, or NULL */
    const volatile sig_atomic_t *stop;  /* or NULL */
    const volatile sig_atomic_t *dumps; /* how many recordings were asked for, or NULL */
    int64_t *last_step;                 /* where the run ended is written here, or NULL */
    Comm *world;                        /* the ranks that train together; NULL: one alone */
    bool *settled;                      /* did all ranks fail as one? written here, or NULL */
    SheetFlops *sheet_flops;            /* for MFU; NULL: only the share of the measured roof */
} TrainOptions;

/* What a run will take of a GPU's memory. */
typedef struct GpuPlan {
    GpuInfo gpu;
    size_t arenas_bytes, context_bytes, kernel_bytes, comm_bytes, total_bytes;
    size_t ordered_bytes, any_order_bytes; /* scratch with attention.deterministic, and without */
} GpuPlan;

/* { 0 } of a plan for the CPU, which train_check_gpu then finds to fit. ERR_UNSUPPORTED: no GPU that
 * this program can use. Makes a context and gives it back. */
Status train_plan_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                      GpuPlan *out);
/* ERR_ARG if it does not fit: what is needed by arena, what is there, the nearest that fits. */
Status train_check_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                       const GpuPlan *p);

/* What the engine takes both ways, with the most room for rows that this GPU, or this host for its
 * `here` ranks, has memory for; `shape` then names the room. `beside`: bytes of the host that each
 * rank takes beside its engine. gpu: of train_plan_gpu. Plans point at each other: `retry` must
 * outlive the shape. */
Status train_plan_engine(const Config *c, int here, size_t beside, EngineShape *shape,
                         EnginePlan *plan, EnginePlan *retry, GpuPlan *gpu);

/* What a run takes on its host in addition to its engine. */
typedef enum TrainNeed {
    NEED_LOADER,    /* batches, document orders, bytes of tokens */
    NEED_DATA,      /* mapped pages of the data files */
    NEED_SAVE,      /* checkpoint and metrics buffers */
    NEED_LIBRARIES, /* code, heap and thread stacks beyond the empty program's */
    NEED_PROBE,     /* measuring peak FLOP/s, before the rest is there */
    NEEDS
} TrainNeed;

/* What a run will take, before it takes it. */
typedef struct TrainPlan {
    EngineShape shape;
    EnginePlan engine, retry; /* retry: of the way with room for all rows, where there is one */
    GpuPlan gpu;              /* { 0 } on the CPU */
    size_t need[NEEDS];       /* on the host, without the engine */
    size_t total_bytes;
    double model_flops; /* of a step, without what recompute adds */
} TrainPlan;

/* The mesh that a configuration lays `ranks` ranks out on. ERR_ARG: they do not fit. */
Status train_mesh(const Config *c, int ranks, MeshShape *out);

/* Sets mesh.ranks_per_host, where it is not set and the exchange asks for it, to what the hosts'
 * names say. Collective. ERR_ARG: hosts have unequally many ranks, and the exchange must relay. */
Status train_find_hosts(Config *own, Comm *world, Arena *a);

/* Which kind moe.exchange=auto takes, and why, as a sentence; nothing where it is not asked. */
Status train_exchange_text(const Config *c, Text *out);

/* What one rank's engine takes; mesh NULL: one alone. */
EngineShape train_shape(const Config *c, const Mesh *mesh);

/* A rank's part of its host, which it is bound to: a GPU, cores, memory. */
void train_take_share(Config *own, const Comm *world, BindShare *out);

/* Of the rank whose place the mesh tells; NULL: of one alone. The mesh must outlive the plan. here:
 * ranks of this host. */
Status train_plan(const Config *c, const Mesh *mesh, int here, TrainPlan *out);

/* All ranks take the least room that one of them chose. Collective. */
Status train_agree_capacity(const Config *c, Comm *world, TrainPlan *p);

/* More room of what steps that ran again were short of, if there is memory for it on all ranks: *grown,
 * and *p is the plan with it. Collective; world NULL: alone. */
Status train_grow_capacity(const Config *c, Comm *world, Shortage of, TrainPlan *p, bool *grown);

/* Where rows lie and what there is room for, as a sentence; nothing where nothing is pooled. */
Status train_capacity_text(const EngineShape *shape, const EnginePlan *plan, Text *out);

/* FLOPs that a step of the shape needs without what recompute does again; `plan` is the engine's. */
Status train_model_flops(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                         double *out);

/* FLOPs of a token of the whole model by TorchTitan's formula (torchtitan/models/utils.py):
 * 6 N + 6 t x the sum over attention layers of heads x (width of a query + width of a value), where
 * N are the parameters that a token meets without the input embedding, t the tokens of a sequence.
 * All pairs of a query and a key count, also those above the diagonal and across documents. */
Status train_torchtitan_flops(const Config *c, double *out);

/* Number of sequences over which the auxiliary loss counts tokens together. */
int64_t train_aux_sequences(const Config *c, int64_t data_ranks);

/* Tables for people: the configuration is config_print's. */
Status train_plan_print(const Config *c, const TrainPlan *p, Text *out);

Status train_run(const Config *c, const TrainOptions *options);

/* Shared with eval and generate: threads that this process may use. */
int train_threads(const Config *c);

/* (vocab) bytes of text an id stands for, out of data.tokenizer; NULL if none is configured. ERR_ARG:
 * the data is of another tokenizer, or of more ids than the model has. Much fewer are a warning, if this
 * rank speaks. */
Status train_token_bytes(const Config *c, bool speaks, Arena *a, const int32_t **out);

/* Loader settings of one rank's sequences (mesh NULL: all); texts are the configuration's. */
Status train_loader_config(const Config *c, const Mesh *mesh, const int32_t *token_bytes, Arena *a,
                           LoaderConfig *out);

#endif
