/* timeline: one training step of a pipeline over time, simulated (engine/schedule/simulate.h) or read from
 * files (tools/viz/timeline_file.h):
 *
 *     TimelineResident kept[] = { { "weights", weight_bytes }, ... };   by rank
 *     timeline_simulated(&pipeline, &simulation, kept, 1, "1f1b", arena, &t);
 *
 * The step is the longest total of all ranks. The bubble of a rank is the share of the pipeline's time in
 * which its compute lane runs nothing; the pipeline's time ends with the last pass of all ranks. A recording
 * does not tell that end, so there it is the step, and everything except passes counts as bubble:
 * gradients and optimizer, too, where the total includes them. Such a bubble is seldom below theory. Passes that were recorded over the same time, because they ran as one, count once. Each
 * rank's clock begins at its own start, so times of different ranks compare only roughly. */
#ifndef PAGES_CHARTS_TIMELINE_H
#define PAGES_CHARTS_TIMELINE_H

#include "engine/base/text.h"
#include "engine/schedule/simulate.h"

enum { TIMELINE_MEMORY_KINDS = 8 };
static const double TIMELINE_GIB = 1073741824;

/* Kinds before EXCHANGE run on the compute lane, the others on the communication lane. INPUT and
 * WEIGHT are the halves of a BACKWARD. */
typedef enum TimelineKind {
    TIMELINE_FORWARD,
    TIMELINE_BACKWARD,
    TIMELINE_INPUT,
    TIMELINE_WEIGHT,
    TIMELINE_OTHER,
    TIMELINE_EXCHANGE,
    TIMELINE_SEND,
    TIMELINE_KINDS
} TimelineKind;

/* prefix: the first part of the names of a rank's lists in a file: "fwd" in "fwd_start". Input
 * gradients have no lists of their own; they are among the backward passes. */
extern const struct TimelineKindName {
    const char *name, *prefix;
} timeline_kind[TIMELINE_KINDS];

/* A box of the picture: one pass, or phases of it without a gap between them. */
typedef struct TimelineSpan {
    double start_s, end_s;
    TimelineKind kind;
    int micro, chunk; /* micro -1: no micro-batch */
} TimelineSpan;

/* One pipeline rank. Sums are in seconds, by kind. */
typedef struct TimelineRank {
    TimelineSpan *span; /* ordered by start */
    int spans;
    double total_s, sum_s[TIMELINE_KINDS], bubble;
    double busy_s, passes_s; /* of the compute lane: it runs anything; it runs passes */
    double peak_bytes;       /* NaN: not known */
    const double *at_s;      /* points of a simulation: from this moment on */
    const double *bytes;     /* (points, memory_kinds) */
    int points;
} TimelineRank;

typedef struct TimelineIteration {
    int64_t number;
    double step_s;
} TimelineIteration;

typedef struct Timeline {
    const char *title;
    int ranks, chunks, micros; /* of one data-parallel copy; chunks: on each rank */
    TimelineRank *rank;
    const char *memory_kind[TIMELINE_MEMORY_KINDS];
    int memory_kinds, n_recorded;
    int64_t iteration; /* 0: simulated */
    TimelineIteration *recorded;
    double pipeline_s;             /* until the last pass ends; 0: recorded, the step */
    double step_s, bubble, theory; /* mean of the ranks; (p-1) / (p-1+m*v), arXiv:2104.04473 */
    int peak_rank;                 /* -1: no rank's memory is known */
    double room_bytes;             /* what a rank may use; 0: not known */
    int shown; /* number of ranks that are drawn: the first, the last, and others evenly between */
    int grain; /* spans shorter than 1/grain of the step share boxes */
} Timeline;

/* Memory that a rank holds during the whole step, under one name. */
typedef struct TimelineResident {
    const char *name;
    const double *bytes; /* by rank */
} TimelineResident;

/* Makes a timeline of a simulated step. If the simulation followed memory, the timeline has it over
 * time: the `n` resident kinds and on top of them "activations" (slots and ring). Names are not
 * copied. */
Status timeline_simulated(const Pipeline *p, const Simulation *s, const TimelineResident *resident,
                          int n, const char *title, Arena *a, Timeline *out);

/* Sorts the spans, and computes the fields of ranks and of the timeline that follow from spans and
 * totals. */
void timeline_sum(Timeline *t);
/* Sets grain, so that about `boxes` boxes are drawn at most. */
void timeline_limit(Timeline *t, int boxes);
int timeline_shown_rank(const Timeline *t, int i); /* the i-th that is drawn */
/* The recorded iteration of the median step, of an even number the shorter of the two; NULL: none is recorded. */
const TimelineIteration *timeline_median(const Timeline *t);
/* Appends which iteration is drawn, and how long the recorded ones take: "iteration 7, the median of 20 (2.881 to
 * 3.213 s)", or how far from the median it is. Nothing for a simulation. */
Status timeline_which(Text *out, const Timeline *t);

/* timeline_svg.c: one <svg> of `width` pixels. Its time axis is `axis_s` long, which several
 * timelines share. timeline_colors writes the style rules that it needs. */
Status timeline_svg(Text *out, const Timeline *t, double width, double axis_s);
double timeline_svg_height(const Timeline *t);
/* Of many micro-batches a pass is too narrow to be seen. timeline_part_s: seconds of a part of the step in which
 * passes can be read; 0: they can in the whole. timeline_part_svg: that part, from `from_s` on. */
double timeline_part_s(const Timeline *t, double width, double axis_s);
Status timeline_part_svg(Text *out, const Timeline *t, double width, double from_s, double part_s,
                         const char *title);
Status timeline_colors(Text *out);

#endif
