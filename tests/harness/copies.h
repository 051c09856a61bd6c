/*
 * copies: a backend for the CPU whose streams of copies run late. A copy waits in the queue of its stream
 * until the compute lane, or another stream, waits for an event behind it. So a wait that is missing gives
 * wrong bits. Ops run at once. It also tells in which order copies were asked for and updates ran.
 */
#ifndef TESTS_HARNESS_COPIES_H
#define TESTS_HARNESS_COPIES_H

#include "harness/test.h"

#include "engine/backend/backend.h"
#include "kernels/core/ops.h"

enum { LATE_STREAMS = 2, LATE_QUEUE = 1 << 14, LATE_LOG = 1 << 16 };

/* A copy, or a wait for the first `until` entries of another stream. */
typedef struct LateCopy {
    void *dst;
    const void *src;
    size_t bytes;
    uint64_t until;
    int other;
} LateCopy;

typedef struct LateStream {
    LateCopy at[LATE_QUEUE];
    uint64_t n, done;
    int64_t knows; /* ops that had run at the last event of the compute lane that it waited for */
} LateStream;

/* log: "+" a copy of the first stream, "-" one of the second, "u" an update. */
typedef struct Late {
    Backend backend;
    Streams streams;
    Decorator counts;
    LateStream stream[LATE_STREAMS];
    int made, logged;
    int64_t ops;
    bool early; /* a copy that does not know of the last op */
    char log[LATE_LOG];
} Late;

static _Thread_local Late *late_now; /* entries of Streams have no place for it */

static inline void late_note(char c)
{
    if (late_now->logged < LATE_LOG - 1) late_now->log[late_now->logged++] = c;
}

static inline void late_run(LateStream *s, uint64_t until)
{
    while (s->done < until) {
        const LateCopy *c = &s->at[s->done++ % LATE_QUEUE];
        if (c->dst == NULL)
            late_run(&late_now->stream[c->other], c->until);
        else
            memcpy(c->dst, c->src, c->bytes);
    }
}

static inline Status late_add(Exec *ex, void **out)
{
    (void)ex;
    *out = &late_now->stream[late_now->made++];
    return OK;
}

/* Event.ns: of a stream its number and length, of the compute lane the number of ops. */
static inline Status late_record(Exec *ex, Event *event, void *stream)
{
    (void)ex;
    LateStream *s = stream;
    if (s == NULL)
        event->ns = (uint64_t)late_now->ops;
    else
        event->ns = (uint64_t)(1 + (s - late_now->stream)) << 48 | s->n;
    return OK;
}

static inline Status late_wait(Exec *ex, const Event *event, void *stream)
{
    (void)ex;
    LateStream *s = stream;
    const int of = (int)(event->ns >> 48) - 1;
    const uint64_t n = event->ns & (((uint64_t)1 << 48) - 1);
    if (s == NULL && of >= 0) late_run(&late_now->stream[of], n);
    if (s != NULL && of < 0) s->knows = (int64_t)n;
    if (s != NULL && of >= 0) s->at[s->n++ % LATE_QUEUE] = (LateCopy){ .until = n, .other = of };
    return OK;
}

static inline Status late_copy(Exec *ex, void *dst, const void *src, size_t bytes, void *stream)
{
    (void)ex;
    LateStream *s = stream;
    const bool back = s == &late_now->stream[1];
    s->at[s->n++ % LATE_QUEUE] = (LateCopy){ .dst = dst, .src = src, .bytes = bytes };
    if (back && s->knows != late_now->ops) late_now->early = true;
    late_note(back ? '-' : '+');
    return OK;
}

static inline Status late_op(Exec *ex, int level, const OpDesc *op, const void *args)
{
    late_now->ops++;
    if (op == op_desc(OP_ADAMW) || op == op_desc(OP_MUON)) late_note('u');
    return op_next(ex, level, op, args);
}

/* From here on, on this thread. */
static inline void late_begin(Late *l, Exec *ex)
{
    *l = (Late){ .backend = *ex->backend,
                 .streams = *ex->backend->streams,
                 .counts = { late_op, l } };
    l->streams.add = late_add;
    l->streams.record = late_record;
    l->streams.wait = late_wait;
    l->streams.copy = late_copy;
    l->backend.streams = &l->streams;
    ex->backend = &l->backend;
    exec_push(ex, &l->counts);
    late_now = l;
}

#endif
