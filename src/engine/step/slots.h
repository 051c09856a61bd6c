/* slots: the arenas that micro-batches take on chunks: how many a list needs and how large they are, and a
 * pool that hands them out. What lies in them is run_layers.c's; engine/schedule/lower.c assigned the slots. */
#ifndef ENGINE_STEP_SLOTS_H
#define ENGINE_STEP_SLOTS_H

#include "engine/step/engine_parts.h"

/* How many arenas of each part, and their bytes. */
typedef struct SlotSizes {
    size_t *bytes[SLOT_PARTS];
    size_t *pool; /* of each slot's bytes: of rows */
    int n[SLOT_PARTS];
} SlotSizes;

/* The slots of a program whose chunks take the bytes in `plan`. Arrays in `a`. */
Status slot_sizes(const Program *p, const EnginePlan *plan, Arena *a, SlotSizes *out);

/* Those that fit all step lists of a mode. */
Status slot_sizes_all(const EngineMode *w, const EnginePlan *plan, Arena *a, SlotSizes *out);

/* Do weight gradients of whole passes run apart? */
bool program_splits(const Program *p);

/* pool_take returns the lowest free arena. There always is one: slot_sizes made as many as the list takes at
 * once. pool_give empties and returns it. */
Arena *pool_take(ArenaPool *p);
void pool_give(ArenaPool *p, Arena *a);

#endif
