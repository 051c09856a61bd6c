/* balance: spreads blocks over stages so that the slowest stage is as fast as possible. */
#ifndef PLANNER_PRICE_BALANCE_H
#define PLANNER_PRICE_BALANCE_H

#include "engine/schedule/layout.h"

/* What each piece costs, in any unit, none negative. */
typedef struct LayoutCost {
    const double *layer; /* by layer */
    int layers;
    double embedding, loss;
} LayoutCost;

/* The contiguous partition whose slowest stage is fastest. Among equal ones it is the one with the least sum
 * of squares. Every stage has at least one piece; the embedding or the loss may be alone. ERR_ARG: more
 * stages than pieces, or a cost that is negative or not finite. */
Status balance_layout(const LayoutCost *cost, int stages, Arena *a, Arena *scratch, Layout *out);

#endif
