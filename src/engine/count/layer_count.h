/*
 * layer_count: the memory and cost of one layer for one micro-batch, counted by running the layer alone on
 * arenas without memory. A planner adds these figures up (chunk_count.h) instead of counting each layout
 * in full. The engine does not use them: it counts its own list (engine_plan).
 */
#ifndef ENGINE_COUNT_LAYER_COUNT_H
#define ENGINE_COUNT_LAYER_COUNT_H

#include "engine/model/layer.h"

/* PASS_RECOMPUTE: the second forward of a recomputed layer, before its input gradients. */
typedef enum LayerPass {
    PASS_FORWARD,
    PASS_INPUT,
    PASS_WEIGHT,
    PASS_RECOMPUTE,
    LAYER_PASSES
} LayerPass;

/* Bytes, as arenas round them. A layer's input, output and their gradients (streams) are not part of them:
 * how many of these exist depends on the chunk. */
typedef struct LayerCount {
    bool begins, ends;      /* the layer begins or ends the residual stream */
    bool opens;             /* it is the first layer of its block */
    bool tensor;            /* ranks of tp hold the stream's rows */
    size_t stream;          /* of one stream, (N, D) */
    size_t streams;         /* of all streams of gradients that a chunk has at a time */
    size_t keep;            /* in the slot from forward to the last gradients */
    size_t keep_peak;       /* most in the slot while forward runs */
    size_t recompute_peak;  /* the same in backward, where a recomputed layer runs forward again */
    size_t recompute_bytes; /* kept by the second forward; in another arena if passes are split */
    size_t keep_eval;       /* most in the slot in an evaluation */
    size_t ring_forward, ring_backward, scratch;
    size_t ring_gradients; /* as ring_backward, but without the second forward */
    ParamSpaces params;    /* of the parameters here */
    int64_t state_elems;
    PoolNeed pool; /* not part of keep */
    OpTotals pass[LAYER_PASSES];
} LayerCount;

/* Called for every op that would run. phase: index in the layer's row of phases. */
typedef struct LayerCountObserver {
    Status (*op)(void *self, LayerPass pass, int phase, const OpDesc *op, const void *args,
                 const OpCost *cost);
    void *self;
    const Exec *exec; /* of exec_init, which asks the processor: one for many layers; NULL: new */
} LayerCountObserver;

/* Counts layer i of the spec for b sequences of t tokens on this rank. Releases what it takes of `scratch`. */
Status layer_count(const ModelSpec *s, int i, int64_t b, int64_t t,
                   const LayerCountObserver *observer, Arena *scratch, LayerCount *out);

#endif
