/*
 * shards: what ranks share of parameters and gradients (ZeRO, arXiv:1910.02054): which buckets come
 * together for compute, which go apart again, and who updates what. When is said by the Program
 * (schedule/lower_shards.c).
 *
 * Weights of which each rank has a part (stage 3) are gathered into one of two places, even and odd
 * layers. Gradients of which each has a part (stages 2 and 3) are made in such places, too, and
 * added over the ranks and into the own part after each pass over the layer. Where gradients are
 * held whole (stages 0 and 1) a layer's are added over the ranks once, after the last pass over it.
 *
 * Replicas add their parts up last. Sums are of gradients that are already divided by the global
 * batch's targets: nothing is divided by a number of ranks.
 */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "train/engine.h"

/* How the ranks of a mesh share out. */
ParamShards shards_of(const Config *c, const Mesh *m);

/* What a Program is told of them; sums: replicas, or two stages, may hold the same layer. */
ScheduleShards shards_schedule(const ParamShards *s, bool sums);

/* Bookkeeping, in tables; norm and update ranges. */
Status shards_make(Engine *e);

/* A layer's weights become whole. */
Status shards_gather(Engine *e, int layer);
/* The place of a layer's gradients becomes zero. */
Status shards_zero(Engine *e, int layer);
/* A layer's gradients are added over the ranks that share it, into the own part if each has one. */
Status shards_reduce(Engine *e, int layer);
/* What has been reduced of a layer is added over replicas and over two stages that hold it; so is
 * what every rank holds whole while others' gradients have parts. */
Status shards_sum(Engine *e, int layer);

/* Outside of a step: the weights that a layer reads are whole. */
Status shards_bring(Engine *e, int layer);

/* bf16 weights from the main weights, whole on every rank that holds them whole. */
Status shards_refresh(Engine *e);

#endif
