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

#include "train/engine_parts.h"

/* The spec of the second way; spec_build and spec_place have passed. Layers in `a`. */
Status retry_spec(ModelSpec *s, Arena *a);

/* Take the first (0) or the second way (1). */
void retry_use(Engine *e, int way);

/* Were there rows without room in the step or the evaluation that has ended? */
bool retry_needed(const Engine *e);

#endif
