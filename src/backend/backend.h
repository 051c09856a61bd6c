/* backend: where ops run. cpu runs them on the host. count runs nothing: it adds up what ops would
 * cost, and is how a plan is made. guard and trace are decorators: they pass on to the backend
 * below and look at what happened, guard for a NaN in every output, trace at the clock. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "op/op.h"

extern const Backend backend_cpu, backend_count;   /* at the bottom of a stack */
extern const Backend backend_guard, backend_trace; /* on top */

/* An Exec over `scratch` that runs on the CPU; tables of the matrix library go into `arena`. */
Status exec_init(Exec *ex, Arena *arena, Arena *scratch, int threads);
void exec_free(Exec *ex); /* safe on { 0 } */

/* Put a decorator in front; take the front one away. */
void exec_push(Exec *ex, const Backend *decorator);
void exec_pop(Exec *ex);

/* Entries of a backend that cannot do something, or need not: shared by all tables. */
Status backend_no_alloc(Exec *ex, MemKind kind, size_t bytes, void **out);
void backend_no_free(Exec *ex, MemKind kind, void *at, size_t bytes);
Status backend_no_copy(Exec *ex, void *dst, const void *src, size_t bytes);
Status backend_no_fill(Exec *ex, void *dst, int byte, size_t bytes);
Status backend_event_new(Exec *ex, Event *out);
Status backend_event_nothing(Exec *ex, Event event);
Status backend_sync_nothing(Exec *ex);
Status backend_find_nothing(Exec *ex, const Tensor *t, int64_t *index, double *value);

/* The table of a decorator: it only runs ops; memory and waits are the bottom backend's. */
#define BACKEND_DECORATOR(name_, run_)                                                             \
    {                                                                                              \
        .name = (name_), .run = (run_), .alloc = backend_no_alloc, .free = backend_no_free,        \
        .copy = backend_no_copy, .read = backend_no_copy, .fill = backend_no_fill,                 \
        .event_new = backend_event_new, .record = backend_event_nothing,                           \
        .wait = backend_event_nothing, .sync = backend_sync_nothing,                               \
        .find_bad = backend_find_nothing                                                           \
    }

#endif
