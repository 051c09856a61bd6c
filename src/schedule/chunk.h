/* chunk: what a schedule is told of the layers of a chunk: the phases of their passes, in the order
 * in which they run, each with its lane. lower.h makes actions of them, each a range of such phases
 * on one lane; simulate.h asks for their times. */
#ifndef SCHEDULE_CHUNK_H
#define SCHEDULE_CHUNK_H

#include "base/arena.h"
#include "base/lane.h"

#include <stdbool.h>

/* One phase of one layer. A layer that is computed again in backward has its forward's phases once
 * more in front of its own in backward's row. */
typedef struct ChunkPhase {
    const char *kind, *name;  /* of the layer; of the phase */
    short layer, own;         /* of the chunk, from 0; of the model; -1: none, it hands on */
    short weights;            /* the layer of the model whose large weights it reads, and to
                                     whose gradients it adds: its own; a tied head's the table's */
    short half;               /* which of two places these lie in while it runs, where ranks
                                     share them; -1: they do not. Phases on the comm lane read none */
    short block;              /* of the chunk, from 0 */
    unsigned char phase;      /* of the layer's row */
    unsigned char part, lane; /* BlockPart, Lane */
    bool recompute;           /* of forward, for the second time */
    bool overlap_ok;          /* needs nothing of the phase on the comm lane before it */
    bool communicates;        /* talks to other ranks although it is on the compute lane */
    bool gradients;           /* adds to gradients with its input's: the head in forward, phases
                                     over context ranks in backward */
    bool ends;                /* the last one of its layer in backward's row */
} ChunkPhase;

typedef struct ChunkRow {
    const ChunkPhase *at;
    int n;
} ChunkRow;

enum { ROW_FORWARD, ROW_BACKWARD, CHUNK_ROWS };

/* So many layers can lie whole at once, where ranks share weights or gradients. */
enum { CHUNK_HALVES = 2 };

typedef struct Chunk {
    ChunkRow row[CHUNK_ROWS];
    int blocks; /* at least 1: embedding and head belong to the first and the last */
} Chunk;

/* How ranks that hold the same layers share their parameters (ZeRO, arXiv:1910.02054). */
typedef struct ScheduleShards {
    bool weights;   /* each has a part: gathered before each use, into one of two places */
    bool gradients; /* each has a part of the sums: reduced after each pass over a layer */
    bool reduce;    /* there are such ranks: else reduced once, after the last pass over it */
    bool sums;      /* sums over replicas, or over stages that hold the same, come at the end */
    bool update;    /* each updates a part of weights that all hold: gathered after the update */
} ScheduleShards;

/* A chunk for pipelines without a model: of so many blocks of four phases, one a part; of one phase
 * for 0 blocks. */
Status chunk_of_blocks(int blocks, Arena *a, Chunk *out);

#endif
