/*
 * shards: what ranks share out comes together for compute and goes apart again (ZeRO,
 * arXiv:1910.02054).
 *
 * Weights that are shared out (stage 3) are gathered layer by layer into one of two places, even
 * and odd layers, and stay until the place is wanted by another layer: so once in forward, and once
 * in backward unless the layer is still there. Gradients that are shared out (stage 2 and 3) are
 * made in such places, too; once a pass over the layer has ended they are added over the ranks and
 * into the own part. Where gradients are held whole (stages 0 and 1) a layer's are added over the
 * ranks as soon as the step's last pass over it has ended, so in the order of backward.
 *
 * Replicas add their parts up last. Sums are of gradients that are already divided by the global
 * batch's targets: nothing is divided by a number of ranks.
 */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "train/engine.h"

/* How the ranks of a mesh share out. */
ParamShards shards_of(const Config *c, const Mesh *m);

/* Bookkeeping, in tables; norm and update ranges. */
Status shards_make(Engine *e);

/* A step or an evaluation begins: nothing is under way. Weights in the two places are of before: a
 * captured step filled them without the host, and has changed the weights since. */
void shards_begin(Engine *e);

/* The weights of a layer are whole, those of the one that comes `ahead` of it (1, -1; 0: none) on
 * their way; there is room for its gradients. Before each of its phases. */
Status shards_open(Engine *e, int layer, int ahead, bool gradients);
/* A pass over the layer with weight gradients has ended. */
Status shards_close(Engine *e, int layer);

/* All gradients of the step are there. */
Status shards_reduce(Engine *e);

/* The own parts of the weights have changed: those that are held whole are made whole. */
Status shards_gather(Engine *e);

/* bf16 weights from the main weights, then shards_gather. */
Status shards_refresh(Engine *e);

#endif
