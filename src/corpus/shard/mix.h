/* mix: chooses the source of the n-th sequence, so that the count of every source is always within one
 * sequence of its share.
 *
 * Choosing the source that is furthest behind is not enough (five sources can push one 1.08 behind).
 * Instead, each source is a periodic task of rate w. Its k-th sequence may come in slot floor(k / w) at
 * the earliest and must come before slot ceil((k + 1) / w). The earliest deadline goes first. On one
 * processor with rates that sum to 1 this meets every deadline (Baruah, Cohen, Plaxton, Varvel,
 * "Proportionate progress", Algorithmica 15, 1996), which is the same as staying within one.
 *
 * Rates are whole numbers of a common total (2^26 divided by their common divisor). So the arithmetic is
 * exact, and the pattern repeats after `total` slots. */
#ifndef CORPUS_SHARD_MIX_H
#define CORPUS_SHARD_MIX_H

#include "engine/base/status.h"

#include <stdint.h>

enum { MIX_MAX = 64 };

typedef struct Mix {
    int n;
    /* Slots of a period: the common denominator of all rates. */
    int64_t total;
    int64_t period, slot; /* sequences so far: period * total + slot */
    struct MixTask {
        int64_t rate; /* of total */
        int64_t k;    /* sequences taken in this period */
        /* Slots of this period. mix.c has their formula. */
        int64_t release, deadline;
    } task[MIX_MAX];
} Mix;

/* weight[i] >= 0, finite, and not all 0; a source of weight 0 never comes. ERR_ARG: it is not so, n is
 * out of range, or a share is too small to be kept. */
Status mix_init(Mix *m, const double *weight, int n);
/* The source of the next sequence, as an index into mix_init's weights. */
int mix_next(Mix *m);
/* Continues as if mix_next had been called `slots` times. At most one period is replayed, 2^26
 * slots. */
void mix_seek(Mix *m, uint64_t slots);

int64_t mix_taken(const Mix *m, int i); /* sequences of task i in the slots so far */

#endif
