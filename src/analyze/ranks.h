/*
 * ranks: the files of a report as ranks of one run: do they fit together, who is missing, and the time
 * of each as one table. Who waits for whom is asked of collectives.h.
 */
#ifndef ANALYZE_RANKS_H
#define ANALYZE_RANKS_H

#include "analyze/report.h"

typedef struct Ranks {
    Table table;       /* gpu_timeline_by_rank: the timeline of each file */
    char **path;       /* the files, in the order in which they are added */
    int64_t *rank;     /* by file; -1: it says none */
    int64_t world;     /* ranks of the run, as the first file says */
    const char *begun; /* the first file that says when its run began, and when */
    int64_t run;
    int n; /* files so far */
} Ranks;

/* For `files` paths; all of it lies in `a`. */
Status ranks_init(Ranks *r, char **path, int files, Arena *a);
/* The next file. ERR_ARG: it is of another run, or of a rank that an earlier one is of. */
Status ranks_add(Ranks *r, const Report *report);
/* A sentence on ranks that no file is of; none if all are there. */
Status ranks_missing(const Ranks *r, Text *out);

#endif
