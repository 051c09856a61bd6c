/*
 * trace_page: the page of `trace report --format html`: one file that needs nothing else. It has
 * the timeline of all ranks with zoom, where their time went, the kernels that took most time, the
 * roofline, time in collectives by rank, and every sheet.
 *
 * Use: trace_page_begin, trace_page_add for each trace, trace_page_write, trace_page_free. Traces
 * are large, so nothing of a trace is kept but these summaries: it can be freed after it is added.
 */
#ifndef TRACES_PAGE_TRACE_PAGE_H
#define TRACES_PAGE_TRACE_PAGE_H

#include "traces/sheets/perf_calls.h"
#include "traces/sheets/report.h"

#include <string.h>

/* A part of the page. All parts grow at the same time, so each needs an arena of its own. */
typedef struct TracePart {
    Arena arena;
    Text text;
} TracePart;

/* Totals by name and rank. */
typedef struct TraceTotals {
    Arena arena;
    double *us, *count, *longest; /* (names, files) */
    int64_t room;                 /* of names */
} TraceTotals;

/* Computation, exposed communication, exposed copies, then idle time by cause. */
enum { TRACE_PAGE_BUCKETS = BUCKETS + IDLE_CAUSES };

typedef struct TracePage {
    int files, added;
    Strings names, lane_names, rank_names; /* of boxes, of lanes, of files */
    TracePart lanes, sheets, points;
    TraceTotals kernels, collectives; /* by number in `names` */
    Arena arena;
    double *parts;  /* ms: (files, TRACE_PAGE_BUCKETS) */
    int64_t *drawn; /* boxes of each file */
    int64_t boxes_most;
    uint32_t *file; /* by file: its name in rank_names; several files may have the same one */
    int64_t events,
        left_out;      /* of all traces; left out: malformed, incomplete or outside the tree */
    int64_t origin_ns; /* the first box of the first file */
    uint32_t device;   /* in rank_names */
    PerfPeaks peaks;   /* of the GPU of the first file; 0: not known */
    bool begun;
} TracePage;

/* Arguments for "%.*s": at most `most` bytes of a text. */
#define TRACE_PAGE_CUT(s, most) (int)strnlen((s), (most)), (s)

/* A name of at most `most` characters: of a longer one its begin and its end with … between, because kernels of one
 * template differ in their last words. */
enum { TRACE_PAGE_NAME = 256 };
const char *trace_page_name(char out[TRACE_PAGE_NAME], const char *name, int most);

/* Begins a page of at most `files` traces. */
Status trace_page_begin(TracePage *p, int files);
/* Adds a trace under `name`, with its sheets; keeps no pointer to them. */
Status trace_page_add(TracePage *p, Report *r, const char *name, const Table *sheet, int n);
Status trace_page_write(TracePage *p, const char *path);
/* The timeline alone, for a page with the script trace.js. */
Status trace_page_timeline(const TracePage *p, Text *out);
void trace_page_free(TracePage *p); /* safe on { 0 } */

/* Writes a page of tables only. In tables whose name ends in "heatmap" larger numbers have darker
 * cells. */
Status trace_page_tables(const char *title, const Table *table, int n, const char *path);

/* ---- its parts (trace_page_parts.c, trace_lanes.c) ---- */

/* Adds the boxes of a trace's lanes, as JSON for page/trace.js. At most `most` boxes: short
 * neighbouring events share one if there are more. */
Status trace_lanes(TracePage *p, const Report *r, int64_t most);
Status trace_part_table(Text *out, const Table *t, bool heat, bool open);
/* Points of a roofline plot from a sheet that has operators' intensity and rate. */
Status trace_part_points(TracePage *p, const Table *sheet);
Status trace_part_roofline(Text *out, const TracePage *p, Arena *a);

#endif
