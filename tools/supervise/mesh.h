/* mesh: another mesh for the ranks that are left, chosen by the planner among those that fit the batch. */
#ifndef SUPERVISE_MESH_H
#define SUPERVISE_MESH_H

#include "engine/host/process.h"
#include "planner/report.h"

typedef struct OtherMesh {
    ProcessWords settings; /* section.key=value */
    int ranks;             /* at most those that are left */
    char text[PLAN_LAYOUT_BYTES];
} OtherMesh;

/* The fastest layout on `ranks` GPUs of `cluster` (a name or a file of hardware), or on the most below that share out
 * the batch. The batch and the mathematics stay: with moe.aux_scope=global the loss depends on the mesh, so that is
 * ERR_UNSUPPORTED. ERR_FIT: no mesh fits. */
Status supervise_mesh(const Config *c, int ranks, const char *cluster, Arena *a, OtherMesh *out);

#endif
