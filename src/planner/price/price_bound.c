/* price_bound: lower bounds of a layout's memory and time, without walking its schedule. A search skips layouts by
 * them, so they must never be above the price: where something is unknown, the cheapest case is taken. */
#include "planner/price/price_private.h"

#include "engine/count/capacity.h"

#include <math.h>

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
PassSum price_stage_sum(const PlanLayout *l, const PriceEntry *e, const LayoutStage *s)
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

/* The passes of a rank: of all its chunks, and of its first. */
typedef struct RankPasses {
    PassSum all, first;
} RankPasses;

/* For each rank: the way of the first micro-batch to it, and all compute on it, or all exchanges if these have a lane
 * of their own. See planner_bound. */
static double time_bound(const PlanLayout *l, const PriceEntry *e, const RankPasses *rank,
                         double micros)
{
    const bool both = l->schedule->placement == PLACE_BOTH;
    const bool beside = l->schedule->phases && !price_in_series(e, l);
    double fill = 0, most = 0;
    const ScheduleLeast *shown = &l->schedule->least;
    bool few = l->schedule->placement == PLACE_V && l->pp < 4; /* then these shares are hidden */
    double input = few ? 0 : shown->input, weight = few ? 0 : shown->weight;
    for (int r = 0; r < l->pp; r++) {
        const PassSum *all = &rank[r].all, *s = &rank[r].first;
        double work = all->forward + all->input + all->weight;
        if (beside) work = fmax(all->compute, work - all->compute);
        most = fmax(most, micros * work / (both ? 2 : 1) + fill);
        if (!both) fill += s->forward + fmax(0, input * s->input + weight * s->weight);
    }
    return most;
}

Status price_least_s(Planner *p, const PlanLayout *l, const PriceEntry *e, const PriceRanks *n,
                     double *out)
{
    RankPasses *rank = NULL;
    TRY(ARENA_NEW(&p->scratch, l->pp, &rank));
    for (int r = 0; r < l->pp; r++)
        rank[r] =
            (RankPasses){ n->rank[r].pass, price_pass_sum(&n->chunk[(ptrdiff_t)r * l->vpp].time) };
    *out = time_bound(l, e, rank, (double)price_micros(p, l));
    return OK;
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

/* Of a slot, and of an arena of gradients; split passes have at least one. */
static double bytes_bound(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                          const BoundSums *s)
{
    const double *part = s->slot;
    double bytes = 0, memory[PLAN_KINDS] = { 0 }, micros = (double)price_micros(p, l);
    double waits = e->stack.at[STACK_waiting]; /* of a slot, while its weight gradients wait */
    double share = waits < 0 ? 1 : fmin(1, waits), grads = waits < 0 ? part[SLOT_GRADS] : 0;
    bool whole = (l->schedule->least.passes & CHUNK_SPLIT) == 0;
    double arenas = slots_bound(l, micros) * part[SLOT_KEEP] * (whole ? 1 : share) + grads;
    EstimateRank slots = { .slot_arena_bytes = arenas, .first_slot_bytes = INFINITY };
    const AlikeBytes alike = { price_comm_bytes(l, e), s->step_bytes };
    price_rank_memory(p, l, e, &s->least, &slots, &alike, memory);
    for (int i = 0; i < PLAN_KINDS; i++) bytes += memory[i];
    return bytes;
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

/* The passes of all ranks. */
static void add_passes(const PlanLayout *l, const PriceEntry *e, const LayoutStage *stage,
                       RankPasses *rank)
{
    Program like = price_program_like(l);
    for (like.rank = 0; like.rank < l->pp; like.rank++) {
        RankPasses *r = &rank[like.rank];
        r->all = r->first = price_stage_sum(l, e, &stage[hop_of(&like, 0, 0)]);
        for (int c = 1; c < l->vpp; c++) {
            PassSum s = price_stage_sum(l, e, &stage[hop_of(&like, c, c)]);
            price_add_sum(&r->all, &s, 1);
        }
    }
}

static bool same_key(const BoundKey *a, const BoundKey *b)
{
    return a->least == b->least && a->largest == b->largest && a->stage == b->stage &&
           a->schedule == b->schedule && a->micros == b->micros && a->pp == b->pp &&
           a->vpp == b->vpp && a->recompute_blocks == b->recompute_blocks;
}

/* The sums of a layout, which are made if the last ones are not its own. Passes are too long for a layout that names its
 * recomputed blocks, because all count as recomputed: they then hide too much, which keeps the bound low. */
static Status bound_sums(Planner *p, const PlanLayout *l, const BoundKey *key, BoundSums *s)
{
    RankPasses *passes = NULL;
    PlanLayout least = *l, most = *l;
    bool kept = l->partition == NULL && l->again == NULL;
    if (kept && same_key(&s->key, key)) return OK;
    least.room = capacity_least(&p->config, plan_expert_ranks(l));
    if (l->again != NULL) most.again = NULL, most.recompute_blocks = -1;
    *s = (BoundSums){ .slot = { INFINITY, INFINITY } };
    TRY(price_step_bytes(p, l, key->least, &s->step_bytes));
    TRY(ARENA_NEW(&p->scratch, l->pp, &passes));
    add_rank_0(p, &least, key->least, key->stage, s->slot, &s->least);
    add_rank_0(p, l, key->largest, key->stage, NULL, &s->largest);
    add_passes(&most, key->largest, key->stage, passes);
    for (int r = 0; r < l->pp; r++) price_raise_pace(l, key->least, &passes[r].all, &s->largest);
    add_passes(l, key->least, key->stage, passes);
    s->schedule_s = time_bound(l, key->least, passes, (double)price_micros(p, l));
    double compute_s = 0;
    for (int r = 0; r < l->pp; r++) compute_s += passes[r].all.compute;
    s->schedule_s += price_slowest_s(p, l, compute_s);
    if (kept) s->key = *key;
    return OK;
}

/* Bytes are bounded with the least capacity for rows. Times after the schedule are bounded with the largest:
 * the passes of rank 0 are then the longest, so they hide the most. */
Status planner_bound(Planner *p, const PlanLayout *l, double *bytes, double *step_s)
{
    const PriceEntry *e = NULL, *largest = NULL;
    LayoutStage *stage = NULL;
    BoundSums *s = &p->bounds;
    double part_s[PLAN_PARTS];
    PlanLayout least = *l;
    least.room = capacity_least(&p->config, plan_expert_ranks(l));
    price_trim(p);
    TRY(price_entry(p, &least, &e));
    TRY(price_entry(p, l, &largest));
    ArenaMark mark = arena_mark(&p->scratch);
    TRY(price_stages(p, l, e, price_stage_count(l), &stage));
    const BoundKey key = {
        e, largest, stage, l->schedule, price_micros(p, l), l->pp, l->vpp, l->recompute_blocks
    };
    TRY(bound_sums(p, l, &key, s));
    TRY(price_rank_ends(p, l, largest, &s->largest, part_s));
    *bytes = bytes_bound(p, l, e, s);
    *step_s = s->schedule_s + part_s[PLAN_GRADIENTS] + part_s[PLAN_UPDATE] +
              part_s[PLAN_CHECKPOINT] + e->stack.at[STACK_wait_step];
    arena_release(&p->scratch, mark);
    return OK;
}
