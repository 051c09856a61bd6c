/* 1F1B (PipeDream-Flush, arXiv:2006.09503): rank r of p runs p-1-r forwards ahead, then one forward
 * and one backward in turn. Bubble (p-1)/(m+p-1); p-r slots, however many micro-batches. */
#include "schedule/schedule.h"

Status schedule_1f1b(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    (void)scratch;
    for (int r = 0; r < s->stages; r++) {
        int ahead = s->stages - 1 - r;
        for (int i = 0; i < s->micros + ahead; i++) {
            if (i < s->micros) order_add(&ranks[r], ACTION_FORWARD, 0, i);
            if (i >= ahead) order_add(&ranks[r], ACTION_BACKWARD, 0, i - ahead);
        }
    }
    return OK;
}
