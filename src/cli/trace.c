/* trace: subcommands that read profilers' traces. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/trace_commands.h"

Status cli_trace(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "report", "where the time of a trace went", cli_trace_report },
    };
    return options_dispatch("switchyard trace", rows, sizeof rows / sizeof *rows, argc, argv);
}
