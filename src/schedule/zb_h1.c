/* ZB-H1 (arXiv:2401.10241, section 2.2): 1F1B with the weight gradients apart. Rank r leaves those
 * of r micro-batches behind, so that input gradients reach the rank before earlier; they fill the
 * end of the step. Every rank keeps p slots, as 1F1B's first. Bubble (p-1)(F+I-W): (p-1)/(3m+p-1)
 * of the step where the three are equal. */
#include "schedule/order.h"
#include "schedule/schedule.h"

void schedule_zb_h1(const ScheduleShape *s, int rank, Hand *h)
{
    order_play(h, s->stages - 1 - rank, "f0");
    order_play(h, rank, "f0i0");
    order_play(h, s->micros, "f0i0w0");
}
