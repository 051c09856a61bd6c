/* run_data: the numbers of a run's report, gathered from metrics.jsonl in two passes. A resumed run
 * writes some steps again, and the last line for a step counts. So the first pass notes the number
 * of the last line for each step (8 bytes a step), and the second takes only those lines.
 *
 * The format is docs/reference/metrics.md's; engine/train/metrics.c writes it. */
#ifndef PAGES_RUN_DATA_H
#define PAGES_RUN_DATA_H

#include "engine/model/figure.h"
#include "engine/model/matrix.h"
#include "pages/curve.h"

enum {
    RUN_POINTS = 2000,       /* a curve */
    RUN_LOAD_POINTS = 30000, /* all curves of expert load together */
    RUN_EVAL_POINTS = 200,   /* a curve of evaluations, which draws a dot at each point */
    RUN_RECENT_STEPS = 50,   /* the last steps, over which expert load is summed */
    RUN_NAMES = 64,          /* domains, and arenas; further ones are left out */
};

/* The curves of a figure (engine/model/figure.def): one, or one for each group of parameters. Figures by layer have the
 * mean over layers, the busiest expert's load the largest of any. */
typedef enum RunCurve {
#define FIGURE(NAME, name, each, ...)                                                              \
    RUN_##NAME, RUN_##NAME##_LAST = RUN_##NAME + (EACH_##each == EACH_GROUP ? GRAD_GROUPS : 1) - 1,
#include "engine/model/figure.def"
    RUN_CURVES
} RunCurve;

/* The curves of a figure are first to last. */
extern const struct RunSpan {
    RunCurve first, last;
} run_spans[FIGURES];

/* Evaluations are few: their points are drawn as dots, and not smoothed. */
static inline bool run_curve_held_out(RunCurve c)
{
    return c == RUN_EVAL_LOSS || c == RUN_EVAL_BITS ||
           (c >= RUN_CHOICES_ACC && c <= RUN_CHOICES_BYTES);
}

typedef struct RunEval {
    int64_t step; /* -1: there was none */
    double loss, bits_per_byte;
    double domain_loss[RUN_NAMES], domain_bits[RUN_NAMES]; /* NaN where not given */
} RunEval;

/* Tokens by expert over some steps: a layer's share of each, relative to uniform load; NaN in a
 * layer without load. */
typedef struct RunLoad {
    double *sum; /* (MoE layers, experts); NULL in a run without */
    int64_t lines, first_step, last_step;
} RunLoad;

/* Names in the order of the start line. */
typedef struct RunNames {
    const char *name[RUN_NAMES];
    int n;
} RunNames;

/* NaN: the run has no such thing. */
typedef struct RunSummary {
    int64_t steps, tokens; /* by the last line for each step */
    int64_t twice;         /* steps that ran a second time because rows had no room */
    double again_s;        /* time of those second runs */
    double capture_s;      /* time of new captures and of enlarging memory for rows */
    int64_t saves;         /* checkpoints that ended before the last step */
    double save_stall_s;   /* training waited so long for them */
    double save_share; /* the largest share that one's wait had in the time since the one before */
    double wall_s;     /* sum of the steps' times: without evaluation and checkpoints */
    double final_loss; /* of the last step */
    double best_loss;  /* the lowest of a step */
    int64_t best_step;
    double tokens_per_s;                            /* the median of all steps */
    double first_bits_per_byte, last_bits_per_byte; /* held out: first and last evaluation */
    int64_t first_eval, last_eval;                  /* their steps */
    const char *since;  /* a sentence if steps ran after the last evaluation; else "" */
    double least_share; /* of all experts of all MoE layers, over the last 50 steps: the smallest
                           load / mean load */
    int64_t least_layer, least_expert; /* the expert with the smallest; -1: there is none */
} RunSummary;

/* Everything that a report shows of metrics.jsonl. */
typedef struct RunData {
    RunSummary sum;
    const char *model; /* "" if no start line says */
    double params_total, params_active, roof_flops, sheet_flops;
    int64_t first_step, last_step; /* of all lines, evaluations too */
    int64_t evals, starts, bad_lines, bad_losses;
    int64_t damaged;    /* the first line that not even a killed run leaves, from 1; 0: none */
    int64_t final_step; /* the highest that has a step line; -1: none */

    Curve curve[RUN_CURVES], smooth_loss;
    Curve domain_bits[RUN_NAMES];
    RunEval first_eval, last_eval;

    RunNames domains, arenas;
    double planned_bytes[RUN_NAMES], used_bytes[RUN_NAMES]; /* by arena; NaN: not given */

    int moe_layers, experts; /* 0 in a run without */
    int64_t *layer_name;     /* (MoE layers) */
    RunLoad load;            /* summed over the last RUN_RECENT_STEPS */
    RunLoad domain_load[RUN_NAMES];
    bool domain_load_held_out; /* it is the last evaluation's, because training lines have none */
    Curve *least, *most;       /* by MoE layer: load of one expert / mean load */
} RunData;

/* Held-out bits a byte as words. "before" and "after" are only for what was measured at both ends of the run. */
enum { RUN_HELD_OUT_BYTES = 96 };
const char *run_held_out_text(char out[RUN_HELD_OUT_BYTES], const RunSummary *s);

/* Loads the metrics.jsonl at `path`. Everything lives in `a`, which needs 64 MiB plus 8 bytes a
 * step. ERR_IO: the file is missing. ERR_FORMAT: it has no complete step or eval line. */
Status run_data_load(const char *path, Arena *a, RunData *out);

#endif
