/*
 * mesh: the axes that ranks are laid out on.
 *
 * pp pipeline stages, dp data parallel (shard x replicate), ep experts (folded over dp x cp), cp
 * context; tp is reserved: parameters and checkpoints have a place for it, nothing cuts along it.
 */
#ifndef COMM_MESH_H
#define COMM_MESH_H

typedef enum Axis { AXIS_PP, AXIS_DP, AXIS_EP, AXIS_CP, AXIS_TP, AXIS_COUNT } Axis;

#endif
