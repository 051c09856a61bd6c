/*
 * layer_count: what one layer takes for one micro-batch, counted by running it alone on arenas without
 * memory. A planner adds these figures up (chunk_count.h) instead of counting each layout in full. The
 * engine does not use them: it counts its own list (engine_plan).
 */
#ifndef TRAIN_LAYER_COUNT_H
#define TRAIN_LAYER_COUNT_H

#include "model/layer.h"

/* PASS_RECOMPUTE: the second forward of a recomputed layer, before its input gradients. */
typedef enum LayerPass {
    PASS_FORWARD,
    PASS_INPUT,
    PASS_WEIGHT,
    PASS_RECOMPUTE,
    LAYER_PASSES
} LayerPass;

/* Bytes as arenas round them. They leave out streams (a layer's input, output and their gradients):
 * how many there are depends on the chunk. */
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
    size_t ring_gradients; /* of ring_backward without the second forward's */
    ParamSpaces params;    /* of the parameters here */
    int64_t state_elems;
    PoolNeed pool; /* not part of keep */
    OpTotals pass[LAYER_PASSES];
} LayerCount;

/* Called for every op that would run. phase: of the layer's row. */
typedef struct LayerCountObserver {
    Status (*op)(void *self, LayerPass pass, int phase, const OpDesc *op, const void *args,
                 const OpCost *cost);
    void *self;
} LayerCountObserver;

/* Layer i of the spec with b sequences of t tokens here; `scratch` is given back. */
Status layer_count(const ModelSpec *s, int i, int64_t b, int64_t t,
                   const LayerCountObserver *observer, Arena *scratch, LayerCount *out);

#endif
