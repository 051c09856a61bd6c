/*
 * interval: how far a price may be off, from where its inputs are from.
 *
 * Each input of a price was measured, was published, or is assumed (hardware_bases; a stack's constants as a whole).
 * Each kind of input is made worse by the share that such numbers are usually off by, one at a time, and the layout
 * is priced again. Errors of different inputs are taken as independent: their effects add up in squares (the law of
 * propagation of uncertainty, JCGM 100:2008, 5.1.2). Rates of one input, say of all products, are off together.
 *
 * A network between domains (scale_out) that nobody measured may be much slower than its sheet and hardly faster.
 * Published, GB/s of a NIC of 400 Gb/s, where sheets of this program have 40 of 50: 48 - 49 expected of a ConnectX-7
 * (github.com/NVIDIA/nccl-tests/issues/267); 43 - 47 with DeepEP on H800, InfiniBand (its README), 24 - 26 on H100
 * (github.com/deepseek-ai/DeepEP/issues/155), 30 and 14 over RoCE (82), of which its copies for the own host are a half
 * to a quarter; 20 in an all-to-all of NCCL over 16 hosts of H20 (github.com/NVIDIA/nccl/issues/1792). Reported as
 * faults: 12 - 13 (DeepEP/issues/493, nccl/issues/2409). So what works reaches 0.5 to 1.2 of the sheet's rate.
 *
 * Rows of the busiest rank: a plan takes the mean (plan.imbalance 1), as benchmarks with a forced balance do. Over 8
 * ranks 1.43 times that makes a step 22 % slower, which torchtitan published of DeepSeek-V3 16B on C4 (commit
 * 91f6215ef); over 2 ranks gpt-oss-20b had 1.17 (docs/performance.md). In a trained model a bias leaves an expert at most
 * 1.04 times its mean over a large batch, an auxiliary loss 1.5 to 1.7 (arXiv:2408.15664, table 2). Without either
 * nothing bounds it: balancing losses of 2 to 4 in logs need an expert of at least twice the mean.
 *
 * Options of a stack that the question does not name (graphs, a dispatcher) are each priced the other way, too.
 *
 * Not here: what no input says, such as a slow filesystem; networks with a fault.
 */
#ifndef PLANNER_SEARCH_INTERVAL_H
#define PLANNER_SEARCH_INTERVAL_H

#include "planner/plan.h"
#include "planner/stack/sheet.h"

typedef enum IntervalInput {
    INTERVAL_PRODUCTS,
    INTERVAL_ATTENTION,
    INTERVAL_MEMORY,
    INTERVAL_LINKS,
    INTERVAL_HOST,
    INTERVAL_STACK,
    INTERVAL_SPREAD,
    INTERVAL_BALANCE,
    INTERVAL_OPTIONS,
    INTERVAL_INPUTS
} IntervalInput;

extern const char *const interval_names[INTERVAL_INPUTS];

/* Shares: a step takes from step_s / (1 + faster) to step_s * (1 + time). by[]: each input alone, if it is worse. */
typedef struct PlanInterval {
    double time, faster, bytes;
    double by[INTERVAL_INPUTS];
    bool assumed;      /* domains exchange over a network that nobody measured */
    SheetGiven option; /* the one that changes the step most if set so; without a name: none does */
    double option_step; /* the step then, over this one */
} PlanInterval;

/* Rows of the busiest rank over the mean: of routers with an auxiliary loss or a bias, and of others. */
static const double INTERVAL_BALANCED = 1.4, INTERVAL_UNBALANCED = 2;

/* The rate of such a network, over that of its sheet. */
static const double INTERVAL_NETWORK_LEAST = 0.5, INTERVAL_NETWORK_MOST = 1.2;

/* The intervals of n layouts of one question. ERR_ARG: a layout is not legal. */
Status plan_intervals(const PlanRequest *q, const PlanLayout *const *l, int n, PlanInterval *out);

#endif
