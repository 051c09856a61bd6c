/*
 * again: a step whose rows had no room in bounded buffers runs once more, with room for all.
 *
 * Over ranks a layer's buffers hold moe.buffer_factor times the mean rows. Where more come, a flag
 * goes up that is added over all ranks with the gradient norm; then the step is skipped: nothing was
 * updated anywhere. The same batch runs again as moe.buffers=worst would have run it, every layer
 * recomputed: what is not kept leaves room for one layer's largest buffers, in the same memory. A
 * recomputed layer gives the same bits, and the order of rows does not depend on the room, so the
 * step's bits are those of a run that had the room all along.
 */
#ifndef TRAIN_AGAIN_H
#define TRAIN_AGAIN_H

#include "train/engine.h"

/* Where rows can be without room in a training of this shape: the plan of the second way into
 * `retry`, which shape->retry then names; what it takes more is added to plan's scratch. */
Status retry_plan(const Config *c, EngineShape *shape, EnginePlan *plan, EnginePlan *retry);

/* The spec of the second way; spec_build and spec_place have passed. Layers in `a`. */
Status retry_spec(ModelSpec *s, Arena *a);

/* e->block, for slots, ring and scratch of one or both ways: as large as plan says, which is at least
 * what either takes. Each way's arenas begin behind the exchange's board (engine_header_bytes). */
Status retry_make(Engine *e, const EnginePlan *plan);

/* Take the first (0) or the second way (1). */
void retry_use(Engine *e, int way);

/* Were there rows without room in the step or the evaluation that has ended? */
bool retry_needed(const Engine *e);

#endif
