/*
 * estimate: the price of a pipeline layout in less than a millisecond, for a search over many.
 *
 * The orders of a shape's passes are made once and kept as one list in which each pass follows
 * those it waits for: the one before it on its rank, and the one whose output it reads. A price is
 * one walk over the list, a maximum and a sum a pass, two lanes where passes are taken apart.
 *
 * It is the simulator's step (simulate.h) but for one thing: nobody waits for an entry of the ring
 * of transfers. So it is never above the simulator's, and below it only where other costs or slow
 * links make entries run out (schedule.h); tests hold it to 1 %. What an engine allocates (slots,
 * entries, arenas of gradients) is exact.
 *
 * Why two engines: on one core of an EPYC an estimate of 1f1b takes 6 us for 8 stages and 32
 * micro-batches, the simulator 180; of zbv 8 and 600, of 1f1b-overlap 31 and 1,700. With simulations
 * in place of estimates README's search takes 11.9 s of processor time instead of 1.1, one for 768
 * GPUs 18.1 instead of 2.8. Without bounds (plan/price_bound.c) they take 5.0 and 13.8. What both
 * engines need is written once: orders (order.h), slots (lower.h), block_phases.
 */
#ifndef SCHEDULE_ESTIMATE_H
#define SCHEDULE_ESTIMATE_H

#include "schedule/simulate.h"

enum { CHUNK_PASSES = 3 };

/* Seconds of one micro-batch. Schedules that do not take passes apart use the sums; those that do
 * have weight gradients in the phases that compute only. */
typedef struct ChunkTimes {
    union {
        struct {
            double forward[PHASES], input[PHASES], weight[PHASES];
        };
        double of[CHUNK_PASSES][PHASES]; /* the same, in this order */
    };
} ChunkTimes;

typedef struct EstimateInput {
    const ScheduleDesc *schedule;
    int stages, chunks, micros, blocks;
    const ChunkTimes *time; /* by rank * chunks + chunk, as slot is */
    const SlotBytes *slot;  /* NULL: memory is not followed */
    double send_s;          /* one transfer between ranks */
} EstimateInput;

typedef struct EstimateRank {
    double slot_arena_bytes; /* what an engine allocates: over slots and the arenas that split
                                passes take in turn, the largest chunk in it */
    double first_slot_bytes; /* of it, slot 0 */
    double pool_bytes;       /* of it, pools of rows */
    double grad_bytes;       /* of it, the arenas of split passes */
    int slots, entries;      /* of the Program of estimate_shape() */
    int grad_arenas;
} EstimateRank;

typedef struct Estimate {
    double step_s, bubble; /* mean share of the step in which compute lanes idle */
    EstimateRank *rank;    /* until the Estimator's next price */
} Estimate;

struct Passes;

/* For one thread. */
typedef struct Estimator {
    Arena kept, scratch;
    struct Passes **passes; /* a hash table; when `kept` is full, all are forgotten */
    EstimateRank *rank;
} Estimator;

/* cap_bytes: of lists; one takes 8 bytes a pass and a few KiB a rank. */
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
