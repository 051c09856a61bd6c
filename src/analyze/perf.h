/*
 * perf: how much work an operator's call is, from its name and the shapes of its arguments.
 * Formulas: tracing.md section 2.3.
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
} Perf;

/* The work of a call of operator `name` with these arguments; out->sheet is NULL where there is no
 * model, or where the arguments are not what the model needs. `compat`: TraceLens' numbers where
 * these are wrong (docs/trace.md lists where). */
Status perf_model(const Events *e, uint32_t name, const OpArgs *args, bool compat, Arena *a,
                  Perf *out);

/* The category of an operator whose first kernel has that name (NULL: it launched none). */
const char *perf_category(const char *name, const char *first_kernel);

#endif
