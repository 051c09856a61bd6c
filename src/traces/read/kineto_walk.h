/* kineto_walk: finds the events in text that comes in pieces, and recovers after malformed ones. It
 * knows the object around the events. What an event holds is known to kineto_scan. */
#ifndef TRACES_READ_KINETO_WALK_H
#define TRACES_READ_KINETO_WALK_H

#include "traces/read/kineto_commit.h"
#include "traces/read/kineto_source.h"

/* Where in the trace the text so far ends. */
typedef enum Where {
    AT_START,
    AT_TOP,    /* among the members of the object */
    AT_SKIP,   /* in the value of a member that nobody wants */
    AT_EVENTS, /* in traceEvents */
    AT_LOST,   /* in traceEvents, after a malformed event: the next one is looked for */
    AT_DONE
} Where;

/* The state between two pieces. All text up to here is committed, except what is kept. */
typedef struct Walk {
    Events *e;
    Batch batch;
    char *text; /* kept: cannot be understood before more text comes */
    size_t bytes, room, wanted, element_max;
    Where where;
    bool array;           /* the trace is an array of events, without an object around it */
    bool found;           /* traceEvents was there */
    bool phases;          /* an element had a "ph" */
    bool behind;          /* text after the end was counted as malformed */
    bool giant;           /* the next member is over the limit: skip it */
    bool last;            /* this is the last text */
    bool quoted, escaped; /* in a string, after a backslash: in AT_SKIP */
    int64_t depth;        /* of brackets, in AT_SKIP */
} Walk;

/* The most bytes of text that a walk keeps. */
size_t walk_room(const Source *s);
/* like: a batch whose keys and options are used. All memory lies in `a`. */
Status walk_init(Walk *w, Events *e, const Batch *like, const Source *s, Arena *a);
/* Takes the next text, at most a block. last: it is the last one. */
Status walk_text(Walk *w, const char *text, size_t n, bool last);
/* Takes the next text after another thread has scanned it, from its beginning to `rest`. Only
 * allowed if walk_expects_events: the text then begins with an event. */
Status walk_batch(Walk *w, const Batch *b, const char *rest, ScanStop why, bool last);
static inline bool walk_expects_events(const Walk *w)
{
    return w->where == AT_EVENTS && w->bytes == 0;
}
/* Call it after the last text. ERR_FORMAT: this was not a trace. */
Status walk_end(Walk *w, const Source *s);

#endif
