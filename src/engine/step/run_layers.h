/* run_layers: runs one rank's layers over one micro-batch, forward and backward. The order of passes is
 * run_program.h's. */
#ifndef ENGINE_STEP_RUN_LAYERS_H
#define ENGINE_STEP_RUN_LAYERS_H

#include "engine/step/engine_parts.h"

/* Sequences [first, first + b) of a step's batch. */
MicroBatch run_part(const MicroBatch *whole, int64_t first, int64_t b);

/* Runs an action of a pass: the phases [first, end) of its row, on the layers of its chunk. `s`: the slot of
 * the micro-batch. */
Status run_pass(Engine *e, const Action *a, const MicroBatch *m, SlotState *s);

#endif
