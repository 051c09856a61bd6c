/* checks: checksums of a step's gradients and losses, in the record (verify.h says what for). Nothing happens
 * without run.verify_every. */
#ifndef ENGINE_STEP_CHECKS_H
#define ENGINE_STEP_CHECKS_H

#include "engine/step/engine_parts.h"

/* Values of StepTensors.checked: in most steps 0, and nothing is read but this number. */
enum { CHECKS_ADD = 1, CHECKS_COMPARE = 2 };

/* The checksum of a layer, or of the losses behind them, in a column of Record.checks. */
Tensor checks_word(const EngineParams *w, int layer, int column);

/* Adds the bits of a layer's gradients to its checksum. */
Status checks_add(EngineParams *w, int layer, VerifyPoint point, Tensor gradients);

#endif
