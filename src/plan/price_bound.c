/* price_bound: lower bounds of a layout's memory and time, without walking its schedule. A search skips layouts by
 * them, so they must never be above the price: where something is unknown, the cheapest case is taken. */
#include "plan/price_private.h"

#include "train/capacity.h"

#include <math.h>

/* ---- sums over blocks ---- */

/* `times` -1 subtracts, for differences of prefix sums. */
void price_add_sum(PassSum *to, const PassSum *a, double times)
{
    to->forward += times * a->forward;
    to->input += times * a->input;
    to->weight += times * a->weight;
    to->compute += times * a->compute;
}

PassSum price_pass_sum(const ChunkTimes *t)
{
    PassSum sum = { 0 };
    for (int i = 0; i < PHASES; i++) {
        sum.forward += t->forward[i];
        sum.input += t->input[i];
        sum.weight += t->weight[i];
        if (i % 2 == 0) sum.compute += t->forward[i] + t->input[i] + t->weight[i];
    }
    return sum;
}

/* The times of one stage; blocks: how many of its blocks are recomputed. */
static PassSum stage_alone(const Planner *p, const PriceEntry *e, int blocks, LayoutStage s)
{
    ChunkPrice c;
    price_chunk(p, &(PlanLayout){ .recompute_blocks = blocks }, e, &s, p->layers, &c);
    return price_pass_sum(&c.time);
}

/* One pass over the blocks for each of plain and recomputed; a stage is then four lookups. */
Status price_sums(Planner *p, PriceEntry *e)
{
    for (int again = 0; again < 2; again++) {
        TRY(ARENA_NEW(&p->kept, p->spec.blocks + 1, &e->before[again]));
        PassSum *before = e->before[again];
        before[0] = (PassSum){ 0 };
        for (int i = 0; i < p->spec.blocks; i++) {
            PassSum block = stage_alone(p, e, again, (LayoutStage){ .first = i, .layers = 1 });
            before[i + 1] = before[i];
            price_add_sum(&before[i + 1], &block, 1);
        }
    }
    e->embedding = stage_alone(p, e, 0, (LayoutStage){ .embedding = true });
    e->head = stage_alone(p, e, 0, (LayoutStage){ .first = (int)p->spec.blocks, .loss = true });
    return OK;
}

/* The times of a stage from prefix sums over blocks: recomputed blocks first, then plain ones. */
static PassSum stage_sum(const PlanLayout *l, const PriceEntry *e, const LayoutStage *s)
{
    bool all = l->recompute_blocks < 0 || l->recompute_blocks > s->layers;
    int again = s->first + (all ? s->layers : l->recompute_blocks), end = s->first + s->layers;
    if (l->again != NULL) again = s->first; /* none recomputed: recompute only adds time */
    PassSum sum = e->before[1][again];
    price_add_sum(&sum, &e->before[1][s->first], -1);
    price_add_sum(&sum, &e->before[0][end], 1);
    price_add_sum(&sum, &e->before[0][again], -1);
    if (s->embedding) price_add_sum(&sum, &e->embedding, 1);
    if (s->loss) price_add_sum(&sum, &e->head, 1);
    return sum;
}

/* ---- bounds ---- */

/* For each rank: the way of the first micro-batch to it, and all compute on it. See planner_bound. */

static double time_bound(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                         const LayoutStage *stage)
{
    Program like = price_program_like(l);
    bool both = like.placement == PLACE_BOTH;
    double fill = 0, most = 0, compute = 0, micros = (double)price_micros(p, l);
    const ScheduleLeast *shown = &l->schedule->least;
    bool few = like.placement == PLACE_V && l->pp < 4; /* below 4 stages these shares are hidden */
    double input = few ? 0 : shown->input, weight = few ? 0 : shown->weight;
    for (like.rank = 0; like.rank < l->pp; like.rank++) {
        double work = 0;
        for (int c = 0; c < l->vpp; c++) {
            PassSum s = stage_sum(l, e, &stage[hop_of(&like, c, c)]);
            bool beside = l->schedule->phases && !price_in_series(e, l);
            work += beside ? s.compute : s.forward + s.input + s.weight;
            compute += s.compute;
        }
        most = fmax(most, micros * work / (both ? 2 : 1) + fill);
        PassSum s = stage_sum(l, e, &stage[like.rank]);
        if (!both) fill += s.forward + fmax(0, input * s.input + weight * s.weight);
    }
    return most + price_slowest_s(p, l, compute);
}

/* The least number of slots of rank 0. */
static double slots_bound(const PlanLayout *l, double micros)
{
    double stages = l->pp, most = micros;
    double slots = floor(stages * l->schedule->least.slots);
    if (l->schedule->placement == PLACE_LOOP && l->vpp > 1) most *= l->vpp;
    if (slots == 0) slots = stages * (l->vpp + 1) - (l->schedule->phases ? 0 : 1);
    return fmin(slots, most);
}

/* part: bytes of a slot, and of an arena of gradients; split passes have at least one. */
static Status bytes_bound(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                          const RankPrice *rank, const double part[SLOT_PARTS], double *bytes)
{
    double memory[PLAN_KINDS] = { 0 }, micros = (double)price_micros(p, l);
    double waits = e->stack.at[STACK_waiting]; /* of a slot, while its weight gradients wait */
    double share = waits < 0 ? 1 : fmin(1, waits), grads = waits < 0 ? part[SLOT_GRADS] : 0;
    bool whole = (l->schedule->least.passes & CHUNK_SPLIT) == 0;
    double arenas = slots_bound(l, micros) * part[SLOT_KEEP] * (whole ? 1 : share) + grads;
    EstimateRank slots = { .slot_arena_bytes = arenas, .first_slot_bytes = INFINITY };
    TRY(price_rank_memory(p, l, e, rank, &slots, memory));
    *bytes = 0;
    for (int i = 0; i < PLAN_KINDS; i++) *bytes += memory[i];
    return OK;
}

/* Adds up the chunks of rank 0. With `part` also their bytes: for each part of a slot, those of the smallest chunk. */
static void add_rank_0(Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const LayoutStage *stage, double part[SLOT_PARTS], RankPrice *rank)
{
    Program like = price_program_like(l);
    for (int c = 0; c < l->vpp; c++) {
        ChunkPrice chunk;
        price_chunk(p, l, e, &stage[hop_of(&like, c, c)], p->layers, &chunk);
        price_add_chunk(rank, &chunk);
        if (part == NULL) continue;
        ChunkBytes b = price_add_bytes(rank, l, e, &chunk, l->schedule->least.passes);
        if ((l->schedule->least.passes & CHUNK_SPLIT) != 0) b.slot[SLOT_KEEP] = b.split_keep;
        for (int i = 0; i < SLOT_PARTS; i++) part[i] = fmin(part[i], (double)b.slot[i]);
    }
}

/* Raises the slowest rank's passes in *rank to those of all ranks. For a layout that names its recomputed blocks all
 * count as recomputed: passes that are too long hide too much, which keeps the bound low. */
static void raise_pace(const PlanLayout *l, const PriceEntry *e, const LayoutStage *stage,
                       RankPrice *rank)
{
    Program like = price_program_like(l);
    PlanLayout most = *l;
    if (l->again != NULL) most.again = NULL, most.recompute_blocks = -1;
    for (like.rank = 0; like.rank < l->pp; like.rank++) {
        PassSum sum = { 0 };
        for (int c = 0; c < l->vpp; c++) {
            PassSum s = stage_sum(&most, e, &stage[hop_of(&like, c, c)]);
            price_add_sum(&sum, &s, 1);
        }
        price_raise_pace(l, e, &sum, rank);
    }
}

/* Bytes are bounded with the least capacity for rows. Times after the schedule are bounded with the largest:
 * the passes of rank 0 are then the longest, so they hide the most. */
Status planner_bound(Planner *p, const PlanLayout *l, double *bytes, double *step_s)
{
    const PriceEntry *e = NULL, *largest = NULL;
    LayoutStage *stage = NULL;
    RankPrice rank = { 0 }, longest = { 0 };
    double part[SLOT_PARTS] = { INFINITY, INFINITY }, part_s[PLAN_PARTS];
    PlanLayout least = *l;
    least.room = capacity_least(&p->config, l->ep);
    TRY(price_entry(p, &least, &e));
    TRY(price_entry(p, l, &largest));
    ArenaMark mark = arena_mark(&p->scratch);
    TRY(price_stages(p, l, e, price_stage_count(l), &stage));
    add_rank_0(p, &least, e, stage, part, &rank);
    add_rank_0(p, l, largest, stage, NULL, &longest);
    raise_pace(l, largest, stage, &longest);
    TRY(price_rank_ends(p, l, largest, &longest, part_s));
    TRY(bytes_bound(p, l, e, &rank, part, bytes));
    *step_s = time_bound(p, l, e, stage) + part_s[PLAN_GRADIENTS] + part_s[PLAN_UPDATE] +
              part_s[PLAN_CHECKPOINT] + e->stack.at[STACK_wait_step];
    arena_release(&p->scratch, mark);
    return OK;
}
