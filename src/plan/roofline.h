/*
 * roofline: what an op takes on a GPU under a stack.
 *
 * Compute: the larger of FLOPs over the rate of the work's kind, type and size, and bytes over the
 * rate of memory, and the stack's loss between kernels. Communication: collective.h.
 */
#ifndef PLAN_ROOFLINE_H
#define PLAN_ROOFLINE_H

#include "model/spec.h"
#include "op/op.h"
#include "plan/collective.h"
#include "plan/stack.h"

/* Where an op's time goes. */
typedef enum RooflineLane {
    ROOFLINE_COMPUTE,
    ROOFLINE_EXCHANGE,
    ROOFLINE_CONTEXT,
    ROOFLINE_LANES
} RooflineLane;

typedef struct Roofline {
    const Hardware *hardware;
    const StackValues *stack;
    const ModelSpec *spec; /* of which layers: ep, cp */
    double tokens;         /* of a micro-batch on one rank */
} Roofline;

typedef struct RooflineTime {
    RooflineLane lane;
    double s;
    double rate; /* FLOP/s that it may reach; 0: bytes bound it */
} RooflineTime;

/* `layer` is the one the op belongs to. ERR_ARG if the GPU has no rate for it. */
Status roofline_op(const Roofline *r, const LayerSpec *layer, const OpCost *c, RooflineTime *out);

/* Seconds to move bytes through memory. */
double roofline_memory_s(const Roofline *r, double bytes);

/* A collective that costs `c`, over a group. */
Status roofline_collective(const Hardware *h, const OpCost *c, const CollectiveGroup *g,
                           CollectiveCost *out);

/* `ranks` of a group that are `stride` GPUs apart: how many of them share a scale-up domain. */
CollectiveGroup roofline_group(const Hardware *h, int64_t ranks, int64_t stride);

#endif
