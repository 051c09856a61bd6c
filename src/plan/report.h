/* report: what the planner found, for people, for programs and for spreadsheets. */
#ifndef PLAN_REPORT_H
#define PLAN_REPORT_H

#include "plan/formula.h"
#include "plan/search.h"

/* What a report is about; partition as layout_text writes it. */
typedef struct PlanReport {
    const PlanRequest *request;
    const char *stack;
    const PlanLayout *layout;
    const PlanPrice *price;
    const char *partition;
    double tokens;              /* of the whole training; 0: not said */
    const PlanFormula *formula; /* NULL: not asked for */
    const char *formula_name;
    const SearchResult *search; /* NULL: one layout */
    int64_t asked;              /* GPUs, where this is for fewer; 0: it is not */
    SearchBatch batch;          /* that the GPUs could use */
} PlanReport;

/* One training on a number of GPUs, for scaling. */
typedef struct PlanScale {
    int64_t gpus;
    PlanLayout layout;
    PlanPrice price;
} PlanScale;

Status plan_report_text(const PlanReport *r, Text *out);
/* One object. */
Status plan_report_json(const PlanReport *r, Text *out);
/* A line for each layout, with a head. */
Status plan_report_csv(const PlanReport *r, Text *out);

/* Efficiency from the first row on, which parts of the step took what is lost, and which rows do not
 * fit into room_bytes of a GPU. */
Status plan_scale_text(const PlanScale *s, int n, double room_bytes, Text *out);
Status plan_scale_json(const PlanScale *s, int n, Text *out);
/* Speed of a GPU of the i-th row over that of the first's. */
double plan_scale_efficiency(const PlanScale *s, int i);

/* explain.c: the numbers of a report opened into their factors. `what` is peak (memory by kind and
 * layer), step (ops of a micro-batch with FLOPs, bytes and rates), comm (what is sent, over which
 * group) or bubble (times of stages, the schedule's theory). ERR_ARG with the nearest word for any
 * other. */
Status plan_explain(Planner *p, const PlanReport *r, const char *what, Text *out);

/* "PP4 VPP2 EP8 CP1 DP16 ZeRO-1 over 8 interleaved MBS1 bf16 recompute none, worst buffers": all that
 * a search varies, so that no two layouts read the same. */
enum { PLAN_LAYOUT_BYTES = 320 };
const char *plan_layout_text(char out[PLAN_LAYOUT_BYTES], const PlanLayout *l, const PlanPrice *p);
/* The schedules of SearchRow.also: `first` before the first, `between` before the others; "": none. */
enum { PLAN_ALSO_BYTES = 256 };
const char *plan_also_text(char out[PLAN_ALSO_BYTES], unsigned also, const char *first,
                           const char *between);

#endif
