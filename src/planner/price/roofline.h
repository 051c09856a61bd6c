/*
 * roofline: the time of an op on a GPU under a stack (Williams, Waterman, Patterson, 2009).
 *
 * Compute: the larger of FLOPs over the rate of the work's kind, type and size, and bytes over the memory rate,
 * plus what the stack loses between kernels. Communication: collective.h. FLOPs and bytes are the op's own
 * (OpDesc.cost), so this file knows no op.
 */
#ifndef PLANNER_PRICE_ROOFLINE_H
#define PLANNER_PRICE_ROOFLINE_H

#include "engine/model/spec.h"
#include "kernels/core/op.h"
#include "planner/price/collective.h"
#include "planner/stack/stack.h"

/* The kinds of time: compute, the exchange of tokens with sums of experts' loads, and other collectives of a layer: of
 * context and of tensor parallelism. */
typedef enum RooflineLane {
    ROOFLINE_COMPUTE,
    ROOFLINE_EXCHANGE,
    ROOFLINE_CONTEXT,
    ROOFLINE_TENSOR,
    ROOFLINE_LANES
} RooflineLane;

/* What the time of an op depends on besides its cost. */
typedef struct Roofline {
    const Hardware *hardware;
    const StackValues *stack;
    const ModelSpec *spec; /* for ep, cp, tp and the kind of exchange */
    double tokens;         /* of a micro-batch on one rank: the rows that it holds of the stream */
    double joined; /* micro-batches whose weight gradients are one product: 1 today, each its own */
} Roofline;

typedef struct RooflineTime {
    RooflineLane lane;
    double s;
    double rate;        /* FLOP/s that bound it; 0: bytes do */
    CollectiveLoad nic; /* what an exchange sends between domains */
} RooflineTime;

/* The kind of work by whose rates an op of this work runs. Our own engine takes those of its steps. Other stacks have
 * kernels of libraries, with the rates of forward products and of attention in any order. */
OpWork roofline_work(const StackValues *v, OpWork work);

/* The time of an op with cost `c` in `layer`. ERR_ARG: the GPU has no rate for it. */
Status roofline_op(const Roofline *r, const LayerSpec *layer, const OpCost *c, RooflineTime *out);

/* Of an op of work WORK_HEAD: the time in which ranks of tp add up what they know of the loss, which is no part of
 * roofline_op's. */
Status roofline_loss_sums(const Roofline *r, const OpCost *c, RooflineTime *out);

/* Seconds to move bytes through memory. */
double roofline_memory_s(const Roofline *r, double bytes);

/* The time of a collective with cost `c` over a group. */
Status roofline_collective(const Hardware *h, const OpCost *c, const CollectiveGroup *g,
                           CollectiveCost *out);

/* The group of `ranks` GPUs with this stride; sets how many of them share a scale-up domain. */
CollectiveGroup roofline_group(const Hardware *h, int64_t ranks, int64_t stride);

#endif
