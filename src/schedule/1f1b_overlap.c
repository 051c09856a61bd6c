/* 1F1B that hides the exchange of experts (Megatron's combined 1F1B, used by AMD's Primus): a
 * forward and the backward of an earlier micro-batch run phase by phase in turn, so that tokens of
 * one travel while the other computes. For that the two must not depend on each other, not even
 * through other ranks: each rank runs one forward more ahead than interleaved 1F1B and keeps a slot
 * more. With one chunk a rank that is twice the memory of 1F1B; chunks make it worth it. */
#include "schedule/order.h"
#include "schedule/schedule.h"

void schedule_1f1b_overlap(const ScheduleShape *s, int rank, Hand *h)
{
    order_play(h, 2 * (s->stages - 1 - rank) + (s->chunks - 1) * s->stages + 1, "f.");
    order_play(h, s->micros * s->chunks, "F.b.");
}
