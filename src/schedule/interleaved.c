/* Interleaved 1F1B, virtual pipeline parallelism (arXiv:2104.04473): each rank has v chunks, and
 * micro-batches go round the ranks v times, in groups of p. Rank r runs 2(p-1-r) + (v-1)p forwards
 * ahead. Bubble (p-1)/(m*v+p-1), for v times the messages and (on rank 0) p-1 + (v-1)p + p slots of
 * a v-th of the size. */
#include "schedule/interleaved.h"

/* Pass i of all forwards: within a group of p micro-batches, chunk after chunk. */
static Pass forward(const ScheduleShape *s, int i)
{
    int group = s->stages * s->chunks, within = i % group;
    return (Pass){ .kind = ACTION_FORWARD,
                   .chunk = within / s->stages,
                   .micro = i / group * s->stages + within % s->stages };
}

static void add_forward(const ScheduleShape *s, int i, Order *o)
{
    Pass f = forward(s, i);
    order_add(o, f.kind, f.chunk, f.micro);
}

/* Backward meets the chunks the other way round. */
static void add_backward(const ScheduleShape *s, int i, Order *o)
{
    Pass f = forward(s, i);
    order_add(o, ACTION_BACKWARD, s->chunks - 1 - f.chunk, f.micro);
}

void interleaved_order(const ScheduleShape *s, int ahead, bool pairs, Order *o)
{
    int n = s->micros * s->chunks;
    if (ahead > n) ahead = n;
    for (int i = 0; i < n + ahead; i++) {
        if (i < n) add_forward(s, i, o);
        if (i < ahead) continue;
        if (i < n) o->at[o->n - 1].paired = pairs;
        add_backward(s, i - ahead, o);
    }
}

Status schedule_interleaved(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    (void)scratch;
    for (int r = 0; r < s->stages; r++) {
        int ahead = 2 * (s->stages - 1 - r) + (s->chunks - 1) * s->stages;
        interleaved_order(s, ahead, false, &ranks[r]);
    }
    return OK;
}
