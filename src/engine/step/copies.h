/*
 * copies: makes the copies that products read (engine/model/matrix.h) equal to the main weights, after an init
 * or a load.
 *
 * After a step the update has written the copies of the elements that it changed, and the Program gathers them
 * (engine/step/shards.h). 8-bit copies of matrices that the update does not take whole are made here.
 */
#ifndef ENGINE_STEP_COPIES_H
#define ENGINE_STEP_COPIES_H

#include "engine/step/engine_parts.h"

/* Allocates the 8-bit copies of matrices (engine/model/recipe.h). */
Status copies_alloc(EngineParams *w);
/* Makes them from this rank's weights: all, or those that the update does not write. The latter at the beginning of each
 * step, because the update and the gathers after it change the weights, and of the first evaluation after a step. What
 * is staged was quantised behind its gather (shards_gather). */
Status copies_quantise(EngineParams *w, bool all);

/* Makes the copies of this rank's main weights, and gathers those that every rank holds whole.
 * Waits for the device. */
Status copies_refresh(EngineParams *w);

#endif
