/*
 * perf: how much work a call of an operator is, from its name and the shapes of its arguments.
 *
 * It counts the least work: each tensor is moved once, and a multiply-add is two operations. What a
 * kernel moves in fact (caches, padding, workspaces) is not in a trace. Times are not looked at
 * here: see perf_rates.c. docs/reference/trace.md, "Work of operators", has the formulas.
 */
#ifndef ANALYZE_PERF_H
#define ANALYZE_PERF_H

#include "analyze/events.h"
#include "analyze/table.h"

enum { PERF_PARAMS = 28 };

/* The work of one call, and the parameters that it follows from. */
typedef struct Perf {
    const char *sheet; /* the sheet that lists it: "GEMM", "SDPA_fwd", ...; NULL: no model */
    const char *name[PERF_PARAMS];
    Cell value[PERF_PARAMS]; /* in the order of the sheet's columns "param: NAME" */
    int params;
    double flops, bytes; /* NaN: unknown */
    const char *spec;    /* which peak of a GPU it can reach: "matrix_bf16"; NULL: unknown */
    /* The same for its gradient, if autograd's operator has no model of its own. */
    const char *backward_sheet;
    double backward_flops, backward_bytes;
} Perf;

/* One call. kernel: the name of a kernel that tells a model more than the arguments do (how a
 * product's inputs are transposed); NULL: there is none. */
typedef struct PerfQuery {
    const char *name, *kernel;
    const OpArgs *args;            /* NULL: none */
    const struct PerfRules *rules; /* what is counted otherwise (perf_work.h); NULL: nothing */
} PerfQuery;

/* The work of a call. out->sheet is NULL if the operator has no model, or if the arguments are
 * not what the model needs. */
Status perf_model(const Events *e, const PerfQuery *q, Arena *a, Perf *out);
/* Does an operator of that name have a model? */
bool perf_has_model(const char *name, const struct PerfRules *rules);

/* The category of an operator; first_kernel: the name of the first kernel that it launched, or
 * NULL. */
const char *perf_category(const char *name, const char *first_kernel);

#endif
