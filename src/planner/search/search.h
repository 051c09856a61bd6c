/*
 * search: goes through every legal layout of a training on a cluster, and finds the best of those that fit.
 *
 * The axes are lists of values; an empty list becomes all sensible values. Legal layouts are sorted by a lower
 * bound of their time, and priced in rounds of fixed size, which threads share. A layout is skipped if a
 * bound shows that it cannot fit, or that it is neither among the best nor on a front of memory and time.
 * Results and counts do not depend on the number of threads.
 *
 * All rows of a result are simulated. Meanwhile and at the end those layouts are simulated that can be among the best
 * (worth.h says what is left out, and why). The front is that of all simulated rows. To find it, layouts are simulated
 * that are on the front of what they are guessed to take. Prices are given up once they show that a layout takes too
 * long (PlanLimit).
 *
 * A schedule that the stack runs without the overlap it is made for is tried only if search.schedule names it.
 *
 * Layouts that differ only in their schedule, and have the same memory and time, are one row. It has the first
 * of these schedules in the table, and names the others.
 *
 * Of rows with equal speed those come first whose groups span fewer scale-up domains: of experts, then of context
 * ranks, then the pipeline. Then less memory, then the lower number.
 *
 * Not here: how a layout is priced (SearchPricer, plan.h).
 */
#ifndef PLANNER_SEARCH_SEARCH_H
#define PLANNER_SEARCH_SEARCH_H

#include "engine/host/progress.h"
#include "planner/search/row.h"

enum { SEARCH_BUFFER_KINDS = BUFFERS_WORST + 1 };
enum { SEARCH_TOP_MAX = 1000 };

typedef enum SearchAxis {
    /* Changes the configuration, not the layout, as search_configure says; empty: the configuration's own. */
    SEARCH_BUFFERS,
    SEARCH_PP,
    SEARCH_CP,
    SEARCH_TP,
    SEARCH_EP,
    SEARCH_VPP,
    SEARCH_SCHEDULE, /* index in schedule_table */
    SEARCH_MICRO,    /* sequences */
    SEARCH_ZERO,
    SEARCH_SHARD,     /* data-parallel ranks; 0: all */
    SEARCH_RECOMPUTE, /* index in search_recompute */
    SEARCH_AXES
} SearchAxis;

/* Values of each axis; an empty list stands for all sensible ones. */
typedef struct SearchAxes {
    ConfigInts axis[SEARCH_AXES];
} SearchAxes;

/* The sets of recompute modules that are tried, from the one that keeps most to the one that keeps least. */
typedef struct SearchRecompute {
    const char *name;
    unsigned pieces;
    double share; /* of a chunk's blocks */
} SearchRecompute;

extern const SearchRecompute search_recompute[];
extern const int search_recompute_n;

/* The functions that price layouts, so that tests can search without a planner. Each thread opens one. legal and
 * price return ERR_ARG for an illegal layout. `limit`: PlanLimit, or NULL; simulations have none. */
typedef struct SearchPricer {
    Status (*open)(const PlanRequest *q, Planner **out);
    void (*close)(Planner *p); /* safe on NULL */
    Status (*legal)(const Planner *p, const PlanLayout *l);
    Status (*bound)(Planner *p, const PlanLayout *l, double *bytes, double *step_s);
    Status (*price)(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out);
    Status (*simulate)(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out);
} SearchPricer;

extern const SearchPricer search_planner; /* plan.h's */

typedef struct SearchOptions {
    const SearchAxes *axes;
    const SearchPricer *pricer;
    int top, threads; /* threads 0: one a core */
    Progress *bar;    /* NULL: none is shown */
} SearchOptions;

/* What became of the layouts: legal ones are pruned by memory or time, priced, or refused by the
 * pricer. simulated: simulations, of priced ones. */
typedef struct SearchCounts {
    int64_t legal, pruned_memory, pruned_time, priced, refused, simulated;
} SearchCounts;

/* If nothing fits, n_best is 0 and `nearest` is the layout that lacks the least memory. */
typedef struct SearchResult {
    SearchRow *best, *front; /* falling tokens/s; rising memory, falling time */
    int n_best, n_front;
    SearchRow nearest;
    SearchCounts count;
    double seconds; /* of the clock */
} SearchResult;

/* Applies a value of SEARCH_BUFFERS: moe.buffers, run.compute, fp8.recipe and optimizer.offload, as digits. */
void search_configure(Config *c, int64_t value);

/* Sets the axes from search.* of a configuration; those that it does not set stay empty. */
Status search_axes(const Config *c, SearchAxes *out);

/* Searches; rows lie in `a`. ERR_ARG: no combination divides the GPUs, the batch and the experts. */
Status search_run(const PlanRequest *q, const SearchOptions *o, Arena *a, SearchResult *out);

/* The batch that the GPUs could use, and the speed of its fastest layout. sequences 0: the batch of the question
 * does not limit the result. */
typedef struct SearchBatch {
    int64_t sequences;
    double tokens_per_s_per_gpu;
} SearchBatch;
Status search_batch(const PlanRequest *q, const SearchResult *r, SearchBatch *out);

/* The largest number of GPUs, at most those of the question, whose ranks can divide the batch; 0: none. */
int64_t search_gpus(const PlanRequest *q, const SearchAxes *axes);
/* The batch nearest to the question's, in sequences, that the ranks of all its GPUs can divide; of two the lower. way
 * below 0: at most the question's; above 0: at least. 0: none. */
int64_t search_even_batch(const PlanRequest *q, const SearchAxes *axes, int way);

/* Searches near a layout that does not fit: the settings that are easiest to change first, and more of them until a
 * layout fits. If none does, n_best is 0, and nearest.layout.pp is 0 if no layout was legal. */
Status search_near(const PlanRequest *q, const PlanLayout *l, Arena *a, SearchResult *out);

/* The layout among the best and the front that differs from `l` in the fewest settings; NULL: none fits. */
const SearchRow *search_nearest(const SearchResult *r, const PlanLayout *l);

/* Number of GPUs that hold the model once, with all its experts: pp times the least common multiple of cp x tp and
 * ep. */
int64_t search_replica(const PlanLayout *l);

#endif
