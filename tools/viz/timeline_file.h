/* timeline_file: recorded steps of a pipeline: read from a folder in the form of Primus' pp_vis
 * (docs/reference/formats.md), and printed.
 *
 *     timeline_read("runs/pp8", -1, arena, &t);
 */
#ifndef VIZ_TIMELINE_FILE_H
#define VIZ_TIMELINE_FILE_H

#include "pages/charts/timeline.h"

/* Reads the iteration of this number; -1: the last one. ERR_IO: a file is missing. ERR_FORMAT: a
 * file is cut short, has no such iteration, lacks numbers or runs backwards. */
Status timeline_read(const char *folder, int64_t iteration, Arena *a, Timeline *out);

/* timeline_table.c: prints facts and a table by rank, in ms and GiB, for a terminal. */
Status timeline_table(Text *out, const Timeline *t);

#endif
