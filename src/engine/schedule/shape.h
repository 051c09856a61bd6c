/* shape: the input of a schedule (ScheduleShape), the orders of passes that it gives, and the lists made of them.
 * Only types: schedule.h names the schedules, order.h writes orders, lower.h makes lists. */
#ifndef ENGINE_SCHEDULE_SHAPE_H
#define ENGINE_SCHEDULE_SHAPE_H

#include "engine/schedule/action.h"

/* Stages and chunks fit the fields of an action. */
enum {
    SCHEDULE_STAGES_MAX = 4096,
    SCHEDULE_CHUNKS_MAX = 64,
    SCHEDULE_MICROS_MAX = 65536,
    SCHEDULE_BLOCKS_MAX = 1024
};

/* The sizes and costs from which all ranks make the same Programs. */
typedef struct ScheduleShape {
    int stages, chunks, micros;    /* chunks: on each rank */
    double forward, input, weight; /* duration of one chunk's pass; a whole backward is both */
    int blocks;                    /* of the largest chunk; only for schedules with phases */
    const Chunk *chunk;            /* by stage; NULL: chunk_of_blocks */
    ScheduleShards shards;
} ScheduleShape;

/* One pass on one rank; the order of a rank is a list of these. */
typedef struct Pass {
    int micro;
    short chunk;
    unsigned char kind; /* an ActionKind: FORWARD, BACKWARD, BACKWARD_INPUT or BACKWARD_WEIGHT */
    bool paired;        /* a forward that runs together with the backward after it */
} Pass;

typedef struct Order {
    Pass *at; /* room for 3 * chunks * micros */
    int n;
} Order;

/* Writes one rank's order (order.h). */
typedef struct Hand Hand;
typedef void HandOrder(const ScheduleShape *s, int rank, Hand *h);

/* The lists of all ranks. */
typedef struct Pipeline {
    int stages;
    Program *rank;
} Pipeline;

#endif
