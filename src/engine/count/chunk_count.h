/*
 * chunk_count: what a micro-batch takes on a chunk of layers, added up from its layers. The result is
 * byte for byte what the counting run of the engine finds: the sums follow the marks that forward_pass
 * and backward_pass (run_layers.c) take and give back. tests/engine/unit/count/test_chunk_count holds both
 * equal. A search prices each layout with it, so it must not run layers.
 */
#ifndef ENGINE_COUNT_CHUNK_COUNT_H
#define ENGINE_COUNT_CHUNK_COUNT_H

#include "engine/count/layer_count.h"
#include "engine/schedule/action.h"

/* The arenas that a micro-batch takes on a chunk. KEEP belongs to the slot from the forward to the
 * last backward. Where weight gradients run apart, GRADS is an arena of a pool. The slot has it from
 * the input gradients to the weight gradients. */
typedef enum SlotPart { SLOT_KEEP, SLOT_GRADS, SLOT_PARTS } SlotPart;

/* Backward has a ring of its own in phased programs, where it runs in parallel with a forward, and for every
 * second layer over ranks of tp. */
enum { RING_FORWARD, RING_BACKWARD, RINGS };

/* The ring of layer i of a chunk in a whole backward. Over ranks of tp the comm lane begins with the next layer's
 * rows while weight gradients still read this layer's ring, so layers take turns. */
static inline int backward_ring(bool tensor, int i)
{
    return tensor && i % 2 != 0 ? RING_BACKWARD : RING_FORWARD;
}

typedef struct ChunkBytes {
    size_t slot[SLOT_PARTS], ring[RINGS], scratch; /* ring: without the entries */
    size_t split_keep; /* of SLOT_KEEP: of a micro-batch whose backward is split */
    size_t eval;       /* the slot in an evaluation */
    size_t pool;       /* the slot's pool of rows in training */
} ChunkBytes;

/* n >= 1 layers in order; passes: of the CHUNK_ set; pool: ModelSpec.pool. */
ChunkBytes chunk_count(const LayerCount *const *layer, int n, unsigned passes, double pool);

#endif
