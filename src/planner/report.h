/* report: prints a plan for people (text), for programs (JSON) and for spreadsheets (CSV). It computes nothing: all
 * numbers come from a PlanAnswer (answer.h). */
#ifndef PLANNER_REPORT_H
#define PLANNER_REPORT_H

#include "planner/goodput.h"
#include "planner/search/interval.h"
#include "planner/search/search.h"
#include "planner/stack/formula.h"

/* The content of a report; `partition` is as layout_text writes it. */
typedef struct PlanReport {
    const PlanRequest *request;
    const char *stack;
    const PlanLayout *layout;
    const PlanPrice *price;
    const char *partition;
    double tokens;              /* of the whole training; 0: not given */
    const PlanFormula *formula; /* NULL: not requested */
    const char *formula_name;
    const SearchResult *search;  /* NULL: there was no search */
    bool whole;                  /* not the best rows of a search alone */
    int64_t asked;               /* GPUs of the question, if the report is for fewer; else 0 */
    SearchBatch batch;           /* the batch that the GPUs could use */
    PlanInterval interval;       /* of the layout */
    bool skips_documents;        /* planner_skips_documents */
    double slope_s, slope_bytes; /* of one layer more: of a step, of a GPU; slope_s 0: unknown */
    const char *slope_of;        /* "with experts": the commonest kind */
    /* Tokens/s/GPU with PLAN_UNBALANCED times the rows on the busiest rank; 0: no ranks of experts. */
    double unbalanced;
} PlanReport;

/* An untrained router of gpt-oss-20b on two ranks of experts gave the busiest rank 1.17 times the mean. */
static const double PLAN_UNBALANCED = 1.2;

/* One training on a number of GPUs, for scaling. */
typedef struct PlanScale {
    int64_t gpus;
    PlanLayout layout;
    PlanPrice price;
    Goodput goodput; /* of --tokens; full_s 0: not asked */
} PlanScale;

/* Lines for people: with `rates`, which rates of the GPU are measured, published or assumed; and, on GPUs where the
 * stack never ran, that it did not. */
Status plan_report_basis(const PlanRequest *q, bool rates, Text *out);
/* A line for each thing that a reader of the layout's figures must know. Lines of a report begin with a word and
 * spaces, PLAN_LINE_WORD characters in all. */
enum { PLAN_LINE_WORD = 12 };
Status plan_report_notes(const PlanReport *r, Text *out);
/* For people. */
Status plan_report_text(const PlanReport *r, Text *out);
/* One JSON object. */
Status plan_report_json(const PlanReport *r, Text *out);
/* A header line, then a line for each layout. */
Status plan_report_csv(const PlanReport *r, Text *out);

/* For each row: its efficiency relative to the first row, the parts of the step that lost time, and whether it fits
 * into room_bytes of a GPU. */
Status plan_scale_text(const PlanScale *s, int n, double room_bytes, Text *out);
Status plan_scale_json(const PlanScale *s, int n, Text *out);
/* What row i lost relative to the first, by part of the step: "lost to exchange 2.2 %; won to bubble 0.1 %", where
 * "lost to " is `lost`. Shares are of the row's own GPU seconds, and add up. */
enum { PLAN_LOSSES_BYTES = 64 * PLAN_PARTS };
const char *plan_scale_losses(char out[PLAN_LOSSES_BYTES], const PlanScale *s, int i,
                              const char *lost);
/* Tokens/s/GPU of row i over that of the first row. */
double plan_scale_efficiency(const PlanScale *s, int i);

/* explain.c: the factors of a report's numbers. `what` is peak (memory by kind and layer), step (ops of a
 * micro-batch with FLOPs, bytes and rates), comm (bytes sent, and over which group) or bubble (times of
 * stages, the theory of the schedule). ERR_ARG, with the nearest word, for any other. */
Status plan_explain(Planner *p, const PlanReport *r, const char *what, Text *out);

/* "PP4 VPP2 EP8 CP1 DP16 ZeRO-1 over 8 interleaved MBS1 bf16 recompute none, worst buffers". It has everything that
 * a search varies, so different layouts have different texts. */
enum { PLAN_LAYOUT_BYTES = 320 };
const char *plan_layout_text(char out[PLAN_LAYOUT_BYTES], const PlanLayout *l, const PlanPrice *p);
/* "fits", "tight" or "does not fit". */
const char *plan_fit_word(const PlanPrice *p);
/* The schedules of SearchRow.also: `first` before the first, `between` before the others; "": none. */
enum { PLAN_ALSO_BYTES = 256 };
const char *plan_also_text(char out[PLAN_ALSO_BYTES], unsigned also, const char *first,
                           const char *between);

#endif
