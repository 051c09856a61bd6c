/* perf_query: one call of an operator and its work: what perf.h answers, and what models are written
 * with (perf_work.h). */
#ifndef TRACES_SHEETS_PERF_QUERY_H
#define TRACES_SHEETS_PERF_QUERY_H

#include "traces/read/events.h"
#include "traces/table/table.h"

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

#endif
