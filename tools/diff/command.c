/* command: parses the call of `switchyard trace diff`, has two traces compared (diff.h), and prints or
 * writes the tables. It compares nothing itself. */
#include "diff/command.h"
#include "app/options/options.h"
#include "traces/command/trace_out.h"
#include "traces/read/events_cut.h"
#include "traces/read/events_read.h"
#include "traces/sheets/report.h"

#include <string.h>

/* What the command line asked for. */
typedef struct DiffCall {
    TraceOut out;
    int compat; /* -1: not given */
    const DiffCompat *tracelens;
    bool python;
} DiffCall;

/* Both traces. tables: the arena of trees and tables; scratch: for what is released at once. */
typedef struct Sides {
    Events events[DIFF_SIDES];
    Tree tree[DIFF_SIDES];
    Diff diff;
    Arena *tables, scratch;
} Sides;

/* ---- other files than tables ---- */

/* Writes a text, or the merged tree if the text is NULL, as a file of the folder. */
static Status write_diff_file(const DiffCall *c, Sides *x, const char *name, const char *text)
{
    char path[FILE_PATH_MAX];
    File f = { 0 };
    ArenaMark mark = arena_mark(&x->scratch);
    TRY(file_join(path, c->out.at.temp, name));
    Status s = file_create_temp(&f, path, &x->scratch);
    if (s == OK)
        s = text == NULL ? diff_text(&x->diff, &x->scratch, &f)
                         : file_write(&f, text, strlen(text));
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    arena_release(&x->scratch, mark);
    return s;
}

/* Writes the files that TraceLens writes. */
static Status write_compat(const DiffCall *c, Sides *x)
{
    static const char *const map[] = { "cpu_op_map_trace1.json", "cpu_op_map_trace2.json",
                                       "cpu_op_map.json" };
    CompatDiff stats = { 0 };
    TRY(c->tracelens->diff(&x->diff, x->tables, &x->scratch, &stats));
    const Table both[] = { stats.stats, stats.unique };
    TRY(trace_out_tables(&c->out, "", "TraceDiff", both, 2, &x->scratch));
    for (int i = 0; i < 3; i++) TRY(write_diff_file(c, x, map[i], stats.map[i]));
    return OK;
}

/* ---- text ---- */

/* The columns and rows of each sheet that are printed if no folder is given. */
static const struct {
    const char *columns;
    int rows;
} SHOWN[DIFF_SHEETS] = {
    [DIFF_TOTALS] = { NULL, 16 },
    [DIFF_OPS] = { "name_old|calls|busy_time_old|busy_time_new|delta_us (new - old)|"
                   "speedup (old/new)",
                   16 },
    [DIFF_KERNELS] = { "name_old|kernel_names_old|kernel_names_new|calls|delta_us (new - old)|"
                       "speedup (old/new)",
                       10 },
    [DIFF_WORK] = { "change|name|parent|calls|kernels|busy_time|host_time", 10 },
    [DIFF_HOST] = { "name|calls_old|calls_new|self_time_old|self_time_new|delta_us (new - old)",
                    10 },
};

/* What was left out is always printed. A trace without device work is no error here. */
static Status say_left_out(const Events *e, const Tree *t, Text *out)
{
    const ReadCounts *n = &e->counts;
    const struct {
        const char *what;
        int64_t n;
    } row[] = {
        { "elements are not JSON and were left out", n->malformed },
        { "events lack a time or a name and were left out", n->incomplete },
        { "calls outlive their caller", t->dropped },
        { "device events have no matching launch event and are in no tree", t->unlinked },
    };
    TRY(text_printf(out, "%s: %lld events\n", e->path, (long long)e->n));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (row[i].n > 0) TRY(text_printf(out, "  %lld %s\n", (long long)row[i].n, row[i].what));
    }
    TRY(report_doubts(e, t, out));
    if (report_need_work(e) != OK)
        TRY(text_printf(out, "  it has no device events: only its calls and their times on the "
                             "host are compared\n"));
    return n->truncated
               ? text_printf(out, "  the file ends early: this covers its complete events\n")
               : OK;
}

/* The order matters: both trees before the matching, the matching before its tables. */
static Status compare_traces(DiffCall *c, char **path, Sides *x, Text *out)
{
    const bool compat = c->compat == 0;
    TreeOptions options = { .link = LINK_CORRELATION, .python = c->python };
    Table sheet[DIFF_SHEETS];
    /* TraceLens' rules also decide how the trees are built. */
    if (compat) c->tracelens->trees->options(&options, NULL, false);
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(events_read(path[s], &(EventsOptions){ .python = c->python, .bar = &c->out.bar },
                        &x->events[s]));
        TRY(tree_build(&x->events[s], &options, x->tables, &x->tree[s]));
        TRY(compat ? OK : events_cut(&x->events[s], &x->tree[s], &x->scratch));
        if (x->tree[s].roots == 0)
            return FAIL(ERR_FORMAT,
                        "%s has no host calls: without operators there is no tree to "
                        "compare",
                        path[s]);
        TRY(say_left_out(&x->events[s], &x->tree[s], out));
    }
    TRY(diff_trees(&x->tree[0], &x->tree[1], compat ? c->tracelens->rules : NULL, x->tables,
                   &x->scratch, &x->diff));
    if (c->out.folder != NULL) TRY(write_diff_file(c, x, "merged_tree_output.txt", NULL));
    if (compat) return write_compat(c, x);
    TRY(diff_report(&x->diff, x->tables, &x->scratch, sheet));
    TRY(trace_out_tables(&c->out, "", "Two traces", sheet, DIFF_SHEETS, &x->scratch));
    /* with a folder, the tables are in files */
    for (int i = 0; i < DIFF_SHEETS && c->out.folder == NULL; i++) {
        if (SHOWN[i].rows > 0) TRY(trace_out_text(out, &sheet[i], SHOWN[i].columns, SHOWN[i].rows));
    }
    return OK;
}

/* A trace that ends early gives a comparison and exit code 3. */
static Status run_diff(void *state, int n, char **path, Arena *a, Text *out)
{
    DiffCall *c = state;
    Sides x = { .tables = a };
    if (c->compat == 0 && c->python)
        return FAIL(ERR_ARG, "trace diff: TraceLens' rules are for trees without frames of Python: "
                             "leave out --python or --compat");
    if (c->compat == 0 && c->out.folder == NULL)
        return FAIL(ERR_ARG,
                    "trace diff: --compat tracelens writes files: name a folder with --out");
    TRY(trace_out_begin(&c->out, path, n));
    Status s = arena_reserve(&x.scratch, "trace diff", (size_t)64 << 30);
    if (s == OK) s = compare_traces(c, path, &x, out);
    /* events are freed before the end is reported */
    bool cut[DIFF_SIDES] = { x.events[0].counts.truncated, x.events[1].counts.truncated };
    diff_free(&x.diff);
    for (int i = 0; i < DIFF_SIDES; i++) events_free(&x.events[i]);
    arena_free(&x.scratch);
    TRY(trace_out_end(&c->out, s));
    if (!cut[0] && !cut[1]) return OK;
    return FAIL(ERR_PARTIAL, "%s ends early%s: only complete events are compared",
                path[cut[0] ? 0 : 1], cut[0] && cut[1] ? ", and so does the other" : "");
}

Status cli_trace_diff(const DiffCompat *tracelens, int argc, char **argv)
{
    DiffCall c = { .compat = -1, .tracelens = tracelens };
    const Option table[] = {
        TRACE_OUT_OPTIONS(&c.out),
        { "--compat", OPTION_CHOICE, &c.compat, "tracelens",
          .help = "use TraceLens' rules, names and files, even where they are wrong" },
        { "--python", OPTION_FLAG, &c.python, .help = "count Python frames as calls" },
    };
    const Command command = {
        .name = "switchyard trace diff",
        .arguments = "OLD NEW",
        .what = "Compare two traces of one model: which calls match, and the time that each gains "
                "or loses.",
        .example = "switchyard trace diff before.json.gz after.json.gz --out changes",
        OPTIONS(table, 2, 2),
    };
    return options_run(&command, argc, argv, run_diff, &c);
}
