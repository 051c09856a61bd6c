/*
 * switchyard: the program as a library, for C, C++ and whatever calls C. examples/switchyard.py is the same for Python.
 *
 * It opens configurations, plans them, trains them step by step in this process, follows the figures of a run, and
 * reads weights, tokens and traces (switchyard_trace.h).
 *
 *     SwitchyardConfig *c = NULL;
 *     SwitchyardTrainer *t = NULL;
 *     SwitchyardStep step;
 *     if (switchyard_config_open("quickstart", NULL, 0, &c) != SWITCHYARD_OK ||
 *         switchyard_train_open(c, NULL, &t) != SWITCHYARD_OK)
 *         fprintf(stderr, "%s\n", switchyard_error());
 *     while (t != NULL && switchyard_train_step(t, &step) == SWITCHYARD_OK && !step.last)
 *         printf("%lld %g\n", (long long)step.step, step.loss);
 *     switchyard_train_close(t);
 *     switchyard_config_close(c);
 *
 * `make install` installs it: `cc program.c $(pkg-config --cflags --libs switchyard)`. `make lib` only makes it, as
 * build/lib/libswitchyard.so and build/lib/libswitchyard.a.
 *
 * Errors: a function that can fail returns SWITCHYARD_OK or the exit code that the program would have, and leaves its
 * outputs as they were. switchyard_error() then has one sentence. Nothing is printed unless switchyard_log asks for
 * it. No bad input or argument ends the process, and no signal handler is set. A broken assertion, which is a bug of
 * ours, ends it. So does a file that others cut while it is read.
 *
 * Threads: different handles may be used at once. A handle is for one thread at a time, but for SwitchyardConfig and
 * SwitchyardTokens, which any number of threads may read. No function may run while another one closes its handle.
 *
 * Texts are UTF-8 and end with NUL. Texts and pointers live as long as the handle that they came from. Every _close
 * takes NULL. Numbers that are not known are NaN.
 */
#ifndef SWITCHYARD_H
#define SWITCHYARD_H

#include <stdint.h>
#include <switchyard_trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of these headers; it grows when a struct or a function changes. It is the number in the library's soname, too. A
 * program that finds its library at run time compares the two. */
#define SWITCHYARD_VERSION 1
SWITCHYARD_TRACE_API int32_t switchyard_version(void);

typedef enum SwitchyardResult {
    SWITCHYARD_OK = 0,
    SWITCHYARD_BAD_INPUT = 2, /* an argument, a setting or a file */
    SWITCHYARD_FAILED = 3,    /* while running: full disk, a loss that is not finite, a lost rank */
    SWITCHYARD_INTERRUPTED = 130
} SwitchyardResult;

/* Why the calling thread's last function that failed did so: a sentence, good until the thread's next failure. ""
 * before the first one. switchyard_trace_error is the same. */
SWITCHYARD_TRACE_API const char *switchyard_error(void);

/* What goes to stderr: -1 nothing, as at first; 0 errors, 1 warnings, 2 progress, 3 more. For the whole process. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_log(int32_t level);

/* ---- configurations and plans ---- */

typedef struct SwitchyardConfig SwitchyardConfig;

/* source: a YAML file or the name of a preset. settings: n texts "section.key=value". The result is checked as
 * `switchyard train` and `plan` check it. Settings plan.* and search.* are for plans; a training has no use for them. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_config_open(const char *source,
                                                             const char *const *settings, int32_t n,
                                                             SwitchyardConfig **out);
SWITCHYARD_TRACE_API void switchyard_config_close(SwitchyardConfig *c);
/* All settings of a training as YAML, which switchyard_config_open takes as a file. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_config_text(const SwitchyardConfig *c,
                                                             const char **out);

/* What `switchyard plan` says of a layout. */
typedef struct SwitchyardPlan {
    int64_t gpus;
    int32_t fits;  /* 1: into the GPU's memory less plan.margin */
    double step_s; /* seconds of a step */
    double tokens_per_s, tokens_per_s_per_gpu;
    double mfu;                    /* 0 to 1 */
    double peak_bytes, room_bytes; /* of a GPU: what the fullest one takes; what it has */
    const char *json;              /* all of it, as `switchyard plan --json` prints it */
} SwitchyardPlan;

/* cluster: NAME:GPUS, as of --cluster. search 0: the layout of mesh.*; 1: the best one. A layout that does not fit is
 * OK, with `fits` 0. SWITCHYARD_FAILED: the search found none. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_plan_open(const SwitchyardConfig *c,
                                                           const char *cluster, int32_t search,
                                                           SwitchyardPlan **out);
SWITCHYARD_TRACE_API void switchyard_plan_close(SwitchyardPlan *p);

/* ---- the figures of a run, while it is written or later ---- */

typedef struct SwitchyardMetrics SwitchyardMetrics;

/* run: the folder of a run. It must have a metrics.jsonl (docs/reference/metrics.md). */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_metrics_open(const char *run,
                                                              SwitchyardMetrics **out);
SWITCHYARD_TRACE_API void switchyard_metrics_close(SwitchyardMetrics *m);
/* The next whole line, a JSON object, good until the next call. Waits up to wait_s seconds for one; *line NULL: none
 * came. Lines that a killed run left unfinished are skipped. A resumed run writes steps again: the last line counts. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_metrics_next(SwitchyardMetrics *m, double wait_s,
                                                              const char **line);
/* A number of the line that came last, as "loss" or "step"; true is 1. NaN: the line has none of that name. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_metrics_number(const SwitchyardMetrics *m,
                                                                const char *name, double *out);

/* ---- weights ---- */

typedef struct SwitchyardWeights SwitchyardWeights;

typedef struct SwitchyardWeight {
    const char *name; /* as Hugging Face has it */
    int64_t elems;    /* float32 elements, row by row */
    int32_t dims;
    int64_t dim[4];
} SwitchyardWeight;

/* The weights of a checkpoint, or of the newest checkpoint of a run. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_weights_open(const char *checkpoint,
                                                              SwitchyardWeights **out);
SWITCHYARD_TRACE_API void switchyard_weights_close(SwitchyardWeights *w);
/* How many there are; weight i of them, in the order of their names. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_weights_count(const SwitchyardWeights *w,
                                                               int64_t *out);
SWITCHYARD_TRACE_API SwitchyardResult switchyard_weights_at(const SwitchyardWeights *w, int64_t i,
                                                            SwitchyardWeight *out);
/* Copies the elements of weight i. room: elements that `to` has; too few are an error. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_weights_read(SwitchyardWeights *w, int64_t i,
                                                              float *to, int64_t room);

/* ---- training ---- */

typedef struct SwitchyardTrainer SwitchyardTrainer;

typedef struct SwitchyardTrainOptions {
    int32_t ranks; /* threads of this process that train together; 0 is 1 */
    int32_t
        resume; /* 0: from the start; 1: from the newest checkpoint of run.dir; 2: from it if there is one */
    const char *init; /* a checkpoint whose weights the training takes; NULL: none */
} SwitchyardTrainOptions;

typedef struct SwitchyardStep {
    int64_t step, tokens; /* steps done; tokens of this one */
    double loss, grad_norm, lr;
    double seconds;
    int32_t
        skipped; /* 1: it changed nothing (optimizer.skip_spikes, or a loss_scale that was too large) */
    int32_t last; /* 1: train.steps are done */
} SwitchyardStep;

/* Opens a training up to its first step: the run's folder, the data, the memory. options NULL: all 0. The
 * configuration must stay open. One process trains with one run.dir once. It runs what `switchyard train` runs, with
 * the same bits, and writes the same files but for the report. Not under mpirun, srun or torchrun. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_train_open(const SwitchyardConfig *c,
                                                            const SwitchyardTrainOptions *options,
                                                            SwitchyardTrainer **out);
/* Runs the next step, with its evaluation and checkpoint if they are due. An error ends the training. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_train_step(SwitchyardTrainer *t,
                                                            SwitchyardStep *out);
/* The weights as they are now, of all ranks. The handle is the trainer's: it is not closed. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_train_weights(SwitchyardTrainer *t,
                                                               SwitchyardWeights **out);
/* Ends the training as SIGTERM does: saves a checkpoint. The trainer is gone, also after an error. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_train_close(SwitchyardTrainer *t);

/* ---- tokens ---- */

typedef struct SwitchyardTokens SwitchyardTokens;

typedef struct SwitchyardTokenCounts {
    int64_t documents, tokens;
    int32_t id_bytes; /* 2: uint16; 4: int32 */
} SwitchyardTokenCounts;

/* prefix: of the files PREFIX.bin and PREFIX.idx. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_tokens_open(const char *prefix,
                                                             SwitchyardTokens **out);
SWITCHYARD_TRACE_API void switchyard_tokens_close(SwitchyardTokens *t);
SWITCHYARD_TRACE_API SwitchyardResult switchyard_tokens_counts(const SwitchyardTokens *t,
                                                               SwitchyardTokenCounts *out);
/* The ids of document i, in the mapped file: nothing is copied. */
SWITCHYARD_TRACE_API SwitchyardResult switchyard_tokens_document(const SwitchyardTokens *t,
                                                                 int64_t i, const void **ids,
                                                                 int64_t *n);

#ifdef __cplusplus
}
#endif

#endif
