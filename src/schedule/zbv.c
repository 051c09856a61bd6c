/* ZBV (arXiv:2401.10241, section 6): two chunks a rank, down the ranks and up again, so that the
 * last chunk is where the first is and input gradients start there without waiting for the other
 * end. Memory of 1F1B's first rank on all (2p slots of half the size); bubble (p-1)/(6m+p-1) where
 * forward, input and weight gradients take the same; the order does not depend on costs. It is made
 * for at least 2p-1 micro-batches; of fewer, the passes that are there keep their places. */
#include "schedule/order.h"
#include "schedule/schedule.h"

void schedule_zbv(const ScheduleShape *s, int rank, Hand *h)
{
    int p = s->stages, micros = s->micros > 2 * p - 1 ? s->micros : 2 * p - 1;
    order_play(h, 2 * (p - rank) - 1, "f0");
    order_play(h, rank, "f1f0");
    order_play(h, p - rank, "f1i1w1");
    order_play(h, micros - p, "f0i0w0f1i1w1");
    order_play(h, rank, "i0i1");
    order_play(h, p - rank, "i0w0");
    order_play(h, micros, "w1");
    order_play(h, micros, "w0");
}
