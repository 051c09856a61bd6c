/*
 * verify: finds silent corruption, numbers that a processor, a GPU or memory changed without an error
 * (run.verify_every). The same step always has the same bits (docs/explain/determinism.md), so a step that is
 * computed twice must give them twice.
 *
 * The first run skips its update, as a spike does: it leaves weights, moments and router biases alone. Of
 * its gradients only checksums by layer stay (VerifyPoint). The second run compares on the device, before its
 * update. A flag travels with the record's sums, so all ranks skip the update if one rank has other bits.
 *
 * Where several ranks hold the same weights or moments, a checkpoint first compares checksums of them.
 *
 * Not found: what fails the same way both times. An error in an activation that goes to other ranks (pipeline,
 * experts, context, tensor) changes their gradients, too: all of them are then named.
 */
#ifndef ENGINE_STEP_VERIFY_H
#define ENGINE_STEP_VERIFY_H

#include "engine/step/engine_parts.h"

/* Is this step computed twice? */
bool verify_due(const Engine *e, int64_t step);

/* After a step whose bits differed: ERR_NUMERIC on all ranks, with the ranks, their hosts and the first block of
 * gradients that differed. Collective. */
Status verify_explain(Engine *e, int64_t step);

/* Compares weights and moments over the ranks that hold the same ones. ERR_NUMERIC on all ranks: some differ; the
 * sentence names the ranks that are not of a majority. Nothing without run.verify_every. Collective. */
Status verify_replicas(EngineParams *w, int64_t step);

#endif
