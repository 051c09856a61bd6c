/* check: what is proven about Programs before one of them runs. A generator with a bug is refused here with
 * the first wrong action, instead of a hang or wrong numbers on a cluster.
 *
 * Of each rank: every micro-batch goes forward, then backward (input and weight gradients) once on
 * each chunk of its way, phase after phase; a slot is not rewritten before its weight gradients are
 * done, nor an entry of the ring before its last reader, nor the memory between phases while the
 * other lane uses it; each reader finds what it has to read. Weights that ranks share are gathered
 * before they are read, and their place is not filled anew before its last reader; gradients that
 * ranks share have a place, are reduced after the last that adds to them, and before the update.
 * In an evaluation micro-batches go forward alone, and a slot is free after that.
 * "Before" and "after" mean what queues and events enforce, not the order of the list. The list is walked
 * once with a vector clock that has a component for each queue (Lamport 1978; Fidge, Mattern 1988).
 *
 * Of the groups of ranks that hold the same layers (experts, data parallel, context): their members
 * run the same list, so their collectives meet in one order if the list's own have one under any
 * timing. Each action that talks to them has to wait, through its lane or events, for the one
 * before it.
 *
 * Of all ranks together: sends and receives meet in order and every list ends, with a send that
 * waits for its receive (the strictest kind). No queue chooses what comes next, so a list that ends once
 * ends under any timing. */
#ifndef ENGINE_SCHEDULE_CHECK_H
#define ENGINE_SCHEDULE_CHECK_H

#include "engine/schedule/schedule.h"

/* Checks one rank's list alone. ERR_ARG names the action. Releases what it takes of `scratch`. */
Status schedule_check(const Program *p, Arena *scratch);

/* Checks the lists of all ranks, each alone and all together. ERR_ARG names rank and action. */
Status schedule_check_all(const Pipeline *p, Arena *scratch);

#endif
