/* report_parts: what the files of the report share; for report*.c and tools/report alone. Everything that a part
 * shows is computed before the page's text begins to grow, because a growing text must be the last
 * allocation of its arena. */
#ifndef PAGES_REPORT_PARTS_H
#define PAGES_REPORT_PARTS_H

#include "pages/charts/page.h"
#include "pages/report_trace.h"
#include "pages/run_data.h"

enum {
    REPORT_FULL = 1080,
    REPORT_HALF = 526,
    REPORT_THIRD = 342
}; /* pixels, as page.css lays out */

enum { RUNS_MOST = SVG_COLORS }; /* a colour each */

/* The runs of a chart, a curve each. name: for the legend; a single run needs none. */
typedef struct RunSet {
    RunData *const *run;
    const char *const *name;
    int n;
    const char *x_label;
} RunSet;

typedef struct Report {
    const char *folder; /* the last part of the run's path */
    RunData data, *one; /* one: points to data */
    RunSet alone;       /* this run */
    TraceView trace;
    const char *config, *sample; /* NULL: no such file */
    size_t config_bytes, sample_bytes;
    SvgSeries *load_series;
    int n_load_series;
} Report;

/* One of several charts side by side: a figure over the steps. */
typedef struct SmallChart {
    RunCurve curve;
    const FigureCurve *of;
    char title[64];
} SmallChart;

/* Each part of the page: does it have data, and its markup. The table of parts is in report.c. */
bool loss_has(const Report *r);
Status loss_write(Text *out, const Report *r);
/* The charts of a section, or of all curves that several runs share (SECTION_COMPARED). Returns their number. */
int charts_of(FigureSection section, SmallChart out[RUN_CURVES]);
int charts_count(const RunSet *r, const SmallChart *chart, int n); /* charts that have data */
Status charts_write(Text *out, const RunSet *r, const SmallChart *chart, int n);
Status memory_write(Text *out, const Report *r);
Status load_write(Text *out, const Report *r);

/* report_load.c: prepares the curves of expert load. */
Status load_view_make(Report *r, Arena *a);

#endif
