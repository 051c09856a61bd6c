/* events_cut: device events that reach over the next one of their stream end where that begins. A
 * stream runs one thing after the other, so such a duration is the profiler's mistake. Kernels of
 * one graph are left as they are, and so are overlaps of at most 1 us. TraceLens cuts nothing. */
#ifndef TRACES_READ_EVENTS_CUT_H
#define TRACES_READ_EVENTS_CUT_H

#include "traces/read/tree.h"

/* Cuts durations of e, whose tree is t, and counts them (counts.cut). Leaves nothing in `a`. Our own
 * recordings are not cut. */
Status events_cut(Events *e, const Tree *t, Arena *a);

#endif
