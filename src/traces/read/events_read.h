/* events_read: reads a file into Events. Its first bytes choose the reader: kineto for JSON and
 * gzip, recording for what our own recorder wrote. */
#ifndef TRACES_READ_EVENTS_READ_H
#define TRACES_READ_EVENTS_READ_H

#include "traces/read/events.h"

/* How a trace is read. The result does not depend on `threads`. */
typedef struct EventsOptions {
    bool python;   /* keep python_function events: often most of the trace */
    int threads;   /* 0: two if the machine has them */
    Progress *bar; /* bytes of the file are added; NULL: none is shown */
} EventsOptions;

/* Reads a trace from a file or a pipe. A text that ends early is OK, with counts.truncated. ERR_IO:
 * it cannot be read, or it grew meanwhile. ERR_FORMAT: it is not JSON, or JSON without a trace.
 * *out is set on success only; free it with events_free. */
Status events_read(const char *path, const EventsOptions *o, Events *out);
void events_free(Events *e); /* safe on { 0 } */

#endif
