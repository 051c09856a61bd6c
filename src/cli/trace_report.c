/* trace report: where the time of a trace went, as tables, or a summary to read. */
#include "analyze/report.h"
#include "cli/options.h"
#include "cli/trace_commands.h"
#include "cli/trace_out.h"

#include <stdio.h>

typedef struct ReportCall {
    ReportOptions o;
    TraceOut out;
    int compat, link; /* -1: not given */
} ReportCall;

typedef struct Loaded {
    Events e;
    Tree tree;
    Report report;
} Loaded;

static Status need_device_events(const Events *e)
{
    int64_t of[EVENT_KINDS] = { 0 };
    for (int64_t i = 0; i < e->n; i++) of[e->kind[i]]++;
    if (of[EVENT_KERNEL] + of[EVENT_MEMCPY] + of[EVENT_MEMSET] > 0) return OK;
    return FAIL(ERR_FORMAT,
                "%s has no device events, only %lld operators, %lld runtime calls and %lld others: "
                "without kernels there is no timeline and no operator's time; record it with "
                "CUDA activities, too",
                e->path, (long long)of[EVENT_CPU_OP],
                (long long)(of[EVENT_RUNTIME] + of[EVENT_DRIVER]),
                (long long)(e->n - of[EVENT_CPU_OP] - of[EVENT_RUNTIME] - of[EVENT_DRIVER]));
}

static Status load(const ReportCall *c, const char *path, Arena *a, Loaded *l)
{
    const EventsOptions read = { .python = c->o.recompute };
    const TreeOptions tree = { .link = c->link == 1 || (c->link < 0 && c->o.compat)
                                           ? LINK_AC2G
                                           : LINK_CORRELATION,
                               .python = c->o.recompute,
                               .compat = c->o.compat };
    TRY(events_read(path, &read, &l->e));
    TRY(need_device_events(&l->e));
    TRY(tree_build(&l->e, &tree, a, &l->tree));
    return report_make(&l->e, &l->tree, &c->o, a, &l->report);
}

static Status one_file(const ReportCall *c, const char *path, const char *sub, Arena *a, Text *out)
{
    Loaded l = { 0 };
    Table table[REPORT_SHEETS_MOST];
    int n = 0;
    Status s = load(c, path, a, &l);
    if (s == OK) s = report_tables(&l.report, table, &n);
    if (s == OK) s = trace_out_tables(&c->out, sub, path, table, n, a);
    (void)out;
    events_free(&l.e);
    return s;
}

static Status run(void *state, int n, char **path, Arena *a, Text *out)
{
    ReportCall *c = state;
    c->o.compat = c->compat == 0;
    TRY(trace_out_begin(&c->out));
    Status s = OK;
    for (int i = 0; i < n && s == OK; i++) s = one_file(c, path[i], "", a, out);
    return trace_out_end(&c->out, s);
}

Status cli_trace_report(int argc, char **argv)
{
    ReportCall c = { .o = { .step = -1 }, .compat = -1, .link = -1 };
    const Option table[] = {
        TRACE_OUT_OPTIONS(&c.out),
        { "--compat", OPTION_CHOICE, &c.compat, "tracelens",
          .help = "its rows and numbers, where they are wrong, too" },
        { "--link", OPTION_CHOICE, &c.link, "correlation|ac2g",
          .help = "what joins a kernel to its launch; ac2g in compat" },
        { "--include-unlinked", OPTION_FLAG, &c.o.unlinked,
          .help = "in compat: device work whose launch is not in the trace counts, too" },
        { "--micro-idle", OPTION_REAL, &c.o.micro_idle_us, "US",
          .help = "tell gaps below US from longer ones", .min = 0, .max = 1e9 },
        { "--recompute", OPTION_FLAG, &c.o.recompute,
          .help = "activation recomputation apart (the trace needs frames of Python)" },
        { "--kernels", OPTION_FLAG, &c.o.kernels, .help = "kernel_summary, too" },
        { "--short-kernels", OPTION_REAL, &c.o.short_us, "US",
          .help = "sheets of kernels shorter than US", .min = 0, .max = 1e9 },
        { "--step", OPTION_INT, &c.o.step, "N", .help = "only the work of ProfilerStep#N",
          .min = -1, .max = 1e15 },
    };
    const Command command = {
        .name = "switchyard trace report",
        .arguments = "FILE...",
        .what = "Say where the time of a trace went: of PyTorch's profiler (JSON, plain or gzip)\n"
                "or of our own recorder. Several files are the ranks of one run.",
        .example = "switchyard trace report rank0.json.gz --out report --format csv,html",
        OPTIONS(table, 1, 4096),
    };
    return options_run(&command, argc, argv, run, &c);
}
