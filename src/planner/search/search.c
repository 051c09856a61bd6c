/* search: bounds all layouts, prices those that can win, and simulates the best. Threads share each round, and
 * results are added in the order of layouts after it: so the result does not depend on their number. */
#include "planner/search/search_private.h"

#include "engine/base/clock.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layouts of a round of prices, and rows that are simulated together. After each the results are merged: larger rounds
 * prune less, smaller ones wait more. */
enum { ROUND = 128, TOGETHER = 4, MESSAGE_BYTES = 2048 };

static const size_t CANDIDATE_BYTES = (size_t)16 << 30; /* reserved; only what is written counts */

/* Results: the best by tokens/s, the Pareto front of memory and time, and the layout closest to fitting. */
typedef struct Found {
    SearchRow *best, *front;
    int n_best, cap, n_front;
    int64_t domain;    /* GPUs of a scale-up domain */
    SearchRow nearest; /* layout.pp 0: none yet */
    SearchCounts count;
} Found;

/* A legal layout that may fit. id: its number in the order of all combinations. */
typedef struct Candidate {
    int64_t id;
    double bytes, step_s; /* bounds */
} Candidate;

/* The data of one thread. */
typedef struct Worker {
    Planner **planner; /* by index in the list of SEARCH_BUFFERS */
    Arena arena;
    Candidate *at;
    int64_t n, room;
    Found lean; /* only counts, and the nearest of what cannot fit */
    Status status;
    char message[MESSAGE_BYTES];
} Worker;

typedef struct Search {
    const PlanRequest *q;
    const SearchPricer *pricer;
    Progress *bar;
    SearchAxes axes;
    Config *config;       /* by index in the list of SEARCH_BUFFERS */
    PlanRequest *request; /* likewise */
    Worker *worker;
    int threads;
    double cap_bytes;
    Candidate *at; /* sorted by the bound of the time */
    int64_t n;
    Found all;
} Search;

/* ---- what was found ---- */

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
    for (int i = 0; i < 3; i++) {
        if (more[i] != 0) return more[i] < 0;
    }
    if (a->price.peak_bytes != b->price.peak_bytes)
        return a->price.peak_bytes < b->price.peak_bytes;
    return a->id < b->id;
}

/* How far two layouts are from each other: the number of axes on which they differ. */
static int count_differences(const PlanLayout *a, const PlanLayout *b)
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
           a->buffers == b->buffers && count_differences(&a->layout, &other) == 0 &&
           a->layout.recompute_blocks == other.recompute_blocks;
}

/* Joins two rows that differ in their schedule alone into one that names both schedules. */
static SearchRow join_rows(const SearchRow *a, const SearchRow *b)
{
    SearchRow row = a->id < b->id ? *a : *b;
    row.also = (a->also | b->also | schedule_bit(a) | schedule_bit(b)) & ~schedule_bit(&row);
    row.simulated = a->simulated && b->simulated;
    return row;
}

/* Inserts a row by rank. If an equal row with another schedule is there, joins both first. */
static void best_add(Found *f, const SearchRow *added)
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

/* Drops a point of a full front: the one that gains least time over its neighbour with less memory. */
static void front_thin(Found *f)
{
    int least = 1;
    double gain = INFINITY;
    for (int i = 1; i < f->n_front; i++) {
        double g = f->front[i - 1].price.step_s / f->front[i].price.step_s;
        if (g < gain) {
            gain = g;
            least = i;
        }
    }
    f->n_front--;
    memmove(&f->front[least], &f->front[least + 1],
            (size_t)(f->n_front - least) * sizeof *f->front);
}

/* Inserts a row into the front, which is sorted by rising memory and falling time, and drops the rows that it
 * dominates. */
static void front_add(Found *f, const SearchRow *row)
{
    int at = front_within(f, row->price.peak_bytes), end = at;
    if (at > 0 && differ_in_schedule(&f->front[at - 1], row)) {
        f->front[at - 1] = join_rows(&f->front[at - 1], row);
        return;
    }
    if (at > 0 && f->front[at - 1].price.step_s <= row->price.step_s) return;
    if (at > 0 && f->front[at - 1].price.peak_bytes == row->price.peak_bytes) at--;
    while (end < f->n_front && f->front[end].price.step_s >= row->price.step_s) end++;
    memmove(&f->front[at + 1], &f->front[end], (size_t)(f->n_front - end) * sizeof *row);
    f->front[at] = *row;
    f->n_front += 1 - (end - at);
    if (f->n_front == SEARCH_FRONT_MAX) front_thin(f);
}

/* Keeps the row with the least memory among those that do not fit, of equal ones that with the lower number. */
static void nearest_add(Found *f, const SearchRow *row)
{
    if (row->layout.pp == 0) return;
    double less = f->nearest.price.peak_bytes - row->price.peak_bytes;
    if (f->nearest.layout.pp == 0 || less > 0 || (less == 0 && row->id < f->nearest.id))
        f->nearest = *row;
}

static void found_add(Found *f, const SearchRow *row)
{
    if (!row->price.fits) {
        nearest_add(f, row);
        return;
    }
    best_add(f, row);
    front_add(f, row);
}

/* The longest step with which a layout of these bytes can be in the result (PlanLimit). With an equal time it may
 * join a row that is in it. */
static double limit_of(const void *found, double bytes)
{
    const Found *f = found;
    int n = front_within(f, bytes);
    if (f->n_best < f->cap || n == 0) return INFINITY;
    return fmax(f->best[f->n_best - 1].price.step_s, f->front[n - 1].price.step_s);
}

/* Both lists have their full size from the start, so adding never fails. */
static Status found_init(Found *f, const Search *s, int cap, Arena *a)
{
    *f = (Found){ .cap = cap, .domain = (int64_t)fmax(1, s->q->hardware->scale_up_gpus) };
    TRY(ARENA_ZEROED(a, cap, &f->best));
    return ARENA_ZEROED(a, SEARCH_FRONT_MAX, &f->front);
}

/* ---- threads ---- */

static int index_of(const ConfigInts *list, int64_t value)
{
    int at = 0;
    while (list->at[at] != value) at++;
    return at;
}

/* Planners keep what they counted and are not thread-safe: each thread has its own for each
 * configuration. */
static Planner *planner_of(const Search *s, int buffers)
{
    int at = index_of(&s->axes.axis[SEARCH_BUFFERS], buffers);
    return s->worker[omp_get_thread_num()].planner[at];
}

/* Keeps the first failure of a thread. Status records are thread-local, so the message is copied. */
static void keep_failure(Search *s, Status status)
{
    Worker *w = &s->worker[omp_get_thread_num()];
    if (status == OK || w->status != OK) return;
    w->status = status;
    (void)snprintf(w->message, MESSAGE_BYTES, "%s", status_message());
}

/* In the order of threads, with the thread's own sentence as the failure of this one. */
static Status first_failure(const Search *s)
{
    for (int t = 0; t < s->threads; t++) {
        const Worker *w = &s->worker[t];
        if (w->status != OK) return status_adopt(w->status, w->message);
    }
    return OK;
}

/* ---- bounds ---- */

static int64_t inner_count(const Search *s)
{
    return search_combinations(&s->axes, SEARCH_OUTER, SEARCH_AXES);
}

/* The layout with this number. Candidates keep only the number, to save memory. */
static SearchRow row_of(const Search *s, int64_t id)
{
    SearchRow row = { .id = id };
    int64_t n = inner_count(s);
    (void)search_decode_outer(s->q, &s->axes, id / n, &row.layout, &row.buffers);
    (void)search_decode_inner(s->q, &s->axes, id % n, &row.layout);
    return row;
}

/* Bounds all legal layouts that share the values of the outer axes. */
static Status bound_outer(Search *s, int64_t outer)
{
    SearchRow row = { 0 };
    Worker *w = &s->worker[omp_get_thread_num()];
    TRY(progress_add(s->bar, 1));
    if (!search_decode_outer(s->q, &s->axes, outer, &row.layout, &row.buffers)) return OK;
    Planner *p = planner_of(s, row.buffers);
    const int again = s->axes.axis[SEARCH_RECOMPUTE].n;
    for (int64_t i = 0, n = inner_count(s); i < n; i++) {
        double step_s;
        /* all ways to shard with one set of modules, then the next: a planner keeps what they share */
        int64_t id = i % (n / again) * again + i / (n / again);
        if (!search_decode_inner(s->q, &s->axes, id, &row.layout)) continue;
        if (s->pricer->legal(p, &row.layout) != OK) continue;
        TRY(s->pricer->bound(p, &row.layout, &row.price.peak_bytes, &step_s));
        row.id = outer * n + id;
        w->lean.count.legal++;
        if (row.price.peak_bytes > s->cap_bytes) {
            w->lean.count.pruned_memory++;
            nearest_add(&w->lean, &row);
            continue;
        }
        TRY(ARENA_GROW(&w->arena, w->n + 1, &w->room, &w->at));
        w->at[w->n++] = (Candidate){ row.id, row.price.peak_bytes, step_s };
    }
    status_clear();
    return OK;
}

/* Fastest bound first: good layouts are found early, and then most others are pruned. */
static int compare_bounds(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->step_s != y->step_s) return x->step_s < y->step_s ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Bounds all layouts in parallel, collects the candidates of all threads, and sorts them by time. The number breaks
 * ties, so the order does not depend on threads. */
static Status bound_all(Search *s, Arena *a)
{
    int64_t n = search_combinations(&s->axes, 0, SEARCH_OUTER);
    if (s->bar != NULL) s->bar->total = n;
#pragma omp parallel for schedule(dynamic, 64) num_threads(s->threads)
    for (int64_t i = 0; i < n; i++) keep_failure(s, bound_outer(s, i));
    TRY(first_failure(s));
    for (int t = 0; t < s->threads; t++) s->n += s->worker[t].n;
    TRY(ARENA_NEW(a, s->n, &s->at));
    Candidate *at = s->at;
    for (int t = 0; t < s->threads; t++) {
        Worker *w = &s->worker[t];
        for (int64_t i = 0; i < w->n; i++) *at++ = w->at[i];
        arena_free(&w->arena);
        s->all.count.legal += w->lean.count.legal;
        s->all.count.pruned_memory += w->lean.count.pruned_memory;
        nearest_add(&s->all, &w->lean.nearest);
    }
    if (s->n > 0) qsort(s->at, (size_t)s->n, sizeof *s->at, compare_bounds);
    return OK;
}

/* ---- prices ---- */

/* Layouts with the same Programs go to the same thread, so that each Program is made once. */
static int thread_of(const Search *s, const PlanLayout *l)
{
    int64_t micros = s->q->config->train_batch / (l->dp * l->micro_batch);
    int64_t key = ((micros * 61 + l->pp) * 31 + l->vpp) * 17 + (l->schedule - schedule_table);
    return (int)(key % 1009 % s->threads);
}

/* Prices up to ROUND layouts from *next on. If the pricer refuses a layout (ERR_ARG), it is only counted. */
static Status price_round(Search *s, int64_t *next)
{
    SearchRow row[ROUND];
    bool refused[ROUND] = { false };
    const PlanLimit limit = { limit_of, &s->all };
    int n = 0;
    for (; n < ROUND && *next < s->n; ++*next) {
        const Candidate *c = &s->at[*next];
        if (c->step_s <= limit_of(&s->all, c->bytes))
            row[n++] = row_of(s, c->id);
        else
            s->all.count.pruned_time++;
    }
#pragma omp parallel num_threads(s->threads)
    for (int i = 0; i < n; i++) {
        if (thread_of(s, &row[i].layout) != omp_get_thread_num()) continue;
        Planner *p = planner_of(s, row[i].buffers);
        Status status = s->pricer->price(p, &row[i].layout, &limit, &row[i].price);
        refused[i] = status == ERR_ARG;
        if (refused[i])
            status_clear();
        else
            keep_failure(s, status);
    }
    TRY(first_failure(s));
    for (int i = 0; i < n; i++) {
        s->all.count.refused += refused[i];
        s->all.count.priced += !refused[i];
        if (!refused[i]) found_add(&s->all, &row[i]);
    }
    return OK;
}

/* Splits a row into one for each of its schedules; the reverse of join_rows. */
static int split_schedules(const Search *s, const SearchRow *row, SearchRow *out)
{
    const ConfigInts *list = &s->axes.axis[SEARCH_SCHEDULE];
    int64_t turn = search_combinations(&s->axes, SEARCH_SCHEDULE + 1, SEARCH_AXES);
    int n = 0, own = index_of(list, row->layout.schedule - schedule_table);
    for (int i = 0; i < schedule_table_n; i++) {
        if (((schedule_bit(row) | row->also) >> i & 1) == 0) continue;
        out[n] = *row;
        out[n].also = 0;
        out[n].layout.schedule = &schedule_table[i];
        out[n++].id += (index_of(list, i) - own) * turn;
    }
    return n;
}

/* Simulates rows, a few at a time: by those that are in `seen` a pricer stops others. */
static Status simulate_rows(Search *s, SearchRow *row, int n, Found *seen)
{
    const PlanLimit limit = { limit_of, seen };
    for (int first = 0, end; first < n; first = end) {
        end = first + TOGETHER < n ? first + TOGETHER : n;
#pragma omp parallel for schedule(dynamic, 1) num_threads(s->threads)
        for (int i = first; i < end; i++) {
            Planner *p = planner_of(s, row[i].buffers);
            keep_failure(s, s->pricer->simulate(p, &row[i].layout, &limit, &row[i].price));
            row[i].simulated = true;
        }
        TRY(first_failure(s));
        for (int i = first; i < end; i++) found_add(seen, &row[i]);
    }
    return OK;
}

/* Is a simulated row faster than any of the rest can be? Where a list hides more than its price says, it takes less than
 * the estimate: by 0.2 % in what was looked at, where ranks of tp gather and sum behind each pass by up to 3.3 %. */
static bool is_decided(const Search *s, const SearchRow *row, int n, const SearchRow *rest,
                       int more)
{
    double least_s = INFINITY;
    for (int i = 0; i < more; i++) {
        const double share = rest[i].layout.tp > 1 && search_is_ours(s->q) ? 0.96 : 0.99;
        least_s = fmin(least_s, share * rest[i].price.step_s);
    }
    for (int i = 0; i < n; i++) {
        if (row[i].price.fits && row[i].price.step_s <= least_s) return true;
    }
    return false;
}

/* Adds the points of the front that are not among these rows. */
static void add_rest_of_front(const Search *s, const SearchRow *row, int n, Found *to)
{
    for (int i = 0; i < s->all.n_front; i++) {
        bool among = false;
        for (int k = 0; k < n; k++) among |= row[k].id == s->all.front[i].id;
        if (!among) front_add(to, &s->all.front[i]);
    }
}

/* Simulates rows in the order of their estimates, at least `top`, until no further one can be the best. Joined rows are
 * split first, because schedules with equal estimates differ once their lists are simulated. */
static Status simulate_best(Search *s, int top, Arena *a)
{
    const SearchRow *row = s->all.best;
    const int rows = s->all.n_best;
    SearchRow *all = NULL;
    Found seen;
    int n = 0, next = 0;
    TRY(found_init(&seen, s, top, a));
    add_rest_of_front(s, row, rows, &seen); /* these keep their estimates in any case */
    TRY(ARENA_NEW(a, rows * schedule_table_n, &all));
    while (next < rows && (next < top || !is_decided(s, all, n, &row[next], rows - next))) {
        int first = n, end = next + SEARCH_SIMULATED < rows ? next + SEARCH_SIMULATED : rows;
        for (; next < end; next++) n += split_schedules(s, &row[next], &all[n]);
        TRY(simulate_rows(s, &all[first], n - first, &seen));
    }
    s->all.best = all;
    s->all.n_best = n;
    return OK;
}

/* ---- the whole ---- */

/* A planner for each thread and each configuration of SEARCH_BUFFERS. */
static Status open_pricers(Search *s, Arena *a)
{
    const ConfigInts *buffers = &s->axes.axis[SEARCH_BUFFERS];
    TRY(ARENA_ZEROED(a, buffers->n, &s->config));
    TRY(ARENA_ZEROED(a, buffers->n, &s->request));
    TRY(ARENA_ZEROED(a, s->threads, &s->worker));
    for (int t = 0; t < s->threads; t++) {
        TRY(ARENA_ZEROED(a, buffers->n, &s->worker[t].planner));
        TRY(arena_reserve(&s->worker[t].arena, "candidates", CANDIDATE_BYTES));
    }
    for (int i = 0; i < buffers->n; i++) {
        s->config[i] = *s->q->config;
        search_configure(&s->config[i], buffers->at[i]);
        s->request[i] = *s->q;
        s->request[i].config = &s->config[i];
        for (int t = 0; t < s->threads; t++)
            TRY(s->pricer->open(&s->request[i], &s->worker[t].planner[i]));
    }
    return OK;
}

static void close_pricers(Search *s)
{
    for (int t = 0; t < s->threads && s->worker != NULL; t++) {
        Worker *w = &s->worker[t];
        for (int i = 0; w->planner != NULL && i < s->axes.axis[SEARCH_BUFFERS].n; i++)
            s->pricer->close(w->planner[i]);
        arena_free(&w->arena);
    }
}

/* If nothing fits, the nearest has only bounds so far; it is priced to say how much is lacking. */
static Status price_nearest(Search *s)
{
    SearchRow *r = &s->all.nearest;
    if (r->layout.pp == 0) return OK;
    return s->pricer->price(planner_of(s, r->buffers), &r->layout, NULL, &r->price);
}

/* Three stages: bounds of all layouts, prices of those that may win, simulations of the best. */
static Status search_all(Search *s, const SearchOptions *o, Arena *a, SearchResult *out)
{
    double start = clock_s();
    int cap = o->top > SEARCH_KEPT ? o->top : SEARCH_KEPT;
    TRY(open_pricers(s, a));
    TRY(found_init(&s->all, s, cap, a));
    TRY(bound_all(s, a));
    if (s->all.count.legal == 0) return search_why_none(s->q);
    if (s->bar != NULL) s->bar->total = s->n;
    for (int64_t next = 0; next < s->n;) {
        TRY(price_round(s, &next));
        TRY(progress_to(s->bar, next));
    }
    if (s->all.n_best == 0) TRY(price_nearest(s));
    *out = (SearchResult){ .nearest = s->all.nearest, .seconds = clock_s() - start };
    return simulate_best(s, o->top, a);
}

/* Replaces prices by simulated times, also in the front. */
static Status use_simulated(Search *s, const SearchOptions *o, Arena *a, SearchResult *out)
{
    Found f;
    TRY(found_init(&f, s, s->all.cap, a));
    for (int i = 0; i < s->all.n_best; i++) found_add(&f, &s->all.best[i]);
    add_rest_of_front(s, s->all.best, s->all.n_best, &f);
    out->best = f.best;
    out->n_best = f.n_best < o->top ? f.n_best : o->top;
    out->front = f.front;
    out->n_front = f.n_front;
    out->count = s->all.count;
    return OK;
}

Status search_run(const PlanRequest *q, const SearchOptions *o, Arena *a, SearchResult *out)
{
    Search s = { .q = q,
                 .pricer = o->pricer,
                 .axes = *o->axes,
                 .bar = o->bar,
                 .threads = o->threads > 0 ? o->threads : omp_get_num_procs() };
    s.cap_bytes = plan_room_bytes(q);
    if (o->top < 1 || o->top > SEARCH_TOP_MAX)
        return FAIL(ERR_ARG, "search: the best %d, legal are 1 to %d", o->top, SEARCH_TOP_MAX);
    search_axes_fill(q, &s.axes);
    Status status = search_all(&s, o, a, out);
    if (status == OK) status = use_simulated(&s, o, a, out);
    close_pricers(&s);
    return status;
}

/* Of several equally near ones the first: the best layouts stand before those of the front. */
const SearchRow *search_nearest(const SearchResult *r, const PlanLayout *l)
{
    const SearchRow *near = NULL;
    for (int i = 0; i < r->n_best + r->n_front; i++) {
        const SearchRow *row = i < r->n_best ? &r->best[i] : &r->front[i - r->n_best];
        if (near == NULL ||
            count_differences(&row->layout, l) < count_differences(&near->layout, l))
            near = row;
    }
    return near;
}
