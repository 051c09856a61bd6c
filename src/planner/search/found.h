/* found: what a search has found so far: the best layouts, the front of memory and time, and the layout that is
 * nearest to fitting. Rows with the same layout under several schedules, and the same memory and time, are one. */
#ifndef PLANNER_SEARCH_FOUND_H
#define PLANNER_SEARCH_FOUND_H

#include "planner/search/row.h"

enum { FOUND_FRONT_MAX = 256 }; /* more points are thinned out */

/* best: falling tokens/s; front: rising memory, falling time. Both have their full size from the start, so adding
 * never fails. */
typedef struct Found {
    SearchRow *best, *front;
    int n_best, cap, n_front;
    int64_t domain;    /* GPUs of a scale-up domain */
    SearchRow nearest; /* layout.pp 0: none yet */
} Found;

/* cap: of the best; 0: only a front is kept. */
Status found_init(Found *f, const Hardware *h, int cap, Arena *a);

/* Inserts a row that fits into the best by rank. If an equal one with another schedule is there, joins both first. */
void found_add(Found *f, const SearchRow *row);
/* A point of the front is at least 1 % faster than the one with less memory. */
void found_add_to_front(Found *f, const SearchRow *row);
/* Until `most` points are left, drops the one that gains least time over its neighbour with less memory. */
void found_thin_front(Found *f, int most);
void found_add_nearest(Found *f, const SearchRow *row);

/* The longest step with which a row can be among the best; with an equal time it may join one that is. INFINITY: all
 * steps can. found_front_s: the same for the front, with this memory. */
double found_best_s(const Found *f);
double found_front_s(const Found *f, double bytes);

/* How far two layouts are from each other: the number of axes on which they differ. */
int found_differences(const PlanLayout *a, const PlanLayout *b);

#endif
