/* worth: learns from simulations how far estimates are off, and picks what is simulated next. */
#include "planner/search/worth.h"

#include <math.h>
#include <stdlib.h>

enum { LEARNED = 8 };

/* HIDES: where a list hides more than its price says, it takes less than the estimate: by 0.2 % in what was looked at,
 * where ranks of tp gather and sum behind each pass by up to 3.3 %. KIND: margin below the least ratio of a kind.
 * COVER: of covering layouts with the same ZeRO stage, and with a lower one. */
static const double HIDES = 0.99, HIDES_TP = 0.96, KIND = 0.95, COVER = 0.99, COVER_ZERO = 0.96;

static const size_t ROWS_BYTES = (size_t)32 << 30; /* reserved; only what is written counts */

Status worth_init(Worth *w, bool own)
{
    *w = (Worth){ .own = own };
    TRY(arena_reserve(&w->arena, "priced layouts", ROWS_BYTES));
    TRY(ARENA_NEW(&w->arena, WORTH_BUCKETS, &w->bucket));
    TRY(ARENA_ZEROED(&w->arena, WORTH_KINDS, &w->kind));
    for (int i = 0; i < WORTH_BUCKETS; i++) w->bucket[i] = -1;
    return OK;
}

void worth_free(Worth *w) { arena_free(&w->arena); }

/* ---- kinds ---- */

/* By schedule and ZeRO stage; then also by sharding group and length of the pipeline. */
static WorthKind *kind_of(const Worth *w, const PlanLayout *l, bool close)
{
    const int schedule = (int)(l->schedule - schedule_table), stage = schedule * 4 + l->zero;
    int length = 0;
    while (length < WORTH_LENGTHS - 1 && 1 << length < l->pp) length++;
    if (!close) return &w->kind[stage];
    return &w->kind[WORTH_STAGES + (stage * 2 + (l->shard > 0)) * WORTH_LENGTHS + length];
}

double worth_sure(const Worth *w, const PlanLayout *l)
{
    double sure = !w->own ? 1 : l->tp > 1 ? HIDES_TP : HIDES;
    for (int close = 0; close < 2; close++) {
        const WorthKind *k = kind_of(w, l, close);
        if (k->n >= LEARNED) sure = fmax(sure, KIND * k->least);
    }
    return sure;
}

double worth_guess_s(const Worth *w, const WorthRow *r)
{
    double guess_s = r->estimate_s;
    for (int close = 0; close < 2; close++) {
        const WorthKind *k = kind_of(w, &r->row.layout, close);
        if (k->n > 0) guess_s = r->estimate_s * k->sum / k->n;
    }
    return fmax(guess_s, r->cover_s);
}

/* ---- covers ---- */

static int64_t *bucket_of(const Worth *w, const SearchRow *row)
{
    const PlanLayout *l = &row->layout;
    const int64_t part[] = { l->pp,    l->vpp,         l->ep,
                             l->cp,    l->tp,          l->schedule - schedule_table,
                             l->shard, l->micro_batch, row->buffers };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        hash = (hash ^ (uint64_t)part[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
    return &w->bucket[hash % WORTH_BUCKETS];
}

/* Does `a` recompute no more than `b`? */
static bool recomputes_less(const PlanLayout *a, const PlanLayout *b)
{
    bool all = b->recompute_blocks < 0;
    bool fewer = all || (a->recompute_blocks >= 0 && a->recompute_blocks <= b->recompute_blocks);
    return a->recompute == 0 || ((a->recompute & ~b->recompute) == 0 && fewer);
}

/* The least time of `b` if `a` covers it, else 0. */
static double covered_s(const WorthRow *a, const SearchRow *b)
{
    const PlanLayout *l = &a->row.layout, *m = &b->layout;
    bool same = l->pp == m->pp && l->vpp == m->vpp && l->ep == m->ep && l->cp == m->cp &&
                l->tp == m->tp && l->dp == m->dp && l->schedule == m->schedule &&
                l->shard == m->shard && l->micro_batch == m->micro_batch &&
                a->row.buffers == b->buffers;
    if (!a->simulated || !same || l->zero > m->zero || !recomputes_less(l, m)) return 0;
    return a->row.price.step_s * (l->zero == m->zero ? COVER : COVER_ZERO);
}

double worth_cover_s(const Worth *w, const SearchRow *row)
{
    double most = 0;
    for (int64_t i = *bucket_of(w, row); i >= 0; i = w->row[i].next)
        most = fmax(most, covered_s(&w->row[i], row));
    return most;
}

/* ---- rows ---- */

Status worth_add(Worth *w, const SearchRow *row)
{
    int64_t *bucket = bucket_of(w, row);
    TRY(ARENA_GROW(&w->arena, w->n + 1, &w->room, &w->row));
    w->row[w->n] = (WorthRow){ .row = *row,
                               .estimate_s = row->price.step_s,
                               .cover_s = worth_cover_s(w, row),
                               .next = *bucket };
    *bucket = w->n++;
    return OK;
}

void worth_learn(Worth *w, int64_t i, const PlanPrice *simulated)
{
    WorthRow *r = &w->row[i];
    const double ratio = simulated->step_s / r->estimate_s;
    r->row.price = *simulated;
    for (int close = 0; close < 2 && !r->simulated; close++) {
        WorthKind *k = kind_of(w, &r->row.layout, close);
        k->least = k->n == 0 ? ratio : fmin(k->least, ratio);
        k->sum += ratio;
        k->n++;
    }
    r->simulated = true;
    for (int64_t b = *bucket_of(w, &r->row); b >= 0; b = w->row[b].next) {
        WorthRow *other = &w->row[b];
        if (b != i) other->cover_s = fmax(other->cover_s, covered_s(r, &other->row));
    }
}

int worth_compare(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->step_s != y->step_s) return x->step_s < y->step_s ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

Status worth_pick(const Worth *w, double limit_s, int most, Arena *scratch, int64_t *out, int *n)
{
    Candidate *guess = NULL;
    int64_t found = 0;
    ArenaMark mark = arena_mark(scratch);
    TRY(ARENA_NEW(scratch, w->n + 1, &guess));
    for (int64_t i = 0; i < w->n; i++) {
        const WorthRow *r = &w->row[i];
        double least_s = fmax(r->cover_s, worth_sure(w, &r->row.layout) * r->estimate_s);
        if (r->simulated || least_s > limit_s) continue;
        guess[found++] = (Candidate){ worth_guess_s(w, r), 0, i };
    }
    qsort(guess, (size_t)found, sizeof *guess, worth_compare);
    *n = found < most ? (int)found : most;
    for (int i = 0; i < *n; i++) out[i] = guess[i].id;
    arena_release(scratch, mark);
    return OK;
}
