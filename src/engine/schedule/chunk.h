/* chunk: what a schedule knows of the layers of a chunk: the phases of their passes in order, each with
 * its lane. lower.h makes actions of them, each a range of phases on one lane. simulate.h asks for their
 * times. Nothing here knows what a layer computes. */
#ifndef ENGINE_SCHEDULE_CHUNK_H
#define ENGINE_SCHEDULE_CHUNK_H

#include "engine/base/arena.h"
#include "engine/base/lane.h"

#include <stdbool.h>

/* One phase of one layer. In backward's row a recomputed layer has its forward phases once more, before
 * its own. */
typedef struct ChunkPhase {
    const char *kind, *name; /* of the layer; of the phase */
    short layer, own;    /* number in the chunk; in the model; -1: none, it passes its input on */
    short weights;       /* the layer of the model whose large weights it reads, and to whose
                                 gradients it adds: its own, or for a tied head the table's */
    short half;          /* if ranks share these weights: the half in which they lie while it
                                 runs; else -1. Phases on the comm lane read none */
    short block;         /* of the chunk, from 0 */
    unsigned char phase; /* number in the layer's row of phases */
    unsigned char part, lane; /* BlockPart, Lane */
    bool recompute;           /* a forward phase that runs a second time */
    bool overlap_ok;          /* needs no result of the comm phase before it */
    bool communicates;        /* talks to other ranks although it is on the compute lane */
    bool tensor;    /* gathers or scatters rows over ranks of tp, or norms them before it */
    bool gradients; /* adds to weight gradients together with its input's gradient: the head
                                 in forward, phases over context ranks in backward */
    bool ends;      /* the last phase of its layer in backward's row */
} ChunkPhase;

/* The phases of one direction in the order in which they run. */
typedef struct ChunkRow {
    const ChunkPhase *at;
    int n;
} ChunkRow;

enum { ROW_FORWARD, ROW_BACKWARD, CHUNK_ROWS };

/* If ranks share weights or gradients, this many layers can be whole at once: one in each half of the
 * buffer. */
enum { CHUNK_HALVES = 2 };

/* What a schedule sees of the layers between two stage boundaries. */
typedef struct Chunk {
    ChunkRow row[CHUNK_ROWS];
    int blocks; /* at least 1: embedding and head belong to the first and the last */
} Chunk;

/* How ranks that hold the same layers share their parameters (ZeRO, arXiv:1910.02054). */
typedef struct ScheduleShards {
    bool weights;   /* ZeRO-3: weights are sharded, and gathered before each use into a half */
    bool gradients; /* ZeRO-2, 3: gradients are sharded, and reduced after each pass over a layer */
    bool reduce; /* several ranks share the layers; without `gradients` they reduce once, after the
                     * last pass over a layer */
    bool sums; /* at the end gradients are added over replicas, or over stages that share layers */
    bool update; /* ZeRO-1, 2: ranks update shards of replicated weights, then gather them */
} ScheduleShards;

/* A chunk for pipelines without a model. Each block has four phases, one for each part. With 0 blocks the
 * chunk has one phase. */
Status chunk_of_blocks(int blocks, Arena *a, Chunk *out);

#endif
