/* engine_program: the lists that a rank runs, and the layers that lie on its chunks. Running them is
 * run_program.h's. */
#ifndef TRAIN_ENGINE_PROGRAM_H
#define TRAIN_ENGINE_PROGRAM_H

#include "train/engine_parts.h"

/* Places the layers of e->spec by mesh.layout, or blocks evenly, and makes of each way the programs
 * of all ranks, which are checked together; this rank's is kept. ERR_ARG: no such rank, layout or
 * schedule. */
Status engine_make_program(Engine *e);

/* The spec of the second mode: all layers recomputed, capacity for all rows. spec_build and spec_place have
 * passed. Layers in `a`. */
Status engine_retry_spec(ModelSpec *s, Arena *a);

/* Makes what the programs send and receive with, and the mirror group. To be called when the arenas
 * are there. In a running pipeline it is collective over the stages. */
Status engine_make_transfers(Engine *e);
void engine_free_transfers(Engine *e); /* of an engine that need not be whole */

#endif
