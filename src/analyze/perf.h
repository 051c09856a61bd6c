/*
 * perf: how much work an operator's call is, from its name and the shapes of its arguments.
 * Each tensor counts once, a multiply-add is two operations (docs/reference/trace.md,
 * "Work of operators").
 */
#ifndef ANALYZE_PERF_H
#define ANALYZE_PERF_H

#include "analyze/events.h"
#include "analyze/table.h"

enum { PERF_PARAMS = 28 };

typedef struct Perf {
    const char *sheet; /* "GEMM", "SDPA_fwd", ...: the report that lists it */
    const char *name[PERF_PARAMS];
    Cell value[PERF_PARAMS]; /* in the order of the sheet's columns "param: NAME" */
    int params;
    double flops, bytes; /* NaN: unknown */
    const char *spec;    /* which peak of a GPU it can reach: "matrix_bf16"; NULL: unknown */
    /* The same of its gradient, where that is no operator with a model of its own. */
    const char *backward_sheet;
    double backward_flops, backward_bytes;
} Perf;

/* One call: its operator, arguments, and the names of its kernels as far as they tell a model
 * something (how a product's inputs are transposed; NULL: nothing). */
typedef struct PerfQuery {
    const char *name, *kernel;
    const OpArgs *args;            /* NULL: none */
    const struct PerfRules *rules; /* perf_work.h: what is counted otherwise; NULL: nothing */
} PerfQuery;

/* The work of a call; out->sheet is NULL where there is no model, or where the arguments are not
 * what the model needs. */
Status perf_model(const Events *e, const PerfQuery *q, Arena *a, Perf *out);
/* Has an operator of that name a model at all? */
bool perf_has_model(const char *name, const struct PerfRules *rules);

/* The category of an operator whose first kernel has that name (NULL: it launched none). */
const char *perf_category(const char *name, const char *first_kernel);

#endif
