/* idle: which traffic the compute lane of a rank waited for, in a step whose times are known.
 *
 * A gap is attributed to the action that ended last among those that the next compute action waited for:
 * its predecessor in the queue and the actions of its events. Where that action began after the gap did,
 * the time before it is attributed to what it waited for itself, and so on back to the begin of the gap.
 * The end of the step waits for all queues. Each piece of a gap counts for the traffic of its action. */
#ifndef ENGINE_SCHEDULE_IDLE_H
#define ENGINE_SCHEDULE_IDLE_H

#include "engine/schedule/action.h"

/* When an action ran. A transfer runs from when it was posted until this rank saw its end. */
typedef struct ActionSpan {
    double start_s, end_s;
} ActionSpan;

/* Kinds of traffic: parameters and gradients (ZERO), tokens to experts (EP), keys and values of other context
 * ranks (CP), rows of the stream (TP), between stages (PP). engine/step/null.c has their words in the same order. */
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
