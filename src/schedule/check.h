/* check: what is proven of Programs before one of them runs.
 *
 * Of each rank: every micro-batch goes forward, then backward (input and weight gradients) once on
 * each chunk of its way; a slot is not rewritten before its weight gradients are done, nor an entry
 * of the ring before its last reader; each reader finds what it is to read. Before and after mean
 * what queues and events enforce, not the order of the list: it is followed once with a clock for
 * each queue (Lamport 1978; vector clocks). Gradients are zeroed before the first backward, reduced
 * and applied after the last, whatever lane that was on.
 *
 * Of the groups of experts, data parallel and context ranks: their members run the same list, so
 * their collectives meet in one order if the list's own have one under any timing. Whole passes are
 * one queue; where passes are taken apart the phases on LANE_COMM are; reduce and update wait for
 * both lanes. Nothing orders the phases on LANE_COMPUTE and another micro-batch's exchange, so an
 * attention that gathers keys over context ranks has no place there.
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
