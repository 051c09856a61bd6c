/*
 * engine_program: the Program that a rank runs, the layers that lie on its chunks, and what its
 * slots take of memory.
 */
#ifndef TRAIN_ENGINE_PROGRAM_H
#define TRAIN_ENGINE_PROGRAM_H

#include "train/engine.h"

/* Places the layers of e->spec by mesh.layout, or blocks evenly, and makes of each way the programs
 * of all ranks, which are checked together; this rank's is kept. ERR_ARG: no such rank, layout or
 * schedule. */
Status engine_make_program(Engine *e);

/* Makes what the programs send and receive with, and the mirror group. To be called when the arenas
 * are there. In a running pipeline it is collective over the stages. */
Status engine_make_transfers(Engine *e);
void engine_free_transfers(Engine *e); /* of an engine that need not be whole */

/* How many arenas of each part, and their bytes. */
typedef struct SlotSizes {
    size_t *bytes[SLOT_PARTS];
    size_t *pool; /* of each slot's bytes: of rows */
    int n[SLOT_PARTS];
} SlotSizes;

/* Of a program whose chunks take what `plan` says; in `a`. */
Status slot_sizes(const Program *p, const EnginePlan *plan, Arena *a, SlotSizes *out);

/* Do weight gradients of whole passes run apart? */
bool program_splits(const Program *p);

/* The lowest arena that is free, and its return. */
Arena *pool_take(ArenaPool *p);
void pool_give(ArenaPool *p, Arena *a);

#endif
