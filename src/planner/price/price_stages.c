/* price_stages: partitions, that is, which blocks lie on each stage.
 *
 * With one stage a rank the step follows the slowest stage, and balance_layout makes that as fast as can be. With more
 * a rank's stages add up, and ranks wait for each other in ways that depend on how stages differ. Of a fixed set of
 * spreads the one with the least mark is taken: mostly the slowest rank, a little the slowest stages. The set does not
 * look at times, so faster hardware, which lowers each mark, lowers the least one, too. */
#include "planner/price/balance.h"
#include "planner/price/price_private.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* What a partition depends on: not on which layout asks first. gathers: with ZeRO-2 and 3. */
typedef struct PartitionKey {
    const PriceEntry *entry;
    int pp, stages, recompute_blocks;
    Placement placement;
    int64_t gathers;
} PartitionKey;
_Static_assert(sizeof(PartitionKey) == 2 * sizeof(int64_t) + 4 * sizeof(int), "padding in a key");

typedef struct Partition {
    PartitionKey key;
    LayoutStage *at;
} Partition;

/* Bytes of all partitions: for 98,304 GPUs they would take gigabytes. */
static const size_t PARTS_BYTES = (size_t)48 << 20;

void price_trim(Planner *p)
{
    if (p->partitions < PRICE_PARTITIONS / 2 && p->parts.used_bytes < PARTS_BYTES) return;
    memset(p->partition, 0, PRICE_PARTITIONS * sizeof *p->partition);
    arena_release(&p->parts, (ArenaMark){ 0 });
    p->partitions = 0;
    p->bounds = (BoundSums){ 0 }; /* it names a partition */
}

/* Costs of the embedding, of each block, and of the head with the modules of multi-token prediction before it. They are
 * whole units, so that sums of equal blocks are equal. */
static void piece_costs(const PlanLayout *l, const PriceEntry *e, int blocks, double *cost)
{
    enum { UNITS = 1 << 16 }; /* of the last block */
    for (int i = 0; i < blocks + 2; i++) {
        const LayoutStage one = { i > 0 ? i - 1 : 0, i > 0 && i <= blocks, 0, i == 0, i > blocks };
        PassSum sum = price_stage_sum(l, e, &one);
        cost[i] = sum.forward + sum.input + sum.weight;
    }
    double unit = cost[blocks] / UNITS;
    for (int i = 0; i < blocks + 2; i++) cost[i] = round(cost[i] / unit);
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
        int one = place == 0 ? i < more : i >= stages - more;
        int n = each + one - (first ? less[0] : 0) - (last ? less[1] : 0);
        if (n < (first || last ? 0 : 1)) return false;
        s[i] = (LayoutStage){ .first = next, .layers = n, .embedding = first, .loss = last };
        next += n;
    }
    return more > 0 || place == 0;
}

static double larger_of(double a, double b) { return a > b ? a : b; }

/* before: costs of the first pieces. A rank waits a little for the slowest stage of each chunk, and for the slowest of
 * all: the weights fit estimates of random pipelines. *most: blocks of the fullest rank; they take memory. Where
 * marks alone decide, one that reaches `least` need not be found. */
static double mark_spread(const PlanLayout *l, const double *before, const LayoutStage *stage,
                          double least, int *most)
{
    double column[SCHEDULE_CHUNKS_MAX] = { 0 }, slowest = 0, columns = 0, longest = 0, all = 0;
    Program like = price_program_like(l);
    *most = 0;
    for (like.rank = 0; like.rank < l->pp; like.rank++) {
        double sum = 0;
        int blocks = 0;
        for (int c = 0; c < l->vpp; c++) {
            const LayoutStage *s = &stage[hop_of(&like, c, c)];
            int end = s->first + s->layers + 1;
            double cost = before[end + s->loss] - before[s->first + !s->embedding];
            column[c] = larger_of(column[c], cost);
            sum += cost, blocks += s->layers;
        }
        slowest = larger_of(slowest, sum), all += blocks;
        if (blocks > *most) *most = blocks;
        if (l->zero < 2 && 0.8 * slowest >= least) return least;
    }
    for (int c = 0; c < l->vpp; c++) columns += column[c], longest = larger_of(longest, column[c]);
    return (0.8 * slowest + 0.1 * columns + 0.1 * l->vpp * longest) *
           (1 + 0.02 * *most * l->pp / all);
}

/* Stacks without balance have equal numbers of blocks. With ZeRO-2 and 3 parameters move in every micro-batch: then the
 * fullest rank counts first. */
static Status make_partition(Planner *p, const PlanLayout *l, const PriceEntry *e, int stages,
                             LayoutStage **out)
{
    double *cost = NULL, *before = NULL, least = INFINITY;
    int fewest = INT_MAX, most = 0, best = LESS_FIRST / 2, blocks = (int)p->spec.blocks;
    bool balance = e->stack.at[STACK_balance] != 0;
    TRY(ARENA_NEW(&p->scratch, blocks + 2, &cost));
    TRY(ARENA_ZEROED(&p->scratch, blocks + 3, &before));
    TRY(ARENA_NEW(&p->parts, stages, out));
    piece_costs(l, e, blocks, cost);
    if (balance && stages == l->pp && l->zero < 2) {
        const LayoutCost costs = { cost + 1, blocks, cost[0], cost[blocks + 1] };
        Layout made = { 0 };
        Status s = balance_layout(&costs, stages, &p->parts, &p->scratch, &made);
        *out = made.stage;
        return s;
    }
    for (int i = 0; i < blocks + 2; i++) before[i + 1] = before[i] + cost[i];
    for (int i = 0; i < SPREADS && balance; i++) {
        if (!spread_blocks(i, blocks, stages, *out)) continue;
        double mark = mark_spread(l, before, *out, least, &most);
        if (l->zero < 2) most = 0;
        if (most > fewest || (most == fewest && mark >= least)) continue;
        fewest = most, least = mark, best = i;
    }
    (void)spread_blocks(best, blocks, stages, *out);
    return OK;
}

/* The partition must not depend on the room for rows, as bounds look at the least one. */
Status price_stages(Planner *p, const PlanLayout *l, const PriceEntry *e, int stages,
                    LayoutStage **out)
{
    PlanLayout like = *l;
    bool some = l->recompute_blocks >= 0 && l->recompute_blocks < SCHEDULE_BLOCKS_MAX;
    if (l->partition != NULL) *out = l->partition->stage;
    if (l->partition != NULL) return OK;
    if (l->again != NULL) some = l->again->n < p->spec.blocks;
    /* the first blocks of each stage are a cost of it, whatever its size */
    like.recompute_blocks = some || l->recompute == 0 ? 0 : -1;
    like.room = (RowCapacity){ 0 }, like.again = NULL;
    if (e->key.rows_room > 0 || e->key.block_room > 0 || (some && e->key.recompute != 0))
        TRY(price_entry(p, &like, &e));
    PartitionKey key = { e,           l->pp, stages, like.recompute_blocks, l->schedule->placement,
                         l->zero >= 2 };
    void **at = price_place(p->partition, PRICE_PARTITIONS, &key, sizeof key);
    if (*at == NULL) {
        Partition *new = NULL;
        TRY(ARENA_NEW(&p->parts, 1, &new));
        p->partitions++;
        new->key = key;
        ArenaMark mark = arena_mark(&p->scratch);
        TRY(make_partition(p, &like, e, stages, &new->at));
        arena_release(&p->scratch, mark);
        *at = new;
    }
    *out = ((const Partition *)*at)->at;
    return OK;
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
