/*
 * sheet_idle: why the device had nothing to do.
 *
 * A gap is time between two pieces of device work. It ends when a piece of work starts. The call
 * that launched that work tells why it did not start earlier:
 *
 * - dependency: the call began before the gap. The work was queued and waited for a stream or event.
 * - synchronisation: the call began in the gap, and its thread had been in a synchronising call
 *   since before the gap. The host could not run ahead.
 * - data loader: the call began in the gap, and its thread had spent most of the gap until then in the data
 *   loader. The host had no batch.
 * - host late: the call began in the gap for any other reason.
 *
 * Times are microseconds. How long the host itself waits is in sheet_delays.c.
 */
#include "traces/sheets/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const idle_cause[IDLE_CAUSES] = { "host late", "synchronisation", "dependency",
                                              "launch not in the trace", "data loader" };

/* A gap, and what it is explained by. */
typedef struct Gap {
    double start, us;
    uint32_t next; /* the work that ends the gap */
    uint32_t sync; /* the synchronising call; EVENT_NONE */
    IdleCause cause;
} Gap;

typedef struct Gaps {
    Gap *at;
    int64_t n;
} Gaps;

/* ---- calls that explain gaps ---- */

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

/* Some events of the host, by thread and time. */
typedef struct Calls {
    const Events *e;
    uint32_t *at;
    int64_t n;
} Calls;

static int by_thread(const void *a, const void *b, void *events)
{
    const uint32_t *x = a, *y = b;
    const Events *e = events;
    if (e->track[*x] != e->track[*y]) return e->track[*x] < e->track[*y] ? -1 : 1;
    return (e->ts[*x] > e->ts[*y]) - (e->ts[*x] < e->ts[*y]);
}

/* Is the host in the data loader in this event? Profilers write "enumerate(DataLoader)#..." or the file. */
static bool is_loading(const Report *r, int64_t i)
{
    uint8_t kind = r->e->kind[i];
    if (kind != EVENT_CPU_OP && kind != EVENT_ANNOTATION && kind != EVENT_PYTHON) return false;
    return strings_has_word(event_name(r->e, (uint32_t)i), "dataloader");
}

/* Lists the events that `takes` by thread and time, so that call_before can search. */
static Status find_calls(const Report *r, bool (*takes)(const Report *r, int64_t i), Calls *s)
{
    Events e = *r->e; /* qsort_r takes no const */
    int64_t room = 0;
    *s = (Calls){ .e = r->e };
    for (int64_t i = 0; i < e.n; i++) {
        if (!takes(r, i)) continue;
        TRY(ARENA_GROW(r->arena, s->n + 1, &room, &s->at));
        s->at[s->n++] = (uint32_t)i;
    }
    if (s->n > 0) qsort_r(s->at, (size_t)s->n, sizeof *s->at, by_thread, &e);
    return OK;
}

/* The last of these events on the thread of `call` that began before it. */
static uint32_t call_before(const Calls *s, uint32_t call)
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

/* What is looked up for each gap. */
typedef struct Causes {
    Calls syncs, loads;
} Causes;

/* ---- gaps ---- */

/* A synchronising call that ended before the gap does not explain it. */
static void explain_gap(const Report *r, const Causes *c, Gap *g)
{
    const Events *e = r->e;
    uint32_t call = r->tree->parent[g->next];
    g->sync = EVENT_NONE;
    if (call == EVENT_NONE) {
        g->cause = IDLE_UNLINKED;
        return;
    }
    g->cause = e->ts[call] < g->start ? IDLE_DEPENDENCY : IDLE_HOST_LATE;
    if (g->cause == IDLE_DEPENDENCY) return;
    uint32_t sync = call_before(&c->syncs, call), load = call_before(&c->loads, call);
    if (sync != EVENT_NONE && event_end(e, sync) > g->start) {
        g->cause = IDLE_SYNCHRONISATION;
        g->sync = sync;
    }
    if (load == EVENT_NONE) return;
    double late = e->ts[call] - g->start;
    double loading = fmin(event_end(e, load), e->ts[call]) - fmax(e->ts[load], g->start);
    if (loading > 0.5 * late) g->cause = IDLE_DATA_LOADER;
}

/* Work is sorted by start, so one pass with the latest end so far finds all gaps. */
static Status find_gaps(const Report *r, Gaps *out)
{
    Causes c;
    double end = -INFINITY;
    TRY(find_calls(r, report_is_sync, &c.syncs));
    TRY(find_calls(r, is_loading, &c.loads));
    *out = (Gaps){ 0 };
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &out->at));
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k];
        if (k > 0 && r->e->ts[i] > end) {
            Gap *g = &out->at[out->n++];
            *g = (Gap){ .start = end, .us = r->e->ts[i] - end, .next = i };
            explain_gap(r, &c, g);
        }
        end = fmax(end, event_end(r->e, i));
    }
    return OK;
}

Status report_idle(const Report *r, double us[IDLE_CAUSES])
{
    Gaps gaps;
    ArenaMark mark = arena_mark(r->arena);
    TRY(find_gaps(r, &gaps));
    memset(us, 0, IDLE_CAUSES * sizeof *us);
    for (int64_t k = 0; k < gaps.n; k++) us[gaps.at[k].cause] += gaps.at[k].us;
    arena_release(r->arena, mark);
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
    CauseSum sum[IDLE_CAUSES] = { 0 };
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
    for (int k = 0; k < IDLE_CAUSES; k++) TRY(put_cause(idle_cause[k], &sum[k], idle, wall, out));
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
        TRY(TABLE_ROW(&rows->t, cell_text(idle_cause[g->cause]),
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
        TRY(TABLE_ROW(out, cell_number(g->start), cell_number(g->us),
                      cell_text(idle_cause[g->cause]), name_of(r, g->next),
                      cell_whole(report_stream(r, g->next)), name_of(r, call), name_of(r, op),
                      call == EVENT_NONE ? cell_none() : cell_number(r->e->ts[call] - g->start),
                      name_of(r, g->sync)));
    }
    return OK;
}
