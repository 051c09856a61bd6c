/*
 * mesh: ranks laid out on axes.
 *
 * pp pipeline stages, dp data parallel (shard x replicate), cp context, ep experts (folded over
 * shard x cp).
 *
 *   rank = ((stage * replicate + r) * shard + s) * cp + c
 *   inner = s * cp + c:  expert rank inner % ep, expert shard inner / ep
 *
 * so cp lies innermost, then ep, then the rest of shard: ranks that exchange most are neighbours,
 * and stay inside a host as long as they fit. Ranks of one stage hold the same layers; those of one
 * shard group share out its dense parameters among them, those of one expert-shard group a set of
 * experts; replicas hold the same shard.
 */
#ifndef COMM_MESH_H
#define COMM_MESH_H

#include "base/text.h"
#include "comm/comm.h"

typedef enum Axis { AXIS_PP, AXIS_DP, AXIS_EP, AXIS_CP, AXIS_COUNT } Axis;

typedef enum MeshGroup {
    GROUP_WORLD,
    GROUP_STAGE,        /* all ranks with the same layers: shard x replicate x cp */
    GROUP_SHARD,        /* share out dense parameters: shard x cp */
    GROUP_EXPERT_SHARD, /* share out the same experts: shard x cp / ep */
    GROUP_REPLICA,      /* hold the same shard: replicate */
    GROUP_EP,           /* share the experts of a layer */
    GROUP_CP,           /* share a sequence */
    GROUP_PP,           /* one of each stage */
    GROUP_MADE,         /* so many mesh_make makes */
    GROUP_MIRROR = GROUP_MADE, /* two stages that hold the same parameters: train/ makes it */
    GROUP_COUNT
} MeshGroup;

extern const char *const mesh_group_names[GROUP_COUNT];

typedef struct MeshShape {
    int pp, replicate, shard, ep, cp; /* dp = replicate * shard */
} MeshShape;

/* A rank's place. */
typedef struct MeshPlace {
    int stage, replica, shard, cp, inner, ep, expert_shard;
} MeshPlace;

typedef struct Mesh {
    MeshShape shape;
    MeshPlace at;
    int rank, ranks;
    Comm *group[GROUP_COUNT]; /* NULL in a counting run */
} Mesh;

#ifdef __cplusplus
extern "C" {
#endif

/* The shape of `ranks` ranks; shard 0: all of dp. ERR_ARG: both numbers and what would fit. */
Status mesh_shape(int ranks, int pp, int ep, int cp, int shard, MeshShape *out);

static inline int mesh_ranks(const MeshShape *s) { return s->pp * s->replicate * s->shard * s->cp; }

/* Ranks that take different sequences of a batch, and which of them this is. */
static inline int mesh_data_ranks(const MeshShape *s) { return s->replicate * s->shard; }
static inline int mesh_data_rank(const Mesh *m)
{
    return m->at.replica * m->shape.shard + m->at.shard;
}

MeshPlace mesh_place(const MeshShape *s, int rank);
int mesh_rank(const MeshShape *s, int stage, int replica, int shard, int cp);

/* Which group of its kind a rank is in, and its place there. */
void mesh_color(const MeshShape *s, MeshGroup g, int rank, int *color, int *key);

/* All groups of this rank out of its world. Collective. */
Status mesh_make(Comm *world, const MeshShape *s, Arena *a, Mesh *out);
/* The same with one communicator for all kinds of groups that have the same members: on GPUs each
 * takes memory. mesh_first: the first kind that has the members of group g. */
Status mesh_make_few(Comm *world, const MeshShape *s, Arena *a, Mesh *out);
MeshGroup mesh_first(const MeshShape *s, MeshGroup g);
int mesh_group_size(const MeshShape *s, MeshGroup g);
/* The same without peers: of `rank`, for a counting run. */
Mesh mesh_alone(const MeshShape *s, int rank);
void mesh_free(Mesh *m); /* all but the world; safe on { 0 } */

/* The group of an axis: of DP all ranks of a stage; TP has none, NULL. */
Comm *mesh_axis(const Mesh *m, Axis axis);

/* A table of who is where, for people. */
Status mesh_print(const MeshShape *s, Text *out);

#ifdef __cplusplus
}
#endif

#endif
