/*
 * shards: sharded parameters and gradients (ZeRO, arXiv:1910.02054): which buckets are gathered for
 * compute, which are reduced after it, and which rank updates what. The Program says when each of
 * this happens (engine/schedule/lower_shards.c).
 *
 * Sharded weights (ZeRO-3) are gathered into one half of a buffer: even layers into the first, odd
 * ones into the second. Sharded gradients (ZeRO-2 and 3) are made in such a buffer, too. After each
 * pass over a layer they are added over the ranks, and each rank adds its part of the sum to its
 * shard.
 * Gradients that are held whole (ZeRO-0 and 1) are added over the ranks once, after a layer's last
 * pass.
 *
 * Replicas add their gradients last. A gradient is already divided by the number of targets of the
 * global batch, so no sum is divided by a number of ranks.
 */
#ifndef ENGINE_STEP_SHARDS_H
#define ENGINE_STEP_SHARDS_H

#include "engine/step/engine_parts.h"

/* How the ranks of a mesh shard parameters. */
ParamShards shards_of(const Config *c, const Mesh *m);

/* The group that shards a bucket, or whose ranks all hold it whole. */
MeshGroup shards_group(const ParamBucket *k);

/* Lists the ranges that this rank updates and those that it counts in the norm, in w->tables. */
Status shards_make(EngineParams *w);

/* The part of a trained matrix that this rank updates: *main is of its main weights, *low of the copy that
 * products read (no data: none), *first the part's first element. False: this rank updates none of it. */
bool shards_updated(const EngineParams *w, const Matrix *m, Tensor *main, Tensor *low,
                    int64_t *first);

/* Does the update write the lasting 8-bit copies of a matrix? It must update all of it, and nothing may change the
 * matrix after it. */
bool shards_update_copies(const EngineParams *w, const Matrix *m);
/* Makes the lasting 8-bit copies of a bucket's matrices (engine/model/recipe.h): of all, or only those that the update
 * does not write. */
Status shards_quantise(EngineParams *w, int bucket, bool all);
/* Gathers the weights of a layer from the ranks of their group, and quantises what is staged. */
Status shards_gather(EngineParams *w, int layer);
/* Before a step: sets gradients to zero. Expert weight gradients, which are most of them, stay as they
 * are: the first pass over their layer overwrites them, and later ones add (EngineParams.written). */
Status shards_begin(EngineParams *w);
/* Zeroes the half of `gathered` in which a layer's gradients are made. */
Status shards_zero(EngineParams *w, int layer);
/* Adds a layer's gradients over the ranks of their group. Sharded ones are added to this rank's shard. */
Status shards_reduce(EngineParams *w, int layer);
/* Adds a layer's reduced gradients over replicas, and over both stages if two hold the layer. Where other
 * buckets are sharded, SHARD_WHOLE buckets are added over their group first. */
Status shards_sum(EngineParams *w, int layer);

/* Adds the bits of all summed gradients to their layers' checksums (checks.h). */
Status shards_check(EngineParams *w);

/* Gathers all weights if they are replicated while the main weights are sharded (ZeRO-1 and 2). */
Status shards_gather_all(EngineParams *w);

#endif
