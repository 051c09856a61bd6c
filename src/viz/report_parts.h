/* report_parts: what the files of the report share. All that a part shows is computed before the
 * page's text begins to grow, because a growing text must be the last allocation of its arena. */
#ifndef VIZ_REPORT_PARTS_H
#define VIZ_REPORT_PARTS_H

#include "viz/page.h"
#include "viz/run_data.h"

enum { REPORT_FULL = 1080, REPORT_HALF = 526, REPORT_THIRD = 342, REPORT_SENTENCE = 512 };

enum { TRACE_DEPTHS = 3 }; /* an action, a phase in it, an op in that */

typedef struct TraceEvent {
    const char *name;
    double start_s, duration_s, flops, bytes; /* start: since the first traced step */
    int64_t step;
    int lane, layer, depth;
} TraceEvent;

typedef struct TraceTotal {
    const char *name;
    int depth;
    int64_t calls;
    double seconds, flops, bytes;
} TraceTotal;

/* The last step of trace.json, and all of its steps summed by name. */
typedef struct TraceView {
    bool present;
    char problem[REPORT_SENTENCE]; /* why it cannot be shown; "" if it can */
    TraceEvent *event;             /* complete events ("X"); others are passed over */
    int64_t events, dropped;
    int64_t step, steps, hidden;         /* hidden: events of the step that are too short to draw */
    int lanes, rows;                     /* lanes of the step; rows in each */
    double start_s, duration_s, least_s; /* the step's; least_s: shorter events are not drawn */
    TraceTotal *total;                   /* by depth, the longest first */
    int totals;
    double action_s; /* seconds of all steps' actions; shares are of it */
} TraceView;

typedef struct Report {
    const char *folder; /* the last part of the run's path */
    RunData data;
    TraceView trace;
    const char *config, *sample; /* NULL: no such file */
    size_t config_bytes, sample_bytes;
    SvgSeries *load_series;
    int n_load_series;
} Report;

/* One of several charts side by side: a quantity over the steps. */
typedef struct SmallChart {
    RunCurve curve;
    const char *title;
    SvgUnit unit;
    bool from_zero, may_log;
} SmallChart;

/* What the parts of the page write; the table of parts is report.c's. */
bool loss_has(const Report *r);
Status loss_write(Text *out, const Report *r);
int charts_count(const Report *r, const SmallChart *chart, int n); /* charts that have data */
Status charts_write(Text *out, const Report *r, const SmallChart *chart, int n);
Status memory_write(Text *out, const Report *r);
Status load_write(Text *out, const Report *r);
Status trace_view_write(Text *out, const Report *r);

/* report_trace.c. A file that is no trace is not an error but a sentence in the view. */
Status trace_view_load(TraceView *v, const char *path, Arena *a);

/* report_load.c: the curves. */
Status load_view_make(Report *r, Arena *a);

#endif
