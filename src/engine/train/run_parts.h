/* The parts of a training that is running. The files run_*.c alone include it. */
#ifndef ENGINE_TRAIN_RUN_PARTS_H
#define ENGINE_TRAIN_RUN_PARTS_H

#include "engine/checkpoint/checkpoint.h"
#include "engine/config/ramp.h"
#include "engine/train/code_report.h"
#include "engine/train/eval.h"
#include "engine/train/heartbeat.h"
#include "engine/train/metrics.h"
#include "engine/train/peak.h"
#include "engine/train/ranks.h"
#include "engine/train/recorder.h"
#include "engine/train/run_hooks.h"
#include "engine/train/train.h"

/* The settings: as asked for, the same on all ranks, and this rank's own. */
typedef struct RunConfig {
    const Config *asked;
    Text yaml;                    /* `asked` */
    char (*sums)[FILE_SUM_BYTES]; /* (sources) of their data */
    Config own;
} RunConfig;

/* The ranks that train together. */
typedef struct RunRanks {
    Comm *world; /* NULL: alone */
    MeshShape shape;
    Mesh mesh; /* of host memory */
    Ranks steps;
    BindShare share;     /* of its host */
    bool failure_agreed; /* all ranks know of the failure with which this one ends */
} RunRanks;

/* What the speed of a step is compared to, and the state of the GPU during the step. */
typedef struct RunRates {
    GpuState gpu;
    GpuReading reading; /* of the last step */
    MeasuredPeak peak;  /* flops 0: it could not be measured */
    double sheet_flops; /* peak FLOP/s of the data sheet, 0: unknown */
} RunRates;

/* How far the run has come. */
typedef struct RunProgress {
    double started_s;
    int64_t step, saved_step, first_step;
    int64_t retried;          /* steps since the start that ran a second time */
    uint64_t position;        /* sequences of finished steps */
    uint64_t first_position;  /* at the start */
    double begun_s, waited_s; /* when this step began, and the time waited for ranks until then */
    const Batch *batch;       /* of this step */
    int64_t taken[CONFIG_SOURCES_MAX]; /* the same of each source */
    struct Beside *after;              /* checkpoint.after; NULL: none, or not rank 0 */
    int64_t after_step;                /* of the checkpoint that it was given last */
} RunProgress;

/* The recorder of a run, and requests for recordings. */
typedef struct RunTraces {
    Recorder recorder;
    int dumps;       /* requests so far */
    bool trace_next; /* trace the next step op by op, for a request */
} RunTraces;

/* Capacity for rows, which grows when steps run again one after the other. */
typedef struct RunGrowth {
    int in_a_row;  /* steps that ran again without another between them */
    bool at_limit; /* no larger capacity fits, and a warning has said so */
    double grow_s; /* time that growing took since the step before */
} RunGrowth;

struct Trainer {
    RunConfig config;
    BatchRamp ramp;
    const TrainOptions *options;
    TrainPlan plan;
    RunRanks ranks;
    char cpu[OP_SET_TEXT_BYTES]; /* op_set_text; "" on a GPU */
    bool is_rank0;               /* it alone writes the run's folder, metrics and progress */
    bool holds_out;              /* there is text to evaluate */
    int lock_fd;
    File log;    /* of a rank that is not rank 0 */
    Arena arena; /* loader, evaluation batch, checkpoint buffers, trace */
    Engine engine;
    const int32_t *token_bytes; /* (vocab) or NULL */
    Loader *loader;
    Evaluator evaluator;
    Checkpointer saver;
    Metrics metrics;
    RunTraces traces;
    CodeReport codes;
    RunRates rates;
    RunProgress at;
    StepMetrics now; /* the step that runs, or ran last */
    Heartbeat beat;
    RunGrowth growth;
};

static inline const Mesh *run_mesh(const RunRanks *r) { return r->world == NULL ? NULL : &r->mesh; }
static inline int run_rank(const RunRanks *r) { return r->world == NULL ? 0 : r->world->rank; }
static inline int run_ranks(const RunRanks *r) { return r->world == NULL ? 1 : r->world->size; }

/* A failure of one rank becomes the failure of all. ERR_COMM excepted, no rank is then left waiting. */
Status agree_failure(RunRanks *r, Status s);

/* Fills weights, moments and the loader's position. Collective; a rank may fail alone: agree_failure. */
Status run_weights_and_position(Trainer *t);

/* Makes the run's folder and takes its lock. ERR_ARG: another process has it. */
Status run_lock_folder(Trainer *t);
/* Computes and reports the held-out loss. Collective. */
Status run_evaluate(Trainer *t);

/* FLOPs of the model in the step of all ranks that ran last. */
double run_step_flops(const Trainer *t);

/* May this rank go on after a step? Not if a file of its data was changed or has a bad id, and not if the
 * run's folder is no longer there. */
bool run_goes_on(Trainer *t, int64_t step);

#endif
