/* trace: `switchyard trace`: the table of subcommands that read profilers' traces (trace_*.c). */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "engine/host/process.h"
#include "traces/command/trace_commands.h"

/* With --compat a command becomes switchyard-trace-compat, which reads the same words. argv[-1] stands
 * for that program's name. */
static Status run(TraceCommand *command, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (text_starts(argv[i], "--compat")) return process_become("trace-compat", argv - 1);
    }
    return command(NULL, argc, argv);
}

static Status run_report(int argc, char **argv) { return run(cli_trace_report, argc, argv); }
static Status run_collectives(int argc, char **argv)
{
    return run(cli_trace_collectives, argc, argv);
}

static Status become_diff(const Compat *none, int argc, char **argv)
{
    (void)none, (void)argc;
    return process_become("trace-diff", argv);
}

static Status run_diff(int argc, char **argv) { return run(become_diff, argc, argv); }

Status cli_trace(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "report", "show where the time of a trace went", run_report },
        { "collectives", "match the collectives of all ranks: which rank waits for which",
          run_collectives },
        { "diff", "compare two traces by operator", run_diff },
        { "replay", "list the operators of a trace, to run them again", NULL },
    };
    return options_dispatch("switchyard trace", rows, sizeof rows / sizeof *rows, argc, argv);
}
