/* trace_commands: the subcommands of `switchyard trace` that are no program of their own.
 * traces/command/trace.c chooses between them. */
#ifndef TRACES_COMMAND_TRACE_COMMANDS_H
#define TRACES_COMMAND_TRACE_COMMANDS_H

#include "traces/command/compat.h"

/* tracelens: what --compat tracelens calls. NULL: that option is not among the words (traces/command/trace.c). */
typedef Status TraceCommand(const Compat *tracelens, int argc, char **argv);
TraceCommand cli_trace_report, cli_trace_collectives;

#endif
