/* 1F1B (PipeDream-Flush, arXiv:2006.09503): rank r of p runs p-1-r forwards ahead, then one forward
 * and one backward in turn. Bubble (p-1)/(m+p-1); p-r slots, however many micro-batches. */
#include "schedule/order.h"
#include "schedule/schedule.h"

void schedule_1f1b(const ScheduleShape *s, int rank, Hand *h)
{
    order_play(h, s->stages - 1 - rank, "f0");
    order_play(h, s->micros, "f0b0");
}
