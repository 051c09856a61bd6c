/* perf_calls: the calls of a trace whose work is known (perf.h), their gradients, and the peaks of
 * their GPU. Sheets of work and rates are made of them. It counts no work itself. */
#ifndef TRACES_SHEETS_PERF_CALLS_H
#define TRACES_SHEETS_PERF_CALLS_H

#include "traces/sheets/perf.h"
#include "traces/sheets/report.h"

/* The work of all calls of one operator with equal arguments. */
typedef struct PerfRow {
    Perf p;
    const char *text; /* "{'M': 8944, 'bias': False}" */
    uint32_t params;  /* a number of the text */
} PerfRow;

/* One call: its event, and the row with its work. */
typedef struct PerfCall {
    uint32_t event, row;
    double us; /* busy time of the device work below it */
} PerfCall;

/* A gradient of an operator. */
typedef struct PerfGradient {
    uint32_t call;     /* index of the operator's call */
    uint32_t backward; /* the event in which autograd runs it */
} PerfGradient;

/* From a data sheet; 0: not known. */
typedef struct PerfPeaks {
    double f32, bf16, fp8; /* TFLOP/s of matrix products; f32 holds for vectors too */
    double gb_s;
} PerfPeaks;

/* Which calls are listed, and how they are counted. */
typedef struct PerfChoice {
    const struct PerfRules *rules; /* NULL: our own */
    bool idle;                     /* also list calls without device work */
    bool peaks;                    /* compare with the GPU's data sheet */
    double mb;                     /* bytes of a megabyte */
} PerfChoice;

/* All of it lies in the report's arena. */
typedef struct PerfCalls {
    PerfChoice how;
    PerfPeaks peaks;
    PerfRow *row;
    PerfCall *call;         /* in the order of the trace */
    PerfGradient *gradient; /* by call */
    int64_t rows, calls, gradients;
} PerfCalls;

/* Makes the calls on demand, by our own choice. perf_calls_make makes them by another choice, if it
 * is called first. They live as long as the report. */
Status perf_calls(Report *r, const PerfCalls **out);
Status perf_calls_make(Report *r, const PerfChoice *how);
/* The work of an event; NULL: it has no model. */
const PerfRow *perf_calls_find(const PerfCalls *p, uint32_t event);

/* All device work below an event. */
static inline Work perf_work_below(const Report *r, uint32_t event)
{
    const uint32_t *first = r->tree->gpu_first + event;
    return (Work){ r->tree->gpu + first[0], first[1] - first[0] };
}

/* The peaks of the GPU that the options name, else of the trace's. */
Status perf_peaks(const Report *r, PerfPeaks *out);

/* The rates of a call that took `us`. A rate is NaN where the work, or the GPU's peak, is not
 * known. */
#define PERF_RATE_ROWS "tb|tflops|percent|us"
void perf_put_rates(const PerfCalls *p, double flops, double bytes, const char *spec, double us,
                    Table *rows);
/* What calls with equal work have in common. roofline: the least time in us that the GPU needs by
 * its data sheet. bound: COMPUTE_BOUND or MEMORY_BOUND, whichever decides. */
#define PERF_WORK_ROWS "gflops|mb|intensity|roofline|bound|spec"
void perf_put_work(const PerfCalls *p, double flops, double bytes, const char *spec, Table *out);

#endif
