/* trace-compat: what `switchyard trace report`, `collectives` and `diff` become with --compat: the same
 * commands, with TraceLens' rules. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "compat/compat.h"
#include "traces/command/trace_commands.h"

static Status run_report(int argc, char **argv)
{
    return cli_trace_report(&compat_tracelens, argc, argv);
}

static Status run_collectives(int argc, char **argv)
{
    return cli_trace_collectives(&compat_tracelens, argc, argv);
}

static Status run_diff(int argc, char **argv)
{
    static const DiffCompat theirs = { &compat_tracelens, &compat_diff_rules, compat_diff };
    return cli_trace_diff(&theirs, argc, argv);
}

Status beside_run(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "report", "show where the time of a trace went", run_report },
        { "collectives", "match the collectives of all ranks", run_collectives },
        { "diff", "compare two traces by operator", run_diff },
    };
    return options_dispatch("switchyard trace", rows, sizeof rows / sizeof *rows, argc, argv);
}
