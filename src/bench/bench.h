/*
 * bench: how fast ops, training steps and communication are on this machine, compared with its
 * measured peak (engine/train/peak.h). Times are medians. Weights are initialised as in training; token
 * ids are random, or those of a training run (data.sources).
 *
 * Not here: parsing of options (bench/bench_command.c), and estimates for machines that are not there
 * (src/planner). Each function appends its text or JSON to `out`.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "bench/null.h"
#include "bench/runner.h"
#include "engine/config/config.h"
#include "engine/train/peak.h"
#include "engine/train/recorder.h"
#include "engine/train/train.h"

/* How random token ids are drawn. */
typedef struct BenchTokens {
    int64_t documents; /* mean length of documents in tokens; 0: a sequence is one */
    bool zipf; /* id i in proportion to log((i + 2) / (i + 1)), about 1 / (i + 1); else all alike */
} BenchTokens;

/* A model, its engine and its batches: what `bench ops`, `step` and `ladder` run. */
typedef struct BenchModel {
    const Config *config;
    Comm *world; /* NULL: alone */
    Mesh mesh;
    Engine engine;
    NullGroups null; /* what the engine leaves out */
    Batch batch;
    Loader *loader; /* NULL: random tokens */
    BenchTokens tokens;
    double context;      /* keys that a query sees on average, summed over steps */
    double hidden_flops; /* train_hidden_flops, summed over steps */
    Arena arena;
    EnginePlan plan, again; /* again: the mode for second runs, with memory for all rows */
    GpuPlan gpu;            /* { 0 } on the CPU */
    int64_t step;           /* steps so far */
    StepResult result;      /* of the last step */
    Recorder recorder;
    double idle_s[TRAFFICS]; /* of the last step, as in BenchMedian */
} BenchModel;

/* Binds this rank to its share of the host, and finds out which ranks share a host. Nothing if
 * `world` is NULL. Collective. */
Status bench_bind_rank(Config *own, Comm *world, Arena *a);

typedef struct BenchOpen {
    bool recorded;   /* the recorder keeps the times of each step's actions */
    unsigned silent; /* bit i: leave out Traffic i; results are then wrong */
    BenchTokens tokens;
} BenchOpen;

/* world NULL: on one rank. */
Status bench_open(BenchModel *m, const Config *c, Comm *world, BenchOpen how);
void bench_close(BenchModel *m); /* safe on { 0 } */
/* Makes the other ranks end after a failure here. Call it before freeing memory that they may
 * read. */
void bench_abort_ranks(Comm *world);

/* A bench, as each rank runs it. */
typedef struct BenchOn {
    const Config *config;
    Status (*run)(const void *state, const Config *c, Comm *world, Arena *a, Text *out);
    const void *state;
    Text *out; /* of rank 0 */
} BenchOn;
/* Runs the bench `on` (a BenchOn) on one rank, in memory of its own: a CommBody. */
Status bench_on_rank(void *on, Comm *world);

/* From here on steps run on the batches that training reads from data.sources. */
Status bench_read_data(BenchModel *m);
/* One step on a new batch; making it is not timed. */
Status bench_run_step(BenchModel *m, double *seconds);
/* FLOPs of the mean step so far on this rank, without the pairs that documents hide. */
Status bench_step_flops(const BenchModel *m, double *out);

typedef struct BenchMedian {
    double seconds;          /* of a step */
    int64_t twice;           /* steps that ran again because rows did not fit */
    double idle_s[TRAFFICS]; /* if recorded: how long the compute lane waited for each traffic */
} BenchMedian;
/* Times `steps` steps after `warm_up` others. Adds to out->twice. */
Status bench_time_steps(BenchModel *m, int warm_up, int64_t steps, BenchMedian *out);

/* The table of ops, with a row for each shape of each op that a training step of the model runs. On
 * a GPU the step has one micro-batch, and one layer of each kind if the whole model does not fit.
 * There MoE ops run once with balanced experts and once with a few that get most of the tokens.
 *
 * Then what the measured peak leaves to gain. Each row has the ms that it takes of a step (balanced
 * experts), the ms at the peak (the larger of FLOPs over the product's rate and bytes over the
 * copy's), the difference, and the share of that in the time of all ops, largest first. On a GPU
 * the two marks around a call add a gap (about 11 us on an H200), which is in the difference. Then
 * the notes of ops (exec_note_once). */
Status bench_ops(const Config *c, int64_t steps, Arena *a, Text *out);
enum { BENCH_SHAPE_MAX = 56 };
/* Writes the sizes of the first two tensors: for a product these say everything. */
void bench_shape_text(const OpDesc *op, const void *args, char out[BENCH_SHAPE_MAX]);

/* Prints an empty line, then a line for each op with a note. */
Status bench_print_notes(const ExecNotes *notes, Text *out);

typedef struct BenchStep {
    int64_t steps;
    const char *timeline; /* write the last step, action by action, into this folder
                           * (recorder_pipeline); NULL: do not */
    bool json;            /* one object instead of text */
    bool data;            /* train on the tokens of data.sources */
    BenchTokens tokens;   /* without data */
    bool exposed;         /* then repeat without each kind of traffic */
    bool parts;           /* also ms by part of the step */
} BenchStep;

/* Times by part of the steps so far, on this rank (parts.c). */
typedef struct BenchPart BenchPart;
typedef struct BenchParts {
    BenchPart *part;  /* (n) by name and lane */
    bool *has_phases; /* by row of the recorder: an action, whose time is that of its phases */
    int n;
    int64_t steps;  /* that are in it: not those that ran twice */
    double seconds; /* of them */
} BenchParts;

/* Adds the last step, of a model that was opened with `recorded`. */
Status bench_parts_add(BenchModel *m, BenchParts *p, double seconds);
/* Appends the table, the longest part first, or the keys `parts` and `outside_parts_ms` of an open JSON object.
 * ERR_UNSUPPORTED: every step ran twice. */
Status bench_parts_print(const BenchModel *m, BenchParts *p, bool json, Text *out);

/* Tokens a second, spread of step times, MFU, memory, clock. Tokens are those of all ranks; rank
 * 0's text is printed. FLOPs are those of one rank, by two formulas: the costs of its ops
 * (train_model_flops), and TorchTitan's (bench_torchtitan_flops). */
Status bench_step(const Config *c, Comm *world, const BenchStep *options, Text *out);
/* FLOPs of a token of the whole model by TorchTitan's formula (torchtitan/models/utils.py):
 * 6 N + 6 t x the sum over attention layers of heads x (width of a query + width of a value), where
 * N are the active parameters without the input embedding, and t the tokens of a sequence. All pairs
 * of a query and a key count, also those above the diagonal and across documents. */
Status bench_torchtitan_flops(const Config *c, double *out);
/* For every kind of traffic that the mesh has, and for all together: what it adds to a step that
 * took `with`, and how much of that compute lanes wait for it (exposed.c). _check: ERR_ARG if there
 * is no traffic to measure. */
Status bench_exposed_check(const Comm *world);
Status bench_exposed(const Config *c, Comm *world, const BenchStep *options,
                     const BenchMedian *with, Text *out);
/* What layers cost without what is outside of them: the steps of a model, and of the same with more layers. Prints
 * both, and of the difference the time of a token in a layer and its FLOP/s; and what is left for the rest. */
Status bench_slope(const Config *shallow, const Config *deep, Comm *world, const BenchStep *options,
                   Text *out);

#endif
