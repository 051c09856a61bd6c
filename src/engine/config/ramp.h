/* ramp: the number of sequences of each step: train.batch_ramp, then train.batch. */
#ifndef ENGINE_CONFIG_RAMP_H
#define ENGINE_CONFIG_RAMP_H

#include "engine/config/config.h"

/* Up to step `last` a step has so many sequences. */
typedef struct RampPart {
    int64_t last, sequences;
} RampPart;

/* Parts by rising step and rising number. The last one is train.batch, up to INT64_MAX. */
typedef struct BatchRamp {
    int n;
    RampPart at[CONFIG_TEXTS_MAX + 1];
} BatchRamp;

/* ERR_ARG: an entry is malformed, steps or sizes do not rise, or a size is not below train.batch. */
Status ramp_read(const Config *c, BatchRamp *out);
/* The same for a configuration that config_check has passed. */
BatchRamp ramp_of(const Config *c);

/* Sequences of a step (from 1), and of the first `steps` steps together. */
int64_t ramp_batch(const BatchRamp *r, int64_t step);
uint64_t ramp_sequences(const BatchRamp *r, int64_t steps);
/* Steps that are whole within the first `sequences`. */
int64_t ramp_steps(const BatchRamp *r, uint64_t sequences);

/* ERR_ARG unless each size divides over so many data-parallel ranks in micro-batches of `micro` sequences. The
 * error names the nearest sizes. */
Status ramp_divides(const Config *c, int64_t ranks, int64_t micro);
/* The greatest number that divides all sizes. */
int64_t ramp_unit(const Config *c);

#endif
