/* Interleaved 1F1B, virtual pipeline parallelism (arXiv:2104.04473): each rank has v chunks, and
 * micro-batches go round the ranks v times, in groups of p. Rank r runs 2(p-1-r) + (v-1)p forwards
 * ahead. Bubble (p-1)/(m*v+p-1), for v times the messages and (on rank 0) p-1 + (v-1)p + p slots of
 * a v-th of the size. */
#include "schedule/order.h"
#include "schedule/schedule.h"

void schedule_interleaved(const ScheduleShape *s, int rank, Hand *h)
{
    order_play(h, 2 * (s->stages - 1 - rank) + (s->chunks - 1) * s->stages, "f.");
    order_play(h, s->micros * s->chunks, "f.b.");
}
