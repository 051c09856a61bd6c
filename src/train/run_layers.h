/* run_layers: one rank's layers over one micro-batch, forward and backward. */
#ifndef TRAIN_RUN_LAYERS_H
#define TRAIN_RUN_LAYERS_H

#include "train/engine_parts.h"

/* Sequences [first, first + b) of the step's batch. */
MicroBatch run_part(const Engine *e, int64_t first, int64_t b);

/* A pass of a micro-batch through the layers of its chunk, or a phase of it. */
Status run_pass(Engine *e, const Action *a, const MicroBatch *m, SlotState *s);

#endif
