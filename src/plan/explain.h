/* explain: a plan's numbers opened into their factors. */
#ifndef PLAN_EXPLAIN_H
#define PLAN_EXPLAIN_H

#include "plan/report.h"

/* `what` is peak (memory by kind and layer), step (ops of a micro-batch with FLOPs, bytes and
 * rates), comm (what is sent, over which group) or bubble (times of stages, the schedule's theory).
 * ERR_ARG with the nearest word for any other. */
Status plan_explain(Planner *p, const PlanReport *r, const char *what, Text *out);

#endif
