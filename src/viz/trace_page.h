/* trace_page: what `trace report --format html` writes: one file that needs nothing else, with the
 * timeline of all ranks to zoom in, where their time went, the kernels that took most, the roofline,
 * time in collectives by rank, and every sheet. */
#ifndef VIZ_TRACE_PAGE_H
#define VIZ_TRACE_PAGE_H

#include "analyze/report.h"

#include <string.h>

/* Parts grow side by side, each in an arena of its own. */
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

enum { TRACE_PAGE_BUCKETS = BUCKETS + 1 }; /* computation, exposed communication, copies, idle */

typedef struct TracePage {
    int files, added;
    Strings names, lane_names, rank_names; /* of boxes, of lanes, of files */
    TracePart lanes, sheets, points;
    TraceTotals kernels, collectives; /* by number in `names` */
    Arena arena;
    double *parts;  /* ms: (files, TRACE_PAGE_BUCKETS) */
    int64_t *drawn; /* boxes of each file */
    int64_t boxes_most;
    uint32_t *file; /* its name, in rank_names: several may have one */
    int64_t events, left_out;
    int64_t origin_ns; /* the first box of the first file */
    uint32_t device;   /* in rank_names */
    bool begun;
} TracePage;

/* For "%.*s": so many bytes of a text at most. */
#define TRACE_PAGE_CUT(s, most) (int)strnlen((s), (most)), (s)

/* For at most `files` traces. */
Status trace_page_begin(TracePage *p, int files);
/* Adds a trace, called `name` there, with its sheets; keeps nothing of them. */
Status trace_page_add(TracePage *p, Report *r, const char *name, const Table *sheet, int n);
Status trace_page_write(TracePage *p, const char *path);
/* The timeline alone, for a page with the script trace.js. */
Status trace_page_timeline(const TracePage *p, Text *out);
void trace_page_free(TracePage *p); /* safe on { 0 } */

/* Tables alone, on a page: a number's cell is as dark as it is large in tables whose name ends in
 * heatmap. */
Status trace_page_tables(const char *title, const Table *table, int n, const char *path);

/* ---- its parts (trace_page_parts.c, trace_lanes.c) ---- */

/* The boxes of a trace's lanes, as JSON (page/trace.js reads it), at most `most` of them: then
 * neighbours that are short are one box, of all of them. */
Status trace_lanes(TracePage *p, const Report *r, int64_t most);
Status trace_part_table(Text *out, const Table *t, bool heat, bool open);
/* Points of a roofline plot from a sheet that has operators' intensity and rate. */
Status trace_part_points(TracePage *p, const Table *sheet);
Status trace_part_roofline(Text *out, const TracePage *p, Arena *a);

#endif
