/*
 * room: how much room for received rows a run has, or a plan counts with (moe.buffers=pooled).
 *
 * What is kept lies in pools of so many times the rows that balanced routing brings, what is not
 * kept in buffers for all rows that can come to a layer. Where memory is short pools get smaller,
 * from 2 to 1.1 times, and so do these buffers and the blocks that tokens travel in. No bit of a
 * result depends on any of it: rows without room make a step run again (engine_parts.h), and a run whose
 * steps do so gets more room.
 */
#ifndef TRAIN_ROOM_H
#define TRAIN_ROOM_H

#include "model/spec.h"

/* Is there anything to choose where so many ranks share the experts? */
bool capacity_matters(const Config *c, int64_t ep);

/* The most room, of a list, that fits; the least if none does. `fits` is asked a few times. */
typedef Status CapacityFits(void *self, const RowCapacity *room, bool *fits);
Status capacity_choose(const Config *c, int64_t ep, CapacityFits *fits, void *self,
                       RowCapacity *out);
RowCapacity capacity_least(const Config *c, int64_t ep);

/* Of a step: tokens of a micro-batch on one rank of the `ep` that share experts; MoE layers that share a
 * pool; how often a pool is filled, on all ranks together. */
typedef struct CapacityUse {
    ExchangeKind exchange;
    int64_t ep, tokens;
    double layers, pools;
} CapacityUse;

/* What to expect where experts are chosen evenly, each token for itself, but for the busiest rank, which
 * gets plan.imbalance times the mean. rows: of one layer, there; retry_chance: the chance, at most, that a step
 * has no room for some rows and runs a second time. Sums of so many tokens are taken as normal. */
typedef struct CapacityOutlook {
    double rows, retry_chance;
} CapacityOutlook;
CapacityOutlook capacity_outlook(const Config *c, const RowCapacity *room, const CapacityUse *use);

/* What steps that ran again were short of. */
typedef struct Shortage {
    bool blocks, rows; /* of tokens on their way; pools and buffers of a layer's rows */
} Shortage;

/* More of what was short than `now`, and as many layers (of all with experts) that fetch received rows
 * again as that takes to fit. There is no such room: *out is `now`. */
Status capacity_grow(const Config *c, const RowCapacity *now, Shortage of, CapacityFits *fits,
                     void *self, RowCapacity *out);

/* Where the rows that are not kept lie: "all that can come to it", or so many times the mean. */
const char *capacity_rows_text(const RowCapacity *room, char out[64]);

bool capacity_same(const RowCapacity *a, const RowCapacity *b);

#endif
