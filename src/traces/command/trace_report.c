/* trace report: parses the call, has the report made (traces/sheets/report.h), and prints or writes its
 * tables. Files are read one after the other, so only one trace is in memory. It computes nothing
 * itself. */
#include "app/options/options.h"
#include "traces/command/trace_commands.h"
#include "traces/command/trace_out.h"
#include "traces/page/trace_page.h"
#include "traces/read/events_cut.h"
#include "traces/read/events_read.h"
#include "traces/read/recording.h"
#include "traces/sheets/ranks.h"
#include "traces/sheets/report.h"

#include <stdio.h>
#include <string.h>

enum { FILES_MOST = 4096 };

/* What the command line asked for, and what is kept from file to file. */
typedef struct ReportCall {
    ReportOptions o;
    TraceOut out;
    int compat, link; /* -1: not given */
    const Compat *tracelens;
    bool unlinked;
    Ranks ranks;
    const Recording *recording[FILES_MOST]; /* kept for --perfetto */
    const char *cut;                        /* the first file that ends early */
    int cuts;                               /* how many do */
    TracePage page;
    const char *perfetto;
} ReportCall;

/* One file while it is open. */
typedef struct Loaded {
    Events e;
    Tree tree;
    bool crossing_dropped; /* by the tree's options */
    Report report;
} Loaded;

/* --link comes after --compat, whose own link it may replace. */
static Status load_trace(ReportCall *c, const char *path, Arena *a, Loaded *l)
{
    const EventsOptions read = { .python = c->o.recompute, .bar = &c->out.bar };
    TreeOptions tree = { .link = LINK_CORRELATION, .python = c->o.recompute };
    if (c->compat == 0) c->tracelens->options(&tree, &c->o, c->unlinked);
    l->crossing_dropped = tree.drop_crossing;
    /* the choice of the command line */
    if (c->link >= 0) tree.link = c->link == 1 ? LINK_AC2G : LINK_CORRELATION;
    TRY(events_read(path, &read, &l->e));
    TRY(report_need_work(&l->e));
    TRY(tree_build(&l->e, &tree, a, &l->tree));
    TRY(c->compat == 0 ? OK : events_cut(&l->e, &l->tree, a));
    return report_make(&l->e, &l->tree, &c->o, a, &l->report);
}

/* ---- text ---- */

/* A sheet that is printed if no folder is given: its columns (NULL: all) and at most how many rows. */
typedef struct Shown {
    const char *sheet, *columns;
    int rows;
} Shown;

static const Shown SHOWN[] = {
    { "gpu_timeline", NULL, 24 },
    { "gpu_timeline_by_step",
      "step|host ms|total_time ms|computation_time ms|exposed_comm_time ms|exposed_memcpy_time ms|"
      "idle_time ms|busy percent",
      16 },
    { "steps", NULL, 16 },
    { "phases", NULL, 24 },
    { "jitter", NULL, 8 },
    { "expert_load", NULL, 8 },
    { "memory", NULL, 8 },
    { "idle_by_cause", NULL, 8 },
    { "idle_by_operator", NULL, 8 },
    { "ops_summary_by_category", NULL, 12 },
    { "ops_summary",
      "name|is_recompute|Count|total_direct_kernel_time_ms|total_subtree_kernel_time_ms|"
      "Percentage (%)|Percent of total time (%)",
      15 },
    { "unified_perf_summary",
      "name|op category|operation_count|Kernel Time (µs)_sum|TFLOPS/s_mean|TB/s_mean|"
      "Pct Roofline_mean|Percentage (%)",
      12 },
    { "coll_analysis",
      "Collective name|Library|Group size|dtype|In msg size (MB)_first|stream|dur_sum|dur_mean|"
      "operation_count",
      8 },
    { "not_known_as_communication", NULL, 12 },
    { "launch_delays",
      "launch|stream|count|delay us_median|delay us_max|queue depth_mean|"
      "launches into an empty queue (%)",
      6 },
    { "sync_delays", NULL, 6 },
    { "memory_summary", NULL, 8 },
    { "gpu_timeline_by_rank", NULL, 64 },
};

/* Sheets that are not listed are for files only. */
static Status show_table(const Table *t, Text *out)
{
    for (size_t i = 0; i < sizeof SHOWN / sizeof *SHOWN; i++) {
        if (strcmp(t->name, SHOWN[i].sheet) == 0)
            return trace_out_text(out, t, SHOWN[i].columns, SHOWN[i].rows);
    }
    return OK;
}

/* Counts that are 0 are not printed. */
static Status say_count(Text *out, int64_t n, const char *what)
{
    char count[32];
    return n == 0 ? OK : text_printf(out, "  %s %s\n", text_thousands(count, n), what);
}

/* What was left out is always printed. */
static Status say_counts(const Loaded *l, Text *out)
{
    const ReadCounts *c = &l->e.counts;
    const Report *r = &l->report;
    char bytes[32], events[32], work[32];
    double ms = 0;
    int64_t alone = 0;
    bool all = r->o->step < 0; /* also device work that does not count */
    for (int64_t k = 0; k < (all ? l->e.n : r->gpus); k++) {
        int64_t i = all ? k : r->gpu[k];
        if (!event_on_gpu(l->e.kind[i]) || l->tree.parent[i] != EVENT_NONE) continue;
        ms += l->e.dur[i] / 1e3;
        alone++;
    }
    TRY(text_printf(out, "%s: %s, %s events, %s of them device work\n", l->e.path,
                    text_bytes(bytes, (double)c->bytes), text_thousands(events, l->e.n),
                    text_thousands(work, r->gpus)));
    TRY(say_count(out, c->malformed, "elements are not JSON and were left out"));
    TRY(say_count(out, c->incomplete,
                  "events lack a time or a name, or last less than nothing, and were "
                  "left out"));
    TRY(say_count(out, l->tree.dropped,
                  l->crossing_dropped ? "calls outlive their caller and were dropped"
                                      : "calls outlive their caller and were cut"));
    if (alone > 0)
        TRY(text_printf(out, "  %s device events of %.3f ms have no matching launch event: %s\n",
                        text_thousands(work, alone), ms,
                        r->gpus > 0 && r->o->linked_only ? "left out" : "included in the totals"));
    TRY(report_doubts(&l->e, &l->tree, out));
    if (c->truncated)
        TRY(text_printf(out, "  the file ends early: this covers its complete events\n"));
    return OK;
}

/* ---- files ---- */

/* Other traces need no conversion, so asking for one is an error. */
static Status check_perfetto(const ReportCall *c, int n, char **path)
{
    for (int i = 0; i < n; i++) {
        if (!recording_is(path[i]))
            return FAIL(ERR_ARG,
                        "--perfetto: %s is not a recording of this program, and other traces "
                        "are read by Perfetto as they are",
                        path[i]);
    }
    return trace_out_file("--perfetto", c->perfetto, path, n);
}

/* Writes all recordings as one trace for --perfetto. */
static Status write_perfetto(const ReportCall *c, int n)
{
    Arena room = { 0 };
    Text text = { 0 };
    TRY(arena_reserve(&room, "trace for Perfetto", (size_t)64 << 30));
    Status s = text_init(&text, &room);
    if (s == OK) s = recording_json(c->recording, n, &text);
    if (s == OK) s = file_write_whole(c->perfetto, text.data, text.used);
    arena_free(&room);
    return s;
}

/* One file: tables, page and text. Its recording is kept for --perfetto. */
static Status report_file(ReportCall *c, Loaded *l, char **path, int file, int files, Arena *a,
                          Text *out)
{
    Table table[REPORT_SHEETS_MOST];
    char sub[32] = "";
    int n = 0, more = 0;
    TRY(load_trace(c, path[file], a, l));
    TRY(ranks_add(&c->ranks, &l->report));
    /* each rank has a folder of its own */
    if (files > 1)
        (void)snprintf(sub, sizeof sub, "rank_%lld", (long long)(l->e.rank < 0 ? file : l->e.rank));
    TRY((c->compat == 0 ? c->tracelens->tables : report_tables)(&l->report, table, &n));
    TRY(recording_tables(l->e.recording, a, table + n, &more));
    n += more;
    TRY(trace_out_tables(&c->out, sub, path[file], table, n, a));
    if (c->page.begun) TRY(trace_page_add(&c->page, &l->report, path[file], table, n));
    if (l->e.counts.truncated && c->cuts++ == 0) c->cut = path[file];
    TRY(say_counts(l, out));
    for (int i = 0; i < n && files == 1 && c->out.folder == NULL; i++)
        TRY(show_table(&table[i], out));
    return OK;
}

/* Memory of a file is given back before the next file is read. What stays is in an arena of its
 * own: the ranks. */
static Status report_all(ReportCall *c, int n, char **path, Arena *a, Text *out)
{
    Arena ranks = { 0 };
    TRY(arena_init(&ranks, "ranks", MEM_HOST, (size_t)64 << 20));
    Status s = ranks_init(&c->ranks, path, n, &ranks);
    for (int i = 0; i < n && s == OK; i++) {
        Loaded l = { 0 };
        ArenaMark mark = arena_mark(a);
        s = report_file(c, &l, path, i, n, a, out);
        /* keeps the recording: events_free would close it */
        if (c->perfetto != NULL) c->recording[i] = l.e.recording, l.e.recording = NULL;
        events_free(&l.e);
        arena_release(a, mark);
    }
    if (s == OK && n > 1) s = trace_out_tables(&c->out, "", "ranks", &c->ranks.table, 1, a);
    if (s == OK && n > 1) s = show_table(&c->ranks.table, out);
    if (s == OK) s = ranks_missing(&c->ranks, out);
    arena_free(&ranks);
    return s;
}

/* The page is written at the end, since it shows all ranks. */
static Status report_with_page(ReportCall *c, int n, char **path, Arena *a, Text *out)
{
    char page[FILE_PATH_MAX];
    TRY(trace_page_begin(&c->page, n));
    TRY(report_all(c, n, path, a, out));
    TRY(file_join(page, c->out.at.temp, "report.html"));
    return trace_page_write(&c->page, page);
}

static Status run_report(void *state, int n, char **path, Arena *a, Text *out)
{
    ReportCall *c = state;
    /* The page of a report has charts, so trace_out must not write one. */
    c->out.own_page = true;
    if (c->perfetto != NULL) TRY(check_perfetto(c, n, path));
    TRY(trace_out_begin(&c->out, path, n));
    bool page = c->out.has[TRACE_HTML];
    Status s = page ? report_with_page(c, n, path, a, out) : report_all(c, n, path, a, out);
    trace_page_free(&c->page);
    if (s == OK && c->perfetto != NULL) s = write_perfetto(c, n);
    for (int i = 0; i < n; i++) recording_close(c->recording[i]);
    s = trace_out_end(&c->out, s);
    if (s == OK && c->out.folder != NULL) s = text_printf(out, "tables are in %s\n", c->out.folder);
    if (s == OK && c->cuts > 0)
        return FAIL(ERR_PARTIAL, "%s ends early%s: the report covers the complete events", c->cut,
                    c->cuts > 1 ? ", and so do others" : "");
    return s;
}

Status cli_trace_report(const Compat *tracelens, int argc, char **argv)
{
    ReportCall c = { .o = { .step = -1 }, .compat = -1, .link = -1, .tracelens = tracelens };
    const Option table[] = {
        TRACE_OUT_OPTIONS(&c.out),
        { "--compat", OPTION_CHOICE, &c.compat, "tracelens",
          .help = "give TraceLens' rows and numbers, even where they are wrong" },
        { "--link", OPTION_CHOICE, &c.link, "correlation|ac2g",
          .help = "what links a kernel to its launch; with --compat the default is ac2g" },
        { "--include-unlinked", OPTION_FLAG, &c.unlinked,
          .help = "with --compat: also count device work whose launch is not in the trace" },
        { "--micro-idle", OPTION_REAL, &c.o.micro_idle_us, "US",
          .help = "report gaps shorter than US microseconds separately", .min = 0, .max = 1e9 },
        { "--recompute", OPTION_FLAG, &c.o.recompute,
          .help = "report activation recomputation separately; the trace needs Python frames" },
        { "--kernels", OPTION_FLAG, &c.o.kernels, .help = "add the sheet kernel_summary" },
        { "--short-kernels", OPTION_REAL, &c.o.short_us, "US",
          .help = "add sheets of kernels shorter than US microseconds", .min = 0, .max = 1e9 },
        { "--gpu", OPTION_TEXT, &c.o.gpu, "NAME",
          .help = "GPU of the roofline, a preset or a file; by default the trace's own" },
        { "--perfetto", OPTION_TEXT, &c.perfetto, "FILE",
          .help = "write all ranks of our own recordings as one trace for ui.perfetto.dev" },
        { "--step", OPTION_INT, &c.o.step, "N",
          .help = "report only ProfilerStep#N; -1 reports all", .min = -1, .max = 1e15 },
    };
    const Command command = {
        .name = "switchyard trace report",
        .arguments = "FILE...",
        .what = "Show where the time of a trace went. FILE comes from PyTorch's profiler (JSON, "
                "plain or gzip) or from our own recorder. Several files are the ranks of one run.",
        .example = "switchyard trace report rank0.json.gz --out report --format csv,html",
        OPTIONS(table, 1, FILES_MOST),
    };
    return options_run(&command, argc, argv, run_report, &c);
}
