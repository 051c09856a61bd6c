/* search_private: combinations of axes, between search_axes.c and search.c. */
#ifndef PLAN_SEARCH_PRIVATE_H
#define PLAN_SEARCH_PRIVATE_H

#include "plan/search.h"

/* The inner axes, from here on, change neither the passes nor the number of micro-batches. */
enum { SEARCH_OUTER = SEARCH_ZERO };

/* Empty lists become all sensible values for `q`; all are sorted. */
void search_axes_fill(const PlanRequest *q, SearchAxes *axes);

int64_t search_combinations(const SearchAxes *axes, int first, int end);

/* Sets the fields that axes first to end - 1 say, of combination `id` of them; the last axis turns
 * fastest. The outer axes' also set dp. False: cannot be, by sizes alone. */
bool search_decode_outer(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l,
                         int *buffers);
bool search_decode_inner(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l);

/* That no combination of the axes is legal, and why: ERR_ARG. */
Status search_why_none(const PlanRequest *q);

#endif
