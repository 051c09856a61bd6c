/* greedy: makes orders by simulating the step with a rule. Private to schedule/; what the rule is, v_pattern.c
 * and zb1p.c say.
 *
 * Whenever a rank is free, it takes the pass with the lowest turn among those whose input has arrived. If
 * there is none, it runs weight gradients. A forward also needs a free slot, of its rank and of its chunk.
 * Without a limit for each chunk the first chunk could take all slots, and the second one, which frees
 * them, could never run. */
#ifndef SCHEDULE_GREEDY_H
#define SCHEDULE_GREEDY_H

#include "schedule/order.h"

/* The rule and the limits of one run. Arrays are the caller's. */
typedef struct Greedy {
    const ScheduleShape *shape;
    Placement placement;
    /* The priority of a pass: the lowest runs first. */
    double (*turn)(const struct Greedy *g, int rank, const Pass *p);
    const void *ctx;
    const int *chunk_limit; /* by (rank, chunk); NULL: none */
    int limit;              /* slots of a rank */
    bool in_turn;           /* wait for the pass with the lowest turn, even if others could run */
    bool spare; /* weight gradients go before the forward that would take the last slot */
} Greedy;

/* Writes the orders of all ranks. step: the time of the step; NaN: the limits led to a deadlock. Keeps memory
 * of `scratch`. */
Status greedy_run(const Greedy *g, Arena *scratch, Order *ranks, double *step);

#endif
