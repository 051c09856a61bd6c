/*
 * trace_library: the functions of libswitchyard_trace, over reader, tree and report. What they
 * promise is said in include/switchyard_trace.h.
 *
 * Each function checks its arguments, calls a static function that returns a Status, and turns that
 * into a result. Several threads may read one trace: what is made on demand is made under a lock.
 */
#include "traces/command/compat.h"
#include "traces/read/events_cut.h"
#include "traces/read/events_read.h"
#include "traces/read/recording.h"
#include "traces/sheets/report.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <switchyard_trace.h>

struct SwitchyardTrace {
    Arena arena; /* this record lies in it */
    Events events;
    Tree tree;
    ReportOptions options;
    Report report;
    pthread_mutex_t lock; /* guards what follows, and the arena once the trace is open */
    bool made, compat;
    Table table[REPORT_SHEETS_MOST];
    int tables;
};

/* ---- errors ---- */

static _Thread_local char sentence[1024]; /* of the thread's last error */

/* The sentence is copied out of the status record, which the next call may overwrite. */
static SwitchyardTraceResult result_of(Status s)
{
    if (s == OK) return SWITCHYARD_TRACE_OK;
    status_sentence(sentence, sizeof sentence);
    switch (s) {
    case ERR_ARG: return SWITCHYARD_TRACE_BAD_ARGUMENT;
    case ERR_IO: return SWITCHYARD_TRACE_CANNOT_READ;
    case ERR_FORMAT:
    case ERR_PARTIAL: return SWITCHYARD_TRACE_NOT_A_TRACE;
    case ERR_MEMORY: return SWITCHYARD_TRACE_NO_MEMORY;
    default: return SWITCHYARD_TRACE_FAILED;
    }
}

const char *switchyard_trace_error(void) { return sentence; }
int32_t switchyard_trace_version(void) { return SWITCHYARD_TRACE_VERSION; }

/* The caller is foreign code, so NULL is an error and not an assertion. */
static Status check_given(const char *function, const void *a, const void *b)
{
    if (a != NULL && b != NULL) return OK;
    return FAIL(ERR_ARG, "switchyard_trace_%s: a trace, a text or a place for the answer is NULL",
                function);
}

static Status check_index(const char *what, int64_t i, int64_t n)
{
    if (i >= 0 && i < n) return OK;
    return FAIL(ERR_ARG, "%s %lld is not there: there are %lld, counted from 0", what, (long long)i,
                (long long)n);
}

/* ---- open, close ---- */

/* The command line checks the same limits in its table of options. */
static Status check_options(const SwitchyardTraceOptions *o)
{
    const double us[] = { o->short_kernels_us, o->micro_idle_us };
    for (int i = 0; i < 2; i++) {
        if (!(us[i] >= 0 && us[i] <= 1e9))
            return FAIL(ERR_ARG, "%s is %g, not 0 to 1e9 us",
                        i == 0 ? "short_kernels_us" : "micro_idle_us", us[i]);
    }
    if (o->step < -1)
        return FAIL(ERR_ARG, "step is %lld, neither a step's number nor -1 for all",
                    (long long)o->step);
    return OK;
}

/* The path is copied, because the caller's may not live as long as the trace. */
static Status load_trace(SwitchyardTrace *t, const char *path, const SwitchyardTraceOptions *o)
{
    const bool python = o->python != 0 || o->recompute != 0;
    TreeOptions tree = { .link = o->link_ac2g != 0 ? LINK_AC2G : LINK_CORRELATION,
                         .python = o->recompute != 0 };
    t->options = (ReportOptions){ .recompute = o->recompute != 0,
                                  .kernels = o->kernels != 0,
                                  .short_us = o->short_kernels_us,
                                  .micro_idle_us = o->micro_idle_us,
                                  .step = o->step };
    t->compat = o->compat_tracelens != 0;
    /* TraceLens' options come last, since they change some of ours. */
    if (t->compat) compat_tracelens.options(&tree, &t->options, o->include_unlinked != 0);
    TRY(arena_text(&t->arena, path, strlen(path), &path));
    TRY(events_read(path, &(EventsOptions){ .python = python }, &t->events));
    TRY(tree_build(&t->events, &tree, &t->arena, &t->tree));
    TRY(t->compat ? OK : events_cut(&t->events, &t->tree, &t->arena));
    return report_make(&t->events, &t->tree, &t->options, &t->arena, &t->report);
}

/* The trace lies in its own arena, so that closing it is one call. */
static Status open_trace(const char *path, const SwitchyardTraceOptions *o, SwitchyardTrace **out)
{
    Arena a = { 0 };
    SwitchyardTrace *t = NULL;
    TRY(check_given("open", path, out));
    TRY(check_options(o));
    TRY(arena_reserve(&a, "trace", (size_t)64 << 30));
    Status s = ARENA_ZEROED(&a, 1, &t);
    if (s != OK) {
        arena_free(&a);
        return s;
    }
    t->arena = a;
    /* from here on, closing the trace frees everything */
    pthread_mutex_init(&t->lock, NULL);
    s = load_trace(t, path, o);
    if (s == OK)
        *out = t;
    else
        switchyard_trace_close(t);
    return s;
}

SwitchyardTraceResult switchyard_trace_open(const char *path, const SwitchyardTraceOptions *options,
                                            SwitchyardTrace **out)
{
    static const SwitchyardTraceOptions usual = SWITCHYARD_TRACE_OPTIONS;
    return result_of(open_trace(path, options == NULL ? &usual : options, out));
}

/* The record lies in its own arena, so the arena is copied out before it is freed. */
void switchyard_trace_close(SwitchyardTrace *t)
{
    if (t == NULL) return;
    events_free(&t->events);
    pthread_mutex_destroy(&t->lock);
    Arena self = t->arena;
    arena_free(&self);
}

/* ---- what a trace has ---- */

/* Counts do not change after the trace is open, so no lock is needed. */
SwitchyardTraceResult switchyard_trace_counts(const SwitchyardTrace *t, SwitchyardTraceCounts *out)
{
    if (t == NULL || out == NULL) return result_of(check_given("counts", t, out));
    const ReadCounts *c = &t->events.counts;
    *out = (SwitchyardTraceCounts){ .rank = t->events.rank,
                                    .world = t->events.world,
                                    .bytes = (int64_t)c->bytes,
                                    .events = t->events.n,
                                    .device_events = t->report.gpus,
                                    .malformed = c->malformed,
                                    .incomplete = c->incomplete,
                                    .unused = c->unused,
                                    .dropped = t->tree.dropped,
                                    .unlinked = t->tree.unlinked,
                                    .truncated = c->truncated };
    return SWITCHYARD_TRACE_OK;
}

/* Threads share the arena, so even memory that is given back at once is taken under the lock. */
static Status locked_timeline(SwitchyardTrace *t, double us[TIMELINE_ROWS])
{
    TRY(report_need_work(&t->events));
    pthread_mutex_lock(&t->lock);
    ArenaMark mark = arena_mark(&t->arena);
    Status s = report_timeline(&t->report, us);
    arena_release(&t->arena, mark);
    pthread_mutex_unlock(&t->lock);
    return s;
}

/* *out is written only on success, as everywhere here. */
SwitchyardTraceResult switchyard_trace_timeline(SwitchyardTrace *t, SwitchyardTraceTimeline *out)
{
    double us[TIMELINE_ROWS] = { 0 };
    Status s = check_given("timeline", t, out);
    if (s == OK) s = locked_timeline(t, us);
    if (s == OK)
        *out = (SwitchyardTraceTimeline){ .computation = us[TIMELINE_COMPUTATION],
                                          .exposed_comm = us[TIMELINE_EXPOSED_COMM],
                                          .exposed_memcpy = us[TIMELINE_EXPOSED_MEMCPY],
                                          .busy = us[TIMELINE_BUSY],
                                          .idle = us[TIMELINE_IDLE],
                                          .total = us[TIMELINE_TOTAL],
                                          .comm = us[TIMELINE_COMM],
                                          .memcpy = us[TIMELINE_MEMCPY] };
    return result_of(s);
}

/* An event of the host has no device and no stream: both are -1. */
static Status read_event(const SwitchyardTrace *t, int64_t i, SwitchyardTraceEvent *out)
{
    TRY(check_given("event", t, out));
    const Events *e = &t->events;
    TRY(check_index("event", i, e->n));
    const Track *track = &e->tracks[e->track[i]];
    const bool device = event_on_gpu(e->kind[i]) && e->detail[i] != EVENT_NONE;
    const GpuDetail none = { .device = -1, .stream = -1 };
    const GpuDetail *gpu = device ? &e->gpu[e->detail[i]] : &none;
    *out = (SwitchyardTraceEvent){ .name = event_name(e, i),
                                   .category = event_kind_name[e->kind[i]],
                                   .process = strings_text(&e->strings, track->pid),
                                   .thread = strings_text(&e->strings, track->tid),
                                   .thread_name = strings_text(&e->strings, track->thread_name),
                                   .start = e->ts[i],
                                   .duration = e->dur[i],
                                   .correlation = e->link[i],
                                   .device = gpu->device,
                                   .stream = gpu->stream };
    return OK;
}

SwitchyardTraceResult switchyard_trace_event(const SwitchyardTrace *t, int64_t i,
                                             SwitchyardTraceEvent *out)
{
    return result_of(read_event(t, i, out));
}

/* ---- sheets ---- */

/* Makes the sheets once. If that fails, the report is restored, and the next call tries again. */
static Status make_sheets(SwitchyardTrace *t)
{
    int n = 0, more = 0;
    TRY(report_need_work(&t->events));
    pthread_mutex_lock(&t->lock);
    ArenaMark mark = arena_mark(&t->arena);
    Report fresh = t->report;
    Status s =
        t->made ? OK
                : (t->compat ? compat_tracelens.tables : report_tables)(&t->report, t->table, &n);
    if (s == OK && !t->made)
        s = recording_tables(t->events.recording, &t->arena, t->table + n, &more);
    if (s != OK) {
        arena_release(&t->arena, mark);
        t->report = fresh;
    }
    if (s == OK && !t->made) t->tables = n + more;
    t->made = t->made || s == OK;
    pthread_mutex_unlock(&t->lock);
    return s;
}

SwitchyardTraceResult switchyard_trace_sheets(SwitchyardTrace *t, int32_t *out)
{
    Status s = check_given("sheets", t, out);
    if (s == OK) s = make_sheets(t);
    if (s == OK) *out = t->tables;
    return result_of(s);
}

/* Sheets are made when the first one is asked for. */
static Status sheet_at(SwitchyardTrace *t, int32_t i, const Table **out)
{
    TRY(make_sheets(t));
    TRY(check_index("sheet", i, t->tables));
    *out = &t->table[i];
    return OK;
}

SwitchyardTraceResult switchyard_trace_sheet(SwitchyardTrace *t, int32_t i,
                                             SwitchyardTraceSheet *out)
{
    const Table *table = NULL;
    Status s = check_given("sheet", t, out);
    if (s == OK) s = sheet_at(t, i, &table);
    if (s == OK)
        *out = (SwitchyardTraceSheet){ .name = table->name,
                                       .column = table->column,
                                       .rows = table->rows,
                                       .columns = table->columns };
    return result_of(s);
}

/* Names are few, so a linear search is fast enough. */
static Status find_sheet(SwitchyardTrace *t, const char *name, int32_t *out)
{
    TRY(check_given("find_sheet", t, name));
    TRY(check_given("find_sheet", t, out));
    TRY(make_sheets(t));
    for (int i = 0; i < t->tables; i++) {
        if (strcmp(t->table[i].name, name) != 0) continue;
        *out = i;
        return OK;
    }
    return FAIL(ERR_ARG, "%s has no sheet %s, but %d others", t->events.path, name, t->tables);
}

SwitchyardTraceResult switchyard_trace_find_sheet(SwitchyardTrace *t, const char *name,
                                                  int32_t *out)
{
    return result_of(find_sheet(t, name, out));
}

/* Whole numbers and truths also have a value as a double, so that callers can read any number the
 * same way. */
static SwitchyardTraceCell cell_of(const Cell *c)
{
    SwitchyardTraceCell out = { .number = (double)NAN, .text = "" };
    switch (c->type) {
    case CELL_NONE: break;
    case CELL_TEXT: out.type = SWITCHYARD_TRACE_TEXT, out.text = c->text; break;
    case CELL_NUMBER: out.type = SWITCHYARD_TRACE_NUMBER, out.number = c->number; break;
    case CELL_WHOLE:
        out.type = SWITCHYARD_TRACE_WHOLE;
        out.whole = c->whole;
        out.number = (double)c->whole;
        break;
    case CELL_BOOL:
        out.type = SWITCHYARD_TRACE_BOOL;
        out.truth = c->truth;
        out.number = c->truth;
        break;
    }
    return out;
}

static Status read_cell(SwitchyardTrace *t, int32_t sheet, int64_t row, int32_t column,
                        SwitchyardTraceCell *out)
{
    const Table *table = NULL;
    TRY(check_given("cell", t, out));
    TRY(sheet_at(t, sheet, &table));
    TRY(check_index("row", row, table->rows));
    TRY(check_index("column", column, table->columns));
    /* Texts of cells live as long as the trace. */
    *out = cell_of(&table->cell[row * table->columns + column]);
    return OK;
}

SwitchyardTraceResult switchyard_trace_cell(SwitchyardTrace *t, int32_t sheet, int64_t row,
                                            int32_t column, SwitchyardTraceCell *out)
{
    return result_of(read_cell(t, sheet, row, column, out));
}
