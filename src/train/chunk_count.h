/*
 * chunk_count: what a micro-batch takes on a chunk of layers, added up from its layers. The result is
 * byte for byte what the counting run of the engine finds: the sums follow the marks that forward_pass
 * and backward_pass (run_layers.c) take and give back. tests/unit/train/test_chunk_count holds both
 * equal. A search prices each layout with it, so it must not run layers.
 */
#ifndef TRAIN_CHUNK_COUNT_H
#define TRAIN_CHUNK_COUNT_H

#include "train/engine_parts.h"
#include "train/layer_count.h"

typedef struct ChunkBytes {
    size_t slot[SLOT_PARTS], ring[RINGS], scratch; /* ring: without the entries */
    size_t split_keep; /* of SLOT_KEEP: of a micro-batch whose backward is split */
    size_t eval;       /* the slot in an evaluation */
    size_t pool;       /* the slot's pool of rows in training */
} ChunkBytes;

/* n >= 1 layers in order; passes: of the CHUNK_ set; pool: ModelSpec.pool. */
ChunkBytes chunk_count(const LayerCount *const *layer, int n, unsigned passes, double pool);

#endif
