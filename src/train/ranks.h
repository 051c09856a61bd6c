/* ranks: what the ranks of a run make sure of before it starts, and tell each other once a step. */
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H

#include "comm/comm.h"
#include "config/config.h"

/* Of the last step, on one rank. */
typedef struct RankStep {
    float stop;          /* the signal that asked it to end; 0: none */
    float step_s, own_s; /* own: without waits for other ranks */
    float tokens;        /* a second */
    float memory_gib;    /* of the GPU, or of the process */
    float expert_rows;   /* that its experts took; 0: has none */
} RankStep;
enum { RANK_STEP_FIELDS = sizeof(RankStep) / sizeof(float) };

/* The same over all ranks, by field; median: of an even number the lower one, so that of two ranks
 * the slower can be told from it. */
typedef struct RankSpread {
    RankStep least, median, most;
    int slowest; /* rank of most.own_s */
} RankSpread;

typedef struct Ranks {
    Comm *world; /* host memory */
    RankStep *all;
    float *sorted;
    int *slow; /* by rank: steps in a row in which it was slow */
    RankSpread spread;
} Ranks;

/* Memory from `a`. world NULL: alone. */
Status ranks_open(Ranks *r, Comm *world, Arena *a);

/* ERR_ARG on all ranks unless their texts are the same as rank 0's: the first line that differs and
 * whose it is. `what` they are, for the message. Collective. */
Status ranks_agree(Comm *world, const char *what, const char *text);

/* Bytes and sum of the program's own file, for ranks_agree. */
Status ranks_build(char *out, size_t out_bytes);

/* Tell and hear; r->spread is set. A rank that takes longer by itself than SLOW times the median in
 * three steps running is warned of. Collective; alone it only copies. */
Status ranks_step(Ranks *r, const RankStep *mine);

#endif
