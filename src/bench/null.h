/* null: leaves traffic out of a step, to measure what it costs. Groups that carry such traffic send nothing
 * (null_comm.c), so the results of the step are wrong. What all ranks agree on once a step (norm, overflow,
 * loads: GROUP_WORLD, GROUP_STAGE) and the counts of an auxiliary loss (GROUP_SEQUENCE) are always sent. */
#ifndef BENCH_NULL_H
#define BENCH_NULL_H

#include "bench/idle.h"
#include "engine/count/engine_count.h"

enum { NULL_TRAFFICS = TRAFFICS, NULL_GROUPS = 5 };

/* A kind of traffic: its word on the command line and the groups that carry it. */
typedef struct NullTraffic {
    const char *word;
    MeshGroup group[NULL_GROUPS]; /* the groups that carry it; GROUP_WORLD ends the list */
} NullTraffic;

extern const NullTraffic null_traffic[NULL_TRAFFICS];

/* Does this mesh have such traffic? */
bool null_moves(const NullTraffic *t, const MeshShape *s);

/* Replaces the groups of an engine that carry silent traffic (EngineShape.swap). It must outlive the engine. */
typedef struct NullGroups {
    GroupSwap swap;  /* comes first: the engine hands a pointer to it back */
    unsigned silent; /* bit i: Traffic i is not sent */
} NullGroups;

NullGroups null_groups(unsigned silent);

/* Makes a group with the same members whose calls send nothing. null_comm.c says what they return instead.
 * NULL gives NULL. Freeing it frees `real`. null_real returns the `real` of such a group, and any other
 * group unchanged. */
Status null_comm(Comm *real, Arena *a, Comm **out);
Comm *null_real(Comm *c);

#endif
