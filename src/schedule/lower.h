/* lower: from the orders of passes to Programs. Private to schedule/. */
#ifndef SCHEDULE_LOWER_H
#define SCHEDULE_LOWER_H

#include "schedule/shape.h"

#include <stdint.h>

/* The slots of one rank while its order is followed. A slot is one pass's own from forward until
 * the weight gradients are done. */
typedef struct SlotTable {
    int n, most; /* so far; at the most, which is also the number of (chunk, micro-batch) pairs */
    int micros, *of;   /* by pass: its slot */
    int *free, n_free; /* slots, in no order */
    uint64_t *had;     /* by slot: set of chunks */
} SlotTable;

Status slots_make(const ScheduleShape *s, Arena *scratch, SlotTable *out);

/* The slot of the next pass in the order. */
int slots_pass(SlotTable *t, const Pass *p);

/* The order of one block's parts: block i of a forward and block i from the end of a backward. On
 * the compute lane: F attention, B and W experts, F experts, B and W attention; on the other: B
 * combine, F dispatch, B dispatch, F combine. */
typedef struct BlockPhase {
    ActionKind kind;
    int phase;
} BlockPhase;

enum { BLOCK_PHASES = 2 * PHASES + 2 };
extern const BlockPhase block_phases[BLOCK_PHASES];

/* Makes the Programs of all ranks from their orders. All copy the sizes and placement of `like`. */
Status schedule_lower(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *a,
                      Arena *scratch, Pipeline *out);

/* The event of an action that is in the list, for who waits for it. */
int lower_event(Program *p, int action);
void lower_wait(Action *a, int event); /* -1: nothing */

/* The second step: p has one rank's passes and transfers alone. Adds what comes before and after
 * them, and the gathers and reductions of what ranks share; the whole list is in `a`. */
Status lower_shards(Program *p, Arena *a, Arena *scratch);

#endif
