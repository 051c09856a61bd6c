/*
 * mesh: ranks laid out on the axes of parallelism. It decides which ranks form which group; comm.h makes
 * the groups.
 *
 * Axes: pp pipeline stages, dp data parallel (shard x replicate), cp context parallel, tp tensor parallel,
 * ep expert parallel (folded over shard x cp x tp, so it needs no ranks of its own). Where ranks share each expert
 * (mesh.etp), ep here counts all ranks of such a group, mesh.ep x mesh.etp.
 *
 *   rank = (((stage * replicate + r) * shard + s) * cp + c) * tp + t
 *   inner = (s * cp + c) * tp + t:  expert rank inner % ep, expert shard inner / ep
 *
 * So tp is innermost, then cp, and ep lies over both. Ranks that exchange most are neighbours, and
 * stay on one host as long as they fit. If an EP group spans hosts, with `inside` ranks on each, it has
 * two more kinds of groups: the ranks on one host, and the ranks with the same number on their hosts.
 *
 * Ranks of one stage hold the same layers. Dense parameters are sharded over a shard group. Those that
 * tp splits are sharded over the ranks with the same part, a set of experts over an expert-shard group.
 * Replicas hold the same shards.
 */
#ifndef ENGINE_COMM_MESH_H
#define ENGINE_COMM_MESH_H

#include "engine/base/text.h"
#include "engine/comm/comm.h"

typedef enum Axis { AXIS_PP, AXIS_DP, AXIS_EP, AXIS_CP, AXIS_TP, AXIS_COUNT } Axis;

typedef enum MeshGroup {
    GROUP_WORLD,
    GROUP_STAGE,        /* all ranks of one pipeline stage: shard x replicate x cp x tp */
    GROUP_SHARD,        /* dense parameters are sharded over it: shard x cp x tp */
    GROUP_SPLIT_SHARD,  /* parts of those that tp splits are sharded over it: shard x cp */
    GROUP_EXPERT_SHARD, /* a set of experts is sharded over it: shard x cp x tp / ep */
    GROUP_REPLICA,      /* its ranks hold the same shards: replicate */
    GROUP_EP,           /* its ranks have different experts of a layer */
    GROUP_EP_INSIDE,    /* those of an EP group that share a host */
    GROUP_EP_ACROSS,    /* those of an EP group with the same number inside their hosts */
    GROUP_EXPERT_PARTS, /* those of an EP group with parts of the same experts, which update these as wholes */
    GROUP_CP,       /* its ranks have different pieces of a sequence */
    GROUP_TP,       /* its ranks have different parts of each matrix and of the stream's rows */
    GROUP_SEQUENCE, /* its ranks have different rows of the same sequences: cp x tp */
    GROUP_KEYS,     /* those of a TP group that hold the same heads of keys and values */
    GROUP_PP,       /* one rank of each pipeline stage */
    GROUP_MADE,     /* mesh_make makes the groups above */
    GROUP_REPLICA_STAGE = GROUP_MADE, /* two stages with the same parameters; train/ makes it */
    GROUP_COUNT
} MeshGroup;

extern const char *const mesh_group_names[GROUP_COUNT];

typedef struct MeshShape {
    int pp, replicate, shard, ep, cp; /* dp = replicate * shard */
    int inside; /* ranks of an EP group on each host, a divisor of ep; 0: all on one host */
    int tp;     /* 0 is 1 */
    int keys; /* ranks of a GROUP_KEYS, a divisor of tp: more than 1 with fewer heads than tp; 0 is 1 */
    int parts; /* ranks of a GROUP_EXPERT_PARTS, neighbours in an EP group; 0 is 1 */
    bool
        matrices; /* ranks bring whole matrices together for their update (kernels/optimizer/muon.h) */
} MeshShape;

/* A rank's coordinates: its number on each axis. */
typedef struct MeshPlace {
    int stage, replica, shard, cp, tp, inner, ep, expert_shard;
} MeshPlace;

/* A rank's view of the mesh. It owns its groups, except the world, which the caller opened. */
typedef struct Mesh {
    MeshShape shape;
    MeshPlace at;
    int rank, ranks;
    Comm *group[GROUP_COUNT]; /* NULL in a counting run */
} Mesh;

/* The shape of `ranks` ranks; shard 0: all of dp. ERR_ARG if they do not fit; it names both numbers and
 * what would fit. */
Status mesh_shape(int ranks, int pp, int ep, int cp, int tp, int shard, MeshShape *out);

/* How many ranks of an EP group are on one host, if each host has per_host ranks (0: one host has all).
 * ERR_ARG unless that is the same for all groups and hosts. */
Status mesh_inside(int ep, int per_host, int *out);

static inline int mesh_tp(const MeshShape *s) { return s->tp > 1 ? s->tp : 1; }
/* Ranks that have rows of the same sequences. */
static inline int mesh_sequence_ranks(const MeshShape *s) { return s->cp * mesh_tp(s); }
static inline int mesh_ranks(const MeshShape *s)
{
    return s->pp * s->replicate * s->shard * mesh_sequence_ranks(s);
}

/* How many ranks work on different sequences of a batch, and this rank's number among them. */
static inline int mesh_data_ranks(const MeshShape *s) { return s->replicate * s->shard; }
static inline int mesh_data_rank(const Mesh *m)
{
    return m->at.replica * m->shape.shard + m->at.shard;
}

/* The inverse of the formula above. Needs no communication: every rank can compute the place of
 * every other. */
MeshPlace mesh_place(const MeshShape *s, int rank);

/* color: which group of this kind a rank is in. key: its number in that group. */
void mesh_color(const MeshShape *s, MeshGroup g, int rank, int *color, int *key);

/* Makes all groups of this rank from its world. few: kinds of groups with the same members share one
 * communicator, because each uses GPU memory. Collective. */
Status mesh_make(Comm *world, const MeshShape *s, bool few, Arena *a, Mesh *out);
/* The first kind of group that has the same members as g. */
MeshGroup mesh_first(const MeshShape *s, MeshGroup g);
int mesh_group_size(const MeshShape *s, MeshGroup g);
/* Does every member of g send to every other, by transfers or all_to_all? stores: the ranks of the
 * experts store into each other's memory instead. */
bool mesh_exchanges(const MeshShape *s, MeshGroup g, bool stores);
/* The mesh as `rank` sees it, without groups: for a counting run. */
Mesh mesh_alone(const MeshShape *s, int rank);
void mesh_free(Mesh *m); /* frees all groups except the world; safe on { 0 } */

/* The group of an axis. For DP it is all ranks of a stage. */
Comm *mesh_axis(const Mesh *m, Axis axis);

/* Prints a table of every rank's numbers, for people. */
Status mesh_print(const MeshShape *s, Text *out);

#endif
