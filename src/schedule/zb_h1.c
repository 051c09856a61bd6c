/* ZB-H1 (arXiv:2401.10241, section 2.2): 1F1B with the weight gradients apart. Rank r leaves those
 * of r micro-batches behind, so that input gradients reach the rank before earlier; they fill the
 * end of the step. Every rank keeps p slots, as 1F1B's first. Bubble (p-1)(F+I-W): (p-1)/(3m+p-1)
 * of the step where the three are equal. */
#include "schedule/schedule.h"

Status schedule_zb_h1(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    (void)scratch;
    for (int r = 0; r < s->stages; r++) {
        int ahead = s->stages - 1 - r;
        for (int i = 0; i < s->micros + ahead + r; i++) {
            int input = i - ahead, weight = input - r;
            if (i < s->micros) order_add(&ranks[r], ACTION_FORWARD, 0, i);
            if (input >= 0 && input < s->micros) {
                order_add(&ranks[r], ACTION_BACKWARD_INPUT, 0, input);
            }
            if (weight >= 0) order_add(&ranks[r], ACTION_BACKWARD_WEIGHT, 0, weight);
        }
    }
    return OK;
}
