/* null: leaves traffic out of a step (EngineShape.silent), to measure what it costs: groups of such
 * traffic send nothing (comm_null), so the results of the step are wrong. What all ranks agree on once
 * a step (norm, overflow, loads: GROUP_WORLD, GROUP_STAGE) is always sent. */
#ifndef TRAIN_NULL_H
#define TRAIN_NULL_H

#include "train/engine_parts.h"

enum { NULL_TRAFFICS = TRAFFICS, NULL_GROUPS = 3 };

typedef struct NullTraffic {
    const char *word;
    MeshGroup group[NULL_GROUPS]; /* that carry it; GROUP_WORLD: no more */
} NullTraffic;

extern const NullTraffic null_traffic[NULL_TRAFFICS];

/* Is there such traffic on this mesh? */
bool null_moves(const NullTraffic *t, const MeshShape *s);

/* Replaces the groups of `m` that carry silent traffic (EngineShape), and puts the real ones back. */
Status null_groups(unsigned silent, Mesh *m, Arena *tables);
void null_undo(Mesh *m);
/* Gives the entries of transfers something to hold: all of them, or if they are silent. */
Status null_entries(Engine *e);
Status null_fill(Engine *e);

#endif
