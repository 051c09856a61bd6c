/*
 * order: the passes of all ranks, run once with free communication and entries without end. Private
 * to schedule/.
 */
#ifndef SCHEDULE_ORDER_H
#define SCHEDULE_ORDER_H

#include "schedule/schedule.h"

/* When the forward and the input gradient of each (rank, chunk, micro) end; NaN where it does not
 * come there. In the scratch arena. */
typedef struct OrderTimes {
    const Program *like; /* placement and sizes; its rank is not used */
    double *forward, *input;
    double step;
} OrderTimes;

/* Nothing has run yet. */
Status order_times(const Program *like, Arena *scratch, OrderTimes *out);

int order_index(const Program *like, Place at, int micro);

/* ERR_ARG if the orders wait for each other for ever. */
Status order_run(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *scratch,
                 OrderTimes *out);

/* Where a pass takes its input from or gives its output to; rank -1 if nowhere. Backward goes the
 * way back. */
Place order_source(const Program *like, Place at, const Pass *p);
Place order_target(const Program *like, Place at, const Pass *p);

#endif
