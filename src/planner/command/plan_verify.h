/* plan_verify: `plan --verify`: runs the best layouts of a search on this machine, prints what was planned beside what
 * was measured, and ranks again. planner/search/verify.h does the work. */
#ifndef PLANNER_COMMAND_PLAN_VERIFY_H
#define PLANNER_COMMAND_PLAN_VERIFY_H

#include "planner/answer.h"
#include "planner/search/verify.h"

/* The options of the command. */
typedef struct PlanVerify {
    int64_t layouts; /* 0: none is run */
    int64_t ranks;   /* 0: the GPUs of the plan */
    int64_t steps;
    double limit_s;
    const char *launcher; /* words before the program's name, as in "mpirun -n 16"; NULL: threads */
} PlanVerify;

/* Rows that the search keeps, so that a new ranking has more than the layouts that were run. */
enum { PLAN_VERIFY_ROWS = 200 };

/* ERR_ARG: layouts cannot be run: no search, a stack that is not ours, or this process was itself launched. */
Status plan_verify_check(const PlanVerify *v, const PlanQuestion *q, const char *stack);

/* Runs them, and appends a text, or (`json`) the member "verify" of an object. `config`: n words of the command line, the configuration and its settings. ERR_FIT: none ran. */
Status plan_verify(const PlanVerify *v, const PlanAnswer *r, const char *const *config, int n,
                   bool json, Arena *a, Text *out);

#endif
