/*
 * collectives_match: which kernels of the ranks are one collective, and the clocks of the ranks.
 *
 * The members of a group call the same collectives in the same order. But each profiler's window begins
 * and ends at another call, and some kernels are lost. So sequences are aligned, rank after rank:
 *
 * 1. The shift of one sequence against the other at which most calls agree, by what is called and by
 *    when it ends, gives a first clock.
 * 2. With this clock, the longest common subsequence gives the matches. A pair weighs less the worse
 *    its ends agree.
 */
#include "traces/compare/collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHIFT_MAX = 2048,  /* collectives by which two windows may differ */
    SAMPLE = 64,       /* pairs by which a shift is judged */
    BAND = 48,         /* kernels that may be lost in a row */
    DRIFT_POINTS = 16, /* fewer points give no drift */
    /* A drift counts if it moves the clock over the window by more than DRIFT_SIGMAS times the spread
     * over sqrt(points). A standard error is about 4 of these units, so that is 5 standard errors. */
    DRIFT_SIGMAS = 20
};

/* ---- a clock from pairs of ends ---- */

/* A point that a clock is fitted to. */
typedef struct Pair {
    double at, ahead; /* a time, and by how much the other clock is ahead then */
} Pair;

/* corrected time = t + offset + drift (t - at). spread: the deviation of the points from it. */
typedef struct Clock {
    double at, offset, drift, spread;
} Clock;

static int by_at(const void *a, const void *b)
{
    const Pair *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static double corrected(const Clock *c, double t) { return t + c->offset + c->drift * (t - c->at); }

/* Returns the spread by the median absolute deviation. The factor makes it the standard deviation
 * if errors are normally distributed: 1 / 0.6745. */
static double spread_of(const Clock *c, const Pair *p, int64_t n, double *scratch)
{
    for (int64_t i = 0; i < n; i++) scratch[i] = fabs(corrected(c, p[i].at) - p[i].at - p[i].ahead);
    return 1.4826 * median_of(scratch, n);
}

/* Fits the offset for the drift that the clock already has. */
static void fit_offset(Clock *c, const Pair *p, int64_t n, double *scratch)
{
    for (int64_t i = 0; i < n; i++) scratch[i] = p[i].ahead - c->drift * (p[i].at - c->at);
    c->offset = median_of(scratch, n);
    c->spread = spread_of(c, p, n, scratch);
}

/*
 * Fits a clock to pairs of times. The offset is the median of the pairs, and the drift the median
 * slope between pairs half a window apart (Theil-Sen, with fixed distances). Medians are right
 * while fewer than half of the points are wrong.
 * The drift is kept only if it stands out of the noise and explains most of it. Few points in a
 * short window would give any drift, and a lost kernel looks like a step.
 */
static Clock fit_clock(Pair *p, int64_t n, double *scratch)
{
    Clock still = { .at = n > 0 ? p[0].at : 0 }, moving = still;
    int64_t half = n / 2, slopes = 0;
    fit_offset(&still, p, n, scratch);
    if (n < DRIFT_POINTS) return still;
    qsort(p, (size_t)n, sizeof *p, by_at);
    for (int64_t i = 0; i + half < n; i++) {
        double span = p[i + half].at - p[i].at;
        if (span > 0) scratch[slopes++] = (p[i + half].ahead - p[i].ahead) / span;
    }
    if (slopes == 0) return still;
    moving.drift = median_of(scratch, slopes);
    fit_offset(&moving, p, n, scratch);
    double path = fabs(moving.drift) * (p[n - 1].at - p[0].at) * sqrt((double)n);
    return path > DRIFT_SIGMAS * fmax(moving.spread, 0.1) && 2 * moving.spread < still.spread
               ? moving
               : still;
}

/* ---- two sequences ---- */

/* One collective in a sequence, by what it is and when it ended. */
typedef struct Entry {
    double end;
    uint64_t what; /* calls that may be one collective have the same */
    int64_t slot;
} Entry;

/* Entry i of `one` against entry i + by of `all`: how many are equal, and how their ends fit. */
typedef struct Shift {
    int64_t by, equal;
    double offset, spread;
} Shift;

/* Memory to align the calls of one rank after the other. All arrays lie in `arena`, which
 * match_group releases. */
typedef struct Align {
    Entry *all, *one, *merged; /* of the ranks so far; of the next rank; of both */
    int64_t n_all, n_one;
    double *scratch;
    Pair *pair;
    Shift *shift;
    int64_t *match; /* by entry of `one`: its entry of `all`, or -1 */
    float *score;   /* two rows of the band */
    uint8_t *step;
    Arena *arena;
} Align;

/* Counts the entries that are equal at a shift. */
static int64_t equal_at(const Align *a, int64_t shift)
{
    int64_t last = a->n_all - shift < a->n_one ? a->n_all - shift : a->n_one, n = 0;
    for (int64_t i = shift < 0 ? -shift : 0; i < last; i++)
        n += a->one[i].what == a->all[i + shift].what;
    return n;
}

/* Makes pairs of the ends of at most `at_most` equal entries, evenly spread. Returns how many. */
static int64_t pairs_at(const Align *a, const Shift *s, int64_t at_most)
{
    int64_t n = 0;
    for (int64_t i = s->by < 0 ? -s->by : 0, k = 0; k < s->equal; i++) {
        const Entry *o = &a->one[i], *m = &a->all[i + s->by];
        if (o->what != m->what || k++ * at_most / s->equal < n) continue;
        a->pair[n++] = (Pair){ o->end, m->end - o->end };
    }
    return n;
}

/* Finds the best shift. Training steps repeat, so many shifts have equal entries; a shift by a
 * whole step fits nearly as well. First, a shift needs half of the most equal entries. Second, the
 * ends at this shift must differ by about the same time. Of the rest, the one with most equal
 * entries is best, then the one with the smallest clock offset. */
static Shift best_shift(const Align *a)
{
    int64_t low = -(a->n_one - 1), high = a->n_all - 1, most = 0, n = 0;
    Shift best = { 0 }, *s = a->shift;
    double least = (double)INFINITY;
    if (low < -SHIFT_MAX) low = -SHIFT_MAX;
    if (high > SHIFT_MAX) high = SHIFT_MAX;
    for (int64_t by = low; by <= high; by++) {
        s[n] = (Shift){ .by = by, .equal = equal_at(a, by) };
        if (s[n++].equal > most) most = s[n - 1].equal;
    }
    for (int64_t i = 0; i < n && most > 0; i++) {
        if (2 * s[i].equal < most) continue;
        Clock c = fit_clock(a->pair, pairs_at(a, &s[i], SAMPLE), a->scratch);
        s[i].offset = fabs(c.offset);
        s[i].spread = c.spread;
        least = fmin(least, c.spread);
    }
    for (int64_t i = 0; i < n && most > 0; i++) {
        if (2 * s[i].equal < most || s[i].spread > 2 * least + 1) continue;
        if (s[i].equal > best.equal || (s[i].equal == best.equal && s[i].offset < best.offset))
            best = s[i];
    }
    return best;
}

/* Returns the median time between two collectives. */
static double usual_interval(const Align *a)
{
    for (int64_t i = 1; i < a->n_one; i++) a->scratch[i - 1] = a->one[i].end - a->one[i - 1].end;
    return a->n_one < 2 ? 0 : fabs(median_of(a->scratch, a->n_one - 1));
}

/* The last step of the best path to a cell: both entries match, or one of the sequences has an
 * entry that the other lacks. */
enum { STEP_MATCH, STEP_ONE, STEP_ALL };

/*
 * Finds the longest common subsequence, within BAND entries of the shift. So the table has 2 BAND +
 * 1 cells an entry instead of all of `all`.
 * A match is worth 1 if its ends agree, and less if they do not. It is worth nothing if they are as
 * far apart as one collective is from the next.
 * At the end the ends of `one` are on the clock of `all`, so that merge_sequences can order both by
 * time.
 */
static void match_sequences(Align *a, const Shift *s)
{
    const int64_t width = 2 * BAND + 1;
    Clock c = fit_clock(a->pair, pairs_at(a, s, s->equal), a->scratch);
    /* far: ends that differ by this much, in us, are different collectives */
    double far = fmax(fmax(usual_interval(a), 20 * c.spread), 50);
    float *before = a->score, *now = a->score + width;
    memset(a->score, 0, (size_t)(2 * width) * sizeof *a->score);
    for (int64_t i = 0; i < a->n_one; i++) {
        double end = corrected(&c, a->one[i].end);
        for (int64_t b = 0; b < width; b++) {
            int64_t j = i + s->by + b - BAND;
            uint8_t *step = &a->step[i * width + b];
            float up = b + 1 < width ? before[b + 1] : 0, left = b > 0 ? now[b - 1] : 0;
            now[b] = up > left ? up : left;
            *step = up > left ? STEP_ONE : STEP_ALL;
            if (j < 0 || j >= a->n_all || a->all[j].what != a->one[i].what) continue;
            double worth = 1 - fabs(a->all[j].end - end) / far;
            if (worth <= 0 || before[b] + (float)worth <= now[b]) continue;
            now[b] = before[b] + (float)worth;
            *step = STEP_MATCH;
        }
        float *t = before;
        before = now;
        now = t;
    }
    for (int64_t i = 0; i < a->n_one; i++) a->match[i] = -1;
    /* Walks back from the last cell. Column b of row i is entry i + by + b - BAND of `all`, so a
     * step to the previous row keeps the diagonal. */
    for (int64_t i = a->n_one - 1, b = width - 1; i >= 0 && b >= 0;) {
        uint8_t step = a->step[i * width + b];
        if (step == STEP_MATCH) a->match[i] = i + s->by + b - BAND;
        if (step == STEP_ALL)
            b--;
        else
            i--, b += step == STEP_ONE;
        if (b >= width) break;
    }
    for (int64_t i = 0; i < a->n_one; i++) a->one[i].end = corrected(&c, a->one[i].end);
}

/* Adds to `all` the entries of `one` that it lacks, by time between those that match. Sets the
 * slots of `one`; new entries get new slots. */
static void merge_sequences(Align *a, int64_t *slots)
{
    int64_t n = 0, next = 0, to = -1; /* to: the entry of `all` that matches next */
    for (int64_t i = 0; i <= a->n_one; i++) {
        int64_t match = i < a->n_one ? a->match[i] : a->n_all;
        if (i == 0 || a->match[i - 1] >= 0) to = match;
        for (int64_t k = i + 1; to < 0; k++) to = k < a->n_one ? a->match[k] : a->n_all;
        while (next < to && (match >= 0 || a->all[next].end < a->one[i].end))
            a->merged[n++] = a->all[next++];
        if (i == a->n_one) break;
        a->one[i].slot = match >= 0 ? a->all[next].slot : (*slots)++;
        a->merged[n++] = match >= 0 ? a->all[next++] : a->one[i];
    }
    Entry *t = a->all;
    a->all = a->merged;
    a->merged = t;
    a->n_all = n;
}

/* ---- a group ---- */

/* Returns a time on the common clock, as far as the rank's clock is known. Traces count from
 * different base times, which are removed first. */
static double common_time(const Collectives *c, const CollectiveCall *x, double t)
{
    const CollectiveRank *r = &c->ranks[x->rank];
    if (c->options.rules->by_position) return t;
    t += (double)(r->base_ns - c->ranks[0].base_ns) / 1000;
    return t + r->offset_us + r->drift * (t - r->at);
}

/* Returns a hash of what is called. Sizes are left out for kinds in which ranks may bring different
 * ones. Kernels of a CUDA graph have no record, so only their name counts. */
static uint64_t call_hash(const CollectiveCall *x)
{
    static const uint64_t MIX = 0x9E3779B97F4A7C15u;
    bool sizes =
        x->kind <= ALL_GATHER || x->kind == BROADCAST || x->kind == REDUCE || x->kind == SEND_RECV;
    uint64_t elements =
        (uint64_t)(x->what.in_elements > x->what.out_elements ? x->what.in_elements
                                                              : x->what.out_elements);
    if (x->what.name == 0) return x->kernel * MIX;
    return (((uint64_t)x->kind + 1) * MIX ^ x->what.dtype) * MIX ^ (sizes ? elements * MIX : 0);
}

static Status align_init(Align *a, const CollectiveGroup *g, int64_t longest)
{
    Arena *arena = a->arena;
    TRY(ARENA_NEW(arena, g->calls, &a->all));
    TRY(ARENA_NEW(arena, g->calls, &a->merged));
    TRY(ARENA_NEW(arena, longest, &a->one));
    TRY(ARENA_NEW(arena, longest, &a->match));
    TRY(ARENA_NEW(arena, longest, &a->pair));
    TRY(ARENA_NEW(arena, 2 * SHIFT_MAX + 1, &a->shift));
    TRY(ARENA_NEW(arena, longest + 1, &a->scratch));
    TRY(ARENA_NEW(arena, 2 * (2 * BAND + 1), &a->score));
    return ARENA_NEW(arena, longest * (2 * BAND + 1), &a->step);
}

/* Aligns the calls of one rank with those of the ranks before, and adds what they lack. */
static void join_rank(Collectives *c, Align *a, CollectiveCall *call, int64_t n, int64_t *slots)
{
    for (int64_t i = 0; i < n; i++) {
        a->one[i] = (Entry){ .end = common_time(c, &call[i], call[i].ts + call[i].dur),
                             .what = call_hash(&call[i]) };
        a->match[i] = -1;
    }
    a->n_one = n;
    if (a->n_all > 0) {
        Shift s = best_shift(a);
        if (s.equal > 0) match_sequences(a, &s);
    }
    merge_sequences(a, slots);
    for (int64_t i = 0; i < n; i++) call[i].slot = a->one[i].slot;
}

/* Matches the calls of a group. Begins with the rank that has most calls, since the others most
 * likely fit into it. Slots are numbered as they are found; at the end they are renumbered by
 * time. */
static Status match_group(Collectives *c, CollectiveGroup *g)
{
    CollectiveCall *call = &c->calls[g->call];
    int64_t longest = 0, first = 0, slots = 0, *position = NULL;
    Align a = { .arena = c->arena };
    ArenaMark mark = arena_mark(c->arena);
    for (int64_t i = 0, n = 0; i < g->calls; i++) {
        n = i > 0 && call[i].rank == call[i - 1].rank ? n + 1 : 1;
        if (n > longest) longest = n, first = i + 1 - n;
        if (c->options.rules->by_position) call[i].slot = n - 1;
    }
    /* By position, the k-th calls of all ranks are one collective, so the longest sequence
     * decides. */
    g->slots = longest;
    if (c->options.rules->by_position) return OK;
    TRY(align_init(&a, g, longest));
    join_rank(c, &a, call + first, longest, &slots);
    for (int64_t i = 0, n = 0; i < g->calls; i += n) {
        for (n = 1; i + n < g->calls && call[i + n].rank == call[i].rank;) n++;
        if (i != first) join_rank(c, &a, call + i, n, &slots);
    }
    TRY(ARENA_NEW(c->arena, slots, &position));
    /* `all` is in the order of time */
    for (int64_t k = 0; k < slots; k++) position[a.all[k].slot] = k;
    for (int64_t i = 0; i < g->calls; i++) call[i].slot = position[call[i].slot];
    g->slots = slots;
    arena_release(c->arena, mark);
    return OK;
}

/* Before the match all slots are equal, so calls come by rank and time. After it, by slot and
 * rank. */
static int by_group(const void *a, const void *b)
{
    const CollectiveCall *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1; /* equal before the match */
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Makes a group for each key and sorts the calls by group. of_key: a key's group + 1. */
static Status group_calls(Collectives *c)
{
    int32_t *of_key = NULL;
    TRY(ARENA_ZEROED(c->arena, c->strings.n, &of_key));
    for (int64_t i = 0; i < c->n_calls; i++) {
        CollectiveCall *x = &c->calls[i];
        if (of_key[x->key] == 0) {
            TRY(ARENA_GROW(c->arena, c->n_groups + 1, &c->room_groups, &c->groups));
            c->groups[c->n_groups++] = (CollectiveGroup){ .key = x->key };
            of_key[x->key] = (int32_t)c->n_groups;
        }
        x->group = of_key[x->key] - 1;
        c->groups[x->group].calls++;
    }
    for (int64_t i = 1; i < c->n_groups; i++)
        c->groups[i].call = c->groups[i - 1].call + c->groups[i - 1].calls;
    qsort(c->calls, (size_t)c->n_calls, sizeof *c->calls, by_group);
    return OK;
}

/* Slots of a group are numbered from 0 by match_group; here they become rows of c->slots. */
Status collectives_match(Collectives *c)
{
    TRY(group_calls(c));
    for (int64_t i = 0; i < c->n_groups; i++) {
        TRY(match_group(c, &c->groups[i]));
        c->groups[i].slot = c->n_slots;
        c->n_slots += c->groups[i].slots;
    }
    qsort(c->calls, (size_t)c->n_calls, sizeof *c->calls, by_group);
    TRY(ARENA_ZEROED(c->arena, c->n_slots, &c->slots));
    for (int64_t i = 0; i < c->n_calls; i++) {
        CollectiveCall *x = &c->calls[i];
        CollectiveSlot *s = &c->slots[c->groups[x->group].slot + x->slot];
        if (s->calls++ == 0) *s = (CollectiveSlot){ i, 1, x->slot, .group = x->group };
        x->slot = s - c->slots;
    }
    return OK;
}

/* ---- clocks of the ranks ---- */

/* Pairs the end of each of a rank's calls with the mean end on the ranks whose clocks are known. */
static int64_t pairs_with(const Collectives *c, int64_t rank, const bool *known, bool any_kind,
                          Pair *pair)
{
    int64_t n = 0;
    const CollectiveRank *r = &c->ranks[rank];
    for (int64_t i = r->call; i < r->call + r->calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveSlot *s = &c->slots[x->slot];
        double sum = 0, mine = common_time(c, x, x->ts + x->dur);
        int64_t others = 0;
        if (!any_kind && !collective_rule[x->kind].ends_together) continue;
        for (int64_t k = s->call; k < s->call + s->calls; k++) {
            const CollectiveCall *y = &c->calls[k];
            if (!known[y->rank]) continue;
            sum += common_time(c, y, y->ts + y->dur) - mine;
            others++;
        }
        if (others > 0) pair[n++] = (Pair){ mine, sum / (double)others };
    }
    return n;
}

/* Sets the clocks, starting from the first rank, by collectives shared with ranks whose clocks are
 * known. Each round takes all ranks that can be reached, so chains, along which errors add up, are
 * short. Sends, and other kinds that do not end together, count only if nothing else connects a
 * rank. A rank that nothing connects keeps its clock. */
Status collectives_clocks(Collectives *c)
{
    /* next: known after this round */
    bool *known = NULL, *next = NULL;
    Pair *pair = NULL;
    double *scratch = NULL;
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &known));
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &next));
    TRY(ARENA_NEW(c->arena, c->n_calls, &pair));
    TRY(ARENA_NEW(c->arena, c->n_calls, &scratch));
    next[0] = known[0] = true;
    for (int any_kind = 0; any_kind < 2;) {
        bool found = false;
        for (int64_t r = 0; r < c->n_ranks; r++) {
            int64_t n = known[r] ? 0 : pairs_with(c, r, known, any_kind, pair);
            if (n == 0) continue;
            Clock k = fit_clock(pair, n, scratch);
            CollectiveRank *rank = &c->ranks[r];
            rank->at = k.at;
            rank->offset_us = k.offset;
            rank->drift = k.drift;
            rank->spread_us = k.spread;
            rank->points = n;
            found = next[r] = true;
        }
        memcpy(known, next, (size_t)c->n_ranks * sizeof *known);
        any_kind = found ? 0 : any_kind + 1;
    }
    for (int64_t i = 0; i < c->n_calls; i++) {
        CollectiveCall *x = &c->calls[i];
        x->start = common_time(c, x, x->ts);
        x->end = common_time(c, x, x->ts + x->dur);
    }
    return OK;
}
