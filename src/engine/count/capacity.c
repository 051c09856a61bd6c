/* capacity: the list of capacities, the search for the largest one that fits, and the expected rows. */
#include "engine/count/capacity.h"

#include "kernels/exchange/exchange.h"

#include <math.h>
#include <stdio.h>

/* From the largest to the smallest: no entry takes more memory than the one before it, so capacity_choose
 * may bisect. rows 0: buffers for all rows that can come. blocks: an upper limit (level_of). */
static const RowCapacity levels[] = {
    { .pool = SPEC_POOL_MOST },
    { .pool = 1.75 },
    { .pool = 1.5 },
    { .pool = 1.5, .rows = 4 },
    { .pool = 1.5, .rows = 3 },
    { .pool = 1.35, .rows = 3, .blocks = 1.75 },
    { .pool = 1.2, .rows = 3, .blocks = 1.5 },
    { .pool = 1.2, .rows = 2, .blocks = 1.35 },
    { .pool = 1.1, .rows = 2, .blocks = 1.25 },
    { .pool = 1.1, .rows = 1.5, .blocks = 1.25 },
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* Only pooled buffers have a capacity, and only tokens of other ranks make the number of rows vary. */
static bool capacity_matters(const Config *c, int64_t ep)
{
    return c->moe_buffers == BUFFERS_POOLED && ep > 1;
}

/* Entry i of the list, as the configuration limits it. */
static RowCapacity level_of(const Config *c, int i)
{
    RowCapacity capacity = levels[i];
    if (c->moe_pool_factor > 0) capacity.pool = c->moe_pool_factor;
    if (capacity.blocks > c->moe_buffer_factor) capacity.blocks = 0;
    return capacity;
}

RowCapacity capacity_least(const Config *c, int64_t ep)
{
    return capacity_matters(c, ep) ? level_of(c, LEVELS - 1) : (RowCapacity){ 0 };
}

const char *capacity_rows_text(const RowCapacity *capacity, char out[64])
{
    (void)snprintf(out, 64, "%g times the mean", capacity->rows);
    return capacity->rows > 0 ? out : "the worst case";
}

bool capacity_same(const RowCapacity *a, const RowCapacity *b)
{
    return a->pool == b->pool && a->rows == b->rows && a->blocks == b->blocks &&
           a->fetching == b->fetching;
}

/* Bisects the list. The largest entry is tried first, because most runs fit it, and the smallest second,
 * to stop at once if nothing fits. Each try plans a whole engine. */
Status capacity_choose(const Config *c, int64_t ep, CapacityFits *fits, void *self,
                       RowCapacity *out)
{
    int too_much = -1, least = LEVELS - 1;
    *out = (RowCapacity){ 0 };
    if (!capacity_matters(c, ep)) return OK;
    for (int i = 0; least - too_much > 1 || i < 2; i++) {
        bool fit = false;
        int at = i == 0 ? 0 : i == 1 ? LEVELS - 1 : (too_much + least) / 2;
        const RowCapacity capacity = level_of(c, at);
        TRY(fits(self, &capacity, &fit));
        if (fit)
            least = at;
        else
            too_much = at;
        if (i == 0 ? fit : i == 1 && !fit) break;
    }
    *out = level_of(c, least);
    return OK;
}

/* The next larger pool of the list; beyond the list half as much again. */
static double larger_pool(double now)
{
    for (int i = LEVELS - 1; i >= 0; i--) {
        if (levels[i].pool > now) return levels[i].pool;
    }
    return 1.5 * now;
}

/* The next larger buffer of the list; beyond it 0, which is all rows. */
static double larger_rows(double now)
{
    for (int i = LEVELS - 1; i >= 0; i--) {
        if (levels[i].rows > now) return levels[i].rows;
    }
    return 0;
}

Status capacity_grow(const Config *c, const RowCapacity *now, Shortage of, CapacityFits *fits,
                     void *self, RowCapacity *out)
{
    RowCapacity capacity = *now;
    bool fit = false;
    *out = *now;
    if (of.rows) {
        capacity.pool = larger_pool(now->pool);
        capacity.rows = now->rows > 0 ? larger_rows(now->rows) : 0;
    }
    if (of.blocks) capacity.blocks = 1.5 * (now->blocks > 0 ? now->blocks : c->moe_buffer_factor);
    for (; !fit && capacity.fetching <= config_moe_layers(c); capacity.fetching++) {
        TRY(fits(self, &capacity, &fit));
        if (fit) *out = capacity;
    }
    return OK;
}

/* The chance that a normally distributed count exceeds `capacity`. 0 if `most`, the largest possible
 * count, fits. */
static double chance_beyond(double mean, double variance, double capacity, double most)
{
    if (capacity >= most) return 0;
    return variance > 0 ? erfc((capacity - mean) / sqrt(2 * variance)) / 2 : mean > capacity;
}

/* A token takes K of E experts. It brings K/ep rows to a rank with parts of E/ep experts, with the variance of
 * drawing without replacement: K/ep (1 - 1/ep) (E-K)/(E-1). Tokens come from the ep x etp ranks of its group. Blocks of tokens are counted as a binomial:
 * a token comes to a rank or it does not. The chances of all pools, layers and blocks are added, which
 * bounds the chance that any of them is exceeded. */
CapacityOutlook capacity_outlook(const Config *c, const RowCapacity *capacity,
                                 const CapacityUse *use)
{
    const ExchangeDesc *kind = exchange_kinds[use->exchange];
    double experts = (double)c->moe_experts, k = (double)c->moe_top_k, ep = (double)use->ep;
    const double etp = (double)use->etp;
    double n = (double)use->tokens * etp, balanced = n * k, most = n * ep * fmin(k, experts / ep);
    double variance = balanced * (1 - 1 / ep) * (experts - k) / fmax(1, experts - 1);
    double mean = fmin(balanced * c->plan_imbalance, most), layers = use->layers;
    double retry = use->pools * chance_beyond(layers * mean, layers * variance,
                                              layers * capacity->pool * balanced, layers * most);
    if (capacity->rows > 0)
        retry +=
            use->pools * layers * chance_beyond(mean, variance, capacity->rows * balanced, most);
    double blocks = capacity->blocks > 0 ? capacity->blocks : c->moe_buffer_factor;
    double comes = kind->rows(c->moe_experts, c->moe_top_k, use->ep) / ep;
    /* a block has the tokens of one rank, or of all */
    double from = kind->compact ? n * ep : (double)use->tokens;
    retry += use->pools * layers * (kind->compact ? 1 : ep * etp) *
             chance_beyond(fmin(from * comes * c->plan_imbalance, from), from * comes * (1 - comes),
                           from * comes * blocks, from);
    return (CapacityOutlook){ .rows = mean, .retry_chance = fmin(1, retry) };
}
