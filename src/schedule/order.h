/* order: the passes of all ranks, written by hand and run once with free communication and entries
 * without end. Private to schedule/. */
#ifndef SCHEDULE_ORDER_H
#define SCHEDULE_ORDER_H

#include "schedule/shape.h"

/* A rank's order while it is written. Each pass is of the next micro-batch of its kind and chunk;
 * what lies beyond the last micro-batch is left out, so beginnings and ends need no cases. */
struct Hand {
    const ScheduleShape *shape;
    Order *order;
    int next[3][2]; /* by forward, input and weight gradients; by chunk */
    int put_off;    /* where in the order the oldest input gradient without its weights' may be */
    int first;      /* the chunk that is called 0 */
    bool two_ways;  /* chunk 0 has the even micro-batches, chunk 1 the odd ones */
};

/* So many times the passes "f0i1w.": f forward (F: paired with the backward that follows), b the
 * whole backward, i and w its input and weight gradients; then the chunk. For '.': w those put off
 * longest; else chunk after chunk with groups of as many micro-batches as there are stages,
 * backward from the last chunk to the first. */
void order_play(Hand *h, int times, const char *passes);

/* The eight steps of DualPipe with their lengths: the 1st (twice), 3rd, 5th, 7th; the 2nd, 6th,
 * 8th; the 4th. */
void dualpipe_steps(Hand *h, int outer, int inner, int middle);

void order_by_hand(const ScheduleShape *s, HandOrder *write, Order *ranks);

/* When the forward and the input gradient of each (rank, chunk, micro) end, one array behind the
 * other; NaN where it does not come there. In the scratch arena. */
typedef struct OrderTimes {
    const Program *like; /* placement and sizes; its rank is not used */
    double *forward, *input;
    int *source; /* by (rank, chunk, backward): where in the array the ends begin that a pass waits
                    for, micro-batch by micro-batch; -1: nobody's. The last hop's backward waits for
                    its own forward. */
    double step;
    int *rank, ran; /* the ranks in the order in which their next passes ran: each pass stands
                       behind those that it waits for */
} OrderTimes;

/* Nothing has run yet. */
Status order_times(const Program *like, Arena *scratch, OrderTimes *out);

int order_index(const Program *like, StageAt at, int micro);

/* When the input of a forward or backward is there: NaN if nobody has made it yet. */
double order_arrives(const OrderTimes *t, StageAt at, const Pass *p);

/* ERR_ARG if the orders deadlock. */
Status order_run(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *scratch,
                 OrderTimes *out);

/* A send may still read the last output while the next is written. */
enum { SEND_ENTRIES = 2 };

/* Entries of the rings that the passes of one chunk and direction read from and send from, 0 where
 * there is none. A way that stays on a rank has only the reader's. */
typedef struct OrderRings {
    int in, out;
} OrderRings;

OrderRings order_rings(const OrderTimes *t, const Order *o, StageAt at, ActionKind kind);

/* Where a pass takes its input from or gives its output to; rank -1 if nowhere. Backward goes the
 * way back. */
StageAt order_source(const Program *like, StageAt at, const Pass *p);
StageAt order_target(const Program *like, StageAt at, const Pass *p);

#endif
