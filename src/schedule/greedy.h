/* greedy: orders made by running the step. Private to schedule/.
 *
 * Whenever a rank is free it takes, of the passes whose input is there, the one whose turn comes
 * first; weight gradients fill the time in which there is none. A forward also needs a free slot,
 * of its rank and of its chunk: without the chunk's own limit the first chunk could fill the memory
 * that the second one needs to get anything back. */
#ifndef SCHEDULE_GREEDY_H
#define SCHEDULE_GREEDY_H

#include "schedule/order.h"

typedef struct Greedy {
    const ScheduleShape *shape;
    Placement placement;
    /* Lowest first, among what could run now. */
    double (*turn)(const struct Greedy *g, int rank, const Pass *p);
    const void *ctx;
    const int *chunk_limit; /* by (rank, chunk); NULL: none */
    int limit;              /* slots of a rank */
    bool in_turn;           /* wait for the pass whose turn it is, whatever else could run */
    bool spare; /* weight gradients go before the forward that would take the last slot */
} Greedy;

/* step: NaN if the limits left nothing to run. `scratch` is not given back. */
Status greedy_run(const Greedy *g, Arena *scratch, Order *ranks, double *step);

#endif
