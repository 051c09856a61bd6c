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
#include "analyze/collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHIFT_MAX = 2048, /* collectives by which two windows may differ */
    SAMPLE = 64,      /* pairs that judge a shift */
    BAND = 48,        /* kernels that may be lost in a row */
    DRIFT_POINTS = 16,
    DRIFT_SIGMAS = 20 /* of five standard errors, four each */
};

/* ---- a clock from pairs of ends ---- */

typedef struct Pair {
    double at, ahead; /* a time, and by how much the other clock is ahead then */
} Pair;

typedef struct Clock {
    double at, offset, drift, spread;
} Clock;

static int by_at(const void *a, const void *b)
{
    const Pair *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static double corrected(const Clock *c, double t) { return t + c->offset + c->drift * (t - c->at); }

static double spread_of(const Clock *c, const Pair *p, int64_t n, double *room)
{
    for (int64_t i = 0; i < n; i++) room[i] = fabs(corrected(c, p[i].at) - p[i].at - p[i].ahead);
    return 1.4826 * median_of(room, n); /* sigma, if it were a normal distribution */
}

static void fit_offset(Clock *c, const Pair *p, int64_t n, double *room)
{
    for (int64_t i = 0; i < n; i++) room[i] = p[i].ahead - c->drift * (p[i].at - c->at);
    c->offset = median_of(room, n);
    c->spread = spread_of(c, p, n, room);
}

/* The offset is the median of the pairs. The drift is the median slope between pairs half a window
 * apart. It is kept only if it stands out of the noise and explains most of it: few points in a short
 * window would give any drift, and a lost kernel is a step. Medians are right while fewer than half of
 * the points are wrong. */
static Clock fit_clock(Pair *p, int64_t n, double *room)
{
    Clock still = { .at = n > 0 ? p[0].at : 0 }, moving = still;
    int64_t half = n / 2, slopes = 0;
    fit_offset(&still, p, n, room);
    if (n < DRIFT_POINTS) return still;
    qsort(p, (size_t)n, sizeof *p, by_at);
    for (int64_t i = 0; i + half < n; i++) {
        double span = p[i + half].at - p[i].at;
        if (span > 0) room[slopes++] = (p[i + half].ahead - p[i].ahead) / span;
    }
    if (slopes == 0) return still;
    moving.drift = median_of(room, slopes);
    fit_offset(&moving, p, n, room);
    double path = fabs(moving.drift) * (p[n - 1].at - p[0].at) * sqrt((double)n);
    return path > DRIFT_SIGMAS * fmax(moving.spread, 0.1) && 2 * moving.spread < still.spread
               ? moving
               : still;
}

/* ---- two sequences ---- */

typedef struct Entry {
    double end;
    uint64_t what; /* calls that may be one collective have the same */
    int64_t slot;
} Entry;

typedef struct Shift {
    int64_t by, equal;
    double offset, spread;
} Shift;

typedef struct Align {
    Entry *all, *one, *merged; /* of the ranks so far; of the next rank; of both */
    int64_t n_all, n_one;
    double *room;
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

/* Takes the ends of at most `at_most` equal entries, evenly spread. Returns how many. */
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

/* Finds the best shift. Training steps repeat, so many shifts have equal entries. Of those with at least
 * half of the most, takes one at which all ends differ by about the same. Then the one with most
 * equal entries counts, then the one with the smallest clock offset. */
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
        Clock c = fit_clock(a->pair, pairs_at(a, &s[i], SAMPLE), a->room);
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

static double usual_interval(const Align *a)
{
    for (int64_t i = 1; i < a->n_one; i++) a->room[i - 1] = a->one[i].end - a->one[i - 1].end;
    return a->n_one < 2 ? 0 : fabs(median_of(a->room, a->n_one - 1));
}

/* How the subsequence goes on: both entries match, or one of the sequences has an entry more. */
enum { STEP_MATCH, STEP_ONE, STEP_ALL };

/* The longest common subsequence within BAND of the shift. A match is worth 1 if its ends agree, less if
 * they do not, and nothing if they are as far apart as one collective is from the next. */
static void match_sequences(Align *a, const Shift *s)
{
    const int64_t width = 2 * BAND + 1;
    Clock c = fit_clock(a->pair, pairs_at(a, s, s->equal), a->room);
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

/* Adds to `all` the entries that it lacks, by time between those that match. Sets the slots of `one`. */
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

static double on_common(const Collectives *c, const CollectiveCall *x, double t)
{
    const CollectiveRank *r = &c->ranks[x->rank];
    if (c->options.rules->by_position) return t;
    t += (double)(r->base_ns - c->ranks[0].base_ns) / 1000;
    return t + r->offset_us + r->drift * (t - r->at);
}

/* A hash of what is called. Sizes are left out for kinds in which ranks may bring different ones. The
 * kernels of a CUDA graph have nothing but their name. */
static uint64_t what_of(const CollectiveCall *x)
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
    TRY(ARENA_NEW(arena, longest + 1, &a->room));
    TRY(ARENA_NEW(arena, 2 * (2 * BAND + 1), &a->score));
    return ARENA_NEW(arena, longest * (2 * BAND + 1), &a->step);
}

/* Adds the calls of one rank to those of the ranks before. */
static void join_rank(Collectives *c, Align *a, CollectiveCall *call, int64_t n, int64_t *slots)
{
    for (int64_t i = 0; i < n; i++) {
        a->one[i] = (Entry){ .end = on_common(c, &call[i], call[i].ts + call[i].dur),
                             .what = what_of(&call[i]) };
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

/* Begins with the rank that has most calls, since the others are most likely to fit into it. */
static Status match_group(Collectives *c, CollectiveGroup *g)
{
    CollectiveCall *call = &c->calls[g->call];
    int64_t longest = 0, first = 0, slots = 0, *place = NULL;
    Align a = { .arena = c->arena };
    ArenaMark mark = arena_mark(c->arena);
    for (int64_t i = 0, n = 0; i < g->calls; i++) {
        n = i > 0 && call[i].rank == call[i - 1].rank ? n + 1 : 1;
        if (n > longest) longest = n, first = i + 1 - n;
        if (c->options.rules->by_position) call[i].slot = n - 1;
    }
    g->slots = longest;
    if (c->options.rules->by_position) return OK;
    TRY(align_init(&a, g, longest));
    join_rank(c, &a, call + first, longest, &slots);
    for (int64_t i = 0, n = 0; i < g->calls; i += n) {
        for (n = 1; i + n < g->calls && call[i + n].rank == call[i].rank;) n++;
        if (i != first) join_rank(c, &a, call + i, n, &slots);
    }
    TRY(ARENA_NEW(c->arena, slots, &place));
    for (int64_t k = 0; k < slots; k++) place[a.all[k].slot] = k;
    for (int64_t i = 0; i < g->calls; i++) call[i].slot = place[call[i].slot];
    g->slots = slots;
    arena_release(c->arena, mark);
    return OK;
}

static int by_group(const void *a, const void *b)
{
    const CollectiveCall *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1; /* equal before the match */
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

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

/* Pairs the ends of a rank's calls with the mean end on ranks whose clocks are known. */
static int64_t pairs_with(const Collectives *c, int64_t rank, const bool *known, bool any_kind,
                          Pair *pair)
{
    int64_t n = 0;
    const CollectiveRank *r = &c->ranks[rank];
    for (int64_t i = r->call; i < r->call + r->calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveSlot *s = &c->slots[x->slot];
        double sum = 0, mine = on_common(c, x, x->ts + x->dur);
        int64_t others = 0;
        if (!any_kind && !collective_rule[x->kind].ends_together) continue;
        for (int64_t k = s->call; k < s->call + s->calls; k++) {
            const CollectiveCall *y = &c->calls[k];
            if (!known[y->rank]) continue;
            sum += on_common(c, y, y->ts + y->dur) - mine;
            others++;
        }
        if (others > 0) pair[n++] = (Pair){ mine, sum / (double)others };
    }
    return n;
}

/* Sets the clocks, from the first rank on to ranks that share collectives with those already known.
 * Sends and others that do not end together count only if nothing else connects a rank. A rank that
 * nothing connects keeps its clock. */
Status collectives_clocks(Collectives *c)
{
    bool *known = NULL, *next = NULL;
    Pair *pair = NULL;
    double *room = NULL;
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &known));
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &next));
    TRY(ARENA_NEW(c->arena, c->n_calls, &pair));
    TRY(ARENA_NEW(c->arena, c->n_calls, &room));
    next[0] = known[0] = true;
    for (int any_kind = 0; any_kind < 2;) {
        bool found = false;
        for (int64_t r = 0; r < c->n_ranks; r++) {
            int64_t n = known[r] ? 0 : pairs_with(c, r, known, any_kind, pair);
            if (n == 0) continue;
            Clock k = fit_clock(pair, n, room);
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
        x->start = on_common(c, x, x->ts);
        x->end = on_common(c, x, x->ts + x->dur);
    }
    return OK;
}
