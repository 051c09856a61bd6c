/*
 * trace: the functions of include/switchyard_trace.h, over reader, tree and report.
 *
 * Each function checks its arguments, calls a static function that returns a Status, and turns that
 * into a result. Several threads may read one trace: what is made on demand is made under a lock.
 */
#include "library/handle.h"
#include "traces/command/compat.h"
#include "traces/read/events_cut.h"
#include "traces/read/events_read.h"
#include "traces/read/recording.h"
#include "traces/sheets/report.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

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

static SwitchyardTraceResult result_of(Status s)
{
    switch (library_keep(s)) {
    case OK: return SWITCHYARD_TRACE_OK;
    case ERR_ARG: return SWITCHYARD_TRACE_BAD_ARGUMENT;
    case ERR_IO: return SWITCHYARD_TRACE_CANNOT_READ;
    case ERR_FORMAT:
    case ERR_PARTIAL: return SWITCHYARD_TRACE_NOT_A_TRACE;
    case ERR_MEMORY: return SWITCHYARD_TRACE_NO_MEMORY;
    default: return SWITCHYARD_TRACE_FAILED;
    }
}

/* As LIBRARY_FUNCTION, of switchyard_trace.h. */
#define TRACE_FUNCTION(name, parameters, arguments)                                                \
    SwitchyardTraceResult switchyard_trace_##name parameters { return result_of(name arguments); }

const char *switchyard_trace_error(void) { return switchyard_error(); }
int32_t switchyard_trace_version(void) { return SWITCHYARD_TRACE_VERSION; }

/* Whose names in the header begin with switchyard_trace_. */
static Status check_given(const char *function, const void *a, const void *b)
{
    char name[32];
    (void)snprintf(name, sizeof name, "trace_%s", function);
    return library_given(name, a, b);
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

static Status open_trace(const char *path, const SwitchyardTraceOptions *o, SwitchyardTrace **out)
{
    SwitchyardTrace *t = NULL;
    TRY(check_given("open", path, out));
    TRY(check_options(o));
    TRY(library_make("trace", sizeof *t, 64, &t));
    /* from here on, closing the trace frees everything */
    pthread_mutex_init(&t->lock, NULL);
    Status s = load_trace(t, path, o);
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

void switchyard_trace_close(SwitchyardTrace *t)
{
    if (t == NULL) return;
    events_free(&t->events);
    pthread_mutex_destroy(&t->lock);
    library_free(t);
}

/* ---- what a trace has ---- */

/* Counts do not change after the trace is open, so no lock is needed. */
static Status counts(const SwitchyardTrace *t, SwitchyardTraceCounts *out)
{
    TRY(check_given("counts", t, out));
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
    return OK;
}
TRACE_FUNCTION(counts, (const SwitchyardTrace *t, SwitchyardTraceCounts *out), (t, out))

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

static Status timeline(SwitchyardTrace *t, SwitchyardTraceTimeline *out)
{
    double us[TIMELINE_ROWS] = { 0 };
    TRY(check_given("timeline", t, out));
    TRY(locked_timeline(t, us));
    *out = (SwitchyardTraceTimeline){ .computation = us[TIMELINE_COMPUTATION],
                                      .exposed_comm = us[TIMELINE_EXPOSED_COMM],
                                      .exposed_memcpy = us[TIMELINE_EXPOSED_MEMCPY],
                                      .busy = us[TIMELINE_BUSY],
                                      .idle = us[TIMELINE_IDLE],
                                      .total = us[TIMELINE_TOTAL],
                                      .comm = us[TIMELINE_COMM],
                                      .memcpy = us[TIMELINE_MEMCPY] };
    return OK;
}
TRACE_FUNCTION(timeline, (SwitchyardTrace * t, SwitchyardTraceTimeline *out), (t, out))

/* An event of the host has no device and no stream: both are -1. */
static Status event(const SwitchyardTrace *t, int64_t i, SwitchyardTraceEvent *out)
{
    TRY(check_given("event", t, out));
    const Events *e = &t->events;
    TRY(library_index("event", i, e->n));
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

TRACE_FUNCTION(event, (const SwitchyardTrace *t, int64_t i, SwitchyardTraceEvent *out), (t, i, out))

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

static Status sheets(SwitchyardTrace *t, int32_t *out)
{
    TRY(check_given("sheets", t, out));
    TRY(make_sheets(t));
    *out = t->tables;
    return OK;
}
TRACE_FUNCTION(sheets, (SwitchyardTrace * t, int32_t *out), (t, out))

/* Sheets are made when the first one is asked for. */
static Status sheet_at(SwitchyardTrace *t, int32_t i, const Table **out)
{
    TRY(make_sheets(t));
    TRY(library_index("sheet", i, t->tables));
    *out = &t->table[i];
    return OK;
}

static Status sheet(SwitchyardTrace *t, int32_t i, SwitchyardTraceSheet *out)
{
    const Table *table = NULL;
    TRY(check_given("sheet", t, out));
    TRY(sheet_at(t, i, &table));
    *out = (SwitchyardTraceSheet){ table->name, table->column, table->rows, table->columns };
    return OK;
}
TRACE_FUNCTION(sheet, (SwitchyardTrace * t, int32_t i, SwitchyardTraceSheet *out), (t, i, out))

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

TRACE_FUNCTION(find_sheet, (SwitchyardTrace * t, const char *name, int32_t *out), (t, name, out))

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

static Status cell(SwitchyardTrace *t, int32_t at, int64_t row, int32_t column,
                   SwitchyardTraceCell *out)
{
    const Table *table = NULL;
    TRY(check_given("cell", t, out));
    TRY(sheet_at(t, at, &table));
    TRY(library_index("row", row, table->rows));
    TRY(library_index("column", column, table->columns));
    /* Texts of cells live as long as the trace. */
    *out = cell_of(&table->cell[row * table->columns + column]);
    return OK;
}

TRACE_FUNCTION(cell,
               (SwitchyardTrace * t, int32_t at, int64_t row, int32_t column,
                SwitchyardTraceCell *out),
               (t, at, row, column, out))
