/*
 * layer_count: what one layer takes of one micro-batch, counted by running it alone over arenas
 * that have no memory: the pieces that a planner adds up without a run for each layout.
 */
#ifndef TRAIN_LAYER_COUNT_H
#define TRAIN_LAYER_COUNT_H

#include "model/layer.h"

/* PASS_RECOMPUTE: the forward of a recomputed layer before its input gradients. */
typedef enum LayerPass {
    PASS_FORWARD,
    PASS_INPUT,
    PASS_WEIGHT,
    PASS_RECOMPUTE,
    LAYER_PASSES
} LayerPass;

/* Bytes as arenas round them. Streams (a layer's input, output and their gradients) are not in
 * them: how many there are is the chunk's matter. */
typedef struct LayerCount {
    bool begins, ends;      /* the residual stream */
    bool opens;             /* its block */
    size_t stream;          /* (N, D) */
    size_t streams;         /* of gradients that the model's chunks have at a time */
    size_t keep;            /* in the slot from forward to the last gradients */
    size_t keep_peak;       /* most in the slot while forward runs */
    size_t recompute_peak;  /* the same in backward: a recomputed layer is made again */
    size_t recompute_bytes; /* what the second forward makes, if it lies apart (split passes) */
    size_t keep_eval;       /* most in the slot of a forward without training */
    size_t ring_forward, ring_backward, scratch;
    size_t ring_gradients;   /* of ring_backward without the second forward's */
    ParamSizes all, trained; /* of the parameters here */
    int64_t state_elems;
    PoolNeed pool; /* beside what it keeps */
    OpTotals pass[LAYER_PASSES];
} LayerCount;

/* Called for every op that would run. phase: of the layer's row. */
typedef struct LayerCountObserver {
    Status (*op)(void *self, LayerPass pass, int phase, const OpDesc *op, const OpCost *cost);
    void *self;
} LayerCountObserver;

/* Layer i of the spec with b sequences of t tokens here; `scratch` is given back. */
Status layer_count(const ModelSpec *s, int i, int64_t b, int64_t t,
                   const LayerCountObserver *observer, Arena *scratch, LayerCount *out);

#endif
