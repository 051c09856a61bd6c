/* zb1p: ZB1P (arXiv:2401.10241, section 3.1), the automatic schedule with the memory of 1F1B, p slots a rank.
 * Input gradients go first, then forwards while there is a slot, and weight gradients fill the gaps, by
 * the given costs. If the result is not shorter than ZB-H1, which needs the same memory, ZB-H1 is taken. */
#include "schedule/greedy.h"
#include "schedule/schedule.h"

/* Input gradients of any micro-batch come before forwards. */
static double zb1p_turn(const Greedy *g, int rank, const Pass *p)
{
    (void)rank;
    return p->micro + (p->kind == ACTION_FORWARD ? g->shape->micros : 0);
}

Status schedule_zb1p(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    double step = 0;
    OrderTimes by_hand;
    Program like = { .micros = s->micros, .chunks = 1, .stages = s->stages };
    Greedy g = { .shape = s, .turn = zb1p_turn, .limit = s->stages };
    order_by_hand(s, schedule_zb_h1, ranks);
    TRY(order_run(&like, s, ranks, scratch, &by_hand));
    TRY(greedy_run(&g, scratch, ranks, &step));
    if (!(step < by_hand.step)) order_by_hand(s, schedule_zb_h1, ranks);
    return OK;
}
