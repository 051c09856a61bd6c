/* update: the end of a step: gradient norm, clipping, the optimizer's rules over this rank's ranges
 * (model/optimizer.h), router bias. */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "train/engine_parts.h"

/* Numbers in Engine.hyper: a set for each rule and age. */
enum { UPDATE_SCALARS = OPTIMIZER_RULES * AGE_COUNT * OPTIMIZER_SCALARS };

/* What the rules read in a step. */
void update_scalars(const EngineParams *w, double lr, int64_t step, float out[UPDATE_SCALARS]);

Status update_run(EngineParams *w, const StepTensors *io);

/* The record's sums over all ranks: what only some of them counted. */
Status update_add_records(EngineParams *w, const Record *r);

/* Bytes of memory that the norm and the update move for a trained parameter. */
double update_bytes(const ModelSpec *s);

/* Learning rate of a step (from 1): linear warm-up, then cosine from lr to min_lr. */
double learning_rate(const Config *c, int64_t step);

#endif
