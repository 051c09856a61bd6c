/*
 * pipeline_page: what `switchyard viz` and `plan --html` draw: timelines, simulated or recorded,
 * one above the other on one time axis, and curves of how a training scales.
 *
 * As a page: a table that compares the timelines; for each the timeline (zoom, pan, hover), memory
 * over time where it is known, and where each rank's time goes. As a still: one <svg> 1000 pixels
 * wide with its own style, for papers. Neither needs another file or a network. `out` must be in an
 * arena of its own, because a text grows in place (engine/base/text.h).
 */
#ifndef PLANNER_PAGE_PIPELINE_PAGE_H
#define PLANNER_PAGE_PIPELINE_PAGE_H

#include "pages/charts/timeline.h"

enum { SCALING_POINTS = 64, SCALING_CURVES = 16, SCALING_HEIGHT = 300 };

/* A scaling curve. Arrays are by point; NaN and NULL: not known. efficiency: tokens/s/GPU as a
 * share of ideal scaling; 1 is ideal. reason: what the rest was lost to. */
typedef struct Scaling {
    const char *title;
    int points;
    double gpus[SCALING_POINTS]; /* in rising order */
    double tokens_per_s_per_gpu[SCALING_POINTS], efficiency[SCALING_POINTS];
    const char *reason[SCALING_POINTS];
    const char *layout[SCALING_POINTS]; /* the layout of a point */
    const char *days[SCALING_POINTS];   /* of the whole training, in words */
    bool unfit[SCALING_POINTS];         /* it does not fit into the memory */
} Scaling;

/* What a page or a still shows. Arrays are the caller's. */
typedef struct PipelineView {
    const char *title, *about; /* of a page: its heading and a line below it; NULL: none */
    const Timeline *timeline;
    const Scaling *scaling;
    int timelines, scalings;
} PipelineView;

/* Append a whole page, or a whole <svg>. */
Status pipeline_html(Text *out, const PipelineView *v);
Status pipeline_still(Text *out, const PipelineView *v);
/* Writes a page or a still, by the path's ending .html or .svg; `out` as above. */
Status pipeline_write(const char *path, const PipelineView *v, Text *out);
/* ERR_ARG unless the path ends in .html or .svg; `option` names it in the sentence: "viz: --out". */
Status pipeline_check_path(const char *option, const char *path);
/* Writes what `out` has from `before` on to the file, and cuts it off `out`. */
Status pipeline_put(const char *path, Text *out, size_t before);

/* Parts for other pages, with the script pipeline.js: the style of all, a timeline, and what each of
 * its ranks holds and does. */
Status pipeline_style(Text *out);
Status pipeline_timeline(Text *out, const Timeline *t, double axis_s);
Status pipeline_ranks(Text *out, const Timeline *t);

/* scaling.c: one <svg> SCALING_HEIGHT high over the number of GPUs: efficiency or tokens/s/GPU. */
Status scaling_svg(Text *out, const Scaling *s, int n, int width, bool tokens);
/* A section with both pictures and a table of all points. */
Status scaling_section(Text *out, const Scaling *s, int n);

#endif
