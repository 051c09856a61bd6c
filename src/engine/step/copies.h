/*
 * copies: makes the copies that products read (engine/model/matrix.h) equal to the main weights, after an init
 * or a load.
 *
 * After a step there is nothing to do here: the update writes the copies of the elements that it
 * changes, and the Program gathers them (engine/step/shards.h).
 */
#ifndef ENGINE_STEP_COPIES_H
#define ENGINE_STEP_COPIES_H

#include "engine/step/engine_parts.h"

/* Allocates the 8-bit copies of matrices (engine/model/recipe.h). */
Status copies_alloc(EngineParams *w);
/* Makes them from this rank's weights. Called at the beginning of each step, because the update and the
 * gathers after it change the weights, and of the first evaluation after a step. What is staged was
 * quantised behind its gather (shards_gather). */
Status copies_quantise(EngineParams *w);

/* Makes the copies of this rank's main weights, and gathers those that every rank holds whole.
 * Waits for the device. */
Status copies_refresh(EngineParams *w);

#endif
