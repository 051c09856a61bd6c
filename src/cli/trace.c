/* trace: `switchyard trace`: the table of subcommands that read profilers' traces (trace_*.c). */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/trace_commands.h"

Status cli_trace(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "report", "show where the time of a trace went", cli_trace_report },
        { "collectives", "match the collectives of all ranks: which rank waits for which",
          cli_trace_collectives },
        { "diff", "compare two traces by operator", cli_trace_diff },
        { "replay", "list the operators of a trace, to run them again", NULL },
    };
    return options_dispatch("switchyard trace", rows, sizeof rows / sizeof *rows, argc, argv);
}
