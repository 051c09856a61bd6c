/* kineto_walk: where in the text the events stand, and what to do with text that is cut anywhere. */
#ifndef ANALYZE_KINETO_WALK_H
#define ANALYZE_KINETO_WALK_H

#include "analyze/kineto_commit.h"
#include "analyze/kineto_source.h"

typedef enum Where {
    AT_START,
    AT_TOP,    /* among the members of the object */
    AT_SKIP,   /* in a member's value that nobody wants */
    AT_EVENTS, /* in traceEvents */
    AT_LOST,   /* there, at a malformed event */
    AT_DONE
} Where;

/* The place in the text up to which all is committed. */
typedef struct Walk {
    Events *e;
    Batch batch;
    char *text; /* what waits for the text behind it */
    size_t bytes, room, wanted, element_max;
    Where where;
    bool array, found; /* the array form; traceEvents was there */
    bool phases;       /* an element had a "ph" */
    bool behind;       /* text behind the end was counted */
    bool giant;        /* the member to come does not fit */
    bool last;         /* no text comes behind this */
    bool quoted, escaped;
    int64_t depth; /* of brackets, in AT_SKIP */
} Walk;

/* The most bytes of text that it holds. */
size_t walk_room(const Source *s);
/* like: keys and options. */
Status walk_init(Walk *w, Events *e, const Batch *like, const Source *s, Arena *a);
/* The next text, at most a block. */
Status walk_text(Walk *w, const char *text, size_t n, bool last);
/* The next text as it was scanned from its begin on, if walk_expects_events. */
Status walk_batch(Walk *w, const Batch *b, const char *rest, ScanStop why, bool last);
static inline bool walk_expects_events(const Walk *w)
{
    return w->where == AT_EVENTS && w->bytes == 0;
}
/* What the text's end says about it. */
Status walk_end(Walk *w, const Source *s);

#endif
