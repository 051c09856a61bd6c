/* GPipe (arXiv:1811.06965): all micro-batches forward, then all backward. Bubble (p-1)/(m+p-1), as
 * 1F1B's, but every micro-batch keeps its slot: m of them. Backward takes the micro-batches in the
 * order of forward, so that weight gradients are summed in the same order as on one rank. */
#include "schedule/schedule.h"

Status schedule_gpipe(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    (void)scratch;
    for (int r = 0; r < s->stages; r++) {
        for (int m = 0; m < s->micros; m++) order_add(&ranks[r], ACTION_FORWARD, 0, m);
        for (int m = 0; m < s->micros; m++) order_add(&ranks[r], ACTION_BACKWARD, 0, m);
    }
    return OK;
}
