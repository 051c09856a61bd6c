/* interleaved: the order of interleaved 1F1B on one rank. Private to schedule/. */
#ifndef SCHEDULE_INTERLEAVED_H
#define SCHEDULE_INTERLEAVED_H

#include "schedule/schedule.h"

/* `ahead` forwards, then a forward and a backward in turn, as pairs or one by one, then the rest.
 * One chunk: any number of micro-batches; more: a multiple of the stages. */
void interleaved_order(const ScheduleShape *s, int ahead, bool pairs, Order *o);

#endif
