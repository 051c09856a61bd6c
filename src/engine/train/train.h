/* train: a run from configuration to trained weights: what it takes before it starts (train_plan and
 * its parts), and the run itself (train_run). One step is engine.h's; settings are config.h's.
 *
 * RUN/ holds config.yaml (resolved), metrics.jsonl, checkpoints/, heartbeat/, trace.json, lock. A second
 * process in the same folder is refused. When *stop becomes non-zero (SIGINT, SIGTERM), the step in
 * progress is finished, a checkpoint is saved and the run ends with OK. A loss or gradient that is
 * not finite ends it with ERR_NUMERIC naming step, layer and op. */
#ifndef ENGINE_TRAIN_TRAIN_H
#define ENGINE_TRAIN_TRAIN_H

#include "engine/backend/backend.h"
#include "engine/comm/bind.h"
#include "engine/step/engine.h"
#include "engine/train/live.h"

#include <signal.h>

/* Peak FLOP/s by the data sheet of a GPU, in the type that products use. `gpu` is the driver's name of
 * it. 0: its data sheet is not known. */
typedef Status SheetFlops(const char *gpu, Dtype type, double *out);

struct StepMetrics; /* engine/train/metrics.h */
typedef struct TrainOptions {
    bool resume, or_begin;     /* or_begin: without a checkpoint to resume, begin anew */
    const char *const *change; /* with resume: settings that may differ from the checkpoint's */
    int n_change;
    const char *init;                  /* a checkpoint to take initial weights from, or NULL */
    const char *supervised;            /* the token that `supervise` wrote (heartbeat.h), or NULL */
    const volatile sig_atomic_t *stop; /* or NULL */
    const volatile sig_atomic_t *dumps; /* how many recordings were asked for, or NULL */
    int64_t *last_step;                 /* out: the step at which the run ended, or NULL */
    Comm *world;                        /* the ranks that train together; NULL: one alone */
    bool *failure_agreed;               /* out: did all ranks end with one failure? or NULL */
    SheetFlops *sheet_flops;            /* for MFU; NULL: only the share of the measured peak */
    LivePage *live_page;                /* writes run.http's page */
    /* Called before each step and behind the last one, on each rank; false: the run ends here. */
    bool (*between)(void *self, Engine *e, const struct StepMetrics *now);
    void *self;
} TrainOptions;

/* Bytes that a run will take of a GPU. total_bytes is the sum of the four before it. */
typedef struct GpuPlan {
    GpuInfo gpu;
    size_t arenas_bytes, context_bytes, kernel_bytes, comm_bytes, total_bytes;
} GpuPlan;

/* Makes a context on the GPU, measures it and frees it. A plan for the CPU gives { 0 }, which
 * train_check_gpu accepts. ERR_UNSUPPORTED: there is no GPU that this program can use. */
Status train_plan_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                      GpuPlan *out);
/* ERR_ARG if the plan does not fit. The sentence names the need by arena, the memory of the GPU, and
 * the nearest settings that fit. */
Status train_check_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                       const GpuPlan *p);

/* Plans both execution modes with the largest capacity for rows that fits: into this GPU, or into this
 * host, which has `here` ranks. Sets shape->capacity to it. `beside`: bytes of the host that each rank
 * takes in addition to its engine. gpu: as train_plan_gpu sets it. The shape points at `retry`, so
 * `retry` must outlive it. */
Status train_plan_engine(const Config *c, int here, size_t beside, EngineShape *shape,
                         EnginePlan *plan, EnginePlan *retry, GpuPlan *gpu);

/* What a run takes on its host in addition to its engine. */
typedef enum TrainNeed {
    NEED_LOADER,    /* batches, document orders, bytes of tokens */
    NEED_DATA,      /* mapped pages of the data files */
    NEED_SAVE,      /* checkpoint and metrics buffers */
    NEED_PEER,      /* parts and copies in memory (checkpoint.peer) */
    NEED_LIBRARIES, /* code, heap and thread stacks beyond the empty program's */
    NEED_PROBE,     /* measuring peak FLOP/s, before the rest is there */
    NEEDS
} TrainNeed;

/* What a run will take, before it takes it. */
typedef struct TrainPlan {
    EngineShape shape;
    EnginePlan engine, retry; /* retry: of the second mode (EngineMode), if there is one */
    GpuPlan gpu;              /* { 0 } on the CPU */
    size_t need[NEEDS];       /* on the host, without the engine */
    size_t total_bytes;
    double model_flops; /* of a step, without what recompute and Muon's update add */
} TrainPlan;

/* Lays `ranks` ranks out on the axes that the configuration names. ERR_ARG: they do not fit. */
Status train_mesh(const Config *c, int ranks, MeshShape *out);

/* Sets mesh.ranks_per_host from the names of the hosts, if it is not set and the exchange needs it.
 * Collective. ERR_ARG: hosts have different numbers of ranks, but the exchange is hierarchical. */
Status train_find_hosts(Config *own, Comm *world, Arena *a);

/* Appends a sentence: which kind of exchange moe.exchange=auto takes, and why. Any other setting
 * appends nothing. */
Status train_exchange_text(const Config *c, Text *out);

/* The sizes of one rank's engine; mesh NULL: the rank is alone. */
EngineShape train_shape(const Config *c, const Mesh *mesh);

/* Binds the rank to its part of its host (a GPU, cores, memory), and sets run.gpu and run.threads in
 * `own` to it. */
void train_take_share(Config *own, const Comm *world, BindShare *out);

/* Plans the rank that `mesh` describes; NULL: a rank that is alone. The mesh must outlive the plan.
 * here: ranks of this host. */
Status train_plan(const Config *c, const Mesh *mesh, int here, TrainPlan *out);

/* All ranks take the smallest capacity that one of them chose. Collective. */
Status train_agree_capacity(const Config *c, Comm *world, TrainPlan *p);

/* Plans more of the capacity that steps were short of. If all ranks have memory for it, *p becomes the
 * new plan and *grown is set. Collective; world NULL: alone. */
Status train_grow_capacity(const Config *c, Comm *world, Shortage of, TrainPlan *p, bool *grown);

/* Appends a sentence: which rows lie in pools, and what the capacity is. Without pools, nothing. */
Status train_capacity_text(const EngineShape *shape, const EnginePlan *plan, Text *out);

/* FLOPs of a step without those of recompute and of Muon's products: what MFU counts. `plan` is the
 * engine's for `shape`. */
Status train_model_flops(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                         double *out);

/* FLOPs of attention, both ways, for pairs of a query and a key that documents of the batch hide. train_model_flops
 * has them, since a plan knows no documents; a step's rate is without them. */
double train_hidden_flops(const ModelSpec *s, int pp_rank, const Batch *b);

/* Number of sequences over which the auxiliary loss counts tokens together. */
int64_t train_aux_sequences(const Config *c, int64_t data_ranks);

/* Trains to train.steps or to a stop, and frees all that it opened. */
Status train_run(const Config *c, const TrainOptions *options);

/* run.threads, or else the cores that this process may use. Eval and generate call it, too. */
int train_threads(const Config *c);

/* Bytes of text that each id stands for by data.tokenizer, (vocab); NULL if none is configured. ERR_ARG:
 * the data was prepared with another tokenizer, or it has more ids than the model. Rank 0 logs a warning
 * if it has far fewer. */
Status train_token_bytes(const Config *c, bool is_rank0, Arena *a, const int32_t **out);

/* Loader settings for the sequences of one rank (mesh NULL: for all). Texts point into `c`. */
Status train_loader_config(const Config *c, const Mesh *mesh, const int32_t *token_bytes, Arena *a,
                           LoaderConfig *out);

#endif
