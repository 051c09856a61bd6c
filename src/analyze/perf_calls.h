/* perf_calls: the calls of a report whose work is known, and what it is. */
#ifndef ANALYZE_PERF_CALLS_H
#define ANALYZE_PERF_CALLS_H

#include "analyze/perf.h"
#include "analyze/report.h"

/* The work of calls of one operator with equal arguments. */
typedef struct PerfRow {
    Perf p;
    const char *text; /* "{'M': 8944, 'bias': False}" */
    uint32_t params;  /* equal for rows with equal texts */
} PerfRow;

typedef struct PerfCall {
    uint32_t event, row;
    double us; /* busy time of the device below it */
} PerfCall;

/* An operator's gradient: `event` is one of the calls. */
typedef struct PerfGradient {
    uint32_t call, backward; /* rows of call; the event that autograd runs */
} PerfGradient;

/* Of a data sheet; 0: not known. */
typedef struct PerfPeaks {
    double f32, bf16, fp8; /* TFLOP/s of matrix products; f32 is that of vectors, too */
    double gb_s;
} PerfPeaks;

/* What is listed and how it is counted. */
typedef struct PerfChoice {
    const struct PerfRules *rules; /* NULL: our own */
    bool idle;                     /* calls without device work, too */
    bool peaks;                    /* beside what the GPU promises */
    double mb;                     /* bytes */
} PerfChoice;

typedef struct PerfCalls {
    PerfChoice how;
    PerfPeaks peaks;
    PerfRow *row;
    PerfCall *call;         /* in the order of the trace */
    PerfGradient *gradient; /* by call */
    int64_t rows, calls, gradients;
} PerfCalls;

/* The report's calls, made on demand: by our own choice, unless perf_calls_make was there first. */
Status perf_calls(Report *r, const PerfCalls **out);
Status perf_calls_make(Report *r, const PerfChoice *how);
/* The row of an event's work; NULL: it has no model. */
const PerfRow *perf_calls_find(const PerfCalls *p, uint32_t event);

/* All device work below an event. */
static inline Work perf_work_below(const Report *r, uint32_t event)
{
    const uint32_t *first = r->tree->gpu_first + event;
    return (Work){ r->tree->gpu + first[0], first[1] - first[0] };
}

/* Peaks of report.o->gpu or of the trace's device. */
Status perf_peaks(const Report *r, PerfPeaks *out);

/* What a call comes to in `us`; NaN and NULL: not known. roofline: the least time in us that its GPU
 * needs by its data sheet; bound: COMPUTE_BOUND or MEMORY_BOUND. */
#define PERF_RATE_ROWS "gflops|mb|intensity|tb|tflops|roofline|percent|bound|spec|us"
void perf_put_rates(const PerfCalls *p, double flops, double bytes, const char *spec, double us,
                    Table *rows);

#endif
