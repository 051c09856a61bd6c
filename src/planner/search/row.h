/* row: one layout of a search with its price. */
#ifndef PLANNER_SEARCH_ROW_H
#define PLANNER_SEARCH_ROW_H

#include "planner/plan.h"

enum { SEARCH_FRONT_MAX = 20 }; /* rows of a result's front */

/* A priced layout of a search; in a result, a simulated one. */
typedef struct SearchRow {
    PlanLayout layout;
    PlanPrice price;
    const char *partition; /* for reports; a search leaves it NULL */
    int buffers;           /* value of SEARCH_BUFFERS */
    unsigned also; /* bit i: under schedule_table[i] the layout has the same memory and time */
    int64_t id;    /* number in the order of all combinations */
} SearchRow;

#endif
