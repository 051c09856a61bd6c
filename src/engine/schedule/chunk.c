/* chunk: a chunk of blocks without a model, for tests of schedules and for estimates of their shape. Chunks of
 * real layers are made in engine/count/chunks.c. */
#include "engine/schedule/chunk.h"

static ChunkPhase part_of_block(int block, int part)
{
    static const char *const names[PHASES] = { "attention", "dispatch", "experts", "combine" };
    return (ChunkPhase){ .kind = "block",
                         .name = names[part],
                         .layer = (short)block,
                         .own = (short)block,
                         .weights = (short)block,
                         .half = -1,
                         .block = (short)block,
                         .phase = (unsigned char)part,
                         .part = (unsigned char)part,
                         .lane = part % 2 == 0 ? LANE_COMPUTE : LANE_COMM,
                         .ends = part == PHASE_ATTENTION };
}

Status chunk_of_blocks(int blocks, Arena *a, Chunk *out)
{
    int n = blocks > 0 ? blocks * PHASES : 1;
    ChunkPhase *forward = NULL, *backward = NULL;
    TRY(ARENA_NEW(a, n, &forward));
    TRY(ARENA_NEW(a, n, &backward));
    for (int i = 0; i < n; i++) {
        forward[i] = part_of_block(i / PHASES, i % PHASES);
        backward[n - 1 - i] = forward[i];
    }
    forward->ends = backward[n - 1].ends = true;
    *out = (Chunk){ .row = { { forward, n }, { backward, n } }, .blocks = blocks > 0 ? blocks : 1 };
    return OK;
}
