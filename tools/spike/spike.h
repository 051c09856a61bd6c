/* spike: what a step of a run read and did, beside the steps around it. */
#ifndef SPIKE_SPIKE_H
#define SPIKE_SPIKE_H

#include "engine/base/text.h"
#include "engine/config/config.h"

#include <stdbool.h>

typedef struct SpikeOptions {
    const char *run; /* its folder */
    int64_t step;
    int64_t documents; /* how many of them are printed */
} SpikeOptions;

/* Appends the figures of the step in RUN/metrics.jsonl: those of the steps around it; norms by group of parameters and
 * the load of experts, beside their means over up to SPIKE_BEFORE steps before. *resumed: the run was started more than
 * once. ERR_ARG: no line has the step. */
enum { SPIKE_BEFORE = 100, SPIKE_AROUND = 3 };
Status spike_figures(const SpikeOptions *o, Arena *a, bool *resumed, Text *out);

/* Appends the documents that the step read, with a part of their text, and their losses by the newest checkpoint before
 * the step if the run has one: those with the largest loss first. Else they stand in the order of the batch. */
Status spike_documents(const SpikeOptions *o, bool resumed, Arena *a, Text *out);

#endif
