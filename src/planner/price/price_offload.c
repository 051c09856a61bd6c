/* price_offload: optimizer.offload. In our engine states lie on the host and come to the GPU for their update
 * (engine/step/offload.h). In other stacks the host has the main weights, too, and updates them. */
#include "engine/count/engine_count.h"
#include "planner/price/price_private.h"

#include <math.h>

/* The host updates: gradients come down the link, new weights go up, and the update reads and writes host memory. A
 * stack does these beside each other, or one after the other. Nothing else hides them: the update waits for the
 * norm of all gradients. */
static double host_update_s(const Planner *p, const PriceEntry *e, double elems)
{
    const Hardware *h = p->q.hardware;
    const double link = 1e9 * h->host_link_gb_s, rate = 1e9 * h->host_memory_gb_s;
    const double low = (double)dtype_bytes(e->spec.act);
    double down = elems * e->stack.at[STACK_grad_size] / link, up = elems * low / link;
    double update = rate > 0 ? elems * engine_update_bytes(&e->spec) / rate : 0;
    return e->stack.at[STACK_offload_beside] != 0 ? fmax(update, fmax(down, up))
                                                  : down + update + up;
}

static double state_elems(const PriceEntry *e, const ParamShards *shards, const RankPrice *r, int i)
{
    const ParamTable t = { .spaces = r->sum.params };
    return (double)params_shard_elems(&e->spec, &t, (ParamBuffer)(BUF_OPTIMIZER + i), shards);
}

/* A buffer has room for a piece; muon's states, which are the first ones, come by whole matrices. */
static double buffer_elems(const RankPrice *r, double elems, int state)
{
    return fmax(fmin((double)OFFLOAD_ELEMS, elems), state == 0 ? r->sum.largest : 0);
}

double price_offload_bytes(const PriceEntry *e, const RankPrice *r, double elems, int state)
{
    if (elems == 0) return 0;
    size_t bytes = (size_t)(buffer_elems(r, elems, state) * price_state_size(e));
    return OFFLOAD_BUFFERS * (double)arena_rounded(bytes);
}

double price_host_bytes(const PriceEntry *e, const ParamShards *shards, const RankPrice *r)
{
    double bytes = price_by_host(e) ? price_updated_elems(shards, r) * price_main_size(e) : 0;
    for (int i = 0; i < OPTIMIZER_STATES; i++)
        bytes += state_elems(e, shards, r, i) * price_state_size(e);
    return bytes;
}

/* Pieces come, are updated and go. Of n pieces, all three times count for one, and the longest for each other. */
static double staged_update_s(const Planner *p, const PriceEntry *e, const ParamShards *shards,
                              const RankPrice *r, double update_s)
{
    double elems = state_elems(e, shards, r, 0);
    double n = elems > 0 ? fmax(1, elems / buffer_elems(r, elems, 0)) : 1;
    double link = 1e9 * p->q.hardware->host_link_gb_s;
    double come_s = price_host_bytes(e, shards, r) / link / n, each_s = update_s / n;
    return 2 * come_s + each_s + (n - 1) * fmax(come_s, each_s);
}

double price_offload_s(const Planner *p, const PriceEntry *e, const ParamShards *shards,
                       const RankPrice *r, double update_s)
{
    return price_by_host(e) ? host_update_s(p, e, price_updated_elems(shards, r))
                            : staged_update_s(p, e, shards, r, update_s);
}
