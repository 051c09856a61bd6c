/* price_stages: partitions, that is, which blocks lie on each stage.
 *
 * With one stage a rank the step follows the slowest stage, and layout_balance makes that as fast as can be. With more
 * a rank's stages add up, and ranks wait for each other in ways that depend on how stages differ. Of a fixed set of
 * spreads the one with the least mark is taken: mostly the slowest rank, a little the slowest stages. The set does not
 * look at times, so faster hardware, which lowers each mark, lowers the least one, too. */
#include "plan/price_private.h"

#include <math.h>
#include <string.h>

/* What a partition depends on. So it does not depend on which layout asks for it first. For a spread: its number and
 * its stages, entry NULL. */
typedef struct PartitionKey {
    const PriceEntry *entry;
    int pp, stages, recompute_blocks, spread;
    Placement placement;
    bool irregular, gathers, zero[2]; /* gathers: with ZeRO-2 and 3 */
} PartitionKey;

/* Stages for one key, in the planner's arena. NULL: there is no such spread. */
typedef struct Partition {
    PartitionKey key;
    LayoutStage *at;
} Partition;

/* Costs of the embedding, of each block, and of the head with the modules of multi-token prediction before it, in
 * p->scratch. They are whole units, so that sums of equal blocks are equal. */
static Status piece_costs(Planner *p, const PlanLayout *l, const PriceEntry *e, double **out)
{
    enum { UNITS = 1 << 16 }; /* of the last block */
    const int blocks = (int)p->spec.blocks;
    double *s = NULL, unit = 0;
    TRY(ARENA_NEW(&p->scratch, blocks + 2, &s));
    for (int i = blocks + 1; i >= 0; i--) {
        bool first = i == 0, last = i == blocks + 1;
        const LayoutStage one = { first ? 0 : i - 1, !first && !last, 0, first, last };
        PassSum sum = price_stage_sum(l, e, &one);
        s[i] = sum.forward + sum.input + sum.weight;
        if (i == blocks) unit = s[i] / UNITS;
    }
    for (int i = 0; i < blocks + 2; i++) s[i] = round(s[i] / unit);
    *out = s;
    return OK;
}

enum { LESS_FIRST = 5, LESS_LAST = 5, PLACES = 2, SPREADS = LESS_FIRST * LESS_LAST * PLACES };

/* As many blocks on each stage, but fewer or more on the first one and fewer on the last one. The first stages
 * have one block more, or the last ones. False: a stage would be empty, or it is another spread. */
static bool spread_blocks(int id, int blocks, int stages, LayoutStage *s)
{
    int less[] = { id % LESS_FIRST - LESS_FIRST / 2, id / LESS_FIRST % LESS_LAST };
    int place = id / (LESS_FIRST * LESS_LAST), all = blocks + less[0] + less[1], next = 0;
    int each = all / stages, more = all % stages;
    for (int i = 0; i < stages; i++) {
        bool first = i == 0, last = i == stages - 1;
        bool one = place == 0 ? i < more : i >= stages - more;
        int n = each + one - (first ? less[0] : 0) - (last ? less[1] : 0);
        if (n < (first || last ? 0 : 1)) return false;
        s[i] = (LayoutStage){ .first = next, .layers = n, .embedding = first, .loss = last };
        next += n;
    }
    return more > 0 || place == 0;
}

/* The partition under a key; *kept: it was there before. */
static Status find_partition(Planner *p, const PartitionKey *key, bool *kept, Partition **out)
{
    void **at = price_place(p->partition, PRICE_PARTITIONS, key, sizeof *key);
    *kept = *at != NULL;
    if (!*kept && p->partitions == PRICE_PARTITIONS / 2)
        return FAIL(ERR_MEMORY, "plan: more than %d partitions", PRICE_PARTITIONS / 2);
    if (!*kept) {
        Partition *new = NULL;
        TRY(ARENA_ZEROED(&p->kept, 1, &new));
        memcpy(&new->key, key, sizeof *key);
        *at = new;
        p->partitions++;
    }
    *out = *at;
    return OK;
}

static Status find_spread(Planner *p, int id, int stages, LayoutStage **out)
{
    bool kept;
    Partition *found = NULL;
    PartitionKey key = { .stages = stages, .spread = id };
    TRY(find_partition(p, &key, &kept, &found));
    if (!kept) TRY(ARENA_NEW(&p->kept, stages, &found->at));
    if (!kept && !spread_blocks(id, (int)p->spec.blocks, stages, found->at)) found->at = NULL;
    *out = found->at;
    return OK;
}

typedef struct Mark {
    int most; /* blocks of the fullest rank */
    double cost;
} Mark;

/* before: costs of the first pieces. A rank waits a little for the slowest stage of each chunk, and for the slowest of
 * all. The weights fit estimates of random pipelines. A fuller rank takes memory. */
static Mark mark_spread(const PlanLayout *l, const double *before, const LayoutStage *stage)
{
    Mark m = { 0 };
    Program like = price_program_like(l);
    double slowest = 0, columns = 0, longest = 0, mean = 0;
    for (int c = 0; c < l->vpp; c++) {
        double column = 0;
        for (like.rank = 0; like.rank < l->pp; like.rank++) {
            const LayoutStage *s = &stage[hop_of(&like, c, c)];
            int from = s->first + !s->embedding, to = s->first + s->layers + 1 + s->loss;
            column = fmax(column, before[to] - before[from]);
        }
        columns += column;
        longest = fmax(longest, column);
    }
    for (like.rank = 0; like.rank < l->pp; like.rank++) {
        double sum = 0;
        int blocks = 0;
        for (int c = 0; c < l->vpp; c++) {
            const LayoutStage *s = &stage[hop_of(&like, c, c)];
            int from = s->first + !s->embedding, to = s->first + s->layers + 1 + s->loss;
            sum += before[to] - before[from];
            blocks += s->layers;
        }
        slowest = fmax(slowest, sum);
        if (blocks > m.most) m.most = blocks;
        mean += (double)blocks / l->pp;
    }
    m.cost = 0.8 * slowest + 0.1 * columns + 0.1 * l->vpp * longest;
    m.cost *= 1 + 0.02 * m.most / mean;
    return m;
}

/* With ZeRO-2 and 3 parameters move in every micro-batch. Then the fullest rank counts first. */
static Status best_spread(Planner *p, const PlanLayout *l, const double *cost, LayoutStage **out)
{
    const int blocks = (int)p->spec.blocks;
    double *before = NULL;
    Mark best = { 0 };
    TRY(ARENA_NEW(&p->scratch, blocks + 3, &before));
    before[0] = 0;
    for (int i = 0; i < blocks + 2; i++) before[i + 1] = before[i] + cost[i];
    *out = NULL;
    for (int i = 0; i < SPREADS; i++) {
        LayoutStage *stage = NULL;
        TRY(find_spread(p, i, price_stage_count(l), &stage));
        if (stage == NULL) continue;
        Mark m = mark_spread(l, before, stage);
        bool fuller = l->zero >= 2 && m.most > best.most, less = l->zero >= 2 && m.most < best.most;
        if (*out != NULL && !less && (fuller || m.cost >= best.cost)) continue;
        best = m;
        *out = stage;
    }
    return OK;
}

static Status make_partition(Planner *p, const PlanLayout *l, const PriceEntry *e,
                             LayoutStage **out)
{
    double *cost = NULL;
    int stages = price_stage_count(l), blocks = (int)p->spec.blocks;
    bool alone = stages == l->pp && l->zero < 2;
    TRY(piece_costs(p, l, e, &cost));
    if (!alone && !l->schedule->irregular) return best_spread(p, l, cost, out);
    Layout made;
    const LayoutCost costs = { cost + 1, blocks, cost[0], cost[blocks + 1] };
    TRY(layout_balance(&costs, stages, &p->kept, &p->scratch, &made));
    *out = made.stage;
    return OK;
}

/* The partition must not depend on the room for rows, as bounds look at the least one. */
Status price_stages(Planner *p, const PlanLayout *l, const PriceEntry *e, int stages,
                    LayoutStage **out)
{
    PlanLayout like = *l;
    Partition *found = NULL;
    bool kept;
    like.room = (RowCapacity){ 0 }, like.again = NULL;
    *out = l->partition != NULL ? l->partition->stage : NULL;
    if (l->partition != NULL) return OK;
    if (e->stack.at[STACK_balance] == 0) return find_spread(p, LESS_FIRST / 2, stages, out);
    /* the first blocks of each stage are a cost of it, whatever its size */
    bool some = l->recompute_blocks >= 0 && l->recompute_blocks < SCHEDULE_BLOCKS_MAX;
    if (l->again != NULL) some = l->again->n < p->spec.blocks;
    like.recompute_blocks = some || l->recompute == 0 ? 0 : -1;
    if (e->key.rows_room > 0 || e->key.block_room > 0) TRY(price_entry(p, &like, &e));
    PartitionKey key = { .entry = e,
                         .pp = l->pp,
                         .stages = stages,
                         .recompute_blocks = like.recompute_blocks,
                         .placement = l->schedule->placement,
                         .irregular = l->schedule->irregular,
                         .gathers = l->zero >= 2 };
    TRY(find_partition(p, &key, &kept, &found));
    ArenaMark mark = arena_mark(&p->scratch);
    Status s = kept ? OK : make_partition(p, &like, e, &found->at);
    arena_release(&p->scratch, mark);
    *out = found->at;
    return s;
}

/* Also for a layout that names its partition: the text is then a normal form of it. */
Status planner_partition(Planner *p, const PlanLayout *l, Arena *a, const char **text)
{
    const PriceEntry *e = NULL;
    Layout layout = { .stages = price_stage_count(l), .layers = (int)p->spec.blocks };
    TRY(price_entry(p, l, &e));
    TRY(price_stages(p, l, e, layout.stages, &layout.stage));
    return layout_text(&layout, a, text);
}
