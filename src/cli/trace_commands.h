/* trace_commands: one function for each subcommand of `switchyard trace`. cli/trace.c chooses
 * between them. */
#ifndef CLI_TRACE_COMMANDS_H
#define CLI_TRACE_COMMANDS_H

#include "analyze/compat.h"

/* tracelens: what --compat tracelens calls. NULL: that option is not among the words (cli/trace.c). */
typedef Status TraceCommand(const Compat *tracelens, int argc, char **argv);
TraceCommand cli_trace_report, cli_trace_collectives, cli_trace_diff;

#endif
