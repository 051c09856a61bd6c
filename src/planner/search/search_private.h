/* search_private: combinations of axes, which search_axes.c makes and search.c walks. */
#ifndef PLANNER_SEARCH_SEARCH_PRIVATE_H
#define PLANNER_SEARCH_SEARCH_PRIVATE_H

#include "planner/search/search.h"
#include "planner/stack/stack.h"

/* The inner axes, from this one on, change neither the passes nor the number of micro-batches. */
enum { SEARCH_OUTER = SEARCH_ZERO };

/* Is the layout for this program's engine? Tests make up prices without a stack. */
static inline bool search_is_ours(const PlanRequest *q)
{
    return q->stack != NULL && stack_is_ours(q->stack);
}

/* Fills empty lists with all sensible values for `q`, and sorts all lists. */
void search_axes_fill(const PlanRequest *q, SearchAxes *axes);

/* Number of combinations of the axes [first, end). */
int64_t search_combinations(const SearchAxes *axes, int first, int end);

/* Set the fields of combination `id` of the outer or the inner axes; the last axis varies fastest. The outer ones
 * also set dp. False: the sizes alone make it illegal; search_set_outer does not look. */
void search_set_outer(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l,
                      int *buffers);
bool search_decode_outer(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l,
                         int *buffers);
bool search_decode_inner(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l);

/* ERR_ARG: no combination of the axes is legal, and the rules that they must meet. */
Status search_why_none(const PlanRequest *q);

#endif
