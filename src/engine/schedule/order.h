/* order: the passes of all ranks: a small language to write them in, and one run of them with free communication
 * and unlimited entries. The run proves that an order does not deadlock, and shows how many entries it
 * needs. Private to schedule/; slots, events and transfers are lower.h's. */
#ifndef ENGINE_SCHEDULE_ORDER_H
#define ENGINE_SCHEDULE_ORDER_H

#include "engine/schedule/shape.h"

/* A rank's order while it is written. Each pass takes the next micro-batch of its kind and chunk. Passes past
 * the last micro-batch are left out, so beginnings and ends need no special cases. */
struct Hand {
    const ScheduleShape *shape;
    Order *order;
    int next[3][2]; /* by forward, input and weight gradients; by chunk */
    int put_off;    /* from here on, input gradients of the order may lack their weight gradients */
    int first;      /* the chunk that order_play calls 0 */
    bool two_ways;  /* chunk 0 has the even micro-batches, chunk 1 the odd ones */
};

/* Appends the passes, such as "f0i1w.", `times` times. Each is a letter and a chunk. f: forward; F: forward,
 * paired with the backward after it; b: whole backward; i, w: its input and weight gradients. Chunk '.' of
 * w: the weight gradients that were deferred longest. Chunk '.' of the others: groups of as many
 * micro-batches as there are stages go chunk by chunk, backward from the last chunk to the first. */
void order_play(Hand *h, int times, const char *passes);

/* Writes the orders of all ranks. */
void order_by_hand(const ScheduleShape *s, HandOrder *write, Order *ranks);

/* When the forward and the input gradient of each (rank, chunk, micro) end, in one array after the other. NaN:
 * not run, or the micro-batch does not come there. In the scratch arena. */
typedef struct OrderTimes {
    const Program *like; /* placement and sizes; its rank is not used */
    double *forward, *input;
    int *source; /* by (rank, chunk, backward): index of the ends that its passes wait for, plus the
                    micro-batch; -1: none. The backward of the last hop waits for its own forward. */
    double step;
    int *rank, ran; /* the ranks in the order in which their passes ran: each pass stands after
                       those that it waits for */
} OrderTimes;

/* Runs the orders. ERR_ARG: they deadlock. */
Status order_run(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *scratch,
                 OrderTimes *out);

/* A send may still read the last output while the next is written. */
enum { SEND_ENTRIES = 2 };

/* The numbers of entries that the passes of one chunk and direction read from and send from; 0: none. A link
 * within a rank has only the reader's. */
typedef struct OrderRings {
    int in, out;
} OrderRings;

OrderRings order_rings(const OrderTimes *t, const Order *o, StageAt at, ActionKind kind);

/* The stage that gives a pass its input, or takes its output; rank -1: none. Backward goes the other way. */
StageAt order_source(const Program *like, StageAt at, const Pass *p);
StageAt order_target(const Program *like, StageAt at, const Pass *p);

#endif
