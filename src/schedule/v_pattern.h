/*
 * v_pattern: schedules from a pattern that repeats (arXiv:2405.15362). Private to schedule/.
 *
 * Two chunks a rank, down the ranks and up again. A building block says when, in passes, one
 * micro-batch is forward and backward on both chunks of each rank; the next micro-batch follows six
 * passes later (two forwards, two input, two weight gradients). How long the block keeps a slot is
 * how much memory the schedule takes, which is the paper's point; the start and end of the step are
 * squeezed by running it, weight gradients where there is time.
 */
#ifndef SCHEDULE_V_PATTERN_H
#define SCHEDULE_V_PATTERN_H

#include "schedule/schedule.h"

/* When chunk 0 goes forward, chunk 1 forward, chunk 1 backward, chunk 0 backward. */
typedef struct Block {
    int at[4];
} Block;

/* The shortest of the orders that squeezing finds within the slots that the pattern needs. */
Status v_pattern_order(const ScheduleShape *s, Block (*block)(int stages, int rank), Arena *scratch,
                       Order *ranks);

#endif
