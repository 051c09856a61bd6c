/* trace_commands: one function a subcommand of `switchyard trace`. */
#ifndef CLI_TRACE_COMMANDS_H
#define CLI_TRACE_COMMANDS_H

#include "base/status.h"

Status cli_trace_report(int argc, char **argv);

#endif
