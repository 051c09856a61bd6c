/* GPipe (arXiv:1811.06965): all micro-batches forward, then all backward. Bubble (p-1)/(m+p-1), as
 * 1F1B's, but every micro-batch keeps its slot: m of them. Backward takes the micro-batches in the
 * order of forward, so that weight gradients are summed in the same order as on one rank. */
#include "schedule/order.h"
#include "schedule/schedule.h"

void schedule_gpipe(const ScheduleShape *s, int rank, Hand *h)
{
    (void)rank;
    order_play(h, s->micros, "f0");
    order_play(h, s->micros, "b0");
}
