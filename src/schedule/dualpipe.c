/* DualPipe (DeepSeek-V3, arXiv:2412.19437): each rank holds stage r and stage p-1-r, and half of
 * the micro-batches enter at each end. Bubble (p/2-1)(F&B + B - 3W) with B the whole backward, for
 * two copies of the parameters and p+1 slots. */
#include "schedule/dual.h"

Status schedule_dualpipe(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    (void)scratch;
    int p = s->stages;
    for (int r = 0; r < p; r++) {
        int from_end = r < p / 2 ? r : p - 1 - r;
        Dual d = { .outer = p / 2 - from_end - 1,
                   .inner = from_end + 1,
                   .middle = s->micros / 2 - p + from_end + 1,
                   .first = r >= p / 2,
                   .split = from_end % 2 == 1,
                   .two_ways = true };
        dual_order(&d, &ranks[r]);
    }
    return OK;
}
