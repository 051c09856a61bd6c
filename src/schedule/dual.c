#include "schedule/dual.h"

typedef struct DualRun {
    const Dual *d;
    Order *order;
    int forward[2], backward[2]; /* by chunk */
    int put_off;                 /* first pass in the order whose weight gradients may be put off */
} DualRun;

static int chunk_of(const DualRun *r, int stream) { return stream ^ r->d->first; }

/* Of two ways, chunk 0 has the even micro-batches and chunk 1 the odd ones. */
static int micro_of(const DualRun *r, int chunk, int count)
{
    return r->d->two_ways ? 2 * count + chunk : count;
}

static void forward(DualRun *r, int stream)
{
    int c = chunk_of(r, stream);
    order_add(r->order, ACTION_FORWARD, c, micro_of(r, c, r->forward[c]++));
}

static void backward(DualRun *r, int stream, bool split)
{
    int c = chunk_of(r, stream);
    ActionKind kind = split ? ACTION_BACKWARD_INPUT : ACTION_BACKWARD;
    order_add(r->order, kind, c, micro_of(r, c, r->backward[c]++));
}

/* The oldest that were put off. */
static void weight(DualRun *r)
{
    Order *o = r->order;
    while (o->at[r->put_off].kind != ACTION_BACKWARD_INPUT) r->put_off++;
    Pass p = o->at[r->put_off++];
    order_add(o, ACTION_BACKWARD_WEIGHT, p.chunk, p.micro);
}

static void both(DualRun *r, int ahead, int back)
{
    forward(r, ahead);
    backward(r, back, false);
}

/* Step 6: from its middle on weight gradients are put off; by `split` from stream 1's or stream
 * 0's. */
static void last_pairs(DualRun *r)
{
    bool split = false;
    for (int i = 0; i < r->d->inner; i++) {
        if (i == r->d->inner / 2 && r->d->split) split = true;
        backward(r, 1, split);
        if (i == r->d->inner / 2) split = true;
        backward(r, 0, split);
    }
}

void dual_order(const Dual *d, Order *o)
{
    DualRun r = { .d = d, .order = o };
    for (int i = 0; i < 2 * d->outer; i++) forward(&r, 0);
    for (int i = 0; i < d->inner; i++) {
        forward(&r, 0);
        forward(&r, 1);
    }
    for (int i = 0; i < d->outer; i++) {
        backward(&r, 1, true);
        weight(&r);
        forward(&r, 1);
    }
    for (int i = 0; i < d->middle; i++) {
        both(&r, 0, 1);
        both(&r, 1, 0);
    }
    for (int i = 0; i < d->outer; i++) {
        backward(&r, 1, false);
        both(&r, 1, 0);
    }
    last_pairs(&r);
    for (int i = 0; i < d->outer; i++) {
        weight(&r);
        backward(&r, 0, true);
    }
    for (int i = 0; i < d->inner; i++) weight(&r);
}
