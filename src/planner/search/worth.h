/* worth: which priced layouts of a search are worth a simulation.
 *
 * An estimate is never above the simulated time of a layout, but it may be far below: for lists of our own engine by
 * up to a half, because collectives of ZeRO-2 and 3 and of context ranks wait for each other. So a layout is left out
 * only for one of these reasons:
 *
 *   estimate  the estimate itself is too long, with the share by which lists hide more than it says
 *   kind      so is the estimate times the least ratio of simulated time to estimate among layouts of its kind, of which at
 *             least 8 were simulated, with a margin of 5 %. A kind is a schedule and a ZeRO stage; closer, a
 *             sharding group and a length of the pipeline, too
 *   cover     a layout that differs in recompute and ZeRO alone, recomputes less and has no higher stage, was simulated
 *             and takes too long: its list is the same with less work, and fewer collectives. With the margins of worth.c
 *             that held for all of 9,326 pairs of the search in README
 *
 * Layouts are simulated in the order of their guess, the estimate times the mean ratio of their kind. */
#ifndef PLANNER_SEARCH_WORTH_H
#define PLANNER_SEARCH_WORTH_H

#include "planner/search/row.h"

/* Of a kind: layouts that were simulated, the sum and the least of their ratios. */
typedef struct WorthKind {
    int n;
    double sum, least;
} WorthKind;

/* A priced layout that fits. estimate_s: its time before it was simulated. */
typedef struct WorthRow {
    SearchRow row;
    double estimate_s, cover_s; /* cover_s: it takes at least as long; 0: nothing covers it */
    int64_t next;               /* of the same bucket; -1: the last */
    bool simulated;
} WorthRow;

/* The number of a layout or a row, and the time that it takes at least or may take. bytes: bound of a layout's memory. */
typedef struct Candidate {
    double step_s, bytes;
    int64_t id;
} Candidate;

/* For qsort: by rising time, then by number, so the order does not depend on threads. */
int worth_compare(const void *a, const void *b);

enum {
    WORTH_SCHEDULES = 16,
    WORTH_LENGTHS = 8, /* of a pipeline: 1, 2, 4 and so on */
    WORTH_STAGES = WORTH_SCHEDULES * 4,
    WORTH_KINDS = WORTH_STAGES * (1 + 2 * WORTH_LENGTHS),
    WORTH_BUCKETS = 1 << 14
};

typedef struct Worth {
    Arena arena;
    bool own; /* lists of our own engine */
    WorthKind *kind;
    WorthRow *row;
    int64_t n, room,
        *bucket; /* bucket: by hash of what covering layouts share, the last row; -1: none */
} Worth;

/* own: the stack runs lists of our own engine. */
Status worth_init(Worth *w, bool own);
void worth_free(Worth *w); /* safe on zeros */

/* The least share of a layout's estimate that its simulation takes. */
double worth_sure(const Worth *w, const PlanLayout *l);
/* What it takes as far as is known: the estimate times the mean ratio of its kind. */
double worth_guess_s(const Worth *w, const WorthRow *r);
/* A lower bound of the simulated time from layouts that cover this one; 0: none does. */
double worth_cover_s(const Worth *w, const SearchRow *row);

Status worth_add(Worth *w, const SearchRow *row);

/* Row i was simulated, with this price. */
void worth_learn(Worth *w, int64_t i, const PlanPrice *simulated);

/* Puts the numbers of up to `most` rows that may take limit_s or less and were not simulated into `out`, by rising
 * guess. *n: how many. Releases what it takes of `scratch`. */
Status worth_pick(const Worth *w, double limit_s, int most, Arena *scratch, int64_t *out, int *n);

#endif
