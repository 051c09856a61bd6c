/* DualPipeV (DeepSeek's DualPipe repository): one half of DualPipe. Each rank holds stage r and
 * stage 2p-1-r of one copy of the model, on half of DualPipe's ranks; all micro-batches enter at
 * rank 0. The same bubble for the same number of stages. */
#include "schedule/dual.h"

Status schedule_dualpipe_v(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    (void)scratch;
    int p = s->stages;
    for (int r = 0; r < p; r++) {
        Dual d = { .outer = p - r - 1,
                   .inner = r + 1,
                   .middle = s->micros - 2 * p + r + 1,
                   .split = r % 2 == 1 };
        dual_order(&d, &ranks[r]);
    }
    return OK;
}
