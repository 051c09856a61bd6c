/*
 * metrics: RUN/metrics.jsonl, one JSON object a line for each step and evaluation
 * (docs/reference/metrics.md). Lines are flushed every step: a killed run loses at most the last one.
 * Not here: progress lines for people (run_step.c), recordings of actions (recorder.h).
 */
#ifndef ENGINE_TRAIN_METRICS_H
#define ENGINE_TRAIN_METRICS_H

#include "engine/base/file.h"
#include "engine/gpu/gpu_state.h"
#include "engine/step/engine.h"
#include "engine/train/alert.h"
#include "engine/train/event_file.h"
#include "engine/train/live.h"
#include "engine/train/questions.h"
#include "engine/train/ranks.h"

/* An open metrics.jsonl. Engine and loader must outlive it. */
typedef struct Metrics {
    const Engine *engine;
    const ModelSpec *spec;
    const Loader *loader;
    File file;
    Text line; /* reused; last in its arena */
    Arena arena, watch_arena;
    SeriesTable series;
    /* What run.tensorboard, run.http and run.alert_* ask for; else they are zero. */
    bool watched;
    EventFile events;
    Live *live;
    int64_t again, alerts; /* steps that ran twice; lines of run.alert_* */
    Band loss, load;
} Metrics;

/* What run_step.c knows of one step. Rates are tokens/s of all ranks, shares are of one rank's FLOPs. */
typedef struct StepMetrics {
    int64_t step, tokens;
    double lr, step_s, tokens_per_s;
    double roof_share, roof_flops, mfu; /* roof: the measured peak; 0: unknown */
    StepResult result;
    GpuReading gpu;       /* while the step ran */
    bool by_domain;       /* also tokens and expert load of each domain */
    const int64_t *taken; /* (domains) training sequences so far */
    double save_stall_s;  /* training waited so long for checkpoints since the step before */
    double save_share;    /* of the time to the checkpoint before, of one that ended since then */
    double grow_s;        /* and so long for a larger capacity for rows */
    const RankSpread *ranks; /* NULL: there is one rank */
    double seen;             /* tokens of all steps so far */
    double run_s, left_s; /* since the start; to the last step, by the mean of the steps so far */
} StepMetrics;

enum { EVAL_TEXT_BYTES = 64 };

/* The sums over some held-out text; bytes 0: unknown. */
typedef struct EvalSum {
    double nats;
    int64_t targets, bytes;
} EvalSum;

typedef struct EvalMetrics {
    int64_t step;
    int n_domains;
    EvalSum domain[CONFIG_SOURCES_MAX];
    const int64_t *load; /* (MoE layers, domains, E) over the held-out text; NULL: there is none */
    Answers answers;     /* to eval.choices; questions 0: none were asked */
} EvalMetrics;

/* Opens RUN/metrics.jsonl for appending. A half line of a killed run is ended first. */
Status metrics_open_log(Metrics *m, const Engine *e, const Loader *l, const char *run_dir);
/* Begins what run.tensorboard, run.http and run.alert_* ask for; `page` writes the live page. ERR_ARG: the port is in use. */
Status metrics_watch(Metrics *m, const char *run_dir, LivePage *page);
void metrics_close(Metrics *m); /* safe on { 0 } */

/* Writes the first line of a run or a resumed run. roof_flops: measured peak; sheet_flops: data
 * sheet; 0: unknown. */
Status metrics_start(Metrics *m, const EnginePlan *plan, double roof_flops, double sheet_flops);
/* Sets roof_share and mfu from step_s and the FLOPs of a step, relative to the measured peak and to the data
 * sheet (0: unknown). A step that is faster than the measured peak raises *roof_flops, so no share is
 * above 1. */
void metrics_shares(StepMetrics *s, double flops, double *roof_flops, double sheet_flops);
/* (token, expert) pairs that a step dropped, of all layers (moe.capacity). */
int64_t metrics_dropped(const ModelSpec *s, const StepResult *r);
Status metrics_step(Metrics *m, const StepMetrics *s);
Status metrics_eval(Metrics *m, const EvalMetrics *v);

void eval_add(EvalSum *to, const EvalSum *more);
EvalSum eval_total(const EvalMetrics *v); /* over all domains */
/* Nats a target, bits a byte. NaN without targets or bytes. */
double eval_loss(const EvalSum *s);
double eval_bits_per_byte(const EvalSum *s);
/* "  mtp_1 5.4321  mtp_2 5.6789": the losses of multi-token prediction; those of 10^6 and more, as 1.2e+30. */
enum { METRICS_DEPTHS_BYTES = 32 * CONFIG_DEPTHS_MAX };
const char *metrics_depths_text(const StepResult *r, int depths, char out[METRICS_DEPTHS_BYTES]);

/* "loss 1.2345, 0.6789 bits a byte", with `between` between them; without bits if bytes are unknown. s must
 * have targets. */
const char *eval_text(const EvalSum *s, const char *between, char out[EVAL_TEXT_BYTES]);

#endif
