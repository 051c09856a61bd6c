/* DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1, and its published code): each rank holds
 * stage r and stage p-1-r, and half of the micro-batches enter at each end. Bubble (p/2-1)(F&B + B
 * - 3W) with B the whole backward, for two copies of the parameters and p+1 slots.
 *
 * Two streams meet on each rank. In the middle of the step a forward of one runs with a backward of
 * the other: the pair F&B, whose exchanges of experts hide behind each other's compute. Here it is
 * a forward followed by a backward; what overlapping saves is for costs to say. */
#include "schedule/order.h"
#include "schedule/schedule.h"

/* The eight steps; the sixth puts weight gradients off from its middle on. */
void dualpipe_steps(Hand *h, int outer, int inner, int middle)
{
    order_play(h, 2 * outer, "f0");
    order_play(h, inner, "f0f1");
    order_play(h, outer, "i1w.f1");
    order_play(h, middle, "f0b1f1b0");
    order_play(h, outer, "b1f1b0");
    order_play(h, inner / 2, "b1b0");
    order_play(h, 1, inner % 2 == 0 ? "i1i0" : "b1i0");
    order_play(h, inner - inner / 2 - 1, "i1i0");
    order_play(h, outer, "w.i0");
    order_play(h, inner, "w.");
}

void schedule_dualpipe(const ScheduleShape *s, int rank, Hand *h)
{
    int half = s->stages / 2, from_end = rank < half ? rank : s->stages - 1 - rank;
    h->two_ways = true;
    h->first = rank >= half;
    dualpipe_steps(h, half - from_end - 1, from_end + 1, s->micros / 2 - s->stages + from_end + 1);
}
