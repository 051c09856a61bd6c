/*
 * chunk_count: what a micro-batch takes on a chunk of layers, added up from its layers: byte for
 * byte what the counting run of the engine finds. It repeats the marks that forward_pass and
 * backward_pass of run_layers.c take and give back, and tests/unit/train/test_chunk_count holds
 * both equal.
 */
#ifndef TRAIN_CHUNK_COUNT_H
#define TRAIN_CHUNK_COUNT_H

#include "train/engine_parts.h"
#include "train/layer_count.h"

typedef struct ChunkBytes {
    size_t slot[SLOT_PARTS], ring[RINGS], scratch; /* ring: without the entries */
    size_t eval;                                   /* of the slot in an evaluation */
    size_t pool;                                   /* of the slot in training: of rows */
} ChunkBytes;

/* n >= 1 layers in order; passes: of the CHUNK_ set; pool: ModelSpec.pool. */
ChunkBytes chunk_count(const LayerCount *const *layer, int n, unsigned passes, double pool);

#endif
