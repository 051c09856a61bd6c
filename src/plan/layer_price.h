/*
 * layer_price: what a layer of each kind takes of memory and time for one micro-batch: counted
 * once, kept, and added up for any layout.
 *
 * A class is layers that are alike: the embedding, attention over all keys or over chunks, a dense
 * MLP, a MoE layer, the head. A model has a handful.
 */
#ifndef PLAN_LAYER_PRICE_H
#define PLAN_LAYER_PRICE_H

#include "plan/plan.h"
#include "plan/roofline.h"
#include "schedule/estimate.h"
#include "train/layer_count.h"

enum { LAYER_CLASSES_MAX = 8, LAYER_OPS_MAX = 64 };

/* The calls of one op in one pass of a layer, added up. */
typedef struct OpPrice {
    const char *name;
    LayerPass pass;
    OpWork work;
    RooflineLane lane;
    int calls;
    double flops, bytes, comm_bytes, size, s;
    double rate; /* FLOP/s that it may reach; 0: bytes bound it */
} OpPrice;

typedef struct LayerPrice {
    LayerCount count;              /* what it keeps is the stack's */
    ChunkTimes time;               /* of the device */
    double lane_s[ROOFLINE_LANES]; /* of time: by lane */
    double host_s, wait_s;         /* of the host, and of the device for it: all passes */
    OpPrice op[LAYER_OPS_MAX];
    int n_ops;
} LayerPrice;

/* All that a layout's layers depend on. */
typedef struct PriceKey {
    int64_t micro_batch;
    int ep, cp;
    unsigned recompute;
} PriceKey;

/* Seconds of a micro-batch; compute: of all passes, what is on the compute lane. */
typedef struct PassSum {
    double forward, input, weight, compute;
} PassSum;

typedef struct PriceEntry {
    PriceKey key;
    StackValues stack;
    ModelSpec spec;
    LayerPrice plain[LAYER_CLASSES_MAX];      /* nothing recomputed */
    LayerPrice recomputed[LAYER_CLASSES_MAX]; /* with the set */
    PassSum *before[2]; /* by block and one more: all blocks before it, plain and recomputed */
    PassSum embedding, head;
} PriceEntry;

#endif
