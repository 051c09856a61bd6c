/* engine_weights: the values in the flat buffers of parameters: initial weights, random ones for a
 * rehearsal, and the search for values that are not finite. Which rank has which part of a buffer is
 * decided in engine/model/params.h; updates are update.h's. */
#ifndef ENGINE_STEP_ENGINE_WEIGHTS_H
#define ENGINE_STEP_ENGINE_WEIGHTS_H

#include "engine/step/engine_parts.h"

/* Initial weights, each a function of (seed, name, index). Moments and state become zero. */
/* Zeroes all main weights, optimizer state and averages, with the padding between parameters. */
Status engine_zero_weights(EngineParams *w);
Status engine_init_weights(EngineParams *w, uint64_t seed);

/* ERR_NUMERIC if, after the update of this step, a weight or a moment is not a legal value (numbers.h). The
 * sentence names the parameter and the op that wrote it. Reads all of them. Collective. */
Status engine_check_numbers(EngineParams *w, int64_t step);

/* Random main weights for a rehearsal; everything else becomes zero. GPU only. */
Status engine_random_weights(EngineParams *w);

#endif
