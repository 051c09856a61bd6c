/* ranks: the files of a report as ranks of one run: whether they fit together, which ranks are
 * missing, and the time of each rank as one table. Who waits for whom is not asked here: see
 * collectives.h. */
#ifndef TRACES_SHEETS_RANKS_H
#define TRACES_SHEETS_RANKS_H

#include "traces/sheets/report.h"

/* The files that were added so far. */
typedef struct Ranks {
    Table table;       /* gpu_timeline_by_rank: the timeline of each file */
    char **path;       /* the files, in the order in which they are added */
    int64_t *rank;     /* rank[file]; -1: the file does not say */
    int64_t world;     /* ranks of the run, as the first file says */
    const char *begun; /* the first file that says when its run began, and when */
    int64_t run;
    int n; /* files so far */
} Ranks;

/* For `files` paths. Everything lies in `a`. */
Status ranks_init(Ranks *r, char **path, int files, Arena *a);
/* Adds the next file. ERR_ARG: it is of another run, or its rank is that of an earlier file. */
Status ranks_add(Ranks *r, const Report *report);
/* Writes a sentence on ranks that have no file; nothing if all have one. */
Status ranks_missing(const Ranks *r, Text *out);

#endif
