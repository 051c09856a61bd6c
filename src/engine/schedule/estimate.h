/*
 * estimate: time and memory of a pipeline layout in less than a millisecond, for a search over many.
 *
 * The orders of a shape's passes are made once and kept as one list. In it each pass stands after those it
 * waits for: the one before it on its rank, and the one whose output it reads. An estimate is one walk
 * over the list, with a maximum and a sum for each pass, on two lanes where passes are split into phases.
 *
 * It differs from the simulator (simulate.h) in one thing: no transfer waits for a free entry. So it is
 * never above the simulator's time, and below it only where other costs or slow links make entries run
 * out (schedule.h); tests hold the difference to 1 %. What an engine allocates (slots,
 * entries, arenas of gradients) is exact.
 *
 * Of a step with many micro-batches a few periods are walked, and the time that a period adds is added for the others.
 * Then a step whose slowest path changes late may be off by up to 0.02 %. Slots and entries stay exact.
 *
 * Why two engines: on one core of an EPYC an estimate of 1f1b takes 6 us for 8 stages and 32
 * micro-batches, the simulator 180; of zbv 8 and 600, of 1f1b-overlap 31 and 1,700. With simulations
 * in place of estimates the search in README takes 11.9 s of processor time instead of 1.1, one for 768
 * GPUs 18.1 instead of 2.8. Without bounds (planner/price/price_bound.c) they take 5.0 and 13.8. What both
 * engines need is written once: orders (order.h), slots (lower.h), block_phases.
 */
#ifndef ENGINE_SCHEDULE_ESTIMATE_H
#define ENGINE_SCHEDULE_ESTIMATE_H

#include "engine/schedule/simulate.h"

enum { CHUNK_PASSES = 3 };

/* Seconds of one micro-batch on a chunk, by phase. Schedules that do not split passes use only the sums. Those
 * that do have weight gradients only in phases that compute. */
typedef struct ChunkTimes {
    union {
        struct {
            double forward[PHASES], input[PHASES], weight[PHASES];
        };
        double of[CHUNK_PASSES][PHASES]; /* the same, in this order */
    };
} ChunkTimes;

/* A layout to be timed. Times are in seconds, memory in bytes. */
typedef struct EstimateInput {
    const ScheduleDesc *schedule;
    int stages, chunks, micros, blocks;
    const ChunkTimes *time; /* by rank * chunks + chunk, as slot is */
    const SlotBytes *slot;  /* NULL: memory is not followed */
    double send_s;          /* one transfer between ranks */
    /* An allocator takes and frees: memory is the most that lives at a moment. Else it is arenas, which stay. */
    bool frees;
} EstimateInput;

/* `count` arenas are used by the same set of chunks. They are slots, or (gradients) arenas of a pool from which
 * each split pass takes the lowest free one. */
typedef struct SlotUse {
    uint64_t chunks, whole; /* bit c: chunk c; whole: some of its backwards there are not split */
    bool gradients;
    int count;
} SlotUse;

/* Micro-batches that live at a moment on a rank that frees memory at once, and the bytes of each. */
typedef struct EstimateAlive {
    int kept, waiting; /* for their input gradients, for their weight gradients */
    double kept_bytes, waiting_bytes;
} EstimateAlive;

static inline double estimate_alive_bytes(const EstimateAlive *a)
{
    return a->kept * a->kept_bytes + a->waiting * a->waiting_bytes;
}

typedef struct EstimateRank {
    double
        slot_arena_bytes; /* what an engine allocates for slots and for the arenas of split passes:
                                each as large as the largest chunk in it */
    double first_slot_bytes; /* of it, slot 0 */
    double pool_bytes;       /* of it, pools of rows */
    double grad_bytes;       /* of it, the arenas of split passes */
    int slots, entries;      /* of the Program of estimate_shape() */
    int grad_arenas;
    EstimateAlive alive; /* if the memory is that of this moment; else 0 */
    const SlotUse *use;  /* all arenas */
    int uses;
} EstimateRank;

/* Bytes that a chunk needs of such an arena. */
static inline double estimate_use_bytes(const EstimateInput *in, int rank, int chunk,
                                        const SlotUse *use)
{
    const SlotBytes *s = &in->slot[rank * in->chunks + chunk];
    double more = (use->whole >> chunk & 1) != 0 ? s->whole : 0;
    return use->gradients ? s->gradients : s->input + s->weight + more;
}

/* The chunk that decides the size of such an arena; -1: no chunk uses it. */
int estimate_largest_chunk(const EstimateInput *in, int rank, const SlotUse *use);

/* The answer for one layout; exact in memory, at most 1 % below the simulator in time. */
typedef struct Estimate {
    double step_s, bubble; /* mean share of the step in which compute lanes idle */
    EstimateRank *rank;    /* until the Estimator's next price */
} Estimate;

struct Passes;

/* For one thread. */
typedef struct Estimator {
    Arena kept, scratch;
    struct Passes **passes; /* a hash table; when `kept` is full, all are dropped */
    EstimateRank *rank;
} Estimator;

/* cap_bytes: for all lists; a list takes 8 bytes a pass and a few KiB a rank. */
Status estimator_init(Estimator *e, size_t cap_bytes);
void estimator_free(Estimator *e);

/* In the middle of a step the order of a schedule repeats: each further period of micro-batches takes the same time,
 * once the slowest rank is never idle. So a step of ESTIMATE_PERIODS periods or more is timed by fewer.
 * estimate_period: micro-batches after which the orders of all ranks repeat; 0: they do not.
 * estimate_enough: the least number from `periods` periods on, at most `micros`, that differs from it by whole ones. */
enum { ESTIMATE_PERIODS = 6 };
int estimate_period(const ScheduleDesc *d, int stages);
int estimate_enough(const ScheduleDesc *d, int stages, int micros, int periods);

/* The shape that Programs are made with. Mean times of forward, input and weight gradients are rounded to
 * 24ths of their sum, so that layouts that differ little share their Programs. To simulate an estimated
 * layout, lower this shape. */
ScheduleShape estimate_shape(const EstimateInput *in);

/* out: by rank * chunks + chunk, how its Programs run backward, a set of CHUNK_. in->slot is not read. */
Status estimate_passes(Estimator *e, const EstimateInput *in, unsigned *out);

/* Estimate.rank of a layout alone, without its time. */
Status estimate_memory(Estimator *e, const EstimateInput *in, EstimateRank **out);

/* ERR_ARG: the schedule does not take the shape, or a time is negative or not finite. */
Status estimate(Estimator *e, const EstimateInput *in, Estimate *out);

#endif
