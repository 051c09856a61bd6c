/* null: leaves traffic out of a step (EngineShape.silent), to measure what it costs. Groups that carry such
 * traffic send nothing (comm_null), so the results of the step are wrong: this is for `bench` only. What
 * all ranks agree on once a step (norm, overflow, loads: GROUP_WORLD, GROUP_STAGE) and the counts of an
 * auxiliary loss (GROUP_SEQUENCE) are always sent. */
#ifndef ENGINE_STEP_NULL_H
#define ENGINE_STEP_NULL_H

#include "engine/step/engine_parts.h"

enum { NULL_TRAFFICS = TRAFFICS, NULL_GROUPS = 5 };

/* A kind of traffic: its word on the command line and the groups that carry it. */
typedef struct NullTraffic {
    const char *word;
    MeshGroup group[NULL_GROUPS]; /* the groups that carry it; GROUP_WORLD ends the list */
} NullTraffic;

extern const NullTraffic null_traffic[NULL_TRAFFICS];

/* Does this mesh have such traffic? */
bool null_moves(const NullTraffic *t, const MeshShape *s);

/* null_groups replaces the groups of `m` that carry silent traffic; null_undo restores the real ones. */
Status null_groups(unsigned silent, Mesh *m, Arena *tables);
void null_undo(Mesh *m);
/* Fill the entries of n modes with random rows: always, or only if transfers are silent. */
Status null_entries(EngineArenas *m, const EngineMode *modes, int n);
Status null_fill(EngineArenas *m, const EngineMode *modes, int n);

#endif
