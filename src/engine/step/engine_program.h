/* engine_program: the lists that a rank runs, and the layers that lie on its chunks. Running them is
 * run_program.h's. */
#ifndef ENGINE_STEP_ENGINE_PROGRAM_H
#define ENGINE_STEP_ENGINE_PROGRAM_H

#include "engine/step/engine_parts.h"

/* Places the layers of e->spec by mesh.layout, or else the blocks evenly. Makes and checks the programs of
 * all ranks in each mode, and keeps this rank's. ERR_ARG: no such rank, layout or schedule. */
Status engine_make_program(Engine *e);

/* Changes a spec to that of the second mode: all layers recomputed, capacity for all rows. Call it after
 * spec_build and spec_place. Layers in `a`. */
Status engine_retry_spec(ModelSpec *s, Arena *a);

/* Makes the transfers of the programs, and the group of the replica stage. Call it after the arenas are
 * made. In a running pipeline it is collective over the stages. */
Status engine_make_transfers(Engine *e);
void engine_free_transfers(Engine *e); /* also of a half-opened engine */

/* Takes the list for a step of n sequences on this rank. Graphs are of one size, because sizes change seldom and
 * only upwards: those of another one are freed. ERR_ARG: there is no list for n. */
Status engine_use_size(Engine *e, int64_t n);
void engine_free_graphs(Engine *e);

#endif
