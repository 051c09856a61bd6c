/* trace_commands: one function for each subcommand of `switchyard trace`. cli/trace.c chooses
 * between them. */
#ifndef CLI_TRACE_COMMANDS_H
#define CLI_TRACE_COMMANDS_H

#include "base/status.h"

Status cli_trace_report(int argc, char **argv);
Status cli_trace_collectives(int argc, char **argv);
Status cli_trace_diff(int argc, char **argv);

#endif
