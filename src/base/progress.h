/* progress: how far a command that takes longer than two seconds is.
 *
 * On a terminal a bar with the share, the time and the time left is redrawn in place. Elsewhere a line
 * comes now and then (base/log.h). --quiet shows nothing. A command that is over sooner prints nothing.
 * The same call looks at interrupt.h's flag, so a loop that reports progress can be interrupted. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct Progress {
    const char *what; /* the work: "prepare" */
    const char *name; /* of the file or folder that it is about; NULL: none */
    const char *unit; /* what is counted: "tensors"; NULL: bytes */
    int64_t total;    /* 0: nobody knows */
    const char *left; /* what is on disk after Ctrl-C: "nothing was written"; NULL: do not look */
    double begin_s;
    _Atomic int64_t done, shown_ms; /* any thread may add */
} Progress;

void progress_begin(Progress *p); /* with `left` it catches Ctrl-C from here on */
/* ERR_INTERRUPTED after Ctrl-C. Does nothing where p is NULL. */
Status progress_add(Progress *p, int64_t n);
/* The same with the whole amount that is done. */
Status progress_to(Progress *p, int64_t done);
/* The last line, if there was one before. */
void progress_end(Progress *p);

#endif
