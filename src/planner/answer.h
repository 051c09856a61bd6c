/*
 * answer: the answer of a plan to a question: the layout that a configuration gives, or the best one that a search
 * finds, with its price; why nothing fits, and what would; the same training on several numbers of GPUs.
 *
 * Not here: options and files of the command (planner/command/plan_command.c), how an answer is printed (report.h, explain.c).
 */
#ifndef PLANNER_ANSWER_H
#define PLANNER_ANSWER_H

#include "planner/report.h"

/* What `switchyard plan` was asked, for one number of GPUs. */
typedef struct PlanQuestion {
    PlanRequest request;
    bool search;   /* else the layout of mesh.* and recompute.* */
    int top;       /* rows of a search */
    double tokens; /* of the whole training, for plan_scale_add; 0: not asked */
} PlanQuestion;

/* Pointers lie in the arena of the call, or in the answer, which therefore stays where it is. */
typedef struct PlanAnswer {
    Config config;       /* the question's, with the type and buffers of the best row */
    PlanRequest request; /* of this config; gpus: those that the answer is for */
    bool searched;
    int top;
    int64_t asked; /* GPUs of the question, if the answer is for fewer; else 0 */
    int64_t even_below,
        even_above; /* then the nearest batches that all of them share out; 0: none is lower */
    Planner *planner;
    PlanLayout layout;
    PlanPrice price;
    PlanStep step;      /* of the layout, once plan_answer_simulate made it */
    SearchResult found; /* of a search; also of plan_answer_fits, which may search */
    SearchBatch batch;  /* the batch that the GPUs could use */
} PlanAnswer;

/* Chooses and prices the layout. */
Status plan_answer(const PlanQuestion *q, Arena *a, PlanAnswer *out);
void plan_answer_free(PlanAnswer *r); /* safe on { 0 } */

/* Appends a line for each thing that limits all layouts: GPUs that cannot divide the batch, a small batch. */
Status plan_answer_limits(const PlanAnswer *r, Text *out);
/* Fills what a report of this answer needs; `stack`, tokens and formula are the caller's. */
Status plan_answer_report(PlanAnswer *r, Arena *a, PlanReport *out);
/* Appends the configuration of a row as YAML that `plan` and `train` take: rows of `best` from 1, then those of the
 * front; of a plan without a search row 1. ERR_ARG: there is no such row. */
Status plan_answer_write(const PlanAnswer *r, const PlanReport *report, int64_t row, Arena *a,
                         Text *out);
/* Simulates the step into r->step: the whole list of actions of all ranks (`list`), or the step as the stack
 * runs it. */
Status plan_answer_simulate(PlanAnswer *r, bool list, Arena *a);
/* ERR_FIT if the layout does not fit. The sentence has the missing memory and the nearest layout that fits, which
 * is searched for. */
Status plan_answer_fits(PlanAnswer *r, Arena *a);

/* Appends to row[*n] the answer for the same training on `gpus` GPUs. *limits: the lines of
 * plan_answer_limits, or "". */
Status plan_scale_add(const PlanQuestion *q, int64_t gpus, Arena *a, PlanScale *row, int *n,
                      const char **limits);
/* ERR_FIT if none of the rows fits, or ends; `asked`: the text of the option, for the sentence. */
Status plan_scale_fits(const PlanScale *row, int n, const char *asked);

#endif
