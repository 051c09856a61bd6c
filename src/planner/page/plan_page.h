/*
 * plan_page: what `switchyard plan --html` writes.
 *
 * One layout: what it is for, whether it fits and why not, memory of each pipeline rank against what a
 * GPU has, the parts of the step, which GPUs exchange what (plan_mesh.c), and the timeline. A search has
 * all of this for its best layout. It adds a plot of memory against speed, a table of the layouts, and
 * timelines of the best ones. With the ending .svg only the timeline is drawn, as a still
 * (pipeline_page.h). It prices nothing: all numbers are the answer's.
 */
#ifndef PLANNER_PAGE_PLAN_PAGE_H
#define PLANNER_PAGE_PLAN_PAGE_H

#include "planner/answer.h"

typedef struct PlanPage {
    const PlanAnswer *answer;
    const PlanReport *report;
    const char *unfit; /* why it does not fit; NULL: it does */
    Arena *arena;      /* not that of the text */
} PlanPage;

/* Writes the file. `out` is in an arena of its own and is left as it was. */
Status plan_page_write(const PlanPage *p, const char *path, Text *out);

/* Writes how the training scales, as a page or a still. */
Status plan_page_scaling(const PlanQuestion *q, const PlanScale *row, int n, const char *path,
                         Arena *a, Text *out);

/* plan_mesh.c: a section with the groups of GPUs that exchange something: a picture of the hosts they lie
 * on, and a table of what they send. */
Status plan_mesh_section(Text *out, const PlanRequest *q, const PlanGroups *groups);
/* The word for a scale-up domain of this GPU: "host", or "domain" if it is larger than a host. */
const char *plan_mesh_domain(const Hardware *h);

#endif
