/* schedule: pipeline schedules by name.
 *
 * A generator only gives the order in which each rank runs its passes (forward, backward, or input and
 * weight gradients apart). Slots, transfers, entries and events are made here, the same way for all.
 *
 * A link between two chunks gets one entry more than the most outputs that are in flight when the orders
 * run with the given costs and free communication. So no action waits for an entry while costs are as
 * given. Other costs or slow links can delay but never block: lists of reads and writes over bounded
 * queues that end once end under any timing (Kahn, "The semantics of a simple language for parallel
 * programming", 1974).
 *
 * Durations are of a chunk's pass on every rank, in any unit: only their ratios matter, and only to the
 * number of entries. */
#ifndef ENGINE_SCHEDULE_SCHEDULE_H
#define ENGINE_SCHEDULE_SCHEDULE_H

#include "engine/schedule/shape.h"

/* Lower bounds of a schedule, by which a search prunes: its Programs never take less. */
typedef struct ScheduleLeast {
    double slots;         /* micro-batches that rank 0 keeps, over the stages (on a V, of half the
                             size); 0: the stages for each chunk and once more */
    double input, weight; /* A rank idles while the first micro-batch comes to it. These shares of
                             the input and weight gradients of the stages before it show, too
                             (arXiv:2401.10241, arXiv:2405.15362). */
    unsigned passes;      /* how all chunks of rank 0 run backward: set of CHUNK_ */
} ScheduleLeast;

/* A row of schedule.def. */
typedef struct ScheduleDesc {
    const char *name;
    Placement placement;
    int chunks_least, chunks_most, micros_least; /* of a rank; micro-batches a stage */
    HandOrder *order;                            /* writes the passes of a rank */
    ScheduleLeast least;
    const char *bubble; /* its theory, in words */
    bool phases;        /* passes are split into phases, and pairs run part by part */
    bool overlaps;      /* designed to compute during another micro-batch's exchange */
} ScheduleDesc;

/* The table, for loops over all of them. */
extern const ScheduleDesc schedule_table[];
extern const int schedule_table_n;

/* ERR_ARG, with the nearest name, if the table has no such schedule. */
Status schedule_find(const char *name, const ScheduleDesc **out);

/* Does the schedule take these sizes, do they fit the fields of an action, and are the durations legal? ERR_ARG
 * names the number that is wrong, and what is legal. */
Status schedule_legal(const ScheduleDesc *d, const ScheduleShape *s);

/* Makes the Programs of all ranks, in `a`. Releases what it takes of `scratch`. */
Status schedule_make(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                     Pipeline *out);

/* Makes the Programs of an evaluation by the same ranks: one micro-batch goes forward, on the way of micro-batch
 * 0 of a step. Ignores s->micros and the sharding of gradients. */
Status schedule_evaluation(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                           Pipeline *out);

/* The orders of all ranks of a legal shape, in `scratch`. */
Status schedule_orders(const ScheduleDesc *d, const ScheduleShape *s, Arena *scratch, Order **out);

HandOrder schedule_gpipe, schedule_1f1b, schedule_interleaved, schedule_1f1b_overlap,
    schedule_zb_h1, schedule_zbv, schedule_dualpipe, schedule_dualpipe_v;

#endif
