/* search: bounds all layouts, prices those that can win, and simulates those that are worth it (worth.h). Threads share
 * each round, and results are added in the order of layouts after it: so the result does not depend on their number. */
#include "planner/search/found.h"
#include "planner/search/search_private.h"
#include "planner/search/worth.h"

#include "engine/base/clock.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

/* ROUND: layouts that are priced together. After each round the results are merged: larger rounds prune less, smaller
 * ones wait more. TOGETHER: layouts that are simulated together. */
enum { ROUND = 128, TOGETHER = 16, MESSAGE_BYTES = 2048, STAGES = 4 };

static const double FLATTERS = 1.3;                     /* of front_limit_s */
static const size_t CANDIDATE_BYTES = (size_t)16 << 30; /* reserved; only what is written counts */

/* The data of one thread. */
typedef struct Worker {
    Planner **planner; /* by index in the list of SEARCH_BUFFERS */
    Arena arena;
    Candidate *at;
    int64_t n, room;
    Found lean; /* only the nearest of what cannot fit */
    SearchCounts count;
    Status status;
    char message[MESSAGE_BYTES];
} Worker;

/* seen: the best simulated rows. estimates: by ZeRO stage, the front of estimates. Stages have fronts of their own because estimates
 * of the higher ones are further off. */
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
    SearchCounts count;
    Worth worth;
    Found seen, estimates[STAGES];
} Search;

/* ---- threads ---- */

static int index_of(const ConfigInts *list, int64_t value)
{
    int at = 0;
    while (list->at[at] != value) at++;
    return at;
}

/* Planners keep what they counted and are not thread-safe: each thread has its own for each configuration. */
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

/* The layout with this number. Candidates keep only that, to save memory. */
static SearchRow row_of(const Search *s, int64_t id)
{
    SearchRow row = { .id = id };
    int64_t n = inner_count(s);
    search_set_outer(s->q, &s->axes, id / n, &row.layout, &row.buffers);
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
        status_mute(true); /* most combinations are not legal */
        const Status legal = s->pricer->legal(p, &row.layout);
        status_mute(false);
        if (legal != OK) continue;
        TRY(s->pricer->bound(p, &row.layout, &row.price.peak_bytes, &step_s));
        row.id = outer * n + id;
        w->count.legal++;
        if (row.price.peak_bytes > s->cap_bytes) {
            w->count.pruned_memory++;
            found_add_nearest(&w->lean, &row);
            continue;
        }
        TRY(ARENA_GROW(&w->arena, w->n + 1, &w->room, &w->at));
        w->at[w->n++] = (Candidate){ step_s, row.price.peak_bytes, row.id };
    }
    status_clear();
    return OK;
}

/* Bounds all layouts in parallel, collects the candidates of all threads, and sorts them by time: good layouts are found
 * early, and then most others are pruned. */
static Status bound_all(Search *s, Arena *a)
{
    int64_t n = search_combinations(&s->axes, 0, SEARCH_OUTER);
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
        s->count.legal += w->count.legal;
        s->count.pruned_memory += w->count.pruned_memory;
        found_add_nearest(&s->seen, &w->lean.nearest);
    }
    if (s->n > 0) qsort(s->at, (size_t)s->n, sizeof *s->at, worth_compare);
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

/* The longest estimate with this memory that may be on the front. Steps of ZeRO-0 and 1 took up to 1.27 of theirs. */
static double front_limit_s(const Search *s, int zero, double bytes)
{
    double most_s = found_front_s(&s->estimates[zero], bytes);
    for (int z = 0; z < 2 && zero >= 2; z++)
        most_s = fmin(most_s, FLATTERS * found_front_s(&s->estimates[z], bytes));
    return most_s;
}

/* The limit of a layout's estimate: beyond it the layout is neither among the best, whatever its simulation says, nor on the
 * front of estimates of its ZeRO stage. */
typedef struct Limit {
    const Search *s;
    const PlanLayout *layout;
} Limit;

static double estimate_limit_s(const void *self, double bytes)
{
    const Limit *x = self;
    const Search *s = x->s;
    double best_s = found_best_s(&s->seen) / worth_sure(&s->worth, x->layout);
    return fmax(best_s, front_limit_s(s, x->layout->zero, bytes));
}

/* Can a layout win, as far as its bounds and the layouts that cover it show? */
static bool may_win(const Search *s, const Candidate *c, const SearchRow *row)
{
    const Limit limit = { s, &row->layout };
    if (c->step_s > estimate_limit_s(&limit, c->bytes)) return false;
    return c->step_s <= front_limit_s(s, row->layout.zero, c->bytes) ||
           worth_cover_s(&s->worth, row) <= found_best_s(&s->seen);
}

/* Keeps a priced row unless its price shows that it cannot win: its time is then a bound. */
static Status add_priced(Search *s, const SearchRow *row)
{
    const Limit limit = { s, &row->layout };
    s->count.priced++;
    if (!row->price.fits) {
        found_add_nearest(&s->seen, row);
        return OK;
    }
    if (row->price.step_s > estimate_limit_s(&limit, row->price.peak_bytes)) return OK;
    found_add_to_front(&s->estimates[row->layout.zero], row);
    return worth_add(&s->worth, row);
}

/* Prices up to ROUND layouts from *next on. If the pricer refuses a layout (ERR_ARG), it is only counted. */
static Status price_round(Search *s, int64_t *next)
{
    SearchRow row[ROUND];
    bool refused[ROUND] = { false };
    int n = 0;
    for (; n < ROUND && *next < s->n; ++*next) {
        const Candidate *c = &s->at[*next];
        row[n] = row_of(s, c->id);
        if (may_win(s, c, &row[n]))
            n++;
        else
            s->count.pruned_time++;
    }
#pragma omp parallel num_threads(s->threads)
    for (int i = 0; i < n; i++) {
        if (thread_of(s, &row[i].layout) != omp_get_thread_num()) continue;
        Planner *p = planner_of(s, row[i].buffers);
        const Limit self = { s, &row[i].layout };
        const PlanLimit limit = { estimate_limit_s, &self };
        Status status = s->pricer->price(p, &row[i].layout, &limit, &row[i].price);
        refused[i] = status == ERR_ARG;
        if (refused[i])
            status_clear();
        else
            keep_failure(s, status);
    }
    TRY(first_failure(s));
    for (int i = 0; i < n; i++) {
        s->count.refused += refused[i];
        if (!refused[i]) TRY(add_priced(s, &row[i]));
    }
    return OK;
}

/* ---- simulations ---- */

/* Simulates these rows of `worth`. */
static Status simulate_rows(Search *s, const int64_t *at, int n)
{
    PlanPrice price[TOGETHER];
#pragma omp parallel for schedule(dynamic, 1) num_threads(s->threads)
    for (int i = 0; i < n; i++) {
        const SearchRow *row = &s->worth.row[at[i]].row;
        Planner *p = planner_of(s, row->buffers);
        keep_failure(s, s->pricer->simulate(p, &row->layout, NULL, &price[i]));
    }
    TRY(first_failure(s));
    for (int i = 0; i < n; i++) {
        worth_learn(&s->worth, at[i], &price[i]);
        found_add(&s->seen, &s->worth.row[at[i]].row);
    }
    s->count.simulated += n;
    return s->bar == NULL ? OK : progress_to(s->bar, s->count.simulated);
}

/* Up to TOGETHER of the rows that can be among the best. *n: how many. */
static Status simulate_some(Search *s, Arena *a, int *n)
{
    int64_t at[TOGETHER];
    TRY(worth_pick(&s->worth, found_best_s(&s->seen), TOGETHER, a, at, n));
    return simulate_rows(s, at, *n);
}

/* Prices what can win, and meanwhile simulates some: what these take prunes the others. Each time twice as many rows
 * are priced before more are simulated. */
static Status price_all(Search *s, Arena *a)
{
    for (int64_t next = 0, enough = ROUND; next < s->n;) {
        int n;
        TRY(price_round(s, &next));
        if (s->worth.n >= enough) TRY(simulate_some(s, a, &n));
        if (s->worth.n >= enough) enough = 2 * s->worth.n;
    }
    return OK;
}

static Status simulate_best(Search *s, Arena *a)
{
    for (int n = TOGETHER; n > 0;) TRY(simulate_some(s, a, &n));
    return OK;
}

/* The front of all rows, with what simulated ones take and what others may take. id: the number in `worth`. */
static Status guess_front(const Search *s, Arena *a, Found *out)
{
    TRY(found_init(out, s->q->hardware, 0, a));
    for (int64_t i = 0; i < s->worth.n; i++) {
        SearchRow row = s->worth.row[i].row;
        const WorthRow *r = &s->worth.row[i];
        row.id = i;
        if (!r->simulated) row.price.step_s = worth_guess_s(&s->worth, r);
        found_add_to_front(out, &row);
    }
    found_thin_front(out, SEARCH_FRONT_MAX);
    return OK;
}

/* Is a row the same as one of the front, but for its schedule, as far as estimates tell? */
static bool is_twin(const Search *s, const WorthRow *r, const Found *front)
{
    for (int i = 0; i < front->n_front; i++) {
        const WorthRow *on = &s->worth.row[front->front[i].id];
        if (r->estimate_s == on->estimate_s && r->row.layout.schedule != on->row.layout.schedule &&
            r->row.price.peak_bytes == on->row.price.peak_bytes &&
            found_differences(&r->row.layout, &on->row.layout) == 1)
            return true;
    }
    return false;
}

/* Simulates the rows of the front of guesses until all that are on it, and their twins, are simulated; then *out is
 * that front. A row that nobody guessed to be on the front can be missing. */
static Status simulate_front(Search *s, Arena *a, Found *out)
{
    for (int left = 1; left > 0;) {
        int64_t at[TOGETHER];
        ArenaMark mark = arena_mark(a);
        left = 0;
        TRY(guess_front(s, a, out));
        for (int i = 0; i < out->n_front && left < TOGETHER; i++) {
            const WorthRow *r = &s->worth.row[out->front[i].id];
            if (!r->simulated) at[left++] = out->front[i].id;
        }
        const int twins = left == 0 ? TOGETHER : 0;
        for (int64_t i = 0; i < s->worth.n && left < twins; i++) {
            const WorthRow *r = &s->worth.row[i];
            if (!r->simulated && is_twin(s, r, out)) at[left++] = i;
        }
        TRY(simulate_rows(s, at, left));
        if (left > 0) arena_release(a, mark);
    }
    for (int i = 0; i < out->n_front; i++) out->front[i].id = s->worth.row[out->front[i].id].row.id;
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
    SearchRow *r = &s->seen.nearest;
    if (r->layout.pp == 0) return OK;
    return s->pricer->price(planner_of(s, r->buffers), &r->layout, NULL, &r->price);
}

/* Begins a stage of the search that the bar shows by itself, as its pace is another one. total 0: not known. */
static void begin_stage(Search *s, const char *what, const char *unit, int64_t total)
{
    if (s->bar == NULL) return;
    s->bar->what = what, s->bar->unit = unit, s->bar->total = total;
    progress_next(s->bar);
}

/* Four stages: bounds of all layouts, prices of those that may win, simulations of the best and of the front. */
static Status search_all(Search *s, const SearchOptions *o, Arena *a, SearchResult *out)
{
    double start = clock_s();
    Found front;
    TRY(open_pricers(s, a));
    TRY(found_init(&s->seen, s->q->hardware, o->top, a));
    for (int i = 0; i < STAGES; i++) TRY(found_init(&s->estimates[i], s->q->hardware, 0, a));
    begin_stage(s, "search: bounds", "combinations",
                search_combinations(&s->axes, 0, SEARCH_OUTER));
    TRY(bound_all(s, a));
    if (s->count.legal == 0) return search_why_none(s->q);
    begin_stage(s, "search: prices, then simulations", "layouts simulated", 0);
    TRY(price_all(s, a));
    TRY(simulate_best(s, a));
    TRY(simulate_front(s, a, &front));
    if (s->seen.n_best == 0) TRY(price_nearest(s));
    *out = (SearchResult){ .best = s->seen.best,
                           .n_best = s->seen.n_best,
                           .front = front.front,
                           .n_front = front.n_front,
                           .nearest = s->seen.nearest,
                           .count = s->count,
                           .seconds = clock_s() - start };
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
    Status status = worth_init(&s.worth, search_is_ours(q));
    if (status == OK) status = search_all(&s, o, a, out);
    close_pricers(&s);
    worth_free(&s.worth);
    return status;
}

/* Of several equally near ones the first: the best layouts stand before those of the front. */
const SearchRow *search_nearest(const SearchResult *r, const PlanLayout *l)
{
    const SearchRow *near = NULL;
    for (int i = 0; i < r->n_best + r->n_front; i++) {
        const SearchRow *row = i < r->n_best ? &r->best[i] : &r->front[i - r->n_best];
        if (near == NULL ||
            found_differences(&row->layout, l) < found_differences(&near->layout, l))
            near = row;
    }
    return near;
}
