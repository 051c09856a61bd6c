/* idle: which traffic the compute lane of a rank waited for, in a step whose times are known.
 *
 * A gap is attributed to the action that ended last among those that the next compute action waited for:
 * its predecessor in the queue and the actions of its events. Where that action began after the gap did,
 * the time before it is attributed to what it waited for itself, and so on back to the begin of the gap.
 * The end of the step waits for all queues. Each piece of a gap counts for the traffic of its action. */
#ifndef BENCH_IDLE_H
#define BENCH_IDLE_H

#include "engine/schedule/schedule.h"

/* Kinds of traffic: parameters and gradients (ZERO), tokens to experts (EP), keys and values of other context
 * ranks (CP), rows of the stream (TP), between stages (PP). null.c has their words in the same order. */
typedef enum Traffic {
    TRAFFIC_ZERO,
    TRAFFIC_EP,
    TRAFFIC_CP,
    TRAFFIC_TP,
    TRAFFIC_PP,
    TRAFFICS
} Traffic;

/* Sets the idle seconds by traffic. `span`: by action. lanes: the comm lane is a stream of its own; else the
 * actions of both lanes run one after the other in the order of the list. Communication on the compute
 * lane itself does not count as idle time. */
void idle_of(const Program *p, const ActionSpan *span, bool lanes, double idle_s[TRAFFICS]);

#endif
