/* null: traffic of a step that comm.null leaves out (comm_null), to measure what it costs. What all
 * ranks agree on once a step (norm, overflow, loads: GROUP_WORLD, GROUP_STAGE) is always sent. */
#ifndef TRAIN_NULL_H
#define TRAIN_NULL_H

#include "train/engine_parts.h"

enum { NULL_TRAFFICS = TRAFFICS, NULL_GROUPS = 3 };

typedef struct NullTraffic {
    const char *word;             /* of comm.null; "all" names all of them */
    MeshGroup group[NULL_GROUPS]; /* that carry it; GROUP_WORLD: no more */
} NullTraffic;

extern const NullTraffic null_traffic[NULL_TRAFFICS];

/* Is there such traffic on this mesh? */
bool null_moves(const NullTraffic *t, const MeshShape *s);

/* ERR_ARG if comm.null is set: `who` wants right results. */
Status null_refuse(const Config *c, const char *who);

/* Replaces the groups of e->mesh that comm.null names, and puts the real ones back. */
Status null_groups(const Config *c, Mesh *m, Arena *tables);
void null_undo(Mesh *m);
/* Gives the entries of transfers something to hold: all of them, or if comm.null leaves them out. */
Status null_entries(Engine *e);
Status null_fill(Engine *e);

#endif
