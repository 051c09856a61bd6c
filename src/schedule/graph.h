/*
 * graph: what waits for what in the Programs of all ranks, for estimate.h. Private to schedule/.
 *
 * Times are numbered in an order in which each follows those it waits for; 0 is the start of the
 * step. A pass or a transfer has one time, its end. Where passes are taken apart a pair of a
 * forward and a backward (or one of them) has six.
 */
#ifndef SCHEDULE_GRAPH_H
#define SCHEDULE_GRAPH_H

#include "schedule/schedule.h"

#include <stdint.h>

/* Costs of a place (rank * chunks + chunk); behind those of all places, that of a transfer. */
enum { COST_FORWARD, COST_INPUT, COST_WEIGHT, COST_BACKWARD, COSTS };

/* What a pair reads: the lanes as the pair before left them, and its two inputs. */
enum { PAIR_COMPUTE, PAIR_COMM, PAIR_FORWARD, PAIR_BACKWARD, PAIR_STATE };
/* Its times: both lanes' ends and the ends of both passes as above, then when both inputs were
 * read. */
enum { PAIR_READ = PAIR_STATE, PAIR_TIMES = PAIR_STATE + 2 };

/* Time `i` of nodes of one time each: max over before, and a cost. */
typedef struct GraphNode {
    int before[3], cost;
} GraphNode;

typedef struct GraphPair {
    int lane;          /* times of the pair before on this rank, -1 for none */
    int in[2], out[2]; /* of forward and backward: the transfer of the input; of the last output in
                          the same entry; 0 for none */
    int rank, pairing;
    int nodes; /* transfers since the pair before in the order of times */
} GraphPair;

/* Places of a forward and a backward, -1 for none. */
typedef struct GraphPairing {
    int place[2];
} GraphPairing;

/* So many arenas are used by these chunks: slots, or arenas of a pool from which each split pass
 * takes the lowest free one for its gradients. */
typedef struct SlotUse {
    uint64_t chunks;
    bool gradients;
    int count;
} SlotUse;

/* What of a chunk's slots is live at once: as in SlotBytes. */
enum { LIVE_INPUT, LIVE_WEIGHT, LIVE_GRADIENTS, LIVE_PARTS };

typedef struct GraphRank {
    int first, last; /* time of the first and last pass; number of the first pair, times of the
                        last */
    int slots, entries, uses, peaks;
    SlotUse *use;                              /* of the first slot, then the others */
    unsigned char passes[SCHEDULE_CHUNKS_MAX]; /* by chunk: set of CHUNK_ */
    int *peak; /* by (peak, chunk, part): how many are live when it can be most; none of phases */
} GraphRank;

typedef struct Graph {
    const ScheduleDesc *schedule;
    ScheduleShape shape;
    bool apart; /* weight gradients' share of a backward decides */
    int nodes, pairs, pairings, times;
    GraphNode *node;
    GraphPair *pair;
    GraphPairing *pairing;
    GraphRank *rank;
} Graph;

/* In `a`; `scratch` is given back. */
typedef Status (*GraphMake)(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                            Graph **out);
Status graph_make(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                  Graph **out);

/* Only the slots of ranks and their uses, from the orders: fast for any number of micro-batches. */
Status graph_slots(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                   Graph **out);

#endif
