/* V-half (arXiv:2405.15362): about half the memory of 1F1B: p/2 + 1 of its slots on every rank.
 * Forwards go down at half speed, up at full; input gradients the same way round. */
#include "schedule/greedy.h"
#include "schedule/schedule.h"

static Block block(int p, int r)
{
    int shift = p % 2 == 0 ? 3 : 0;
    return (Block){ { 2 * r, 3 * p - r - 2, 3 * p + shift + 2 * r - 1, 6 * p + shift - r - 2 } };
}

Status schedule_v_half(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    return v_pattern_order(s, block, scratch, ranks);
}
