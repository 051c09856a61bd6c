/*
 * capacity: how much memory for received rows a run has, or a plan counts with (moe.buffers=pooled).
 * What a layer does with it is engine/model/moe.c's.
 *
 * What is kept lies in pools of a multiple of the rows that balanced routing brings. What is not kept
 * lies in buffers for all rows that can come to a layer. Where memory is short pools get smaller, from 2
 * to 1.1 times, and so do these buffers and the blocks that tokens travel in. No bit of a result depends
 * on any of it: rows that do not fit make a step run again (EngineMode), and a run whose steps do so
 * gets more capacity.
 */
#ifndef ENGINE_COUNT_CAPACITY_H
#define ENGINE_COUNT_CAPACITY_H

#include "engine/model/spec.h"

/* The largest capacity of a list that fits; the smallest if none does. `fits` is asked a few times. */
typedef Status CapacityFits(void *self, const RowCapacity *capacity, bool *fits);
Status capacity_choose(const Config *c, int64_t ep, CapacityFits *fits, void *self,
                       RowCapacity *out);
/* The capacity that capacity_choose ends with if nothing larger fits. ep: ranks of an EP group. */
RowCapacity capacity_least(const Config *c, int64_t ep);

/* How a step uses capacity. ep: sets of experts, which as many ranks have. tokens: of a micro-batch on one rank.
 * layers: MoE layers that share a pool. pools: how often a pool is filled, counted over all ranks. etp: ranks that
 * share each expert. */
typedef struct CapacityUse {
    ExchangeKind exchange;
    int64_t ep, tokens;
    double layers, pools;
    int64_t etp;
} CapacityUse;

/* Expected rows under uniform independent routing, except that the busiest rank gets plan.imbalance times
 * the mean. rows: of one layer on that rank. retry_chance: at most, that rows do not fit and a step runs
 * a second time. Sums over tokens are taken as normally distributed. */
typedef struct CapacityOutlook {
    double rows, retry_chance;
} CapacityOutlook;
CapacityOutlook capacity_outlook(const Config *c, const RowCapacity *capacity,
                                 const CapacityUse *use);

/* What steps that ran again were short of. */
typedef struct Shortage {
    bool blocks, rows; /* of tokens on their way; pools and buffers of a layer's rows */
} Shortage;

/* More than `now` of what was short. To make that fit, the first MoE layers fetch received rows again, as
 * few of them as it takes. If nothing fits, *out is `now`. */
Status capacity_grow(const Config *c, const RowCapacity *now, Shortage of, CapacityFits *fits,
                     void *self, RowCapacity *out);

/* The capacity for rows that are not kept: "the worst case", or a multiple of the mean. */
const char *capacity_rows_text(const RowCapacity *capacity, char out[64]);

/* Are all four numbers equal? Then no new plan is needed. */
bool capacity_same(const RowCapacity *a, const RowCapacity *b);

#endif
