/* idle: what a rank's compute lane stood for in a step whose times are known.
 *
 * Where an action of the lane begins later than the one before it has ended, it waited: for the last
 * of what stands before it in its queue and of the events that it awaits, and until that began for
 * what came before that, in turn, back to where the lane stood still. So does the step's end, for all
 * queues. Each stretch belongs to the traffic of the action that ran in it. */
#ifndef SCHEDULE_IDLE_H
#define SCHEDULE_IDLE_H

#include "schedule/action.h"

/* When an action ran; of a transfer, from when it was posted until this rank saw its end. */
typedef struct ActionSpan {
    double start_s, end_s;
} ActionSpan;

/* Kinds of traffic, in the order of their words in train/null.c: of parameters and their
 * gradients, of tokens to experts, over parts of a sequence, between stages. */
typedef enum Traffic { TRAFFIC_ZERO, TRAFFIC_EP, TRAFFIC_CP, TRAFFIC_PP, TRAFFICS } Traffic;

/* `span`: by action. lanes: the comm lane is a stream of its own; else both lanes' actions run one
 * after the other in the order of the list. Seconds by traffic. What talks to other ranks on the
 * compute lane is no waiting. */
void idle_of(const Program *p, const ActionSpan *span, bool lanes, double idle_s[TRAFFICS]);

#endif
