/*
 * search: every legal layout of a training on a cluster, and of those that fit the best.
 *
 * The axes are lists of values; what a caller leaves empty becomes every sensible one. Legal layouts
 * come in the order of a bound on their time, a fixed number at a time, which threads share. A
 * layout is priced unless a bound says that it cannot fit, or can be neither among the best nor on
 * the Pareto front of memory and time of what was priced in earlier rounds. Bounds are never above
 * the price, so what is left out changes nothing; and nothing depends on the number of threads,
 * counts included.
 *
 * V-half and V-min are looked at while micro-batches times stages are at most 8,192. A schedule that
 * the stack runs without the overlap it is made for is looked at only if search.schedule names it.
 *
 * Layouts that differ in their schedule alone, and have the same memory and time, are one row. It has
 * the first of these schedules in the table, and names the others.
 *
 * The layouts named at the end are simulated, under each of their schedules: SEARCH_SIMULATED rows of
 * the best at least. A row whose schedules then differ becomes several.
 */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "base/progress.h"
#include "plan/plan.h"

enum { SEARCH_BUFFER_KINDS = BUFFERS_WORST + 1 };
enum { SEARCH_SIMULATED = 50, SEARCH_TOP_MAX = 1000, SEARCH_FRONT_MAX = 256 };

typedef enum SearchAxis {
    /* Another configuration, not another layout: BUFFERS_POOLED ... and SEARCH_BUFFER_KINDS times
     * COMPUTE_F32 ...; empty: the configuration's own. */
    SEARCH_BUFFERS,
    SEARCH_PP,
    SEARCH_CP,
    SEARCH_EP,
    SEARCH_VPP,
    SEARCH_SCHEDULE, /* index in schedule_table */
    SEARCH_MICRO,    /* sequences */
    SEARCH_ZERO,
    SEARCH_SHARD,     /* data-parallel ranks; 0: all */
    SEARCH_RECOMPUTE, /* index in search_recompute */
    SEARCH_AXES
} SearchAxis;

typedef struct SearchAxes {
    ConfigInts axis[SEARCH_AXES];
} SearchAxes;

/* Sets worth looking at, from the one that keeps most to the one that keeps least. */
typedef struct SearchRecompute {
    const char *name;
    unsigned pieces;
    double share; /* of a chunk's blocks */
} SearchRecompute;

extern const SearchRecompute search_recompute[];
extern const int search_recompute_n;

/* The functions that price layouts; each thread opens a planner. legal and price return ERR_ARG for a
 * layout that cannot be. */
typedef struct SearchPricer {
    Status (*open)(const PlanRequest *q, Planner **out);
    void (*close)(Planner *p); /* NULL is fine */
    Status (*legal)(const Planner *p, const PlanLayout *l);
    Status (*bound)(Planner *p, const PlanLayout *l, double *bytes, double *step_s);
    Status (*price)(Planner *p, const PlanLayout *l, PlanPrice *out);
    Status (*simulate)(Planner *p, const PlanLayout *l, PlanPrice *out);
} SearchPricer;

extern const SearchPricer search_planner; /* plan.h's */

typedef struct SearchRow {
    PlanLayout layout;
    PlanPrice price;
    const char *partition; /* for reports; a search leaves it NULL */
    int buffers;           /* SEARCH_BUFFERS' value */
    unsigned also; /* bit i: under schedule_table[i] the layout has the same memory and time */
    int64_t id;    /* place in the order of all combinations */
} SearchRow;

typedef struct SearchOptions {
    const SearchAxes *axes;
    const SearchPricer *pricer;
    int top, threads; /* threads 0: one a core */
    Progress *bar;    /* NULL: none is shown */
} SearchOptions;

typedef struct SearchCounts {
    int64_t legal, pruned_memory, pruned_time, priced, refused;
} SearchCounts;

/* If nothing fits, n_best is 0 and nearest is the layout that lacks least. */
typedef struct SearchResult {
    SearchRow *best, *front; /* falling tokens/s; rising memory, falling time */
    int n_best, n_front;
    SearchRow nearest;
    SearchCounts count;
    double seconds; /* of the clock, without simulations */
} SearchResult;

/* The axes that search.* of a configuration narrow. */
Status search_axes(const Config *c, SearchAxes *out);

/* Rows in `a`. ERR_ARG if no combination divides the GPUs, the batch and the experts, with what
 * would. */
Status search_run(const PlanRequest *q, const SearchOptions *o, Arena *a, SearchResult *out);

/* The batch that the GPUs could use, and what its fastest layout reaches. 0: the batch of the question
 * does not limit what was found. */
typedef struct SearchBatch {
    int64_t sequences;
    double tokens_per_s_per_gpu;
} SearchBatch;
Status search_batch(const PlanRequest *q, const SearchResult *r, SearchBatch *out);

/* The most GPUs of those of the question whose ranks can share out the batch; 0: there are none. */
int64_t search_gpus(const PlanRequest *q, const SearchAxes *axes);

/* The layout among the best and the front that differs from `l` in the fewest settings; NULL: none
 * fits. */
const SearchRow *search_nearest(const SearchResult *r, const PlanLayout *l);

/* GPUs that hold the model once, with all its experts: pp * cp * ep over their common ranks. */
int64_t search_replica(const PlanLayout *l);

#endif
