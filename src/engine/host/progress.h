/* progress: how far a command that takes longer than two seconds is.
 *
 * On a terminal a bar with the share, the elapsed time and the time left is redrawn in place. Elsewhere
 * a line is printed every 10 s (engine/base/log.h). --quiet and shorter commands print nothing. progress_add
 * also checks the flag of interrupt.h, so that a loop that reports progress can be interrupted. */
#ifndef ENGINE_HOST_PROGRESS_H
#define ENGINE_HOST_PROGRESS_H

#include "engine/base/status.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct Progress {
    const char *what; /* the work: "prepare" */
    const char *name; /* the file or folder that is worked on; NULL: none */
    const char *unit; /* what is counted: "tensors"; NULL: bytes */
    int64_t total;    /* 0: unknown */
    const char *left; /* what is on disk after Ctrl-C: "nothing was written"; NULL: do not check */
    double begin_s, stage_s;        /* of the command, and of its stage */
    _Atomic int64_t done, shown_ms; /* any thread may add */
} Progress;

void progress_begin(Progress *p); /* with `left` it catches Ctrl-C from here on */
/* Begins another stage of the same command: `what`, `unit` and `total` are its own, and so is the time left. */
void progress_next(Progress *p);
/* ERR_INTERRUPTED after Ctrl-C. Does nothing where p is NULL. */
Status progress_add(Progress *p, int64_t n);
/* Like progress_add, but takes the total done so far. */
Status progress_to(Progress *p, int64_t done);
/* Prints the last line, if a line was printed before. */
void progress_end(Progress *p);

#endif
