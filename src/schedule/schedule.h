/* schedule: pipeline schedules by name.
 *
 * A generator says only in which order each rank runs its passes (forward, backward, or input and
 * weight gradients apart) of micro-batches on chunks. Slots, receives before and sends after,
 * entries of the ring of transfers and events are made here, the same for all.
 *
 * A way between two chunks gets one entry more than there are outputs under way at once when the
 * orders run with the costs given and free communication. So nobody waits for an entry while the
 * costs are as foretold, and other costs or slow links can delay but never block: lists of reads
 * and writes over bounded queues that end once end under any timing (Kahn, "The semantics of a
 * simple language for parallel programming", 1974).
 *
 * Durations are of a chunk's pass on every rank, in any unit: only their ratios matter, and only to
 * schedules that are searched for. */
#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include "schedule/shape.h"

/* Finds the orders of all ranks by the costs. */
typedef Status SearchedOrder(const ScheduleShape *s, Arena *scratch, Order *ranks);

/* What a schedule cannot avoid, for a search to prune by: never more than its Programs have. */
typedef struct ScheduleLeast {
    double slots;         /* micro-batches that rank 0 keeps, over the stages (those of a V are
                             halves); 0: so many a chunk and once more */
    double input, weight; /* A rank idles while the first micro-batch comes to it; of the same
                             stages' backward passes these shares show, too (arXiv:2401.10241,
                             arXiv:2405.15362). */
    unsigned passes;      /* that all of rank 0's chunks have: set of CHUNK_ */
} ScheduleLeast;

typedef struct ScheduleDesc {
    const char *name;
    Placement placement;
    int chunks_least, chunks_most, micros_least; /* of a rank; micro-batches a stage */
    HandOrder *by_hand;                          /* or */
    SearchedOrder *search;
    ScheduleLeast least;
    const char *bubble; /* its theory, in words */
    bool phases;        /* passes are taken apart, and pairs run part by part */
    bool overlaps;      /* made to compute beside another micro-batch's exchange */
    bool irregular;     /* found by trying: takes a second for 100,000 passes */
} ScheduleDesc;

/* The table, for loops over all of them. */
extern const ScheduleDesc schedule_table[];
extern const int schedule_table_n;

/* ERR_ARG with the nearest name for one that is not in the table. */
Status schedule_find(const char *name, const ScheduleDesc **out);

/* Sizes that the schedule takes and that fit an action, durations that an order can be made from.
 * ERR_ARG: which number is not, and what is legal. */
Status schedule_legal(const ScheduleDesc *d, const ScheduleShape *s);

/* Programs of all ranks, in `a`. `scratch` is given back. */
Status schedule_make(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                     Pipeline *out);

/* The Programs of an evaluation by the same ranks: one micro-batch, micro-batch 0 of a step, goes
 * forward alone on its way. Of `s` micro-batches and gradients do not count. */
Status schedule_evaluation(const ScheduleDesc *d, const ScheduleShape *s, Arena *a, Arena *scratch,
                           Pipeline *out);

/* The orders of all ranks of a legal shape, in `scratch`, which is not given back. */
Status schedule_orders(const ScheduleDesc *d, const ScheduleShape *s, Arena *scratch, Order **out);

HandOrder schedule_gpipe, schedule_1f1b, schedule_interleaved, schedule_1f1b_overlap,
    schedule_zb_h1, schedule_zbv, schedule_dualpipe, schedule_dualpipe_v;
SearchedOrder schedule_zb1p, schedule_v_half, schedule_v_min;

#endif
