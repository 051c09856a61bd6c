/* found: ordered lists of rows, into which each row is inserted by rank. */
#include "planner/search/found.h"

#include <math.h>
#include <string.h>

/* A point of the front is so much faster than the one with less memory: plans are not exact to less. */
static const double GAIN = 1.01;

/* Scale-up domains that a group of `ranks` GPUs with this stride spans. */
static int64_t domains_of(const Found *f, int64_t ranks, int64_t stride)
{
    return ranks <= 1 ? 1 : (ranks * stride + f->domain - 1) / f->domain;
}

/* The order of the best: speed, then domains spanned (search.h), then memory, then number, so it is total. */
static bool is_better(const Found *f, const SearchRow *a, const SearchRow *b)
{
    const PlanLayout *l = &a->layout, *m = &b->layout;
    double x = a->price.tokens_per_s_per_gpu, y = b->price.tokens_per_s_per_gpu;
    if (x != y) return x > y;
    const int64_t more[] = {
        domains_of(f, plan_expert_ranks(l), 1) - domains_of(f, plan_expert_ranks(m), 1),
        domains_of(f, l->cp, l->tp) - domains_of(f, m->cp, m->tp),
        domains_of(f, l->pp, l->dp * l->cp * l->tp) - domains_of(f, m->pp, m->dp * m->cp * m->tp)
    };
    for (int i = 0; i < 3; i++)
        if (more[i] != 0) return more[i] < 0;
    if (a->price.peak_bytes != b->price.peak_bytes)
        return a->price.peak_bytes < b->price.peak_bytes;
    return a->id < b->id;
}

/* How far two layouts are from each other: the number of axes on which they differ. */
int found_differences(const PlanLayout *a, const PlanLayout *b)
{
    return (a->pp != b->pp) + (a->vpp != b->vpp) + (a->ep != b->ep) + (a->cp != b->cp) +
           (a->tp != b->tp) + (a->zero != b->zero) + (a->shard != b->shard) +
           (a->micro_batch != b->micro_batch) + (a->schedule != b->schedule) +
           (a->recompute != b->recompute);
}

/* A schedule as a bit of SearchRow.also. */
static unsigned schedule_bit(const SearchRow *row)
{
    return 1u << (row->layout.schedule - schedule_table);
}

/* Do two rows differ in their schedule alone? */
static bool differ_in_schedule(const SearchRow *a, const SearchRow *b)
{
    PlanLayout other = b->layout;
    other.schedule = a->layout.schedule;
    return a->price.step_s == b->price.step_s && a->price.peak_bytes == b->price.peak_bytes &&
           a->buffers == b->buffers && found_differences(&a->layout, &other) == 0 &&
           a->layout.recompute_blocks == other.recompute_blocks;
}

/* Joins two rows that differ in their schedule alone into one that names both schedules. */
static SearchRow join_rows(const SearchRow *a, const SearchRow *b)
{
    SearchRow row = a->id < b->id ? *a : *b;
    row.also = (a->also | b->also | schedule_bit(a) | schedule_bit(b)) & ~schedule_bit(&row);
    return row;
}

void found_add(Found *f, const SearchRow *added)
{
    SearchRow row = *added;
    for (int i = 0; i < f->n_best; i++) {
        if (!differ_in_schedule(&f->best[i], added)) continue;
        row = join_rows(&f->best[i], added);
        f->n_best--;
        memmove(&f->best[i], &f->best[i + 1], (size_t)(f->n_best - i) * sizeof row);
        break;
    }
    int at = f->n_best;
    while (at > 0 && is_better(f, &row, &f->best[at - 1])) at--;
    if (at == f->cap) return;
    int moved = (f->n_best < f->cap ? f->n_best : f->cap - 1) - at;
    memmove(&f->best[at + 1], &f->best[at], (size_t)moved * sizeof row);
    f->best[at] = row;
    f->n_best = at + moved + 1;
}

/* Number of points of the front with at most this memory. */
static int front_within(const Found *f, double bytes)
{
    int low = 0, high = f->n_front;
    while (low < high) {
        int middle = (low + high) / 2;
        if (f->front[middle].price.peak_bytes <= bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void found_thin_front(Found *f, int most)
{
    while (f->n_front > most) {
        int least = 1;
        double gain = INFINITY;
        for (int i = 1; i < f->n_front; i++) {
            const double g = f->front[i - 1].price.step_s / f->front[i].price.step_s;
            if (g < gain) gain = g, least = i;
        }
        f->n_front--;
        memmove(&f->front[least], &f->front[least + 1],
                (size_t)(f->n_front - least) * sizeof *f->front);
    }
}

/* Inserts a row into the front, which is sorted by rising memory and falling time, and drops the rows that it
 * dominates. */
void found_add_to_front(Found *f, const SearchRow *row)
{
    int at = front_within(f, row->price.peak_bytes), end = at;
    if (at > 0 && differ_in_schedule(&f->front[at - 1], row)) {
        f->front[at - 1] = join_rows(&f->front[at - 1], row);
        return;
    }
    if (at > 0 && f->front[at - 1].price.step_s <= GAIN * row->price.step_s) return;
    if (at > 0 && f->front[at - 1].price.peak_bytes == row->price.peak_bytes) at--;
    while (end < f->n_front && GAIN * f->front[end].price.step_s >= row->price.step_s) end++;
    memmove(&f->front[at + 1], &f->front[end], (size_t)(f->n_front - end) * sizeof *row);
    f->front[at] = *row;
    f->n_front += 1 - (end - at);
    found_thin_front(f, FOUND_FRONT_MAX - 1);
}

/* Keeps the row with the least memory among those that do not fit, of equal ones that with the lower number. */
void found_add_nearest(Found *f, const SearchRow *row)
{
    if (row->layout.pp == 0) return;
    double less = f->nearest.price.peak_bytes - row->price.peak_bytes;
    if (f->nearest.layout.pp == 0 || less > 0 || (less == 0 && row->id < f->nearest.id))
        f->nearest = *row;
}

double found_best_s(const Found *f)
{
    return f->n_best < f->cap ? (double)INFINITY : f->best[f->n_best - 1].price.step_s;
}

double found_front_s(const Found *f, double bytes)
{
    const int n = front_within(f, bytes);
    if (n == 0) return (double)INFINITY;
    const PlanPrice *p = &f->front[n - 1].price;
    return p->peak_bytes < bytes ? p->step_s / GAIN : p->step_s; /* an equal row joins it */
}

Status found_init(Found *f, const Hardware *h, int cap, Arena *a)
{
    *f = (Found){ .cap = cap, .domain = (int64_t)fmax(1, h->scale_up_gpus) };
    if (cap > 0) TRY(ARENA_ZEROED(a, cap, &f->best));
    return ARENA_ZEROED(a, FOUND_FRONT_MAX, &f->front);
}
