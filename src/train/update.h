/* update: the end of a step. In this order: squares of gradients, sums over all ranks, the norm and the
 * clipping factor (0 skips the step), the optimizer's rules over this rank's ranges (model/optimizer.h),
 * the expert biases. Everything stays on the device: the host reads the record later.
 *
 * Not here: which ranges a rank has, and gathers of what was updated (shards.h). */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "train/engine_parts.h"

/* Numbers in Engine.hyper: a set for each rule and age, then the limit of the gradient norm, and the
 * rate of the average of weights. */
enum {
    UPDATE_LIMIT = OPTIMIZER_RULES * AGE_COUNT * OPTIMIZER_SCALARS,
    UPDATE_AVERAGE,
    UPDATE_SCALARS
};

/* The scalars that the rules read in a step, such as the learning rate and bias corrections. */
void update_scalars(const EngineParams *w, double lr, int64_t step, float out[UPDATE_SCALARS]);

/* The scale of the loss in the first step of a training. */
LossScale loss_scale_start(const Config *c);

/* The same for a training that goes on from a checkpoint. What is fixed is not taken from there. */
LossScale loss_scale_resume(const Config *c, const LossScale *saved);

/* Takes note of a step whose loss is finite: after one whose gradients are not, the scale is halved;
 * after many good ones it is doubled. False: the scale is fixed, or as small as it may be, and cannot
 * explain the step. */
bool loss_scale_follow(const Config *c, LossScale *s, bool finite);

/* The spike guard. A step is skipped if its gradient norm is above
 *   limit = optimizer.skip_spikes * mean,   mean += (min(norm, limit) - mean) / min(steps, 100)
 * after each step. The minimum keeps one spike from raising the limit, but norms that stay large end
 * up in the mean, so that a training cannot skip for ever. The host computes the limit from earlier
 * steps alone and the device compares: no step waits, and all ranks have the same sums, so all skip.
 *
 * norm_limit: of the next step; the largest float without a guard and in the first 20 steps.
 * norm_follow: takes note of a step's norm. True: it is a spike. */
float norm_limit(const Config *c, const StepMeans *m);
bool norm_follow(const Config *c, StepMeans *m, double norm);

/* The average of weights: e += r (w - e) after an update, with r = max(1 - optimizer.ema, 1 / n) at the
 * n-th one. So its beginning is a plain mean, and the initial weights do not count. */
double average_rate(const Config *c, const StepMeans *m);

/* Enqueues the whole update. */
Status update_run(EngineParams *w, const StepTensors *io);

/* Adds the record's sums (losses, square sum, overflow flags, loads) over all ranks. */
Status update_add_records(EngineParams *w, const Record *r);

/* Bytes of memory traffic of the norm and the update, for one trained parameter. */
double update_bytes(const ModelSpec *s);

/* Learning rate of a step (from 1). It depends on nothing else, so a resumed run has the same rates.
 *   s <= warm     lr s / warm
 *   s <= start    lr
 *   then          min_lr + (lr - min_lr) f(at),   at = (s - start) / (end - start), at most 1
 * f(at) = 1 - at (linear), (1 + cos(pi at)) / 2 (cosine), or 1 - sqrt(at) (Haegele et al.,
 * arXiv:2405.18392). start = warm, but end - optimizer.decay_length with schedule=wsd (MiniCPM,
 * arXiv:2404.06395, where a tenth of the steps falls). With schedule=constant the rate stays lr. */
double learning_rate(const Config *c, int64_t step);

#endif
