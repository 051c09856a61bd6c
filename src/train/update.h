/* update: the end of a step: gradient norm, clipping, AdamW over the flat buffers, router bias. */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "train/engine_parts.h"

Status update_run(Engine *e);

/* The record's sums over all ranks: what only some of them counted. */
Status update_add_records(Engine *e);

/* Bytes of memory that the norm and AdamW move for a trained parameter. */
double update_bytes(const ModelSpec *s);

/* Learning rate of a step (from 1): linear warm-up, then cosine from lr to min_lr. */
double learning_rate(const Config *c, int64_t step);

#endif
