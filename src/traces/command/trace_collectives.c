/* trace collectives: parses the call, has the collectives of all ranks matched
 * (traces/compare/collectives.h), and prints or writes the tables. It measures nothing itself. */
#include "app/options/options.h"
#include "traces/command/trace_commands.h"
#include "traces/command/trace_out.h"
#include "traces/page/collectives_page.h"

/* What the command line asked for. */
typedef struct CollectivesCall {
    CollectivesOptions o;
    TraceOut out;
    int compat; /* -1: not given */
    const Compat *tracelens;
} CollectivesCall;

/* Empty tables are not written. The text reads all of them by their index. */
static Status write_collectives(const CollectivesCall *call, const Collectives *c, Arena *a,
                                Text *out)
{
    Table sheet[COLLECTIVE_SHEETS] = { 0 }, filled[COLLECTIVE_SHEETS];
    int n = 0, n_filled = 0;
    TRY(collectives_sheets(c, sheet, &n));
    for (int i = 0; i < n; i++) {
        if (sheet[i].rows > 0) filled[n_filled++] = sheet[i];
    }
    TRY(trace_out_tables(&call->out, "", "Collectives", filled, n_filled, a));
    if (call->out.has[TRACE_HTML]) {
        char page[FILE_PATH_MAX];
        TRY(file_join(page, call->out.at.temp, "report.html"));
        TRY(collectives_page(c, sheet, n, page));
    }
    TRY(text_init(out, a));
    return collectives_text(c, sheet, out);
}

/* A trace that ends early gives a report and exit code 3. */
static Status run_collectives(void *state, int n, char **path, Arena *a, Text *out)
{
    CollectivesCall *call = state;
    Collectives c = { 0 };
    const char *first = NULL;
    int cut = 0;
    /* 0 is the index of "tracelens", the only choice */
    if (call->compat == 0) call->o.rules = call->tracelens->collective_rules;
    call->o.bar = &call->out.bar;
    call->out.own_page = true; /* with sentences and a chart */
    TRY(trace_out_begin(&call->out, path, n));
    Status s = collectives_open(&c, (const char *const *)path, n, &call->o, a);
    if (s == OK) s = write_collectives(call, &c, a, out);
    collectives_close(&c);
    s = trace_out_end(&call->out, s);
    for (int i = n - 1; i >= 0 && s == OK; i--) {
        if (c.ranks[i].counts.truncated) first = c.ranks[i].path, cut++;
    }
    return cut == 0
               ? s
               : FAIL(ERR_PARTIAL,
                      "%s ends early (%d of %d traces do): the report covers the complete events",
                      first, cut, n);
}

Status cli_trace_collectives(const Compat *tracelens, int argc, char **argv)
{
    CollectivesCall c = { .compat = -1, .tracelens = tracelens };
    const Option table[] = {
        TRACE_OUT_OPTIONS(&c.out),
        { "--compat", OPTION_CHOICE, &c.compat, "tracelens",
          .help = "give TraceLens' matching, columns and numbers, even where they are wrong" },
        { "--gpus-per-node", OPTION_INT, &c.o.gpus_per_node, "N",
          .help = "GPUs of a node, if the traces do not list them", .min = 1, .max = 1e6 },
        { "--partial", OPTION_FLAG, &c.o.partial,
          .help = "accept traces of only some of the ranks" },
    };
    const Command command = {
        .name = "switchyard trace collectives",
        .arguments = "FILE...",
        .what = "Match the collectives in the traces of a run's ranks and align the ranks' clocks. "
                "The report separates communication from waiting, and names the ranks that the "
                "others wait for.",
        .example = "switchyard trace collectives rank*.json.gz --out collectives",
        OPTIONS(table, 1, 65536),
    };
    return options_run(&command, argc, argv, run_collectives, &c);
}
