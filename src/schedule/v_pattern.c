/* v_pattern: schedules from a pattern that repeats (arXiv:2405.15362), of two chunks a rank, down the ranks
 * and up again. A building block gives the time, in passes, at which one micro-batch runs forward on chunk 0
 * and 1 and backward on chunk 1 and 0 of each rank. The next micro-batch follows six passes later.
 *
 * The time for which the block keeps a slot sets the memory of the schedule: that is the paper's idea. The
 * order itself is found by greedy.h, which closes the gaps at both ends of the step with weight gradients.
 * Of several tries the shortest within the slots of the pattern is taken. */
#include "schedule/greedy.h"
#include "schedule/schedule.h"

#include <math.h>

/* Tries are compared on CHOICE micro-batches a stage, at least CHOICE_LEAST. So the choice does not depend on the
 * number of micro-batches beyond that. */
enum { INTERVAL = 6, TRIES = 9, CHOICE = 4, CHOICE_LEAST = 32 };

typedef struct Block {
    int at[4];
} Block;

/* The time at which the pattern runs a pass. */
static double pattern_turn(const Greedy *g, int rank, const Pass *p)
{
    const Block *b = (const Block *)g->ctx + rank;
    int i = p->kind == ACTION_FORWARD ? p->chunk : 3 - p->chunk;
    return b->at[i] + INTERVAL * (double)p->micro;
}

/* Does a micro-batch run a pass of the block, which begins at `at`, at time t? */
static bool comes_at(int at, int t, int micros)
{
    return t >= at && (t - at) % INTERVAL == 0 && (t - at) / INTERVAL < micros;
}

/* The slots that a rank needs by the pattern, with weight gradients in its gaps. */
static int slots_needed(const Block *b, int micros)
{
    int most = 0, live = 0, waiting = 0;
    for (int t = 0; t <= b->at[3] + 2 * INTERVAL; t++) {
        bool forward = comes_at(b->at[0], t, micros) || comes_at(b->at[1], t, micros);
        bool input = !forward && (comes_at(b->at[2], t, micros) || comes_at(b->at[3], t, micros));
        bool weight = !forward && !input && waiting > 0;
        live += forward - weight;
        waiting += input - weight;
        if (live > most) most = live;
    }
    return most;
}

/* The number of micro-batches that are between forward and backward of a chunk at the same time. */
static int lifespan(const Block *b, int chunk)
{
    return (b->at[3 - chunk] - b->at[chunk]) / INTERVAL + 1;
}

/* Try 0 keeps the pattern's order, which never deadlocks. The others let a rank run ahead of it, some with a slot
 * more for a chunk than the pattern has on average. */
static Status try_order(const Greedy *base, int attempt, int *chunk_limit, Arena *scratch,
                        Order *ranks, double *step)
{
    const Block *b = base->ctx;
    Greedy g = *base;
    g.in_turn = attempt == 0;
    g.spare = attempt % 2 == 1;
    g.chunk_limit = chunk_limit;
    int more = attempt == 0 ? 0 : (attempt - 1) / 2;
    for (int r = 0; r < g.shape->stages; r++) {
        *chunk_limit++ = lifespan(&b[r], 0) + (more & 1);
        *chunk_limit++ = lifespan(&b[r], 1) + (more >> 1);
    }
    ArenaMark mark = arena_mark(scratch);
    Status status = greedy_run(&g, scratch, ranks, step);
    arena_release(scratch, mark);
    return status;
}

static Status order_by_pattern(const ScheduleShape *s, Block (*block)(int stages, int rank),
                               Arena *scratch, Order *ranks)
{
    Block *blocks = NULL;
    int *chunk_limit = NULL;
    TRY(ARENA_NEW(scratch, s->stages, &blocks));
    TRY(ARENA_NEW(scratch, 2 * s->stages, &chunk_limit));
    Greedy g = { .shape = s, .placement = PLACE_V, .turn = pattern_turn, .ctx = blocks };
    for (int r = 0; r < s->stages; r++) {
        blocks[r] = block(s->stages, r);
        int most = slots_needed(&blocks[r], s->micros);
        if (most > g.limit) g.limit = most;
    }
    int best = 0;
    double shortest = INFINITY, step = NAN;
    ScheduleShape few = *s;
    int enough = CHOICE * s->stages < CHOICE_LEAST ? CHOICE_LEAST : CHOICE * s->stages;
    if (few.micros > enough) few.micros = enough;
    g.shape = &few;
    for (int i = 0; i < TRIES; i++) {
        TRY(try_order(&g, i, chunk_limit, scratch, ranks, &step));
        if (!(step < shortest)) continue;
        shortest = step;
        best = i;
    }
    g.shape = s;
    TRY(try_order(&g, best, chunk_limit, scratch, ranks, &step));
    if (isnan(step))
        return FAIL(ERR_ARG, "schedule: %d slots are too few for the pattern", g.limit);
    return OK;
}

/* V-half (arXiv:2405.15362): about half the memory of 1F1B: p/2 + 1 of its slots on every rank.
 * Forwards go down at half speed, up at full; input gradients the same way round. */
static Block half_block(int p, int r)
{
    int shift = p % 2 == 0 ? 3 : 0;
    return (Block){ { 2 * r, 3 * p - r - 2, 3 * p + shift + 2 * r - 1, 6 * p + shift - r - 2 } };
}

Status schedule_v_half(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    return order_by_pattern(s, half_block, scratch, ranks);
}

/* V-min (arXiv:2405.15362): about a third of the memory of 1F1B, the least that a V can have: every
 * pass follows the one before it at once. The price is a bubble that grows where passes differ. */
static Block min_block(int p, int r)
{
    int shift = p % 3 == 0 ? 2 : 0;
    return (Block){ { r, 2 * p - r - 1, 2 * p + shift + r, 4 * p + shift - r - 1 } };
}

Status schedule_v_min(const ScheduleShape *s, Arena *scratch, Order *ranks)
{
    return order_by_pattern(s, min_block, scratch, ranks);
}
