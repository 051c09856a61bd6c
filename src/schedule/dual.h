/*
 * dual: the eight steps of DualPipe on one rank (DeepSeek-V3, arXiv:2412.19437, section 3.2.1, and
 * its published code). Private to schedule/.
 *
 * Two streams of micro-batches meet on each rank. In the middle of the step a forward of one runs
 * with a backward of the other: the pair F&B, whose exchanges of experts hide behind each other's
 * compute. Here it is a forward followed by a backward; what overlapping saves is for costs to say.
 */
#ifndef SCHEDULE_DUAL_H
#define SCHEDULE_DUAL_H

#include "schedule/schedule.h"

typedef struct Dual {
    int outer, inner, middle; /* how often: steps 1 (twice), 3, 5, 7; 2, 6, 8; 4 */
    int first;                /* chunk of the stream that enters the pipeline on this side */
    bool split;               /* step 6 begins to put weight gradients off with stream 1 */
    bool two_ways;            /* each stream has its own half of the micro-batches */
} Dual;

void dual_order(const Dual *d, Order *o);

#endif
