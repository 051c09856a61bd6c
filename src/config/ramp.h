/* ramp: the number of sequences of each step: train.batch_ramp, then train.batch. */
#ifndef CONFIG_RAMP_H
#define CONFIG_RAMP_H

#include "config/config.h"

/* Up to step `last` a step has so many sequences. */
typedef struct RampPart {
    int64_t last, sequences;
} RampPart;

/* Parts by rising step and rising number. The last one is train.batch, up to INT64_MAX. */
typedef struct BatchRamp {
    int n;
    RampPart at[33];
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

/* ERR_ARG unless `unit` divides each size. `why` follows the size in the sentence: "train.batch 12 WHY: 8 or
 * 16 would". */
Status ramp_divides(const Config *c, int64_t unit, const char *why);
/* The greatest number that divides all sizes. */
int64_t ramp_unit(const Config *c);

#endif
