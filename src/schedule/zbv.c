/* ZBV (arXiv:2401.10241, section 6): two chunks a rank, down the ranks and up again, so that the
 * last chunk is where the first is and input gradients start there without waiting for the other
 * end. Memory of 1F1B's first rank on all (2p slots of half the size); bubble (p-1)/(6m+p-1) where
 * forward, input and weight gradients take the same; the order does not depend on costs.
 *
 * The order is made for at least 2p-1 micro-batches; of fewer, the passes that are there keep their
 * places. */
#include "schedule/schedule.h"

typedef struct Hand {
    Order *order;
    int micros;
    int forward[2], input[2], weight[2]; /* how many by chunk */
} Hand;

static void add(Hand *h, ActionKind kind, int chunk)
{
    int *count = kind == ACTION_FORWARD          ? h->forward
                 : kind == ACTION_BACKWARD_INPUT ? h->input
                                                 : h->weight;
    int micro = count[chunk]++;
    if (micro < h->micros) order_add(h->order, kind, chunk, micro);
}

static void forward(Hand *h, int chunk) { add(h, ACTION_FORWARD, chunk); }

static void input(Hand *h, int chunk) { add(h, ACTION_BACKWARD_INPUT, chunk); }

static void weight(Hand *h, int chunk) { add(h, ACTION_BACKWARD_WEIGHT, chunk); }

static void backward(Hand *h, int chunk)
{
    input(h, chunk);
    weight(h, chunk);
}

static void order_rank(int stages, int rank, int micros, Hand *h)
{
    for (int i = 0; i < 2 * (stages - rank) - 1; i++) forward(h, 0);
    for (int i = 0; i < rank; i++) {
        forward(h, 1);
        forward(h, 0);
    }
    for (int i = 0; i < stages - rank; i++) {
        forward(h, 1);
        backward(h, 1);
    }
    while (h->forward[1] < h->forward[0] || h->forward[0] < micros) {
        if (h->forward[0] < micros) forward(h, 0);
        backward(h, 0);
        forward(h, 1);
        backward(h, 1);
    }
    for (int i = 0; i < rank; i++) {
        input(h, 0);
        input(h, 1);
    }
    for (int i = 0; i < stages - rank; i++) {
        input(h, 0);
        weight(h, 0);
    }
    while (h->weight[1] < h->input[1]) weight(h, 1);
    while (h->weight[0] < h->input[0]) weight(h, 0);
}

Status schedule_zbv(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    (void)scratch;
    int least = 2 * s->stages - 1;
    for (int r = 0; r < s->stages; r++) {
        Hand h = { .order = &ranks[r], .micros = s->micros };
        order_rank(s->stages, r, s->micros > least ? s->micros : least, &h);
    }
    return OK;
}
