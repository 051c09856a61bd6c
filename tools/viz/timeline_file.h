/* timeline_file: recorded steps of a pipeline: read from a folder in the form of Primus' pp_vis
 * (docs/reference/formats.md), and printed.
 *
 *     timeline_read("runs/pp8", TIMELINE_MEDIAN, arena, &t);
 */
#ifndef VIZ_TIMELINE_FILE_H
#define VIZ_TIMELINE_FILE_H

#include "pages/charts/timeline.h"

/* TIMELINE_MEDIAN: the iteration whose step is the median of all that were recorded; of an even number the shorter of
 * the two in the middle. The last one is often an outlier, because the profiler ends there. */
enum { TIMELINE_LAST = -1, TIMELINE_MEDIAN = -2 };
/* Reads the iteration of this number, or one of the above. ERR_IO: a file is missing. ERR_FORMAT: a
 * file is cut short, has no such iteration, lacks numbers or runs backwards. */
Status timeline_read(const char *folder, int64_t iteration, Arena *a, Timeline *out);

/* timeline_table.c: prints facts and a table by rank, in ms and GiB, for a terminal. */
Status timeline_table(Text *out, const Timeline *t);

#endif
