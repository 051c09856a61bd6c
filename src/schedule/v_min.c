/* V-min (arXiv:2405.15362): about a third of the memory of 1F1B, the least that a V can have: every
 * pass follows the one before it at once. The price is a bubble that grows where passes differ. */
#include "schedule/greedy.h"
#include "schedule/schedule.h"

static Block block(int p, int r)
{
    int shift = p % 3 == 0 ? 2 : 0;
    return (Block){ { r, 2 * p - r - 1, 2 * p + shift + r, 4 * p + shift - r - 1 } };
}

Status schedule_v_min(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    return v_pattern_order(s, block, scratch, ranks);
}
