/* update: the end of a step. In this order: squares of gradients, sums over all ranks, the norm and the
 * clipping factor (0 skips the step), the optimizer's rules over this rank's ranges (engine/model/optimizer.h).
 * The step's rules act between them (step_rule.h). Everything stays on the device: the host reads the record later.
 *
 * Not here: which ranges a rank has, and gathers of what was updated (shards.h). */
#ifndef ENGINE_STEP_UPDATE_H
#define ENGINE_STEP_UPDATE_H

#include "engine/step/step_rule.h"

/* The scalars that the rules read in a step, such as the learning rate and bias corrections. */
void update_scalars(const EngineParams *w, double lr, int64_t step, float out[UPDATE_SCALARS]);

/* Enqueues the whole update. */
Status update_run(EngineParams *w, const StepTensors *io);

/* Adds the record's sums (losses, square sum, overflow flags, loads) over all ranks. */
Status update_add_records(EngineParams *w, const Record *r);

/* Learning rate of a step (from 1). It depends on nothing else, so a resumed run has the same rates.
 *   s <= warm     lr s / warm
 *   s <= start    lr
 *   then          min_lr + (lr - min_lr) f(at),   at = (s - start) / (end - start), at most 1
 * f(at) = 1 - at (linear), (1 + cos(pi at)) / 2 (cosine), or 1 - sqrt(at) (Haegele et al.,
 * arXiv:2405.18392). start = warm, but end - optimizer.decay_length with schedule=wsd (MiniCPM,
 * arXiv:2404.06395, where a tenth of the steps falls). With schedule=constant the rate stays lr. */
double learning_rate(const Config *c, int64_t step);

#endif
