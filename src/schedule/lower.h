/* lower: from the orders of passes to Programs. Private to schedule/. */
#ifndef SCHEDULE_LOWER_H
#define SCHEDULE_LOWER_H

#include "schedule/schedule.h"

Status schedule_lower(const ScheduleDesc *d, const ScheduleShape *s, const Order *ranks, Arena *a,
                      Arena *scratch, Pipeline *out);

#endif
