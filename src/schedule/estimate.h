/*
 * estimate: the price of a pipeline layout in tens of microseconds, for a search over many.
 *
 * It is the simulator's price (simulate.h), not another model's: the Programs of a shape are made
 * once and kept as a graph of what waits for what, sorted so that each time needs only times before
 * it; a price is one walk over the graph, three maxima and a sum a node. What does not depend on
 * times is kept beside it: which chunks share a slot, entries, and which sets of live slots can be
 * the peak.
 *
 * Where passes are taken apart, a forward and its backward are one node: the ten phases of a block
 * are linear over (max, +), and so is a row of blocks; a matrix of four by four takes the two lanes
 * and the two micro-batches from its start to its end (Baccelli, Cohen, Olsder and Quadrat,
 * "Synchronization and Linearity", 1992).
 *
 * Such systems become periodic (ibid.), here after a few rounds of micro-batches over the stages.
 * So a step of more than ten rounds is not walked: it is that of six, and their growth since four
 * as often as it takes. Tests hold it to 1 % of the simulator. Entries and peaks are those of the
 * six; of schedules that take passes apart the peak may then be off by one chunk's gradients, as
 * whether a backward begins before the last one has ended can take longer to settle. Which chunks
 * share a slot is followed through all micro-batches, once a shape. V-half and V-min are always
 * walked whole.
 */
#ifndef SCHEDULE_ESTIMATE_H
#define SCHEDULE_ESTIMATE_H

#include "schedule/simulate.h"

/* Seconds of one micro-batch. Schedules that do not take passes apart use the sums; those that do
 * have weight gradients in the phases that compute only. */
typedef struct ChunkTimes {
    double forward[PHASES], input[PHASES], weight[PHASES];
} ChunkTimes;

typedef struct EstimateInput {
    const ScheduleDesc *schedule;
    int stages, chunks, micros, blocks;
    const ChunkTimes *time; /* by rank * chunks + chunk, as slot is */
    const SlotBytes *slot;  /* NULL: memory is not followed */
    double send_s;          /* one transfer between ranks */
} EstimateInput;

typedef struct EstimateRank {
    double busy_s;           /* of the compute lane */
    double peak_bytes;       /* largest sum of live slots over time, as the simulator gives it */
    double slot_arena_bytes; /* what an engine allocates: over slots and the arenas that split
                                passes take in turn, the largest chunk in it */
    double first_slot_bytes; /* of it, slot 0 */
    double grad_bytes;       /* of it, the arenas of split passes */
    int slots, entries;      /* of the Program of estimate_shape() */
    int grad_arenas;
} EstimateRank;

typedef struct Estimate {
    double step_s, bubble; /* mean share of the step in which compute lanes idle */
    int worst_rank;        /* of the largest peak_bytes */
    EstimateRank *rank;    /* until the Estimator's next price */
} Estimate;

struct Graph;

/* For one thread. */
typedef struct Estimator {
    Arena kept, scratch;
    struct Graph **graph; /* a hash table; when it or `kept` is full, all are forgotten */
    int graphs;
    EstimateRank *rank, *before;
} Estimator;

/* cap_bytes: of graphs; one takes 32 bytes a pass and a few KiB a rank. */
Status estimator_init(Estimator *e, size_t cap_bytes);
void estimator_free(Estimator *e);

/* The shape that Programs are made with: the mean times of forward, input and weight gradients in
 * 24ths of their sum, so that layouts that differ little share their Programs. Whoever lowers an
 * estimated layout lowers this. */
ScheduleShape estimate_shape(const EstimateInput *in);

/* By place, as in->slot, which is not looked at: how Programs go back over it, a set of CHUNK_. */
Status estimate_passes(Estimator *e, const EstimateInput *in, unsigned *out);

/* ERR_ARG if the schedule does not take the shape, or for a time that is negative or no number. */
Status estimate(Estimator *e, const EstimateInput *in, Estimate *out);

#endif
