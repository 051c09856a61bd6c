/* check: what is proven of Programs before one of them runs.
 *
 * Of each rank: every micro-batch goes forward, then backward (input and weight gradients) once on
 * each chunk of its way, phase after phase; a slot is not rewritten before its weight gradients are
 * done, nor an entry of the ring before its last reader, nor the memory between phases while the
 * other lane uses it; each reader finds what it is to read. Weights that ranks share are gathered
 * before they are read, and their place is not filled anew before its last reader; gradients that
 * ranks share have a place, are reduced after the last that adds to them, and before the update.
 * In an evaluation micro-batches go forward alone, and a slot is free after that.
 * Before and after mean what queues and events enforce, not the order of the list: it is followed
 * once with a clock for each queue (Lamport 1978; vector clocks).
 *
 * Of the groups of ranks that hold the same layers (experts, data parallel, context): their members
 * run the same list, so their collectives meet in one order if the list's own have one under any
 * timing. Each action that talks to them has to wait, through its lane or events, for the one
 * before it.
 *
 * Of all ranks together: sends and receives meet in order and every list ends, with a send that
 * waits for its receive (the strictest kind). As no queue chooses what comes next, ending once is
 * ending under any timing. */
#ifndef SCHEDULE_CHECK_H
#define SCHEDULE_CHECK_H

#include "schedule/schedule.h"

/* One rank's list alone. ERR_ARG names the action; `scratch` is given back. */
Status schedule_check(const Program *p, Arena *scratch);

/* All ranks' lists, each and together. ERR_ARG names rank and action. */
Status schedule_check_all(const Pipeline *p, Arena *scratch);

#endif
