/*
 * interval: how far a price may be off, from where its inputs are from.
 *
 * Each input of a price was measured, was published, or is assumed (hardware_bases; a stack's constants as a
 * whole). Each kind of input is made worse by the share that such numbers are usually off by, one at a time, and
 * the layout is priced again. Errors of different inputs are taken as independent: their effects add up in squares
 * (the law of propagation of uncertainty, JCGM 100:2008, 5.1.2). Rates of one input, say of all products, are off
 * together.
 *
 * Not here: what no input says, such as a slow filesystem.
 */
#ifndef PLANNER_SEARCH_INTERVAL_H
#define PLANNER_SEARCH_INTERVAL_H

#include "planner/plan.h"

typedef enum IntervalInput {
    INTERVAL_PRODUCTS,
    INTERVAL_ATTENTION,
    INTERVAL_MEMORY,
    INTERVAL_LINKS,
    INTERVAL_HOST,
    INTERVAL_STACK,
    INTERVAL_SPREAD,
    INTERVAL_INPUTS
} IntervalInput;

extern const char *const interval_names[INTERVAL_INPUTS];

/* Shares: a step takes from step_s / (1 + time) to step_s * (1 + time). by[]: each input alone. */
typedef struct PlanInterval {
    double time, bytes;
    double by[INTERVAL_INPUTS];
} PlanInterval;

/* The intervals of n layouts of one question. ERR_ARG: a layout is not legal. */
Status plan_intervals(const PlanRequest *q, const PlanLayout *const *l, int n, PlanInterval *out);

#endif
