/* report_trace: the part of a run's report that shows its recording. */
#ifndef PAGES_REPORT_TRACE_H
#define PAGES_REPORT_TRACE_H

#include "engine/base/text.h"

struct
    TracePage; /* traces/page/trace_page.h defines a Report of its own, so it is not included here */

enum { TRACE_VIEW_SENTENCE = 512 };

typedef struct TraceView {
    bool present;
    char problem[TRACE_VIEW_SENTENCE]; /* why it cannot be shown; "" if it can */
    struct TracePage *page;
} TraceView;

/* A file that is no recording is not an error but a sentence in the view. */
Status trace_view_load(TraceView *v, const char *path, Arena *a);
Status trace_view_write(Text *out, const TraceView *v);
void trace_view_free(TraceView *v); /* safe on { 0 } */

#endif
