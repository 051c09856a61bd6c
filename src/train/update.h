/* update: the end of a step. In this order: squares of gradients, sums over all ranks, the norm and the
 * clipping factor (0 skips the step), the optimizer's rules over this rank's ranges (model/optimizer.h),
 * the expert biases. Everything stays on the device: the host reads the record later.
 *
 * Not here: which ranges a rank has, and gathers of what was updated (shards.h). */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "train/engine_parts.h"

/* Numbers in Engine.hyper: a set for each rule and age. */
enum { UPDATE_SCALARS = OPTIMIZER_RULES * AGE_COUNT * OPTIMIZER_SCALARS };

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

/* Enqueues the whole update. */
Status update_run(EngineParams *w, const StepTensors *io);

/* Adds the record's sums (losses, square sum, overflow flags, loads) over all ranks. */
Status update_add_records(EngineParams *w, const Record *r);

/* Bytes of memory traffic of the norm and the update, for one trained parameter. */
double update_bytes(const ModelSpec *s);

/* Learning rate of a step (from 1): linear warm-up, then cosine from lr to min_lr. */
double learning_rate(const Config *c, int64_t step);

#endif
