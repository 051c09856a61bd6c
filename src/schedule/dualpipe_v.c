/* DualPipeV (DeepSeek's DualPipe repository): one half of DualPipe. Each rank holds stage r and
 * stage 2p-1-r of one copy of the model, on half of DualPipe's ranks; all micro-batches enter at
 * rank 0. The same bubble for the same number of stages. */
#include "schedule/order.h"
#include "schedule/schedule.h"

void schedule_dualpipe_v(const ScheduleShape *s, int rank, Hand *h)
{
    dualpipe_steps(h, s->stages - rank - 1, rank + 1, s->micros - 2 * s->stages + rank + 1);
}
