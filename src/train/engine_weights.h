/* engine_weights: what the flat buffers of parameters hold: at the start, after a load, and whether it is
 * numbers. Which rank has which part of them is shards.h's. */
#ifndef TRAIN_ENGINE_WEIGHTS_H
#define TRAIN_ENGINE_WEIGHTS_H

#include "train/engine_parts.h"

/* Initial weights, f(seed, name, index); moments and state zero. */
Status engine_init_weights(EngineParams *w, uint64_t seed);

/* ERR_NUMERIC if a weight or a moment is not what it may be (numbers.h) after the update of this
 * step: the parameter and the op that wrote it. Looks at all of them. Collective. */
Status engine_check_numbers(EngineParams *w, int64_t step);

/* Main weights that are good enough for a rehearsal, everything else zero. GPU only. */
Status engine_random_weights(EngineParams *w);

#endif
