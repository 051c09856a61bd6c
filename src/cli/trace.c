/* trace: what a training step really did: subcommands on profiler traces. */
#include "cli/trace.h"

#include "cli/cli.h"
#include "cli/options.h"

Status cli_trace(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "collectives", "the same collectives on all ranks: cost, waiting, stragglers",
          cli_trace_collectives },
    };
    return options_dispatch("switchyard trace", rows, sizeof rows / sizeof *rows, argc, argv);
}
