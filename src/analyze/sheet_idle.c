/*
 * sheet_idle: why the device had nothing to do.
 *
 * A gap is time between two pieces of device work. It ends when a piece of work starts. The call
 * that launched that work tells why it did not start earlier:
 *
 * - dependency: the call began before the gap. The work was queued and waited for a stream or event.
 * - synchronisation: the call began in the gap, and its thread had been in a synchronising call
 *   since before the gap. The host could not run ahead.
 * - host late: the call began in the gap for any other reason.
 *
 * Times are microseconds. How long the host itself waits is in sheet_delays.c.
 */
#include "analyze/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* See above; UNLINKED: the launch is not in the trace, so the cause is not known. */
typedef enum Cause { HOST_LATE, SYNCHRONISATION, DEPENDENCY, UNLINKED, CAUSES } Cause;
static const char *const CAUSE[CAUSES] = { "host late", "synchronisation", "dependency",
                                           "launch not in the trace" };

/* A gap, and what it is explained by. */
typedef struct Gap {
    double start, us;
    uint32_t next; /* the work that ends the gap */
    uint32_t sync; /* the synchronising call; EVENT_NONE */
    Cause cause;
} Gap;

typedef struct Gaps {
    Gap *at;
    int64_t n;
} Gaps;

/* ---- synchronising calls ---- */

static bool is_blocking_call(const char *name)
{
    static const char BLOCKING[] = "cudaMemcpy|hipMemcpy|hipMemcpyWithStream|cudaFree|hipFree";
    return strstr(name, "Synchronize") != NULL || text_word_index(BLOCKING, name) >= 0;
}

/* This is asked for every runtime call, so the answer is kept by name. */
bool report_is_sync(const Report *r, int64_t i)
{
    enum { NO = 1, YES = 2 };
    if (r->e->kind[i] != EVENT_RUNTIME && r->e->kind[i] != EVENT_DRIVER) return false;
    uint8_t *known = &r->sync[r->e->name[i]];
    if (*known == 0) *known = is_blocking_call(event_name(r->e, i)) ? YES : NO;
    return *known == YES;
}

/* All synchronising calls, by thread and time. */
typedef struct Syncs {
    const Events *e;
    uint32_t *at;
    int64_t n;
} Syncs;

static int by_thread(const void *a, const void *b, void *events)
{
    const uint32_t *x = a, *y = b;
    const Events *e = events;
    if (e->track[*x] != e->track[*y]) return e->track[*x] < e->track[*y] ? -1 : 1;
    return (e->ts[*x] > e->ts[*y]) - (e->ts[*x] < e->ts[*y]);
}

/* Lists the synchronising calls by thread and time, so that sync_before can search. */
static Status find_syncs(const Report *r, Syncs *s)
{
    Events e = *r->e; /* qsort_r takes no const */
    *s = (Syncs){ .e = r->e };
    int64_t n = 0;
    for (int64_t i = 0; i < e.n; i++) n += report_is_sync(r, i);
    TRY(ARENA_NEW(r->arena, n + 1, &s->at));
    for (int64_t i = 0; i < e.n; i++)
        if (report_is_sync(r, i)) s->at[s->n++] = (uint32_t)i;
    qsort_r(s->at, (size_t)n, sizeof *s->at, by_thread, &e);
    return OK;
}

/* The last synchronising call of the same thread that began before `call`. */
static uint32_t sync_before(const Syncs *s, uint32_t call)
{
    const Events *e = s->e;
    int64_t low = 0, high = s->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        uint32_t i = s->at[middle];
        bool before = e->track[i] < e->track[call] ||
                      (e->track[i] == e->track[call] && e->ts[i] < e->ts[call]);
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low > 0 && e->track[s->at[low - 1]] == e->track[call];
    return found ? s->at[low - 1] : EVENT_NONE;
}

/* ---- gaps ---- */

/* A synchronising call that ended before the gap does not explain it. */
static void explain_gap(const Report *r, const Syncs *s, Gap *g)
{
    uint32_t call = r->tree->parent[g->next];
    g->sync = EVENT_NONE;
    if (call == EVENT_NONE) {
        g->cause = UNLINKED;
        return;
    }
    g->cause = r->e->ts[call] < g->start ? DEPENDENCY : HOST_LATE;
    if (g->cause == DEPENDENCY) return;
    uint32_t sync = sync_before(s, call);
    if (sync == EVENT_NONE || event_end(r->e, sync) <= g->start) return;
    g->cause = SYNCHRONISATION;
    g->sync = sync;
}

/* Work is sorted by start, so one pass with the latest end so far finds all gaps. */
static Status find_gaps(const Report *r, Gaps *out)
{
    Syncs s;
    double end = -INFINITY;
    TRY(find_syncs(r, &s));
    *out = (Gaps){ 0 };
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &out->at));
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k];
        if (k > 0 && r->e->ts[i] > end) {
            Gap *g = &out->at[out->n++];
            *g = (Gap){ .start = end, .us = r->e->ts[i] - end, .next = i };
            explain_gap(r, &s, g);
        }
        end = fmax(end, event_end(r->e, i));
    }
    return OK;
}

/* Gaps of one cause. micro: those shorter than the limit. */
typedef struct CauseSum {
    int64_t n, micro;
    double us, micro_us, longest;
} CauseSum;

/* A row of sheet_idle_by_cause. idle NaN: the time is not part of the idle time between work. */
static Status put_cause(const char *name, const CauseSum *c, double idle, double wall, Table *out)
{
    return TABLE_ROW(out, cell_text(name), cell_whole(c->n), cell_number(c->us / 1e3),
                     isnan(idle) ? cell_none() : cell_number(percent_of(c->us, idle)),
                     cell_number(percent_of(c->us, wall)), cell_number(c->longest),
                     cell_whole(c->micro), cell_number(c->micro_us / 1e3));
}

/* The host may begin before the device and end after it. */
double report_wall(const Report *r)
{
    double start = r->gpus > 0 ? r->e->ts[r->gpu[0]] : (double)INFINITY, end = start + r->total_us;
    if (r->gpus == 0) end = -INFINITY;
    double wall = fmax(end, r->host_end) - fmin(start, r->host_start);
    return wall > 0 ? wall : 0;
}

/* Gaps shorter than 10 us, unless the options say otherwise, are micro gaps: a launch costs about
 * as much. */
Status sheet_idle_by_cause(Report *r, Table *out)
{
    static const double MICRO_US = 10;
    double limit = r->o->micro_idle_us > 0 ? r->o->micro_idle_us : MICRO_US, idle = 0;
    CauseSum sum[CAUSES] = { 0 };
    Gaps gaps;
    TRY(sheet_columns(r,
                      "cause|gaps|time ms|percent of idle|percent of wall|longest us|"
                      "micro gaps|micro time ms",
                      out));
    TRY(find_gaps(r, &gaps));
    for (int64_t k = 0; k < gaps.n; k++) {
        const Gap *g = &gaps.at[k];
        CauseSum *c = &sum[g->cause];
        idle += g->us;
        c->n++;
        c->us += g->us;
        c->longest = fmax(c->longest, g->us);
        if (g->us < limit) c->micro++, c->micro_us += g->us;
    }
    double wall = report_wall(r), first = r->e->ts[r->gpu[0]], last = first + r->total_us;
    for (int k = 0; k < CAUSES; k++) TRY(put_cause(CAUSE[k], &sum[k], idle, wall, out));
    CauseSum start = { .n = 1, .us = fmax(0, first - r->host_start) };
    CauseSum end = { .n = 1, .us = fmax(0, r->host_end - last) };
    start.longest = start.us, end.longest = end.us;
    TRY(put_cause("before the first work", &start, NAN, wall, out));
    return put_cause("after the last work", &end, NAN, wall, out);
}

/* whole[0]: all idle time between pieces of work. */
static Status fill_gaps(Report *r, FoldRows *rows)
{
    Gaps gaps;
    TRY(find_gaps(r, &gaps));
    rows->whole[0] = 0;
    for (int64_t k = 0; k < gaps.n; k++) {
        const Gap *g = &gaps.at[k];
        const uint32_t launcher = tree_launcher(r->tree, g->next);
        TRY(TABLE_ROW(&rows->t, cell_text(CAUSE[g->cause]),
                      cell_text(launcher == EVENT_NONE ? "" : event_name(r->e, launcher)),
                      cell_number(g->us)));
        rows->whole[0] += g->us;
    }
    return OK;
}

/* Idle time by its cause and by the operator whose work came next. */
Status sheet_idle_by_operator(Report *r, Table *out)
{
    static const Fold fold = { .rows = "cause|operator|us",
                               .keys = "cause|operator",
                               .by = "us",
                               .columns = "cause=first cause|operator=first operator|gaps=n|"
                                          "time ms=ms us|percent of idle=share0 us|"
                                          "mean us=mean us" };
    return report_fold(r, &fold, fill_gaps, NULL, out);
}

static Cell name_of(const Report *r, uint32_t event)
{
    return cell_text(event == EVENT_NONE ? NULL : event_name(r->e, event));
}

/* The longest gaps, one by one. */
Status sheet_idle_gaps(Report *r, Table *out)
{
    enum { LONGEST = 100 };
    Gaps gaps;
    double *us = NULL;
    uint32_t *order = NULL;
    TRY(sheet_columns(r,
                      "start us|time us|cause|next work|stream|launch|operator|"
                      "launch after start of gap us|synchronising call",
                      out));
    TRY(find_gaps(r, &gaps));
    TRY(ARENA_NEW(r->arena, gaps.n + 1, &us));
    for (int64_t k = 0; k < gaps.n; k++) us[k] = gaps.at[k].us;
    TRY(groups_by(us, gaps.n, r->arena, &order));
    for (int64_t k = 0; k < gaps.n && k < LONGEST; k++) {
        const Gap *g = &gaps.at[order[k]];
        uint32_t call = r->tree->parent[g->next], op = report_operator(r, call);
        TRY(TABLE_ROW(out, cell_number(g->start), cell_number(g->us), cell_text(CAUSE[g->cause]),
                      name_of(r, g->next), cell_whole(report_stream(r, g->next)), name_of(r, call),
                      name_of(r, op),
                      call == EVENT_NONE ? cell_none() : cell_number(r->e->ts[call] - g->start),
                      name_of(r, g->sync)));
    }
    return OK;
}
