/* bench: how fast ops and training steps are on this machine, beside its own measured peak
 * (train/peak.h). Token ids are uniform or a training's, weights initialised as in training, times
 * medians. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "config/config.h"
#include "train/peak.h"
#include "train/recorder.h"
#include "train/train.h"

/* A model, its engine and random batches: what both benches run. */
typedef struct BenchModel {
    const Config *config;
    Comm *world; /* NULL: alone */
    Mesh mesh;
    Engine engine;
    Batch batch;
    Loader *loader; /* NULL: random tokens */
    Arena arena;
    EnginePlan plan, again;
    GpuPlan gpu; /* { 0 } on the CPU */
    int64_t step;
    StepResult result; /* of the last step */
    Recorder recorder;
    double idle_s[TRAFFICS]; /* as BenchMedian's */
} BenchModel;

/* Binds this rank to its share of the host, and finds out which ranks share a host. Nothing if
 * `world` is NULL. Collective. */
Status bench_take_place(Config *own, Comm *world, Arena *a);

typedef struct BenchOpen {
    bool recorded;   /* the times of each step's actions are known */
    unsigned silent; /* bit i: Traffic i is left out (EngineShape), and results are wrong */
} BenchOpen;

/* world NULL: on one rank. */
Status bench_open(BenchModel *m, const Config *c, Comm *world, BenchOpen how);
void bench_close(BenchModel *m); /* safe on { 0 } */
/* Makes the other ranks end after a failure here. Call it before memory is freed that they may read. */
void bench_end_others(Comm *world);
/* From here on steps run on the batches that training reads from data.sources. */
Status bench_read_data(BenchModel *m);
/* One step on a new batch; making it is not timed. */
Status bench_run_step(BenchModel *m, double *seconds);

typedef struct BenchMedian {
    double seconds;          /* of a step */
    int64_t twice;           /* steps whose rows had no room, so that they ran again */
    double idle_s[TRAFFICS]; /* where they are recorded: what the compute lane waited for */
} BenchMedian;
/* Times `steps` steps after `warm_up` steps that do not count. Adds to out->twice. */
Status bench_time_steps(BenchModel *m, int warm_up, int64_t steps, BenchMedian *out);

/* The table of ops, a row for every shape: each op that a training step of the model runs; on a GPU
 * of one micro-batch, and of one layer of each kind where the whole model does not fit. MoE ops run
 * once with all experts alike and once with a few that get most of the tokens, on a GPU.
 *
 * Then what the measured peak leaves to gain: for each row the ms that it takes of a step (experts alike), the
 * ms at the peak (the larger of FLOPs over the product's rate and bytes over the copy's), the
 * difference, and its share of the time of all ops, the largest first. On a GPU a call's time has
 * the gap that its two marks tear open (about 11 us on an H200), which is in the difference. Then what
 * ops had to say (exec_note_once). */
Status bench_ops(const Config *c, int64_t steps, Arena *a, Text *out);
enum { BENCH_SHAPE_MAX = 56 };
/* Sizes of the first two tensors: of a product, all there is to know. */
void bench_shape_text(const OpDesc *op, const void *args, char out[BENCH_SHAPE_MAX]);

/* For each call of a step with several kernels: which one runs, and why the others do not. Nothing
 * runs. sheet: the GPU of a hardware file; NULL: this machine's, if it has one. */
Status bench_why(const Config *c, const char *sheet, Text *out);
/* All these kernels and what they take, as a table of docs/explain/kernels.md. */
Status bench_kernels_table(Text *out);

/* A line an op, behind an empty one. */
Status bench_print_notes(const ExecNotes *notes, Text *out);
typedef struct BenchStep {
    int64_t steps;
    const char *timeline; /* the folder into which the last step is written, action by action
                             (recorder_pipeline); NULL: none */
    bool json;            /* one object instead of text */
    bool data, exposed;   /* on the tokens of data.sources; then without each kind of traffic */
} BenchStep;

/* Tokens a second, spread of step times, MFU, memory, clock; of all ranks together, told by rank 0.
 * FLOPs are those of a rank, by two formulas: the costs of its ops (train_model_flops), and
 * TorchTitan's (train_torchtitan_flops). */
Status bench_step(const Config *c, Comm *world, const BenchStep *options, Text *out);
/* For every kind of traffic that the mesh has, and all together: what it adds to a step that took
 * `with`, and of that what compute lanes wait for it (exposed.c). _check: ERR_ARG where nothing can be
 * told. */
Status bench_exposed_check(const Comm *world);
Status bench_exposed(const Config *c, Comm *world, const BenchStep *options,
                     const BenchMedian *with, Text *out);
/* The model in its plainest form with micro-batches of 1, 2, 4 ... up to the configured one, then
 * one feature more a row: tokens a second, memory, launches and waits a step. Settings are made in
 * `a`. */
Status bench_ladder(const Config *config, int64_t steps, Arena *a, Text *out);
/* The model on 1, 2, 4 ... and `ranks` threads of this process, a row each: tokens a second, of a
 * rank, and the latter over the first row's. `config` is that of all ranks; fewer have as many
 * sequences and threads a rank, and the axes of its mesh as far as they divide. */
Status bench_scale(const Config *config, int ranks, int64_t steps, Text *out);

typedef struct BenchShapes {
    int group;        /* which of bench_groups */
    const char *seed; /* what shapes are drawn from; NULL: those of the table */
    const char *list; /* a file of a JSON object a line: op, shape (its name), sizes by letter, how
                         often and how long in a trace (count, traced_s); NULL: none */
    int64_t shrink;   /* sizes are divided by it */
    bool json, no_check;
} BenchShapes;

enum { BENCH_COMM_ALL, BENCH_COMM_COLLECTIVES, BENCH_COMM_EXCHANGE };

typedef struct BenchComm {
    int only;       /* of these */
    int64_t shrink; /* bytes and tokens are divided by it */
    bool json;
} BenchComm;

/* Collectives by size and the exchange of tokens by kind, between all ranks of the world, told by
 * rank 0: a line a row, or as many JSON objects. ERR_ARG: fewer than two ranks. */
Status bench_comm(const Config *c, Comm *world, const BenchComm *options, Text *out);

extern const char bench_groups[]; /* words with | between */

/* Single ops without a model, on the shapes of shapes.def or on drawn ones: a line a row, or as many
 * JSON objects. */
Status bench_shapes(const Config *c, const BenchShapes *options, Text *out);

#endif
