/* ranks: what the ranks of a run check before it starts, and tell each other once a step. */
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H

#include "comm/comm.h"
#include "config/config.h"

/* Of the last step, on one rank. */
typedef struct RankStep {
    float stop;          /* the signal that asked it to end; 0: none */
    float dumps;         /* how often it was asked for a recording */
    float step_s, own_s; /* own: without waits for other ranks */
    float tokens;        /* a second */
    float memory_gib;    /* of the GPU, or of the process */
    float expert_rows;   /* rows that this rank's experts took; 0: it has no experts */
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

/* ERR_ARG on all ranks unless all have the same text as rank 0. The sentence names the first rank
 * that differs, the text (`what`) and the first line that does. Collective. */
Status ranks_agree(Comm *world, const char *what, const char *text);

/* Bytes and sum of the program's own file, for ranks_agree. */
Status ranks_build(char *out, size_t out_bytes);

/* Exchanges the reports of a step and sets r->spread. Warns of a rank whose own time was more than
 * SLOW times the median in three steps running. Collective; a rank that is alone only copies. */
Status ranks_step(Ranks *r, const RankStep *mine);

#endif
