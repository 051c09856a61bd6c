/*
 * pipeline_page: timelines, simulated or recorded, one above the other on one time axis.
 *
 * As a page: a table that compares them, and for each the timeline (zoom, pan, hover), where each
 * rank's time goes and memory over time where that is known. As a still: one <svg> of 1000 pixels
 * with its own style, for papers. Neither needs another file or a network.
 *
 * `out` must be in an arena of its own (base/text.h).
 */
#ifndef VIZ_PIPELINE_PAGE_H
#define VIZ_PIPELINE_PAGE_H

#include "viz/timeline.h"

typedef struct PipelineView {
    const Timeline *timeline;
    int timelines;
} PipelineView;

Status pipeline_html(Text *out, const PipelineView *v);
Status pipeline_still(Text *out, const PipelineView *v);

/* timeline_memory.c: memory of one rank over the step, stacked by kind, up to `most_bytes`. */
Status timeline_memory_svg(Text *out, const Timeline *t, int rank, double most_bytes);
Status timeline_memory_key(Text *out, const Timeline *t);

#endif
