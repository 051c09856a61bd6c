/* slots: the arenas that micro-batches take on chunks: how many a list needs, how large, and who has one
 * of a pool. What lies in them is run_layers.c's. */
#ifndef TRAIN_SLOTS_H
#define TRAIN_SLOTS_H

#include "train/engine_parts.h"

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
