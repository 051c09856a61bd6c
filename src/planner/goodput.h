/* goodput: how long a training takes on a cluster that fails: days to a budget of tokens with their spread, GPU hours,
 * energy, and the best time between checkpoints.
 *
 * Failures come as a Poisson process whose rate is the number of GPUs over plan.mtbf_hours; each one ends the run.
 * The run restarts, which takes plan.restart_s, and works again from its last checkpoint. A failure may also come
 * during a restart or a checkpoint. With x = rate * (tau + stall) and y = rate * restart, a segment of tau seconds of
 * work and its checkpoint takes on average
 *
 *     e^y (e^x - 1) / rate                               (Daly, FGCS 22 (2006) 303, equation 20)
 *
 * Its variance is a closed form, too (goodput.c). Segments are independent, so both add up over the training. The
 * quantiles are those of the shortest time plus a gamma distribution of the same mean and variance. The best tau
 * solves 1 - rate tau = e^-x. Young (CACM 17 (1974) 530) and Daly have approximations of it, which are reported.
 *
 * A checkpoint that is written while the training goes on counts only when it is written. So a failure also costs the
 * work of that time, which is added to the restart.
 *
 * Whole trainings lose more: evaluation, annealing, maintenance, slow days of a cluster. All of that is one factor,
 * plan.lost. Published GPU hours over those of the published step: 1.10 and 1.22 (Olmo 3 7B and 32B: 234 k and 1.05 M
 * for 5.9 T tokens at 7,700 and 1,900 a second, muxup.com/2025q4/minipost-olmo3-training-cost), 1.17 (Llama 3 405B:
 * 30.84 M by its model card for 3.8e25 FLOPs at 400 TFLOP/s, arXiv:2407.21783, section 1 and table 4) and 1.18 (BLOOM:
 * 1.083 M for 366 B tokens at 156 TFLOP/s with recompute, arXiv:2211.05100, section 3). Llama 1 (arXiv:2302.13971) and
 * DeepSeek-V3 (arXiv:2412.19437) publish hours of steps alone: 1.00. Failures and checkpoints are 1.00 to 1.08 of it
 * here, so 1.1 is left, of 1.0 to 1.2.
 *
 * Not here: spare GPUs that take over without a restart, failures that depend on each other. */
#ifndef PLANNER_GOODPUT_H
#define PLANNER_GOODPUT_H

#include "engine/config/gpu_hour.h"
#include "planner/plan.h"

/* A training and what interrupts it. All times in seconds. */
typedef struct GoodputCase {
    double work_s;     /* without failures and checkpoints */
    double step_s;     /* checkpoints come after whole steps */
    double mtbf_s;     /* of all GPUs together; INFINITY: nothing fails */
    double restart_s;  /* from a failure to the first step after it */
    double stall_s;    /* that a checkpoint stops the training */
    double write_s;    /* until a checkpoint counts, beyond the stall */
    double interval_s; /* work between checkpoints; 0: the best */
} GoodputCase;

typedef struct Goodput {
    GoodputCase of;               /* interval_s: as it is, a multiple of step_s */
    double full_s;                /* at full speed: no failures or checkpoints */
    double mean_s, p50_s, p90_s;  /* INFINITY: it never ends */
    double failures;              /* expected */
    double redone_s;              /* work lost by a failure, mean */
    double interval_steps;        /* between checkpoints */
    double young_s, daly_s;       /* their best intervals */
    double share;                 /* full_s of mean_s; 0: it never ends */
    double saved_bytes;           /* of a checkpoint, that the fullest GPU writes */
    double whole_s;               /* mean_s times plan.lost */
    double gpu_hours, megawatt_h; /* of whole_s; megawatt_h 0: the GPU's file has no gpu.watts */
    GpuHour hour;                 /* gpu_hour_cost(.., &hour, gpu_hours) */
} Goodput;

/* A training with a share below this "never ends". */
static const double GOODPUT_LEAST = 1e-3;
/* The range of plan.lost in published trainings, as above. */
static const double GOODPUT_LOST_LEAST = 1.0, GOODPUT_LOST_MOST = 1.2;

/* The times of a case, everything but full_s, share, whole_s, bytes, hours, energy and money. */
void goodput_times(const GoodputCase *c, Goodput *out);

/* The training of `tokens` by this price; settings are plan.* and checkpoint.every of the request. */
void plan_goodput(const PlanRequest *q, const PlanPrice *p, double tokens, Goodput *out);

/* OK, or ERR_FIT: the training never ends. The sentence says how often the GPUs fail, and what a failure costs. */
Status plan_goodput_ends(const PlanRequest *q, const Goodput *g);

#endif
