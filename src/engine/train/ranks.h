/* ranks: what the ranks of a run compare before it starts, and what they exchange once a step. All of it goes
 * over host memory, outside of the step. Agreements on a status are agree.h's. */
#ifndef ENGINE_TRAIN_RANKS_H
#define ENGINE_TRAIN_RANKS_H

#include "engine/comm/comm.h"
#include "engine/config/config.h"

/* The figures of a rank's last step. Floats, so that one all-gather carries all of them. */
typedef enum RankField {
    RANK_STOP,  /* the signal that asked it to end; 0: none */
    RANK_ENDS,  /* 1: it cannot go on after this step, for its data or its run folder */
    RANK_DUMPS, /* how often it was asked for a recording */
    RANK_STEP_S,
    RANK_OWN_S, /* without waits for other ranks */
    RANK_TOKENS_PER_S,
    RANK_MEMORY_GIB,  /* of the GPU, or of the process */
    RANK_EXPERT_ROWS, /* rows that this rank's experts took; 0: it has no experts */
    RANK_CLOCK_MHZ,   /* of the GPU's multiprocessors while the step ran; 0: unknown */
    RANK_THROTTLE,    /* why it is not higher: the lower 24 bits of GpuReading.throttle */
    RANK_FIELDS
} RankField;

typedef struct RankStep {
    float of[RANK_FIELDS];
} RankStep;

/* Each field's least, median and most over all ranks. The median of an even number of ranks is the lower of
 * the two middle ones, so with two ranks the slower one still differs from it. */
typedef struct RankSpread {
    RankStep least, median, most;
    int slowest; /* the rank with the largest RANK_OWN_S */
    int slow;    /* of the ranks that are slow now, the one with the largest RANK_OWN_S; -1: none */
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

/* The checksum of the program's own file, as text for ranks_agree. */
Status ranks_build(char *out, size_t out_bytes);

/* Exchanges the figures of a step and sets r->spread. Warns of a rank whose own time was more than 1.1 times
 * the median, or whose GPU's clock was under 0.9 of it, in three steps in a row, with its host and the cause. Collective; a rank that is alone only copies. */
Status ranks_step(Ranks *r, const RankStep *mine);

#endif
