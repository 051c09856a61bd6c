/* events_read: a trace's file into Events, by the reader that its first bytes name. */
#ifndef ANALYZE_EVENTS_READ_H
#define ANALYZE_EVENTS_READ_H

#include "analyze/events.h"

typedef struct EventsOptions {
    bool python;   /* keep python_function events */
    int threads;   /* 0: two if the machine has them */
    Progress *bar; /* bytes of the file are added; NULL: none is shown */
} EventsOptions;

/* Reads a trace: object or array form, gzip by its magic, our own recordings by theirs; a pipe, too.
 * A text that ends early is OK with counts.truncated. ERR_IO: cannot be read, or grows while it is
 * read; ERR_FORMAT: not JSON, or JSON without a trace, one sentence. */
Status events_read(const char *path, const EventsOptions *o, Events *out);
void events_free(Events *e); /* safe on { 0 } */

#endif
