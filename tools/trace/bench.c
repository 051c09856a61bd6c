/* trace: `bench trace`: how fast the trace reader and the report are (trace.h). Rows run in the
 * order of the memory they need. The peak of a process never falls, so the peak in a row is then
 * its own. */
#include "trace/bench.h"

#include "engine/base/clock.h"
#include "engine/host/host_memory.h"
#include "traces/read/events_read.h"
#include "traces/read/kineto_source.h"
#include "traces/sheets/report.h"

typedef struct Timed {
    const char *path;
    Arena *arena;
    int threads;
    uint64_t bytes; /* of uncompressed text */
    int64_t events;
    bool cut; /* the text ends early */
} Timed;

/* Decompression and reading alone: the floor under all other rows. `given` counts uncompressed
 * bytes. */
static Status read_text(Timed *t)
{
    Source s = { 0 };
    char *block = NULL;
    size_t got = 1;
    TRY(ARENA_NEW(t->arena, BLOCK_BYTES, &block));
    Status status = source_open(&s, t->path, t->arena);
    while (status == OK && got > 0) status = source_read(&s, block, BLOCK_BYTES, &got);
    t->bytes = s.given;
    source_close(&s);
    return status;
}

/* Writes the tables as CSV to /dev/null, so that the disk's speed does not count. */
static Status make_report(const Events *e, Arena *a)
{
    enum { BUFFER = 1 << 20 };
    const TreeOptions how = { .link = LINK_CORRELATION };
    const ReportOptions what = { .step = -1 };
    Table table[REPORT_SHEETS_MOST];
    Tree tree = { 0 };
    Report r;
    File f = { 0 };
    char *buffer = NULL;
    int n = 0;
    TRY(report_need_work(e));
    TRY(tree_build(e, &how, a, &tree));
    TRY(report_make(e, &tree, &what, a, &r));
    TRY(report_tables(&r, table, &n));
    TRY(ARENA_NEW(a, BUFFER, &buffer));
    Status s = file_open_append(&f, "/dev/null", buffer, BUFFER);
    for (int i = 0; i < n && s == OK; i++) s = table_csv(&table[i], &f);
    if (s == OK) s = file_flush(&f);
    file_close(&f);
    return s;
}

/* report: what `trace report` does, from the file to its tables; else only the reading. */
static Status time_events(Timed *t, bool report)
{
    Events e = { 0 };
    TRY(events_read(t->path, &(EventsOptions){ .threads = t->threads }, &e));
    t->events = e.n;
    t->cut = e.counts.truncated;
    Status s = report ? make_report(&e, t->arena) : OK;
    events_free(&e);
    return s;
}

static Status read_events(Timed *t) { return time_events(t, false); }
static Status whole_report(Timed *t) { return time_events(t, true); }

static const struct {
    const char *name;
    int threads;
    Status (*run)(Timed *t);
} parts[] = {
    { "text alone", 0, read_text },
    { "reader, one thread", 1, read_events },
    { "reader, two threads", 2, read_events },
    { "whole report", 2, whole_report },
};

/* Runs a part several times, each with its memory released after it. */
static Status time_part(Timed *t, Status (*run)(Timed *), int64_t steps, double *seconds)
{
    for (int64_t i = 0; i < steps; i++) {
        ArenaMark mark = arena_mark(t->arena);
        double begin = clock_s();
        TRY(run(t));
        seconds[i] = clock_s() - begin;
        arena_release(t->arena, mark);
    }
    sort_numbers(seconds, steps);
    return OK;
}

static Status print_part(const Timed *t, const char *name, double median, bool json, Text *out)
{
    const double peak = (double)process_peak_bytes(), rate = (double)t->bytes / 1e6 / median;
    if (json)
        return text_json(out,
                         "{\"kind\":\"trace\",\"part\":%s,\"seconds\":%g,\"mb_per_s\":%g,"
                         "\"peak_bytes\":%g}\n",
                         name, median, rate, peak);
    return text_printf(out, "%-20s %9.3f %9.0f %9.0f\n", name, median, rate, peak / 1e6);
}

/* A trace that ends early is still timed, and the call ends with ERR_PARTIAL. */
Status bench_trace(const char *path, const BenchTrace *o, Arena *a, Text *out)
{
    Timed t = { .path = path, .arena = a };
    double *seconds = NULL;
    TRY(ARENA_NEW(a, o->steps, &seconds));
    if (!o->json) TRY(text_printf(out, "%-20s %9s %9s %9s\n", path, "s", "MB/s", "peak MB"));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        t.threads = parts[i].threads;
        TRY(time_part(&t, parts[i].run, o->steps, seconds));
        TRY(print_part(&t, parts[i].name, seconds[o->steps / 2], o->json, out));
    }
    if (!o->json)
        TRY(text_printf(out, "%llu bytes of text, %lld events\n", (unsigned long long)t.bytes,
                        (long long)t.events));
    return t.cut ? FAIL(ERR_PARTIAL, "%s ends early: the times cover the complete events", path)
                 : OK;
}
