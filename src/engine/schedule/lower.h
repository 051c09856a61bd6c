/* lower: turns orders of passes into Programs, in two steps: passes and transfers (lower.c), then gathers and
 * reductions (lower_shards.c). Private to schedule/: others call schedule_make. */
#ifndef ENGINE_SCHEDULE_LOWER_H
#define ENGINE_SCHEDULE_LOWER_H

#include "engine/schedule/shape.h"

#include <stdint.h>

/* The slots of one rank while its order is followed. A slot belongs to a (chunk, micro-batch) from its forward
 * until its weight gradients are done. */
typedef struct SlotTable {
    int n, most;       /* slots so far; an upper bound: the number of (chunk, micro-batch) pairs */
    int micros, *of;   /* by pass: its slot */
    int *free, n_free; /* slots, in no order */
    uint64_t *had;     /* by slot: set of chunks */
} SlotTable;

Status slots_make(const ScheduleShape *s, Arena *scratch, SlotTable *out);

/* The slot of the next pass in the order. A forward takes one; a pass with weight gradients frees it. */
int slots_pass(SlotTable *t, const Pass *p);

/* The order in which a pair runs its parts: block i of a forward with block i from the end of a backward. On the
 * compute lane: F attention, B and W experts, F experts, B and W attention. On the comm lane: B combine, F
 * dispatch, B dispatch, F combine. So each exchange runs during the other pass's compute. */
typedef struct BlockPhase {
    ActionKind kind;
    int phase;
} BlockPhase;

enum { BLOCK_PHASES = 2 * PHASES + 2 };
/* Here, so that loops over it are unrolled. */
static const BlockPhase block_phases[BLOCK_PHASES] = {
    { ACTION_BACKWARD_INPUT, PHASE_COMBINE },   { ACTION_FORWARD, PHASE_ATTENTION },
    { ACTION_FORWARD, PHASE_DISPATCH },         { ACTION_BACKWARD_INPUT, PHASE_EXPERTS },
    { ACTION_BACKWARD_INPUT, PHASE_DISPATCH },  { ACTION_BACKWARD_WEIGHT, PHASE_EXPERTS },
    { ACTION_FORWARD, PHASE_EXPERTS },          { ACTION_FORWARD, PHASE_COMBINE },
    { ACTION_BACKWARD_INPUT, PHASE_ATTENTION }, { ACTION_BACKWARD_WEIGHT, PHASE_ATTENTION },
};

/* Makes the Programs of all ranks from their orders. All copy the sizes and placement of `like`. */
Status schedule_lower(const Program *like, const ScheduleShape *s, const Order *ranks, Arena *a,
                      Arena *scratch, Pipeline *out);

/* lower_event: the event of an action of the list, made now if it has none. lower_wait: adds an event to those
 * that an action waits for; -1: none. */
int lower_event(Program *p, int action);
void lower_wait(Action *a, int event);

/* The second step. p has only the passes and transfers of one rank. Adds the zeroing before them, the update
 * after them, and gathers and reductions of what ranks share. The whole list lies in `a`. */
Status lower_shards(Program *p, Arena *a, Arena *scratch);

#endif
